"""1,000 crashes in a row over the whole matrix: none may be lost, change its wait status, or hang.

    make stress          (PYTHONPATH=src:tests:tests/crash python benchmarks/stress.py [--runs N] [--fresh])

Each run is one cell on one Python, drawn without replacement from all of them and started over when all were used, in
an order fixed by --seed. A line of JSON a run is appended to build/stress.jsonl as soon as it is known, so that an
interrupted campaign goes on where it stopped. The last lines printed are the figure. Exit status 1 on any loss.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import random
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

from analysis import mechanism_of
from cells import PLAIN, SPECIAL, Cell
from conditions import IS_ROOT, PYTHONS, ROOT, Interpreter
from harness import Baselines, Workplace, die, failures

STATE = ROOT / "build" / "stress.jsonl"


def order(seed: int) -> Iterator[tuple[Cell, Interpreter]]:
    cells = [cell for cell in [*PLAIN, *SPECIAL] if cell.partial is None and (IS_ROOT or not cell.needs_root)]
    draw = random.Random(seed)
    while True:
        lot = [(cell, python) for cell in cells for python in PYTHONS]
        draw.shuffle(lot)
        yield from lot


def read_state(path: Path, seed: int) -> list[dict[str, object]]:
    """The runs already done with this seed; a torn last line is dropped."""
    done: list[dict[str, object]] = []
    if path.exists():
        for line in path.read_text().splitlines():
            try:
                run = json.loads(line)
            except ValueError:
                break
            if run["seed"] == seed:
                done.append(run)
    return done


def main() -> int:
    parser = argparse.ArgumentParser(description="1,000 crashes in a row without a loss")
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--fresh", action="store_true", help="forget earlier runs")
    args = parser.parse_args()
    STATE.parent.mkdir(exist_ok=True)
    if args.fresh:
        STATE.unlink(missing_ok=True)
    done = read_state(STATE, args.seed)
    if done:
        print(f"{len(done)} runs were done before: {STATE}", flush=True)
    with Workplace() as place, STATE.open("a") as state:
        baselines = Baselines(place)
        for cell, python in itertools.islice(order(args.seed), len(done), args.runs):
            baseline = baselines.of(cell, python.path)
            death = die(cell, "ours", place, python.path)
            wrong = failures(death, baseline, place.build, mechanism_of)
            run = {
                "seed": args.seed,
                "cell": str(cell),
                "python": str(python),
                "seconds": round(death.wall, 4),
                "hang": death.status is None,
                "lost": len(death.records) != 1,
                "wrong": wrong,
            }
            state.write(json.dumps(run) + "\n")
            state.flush()
            done.append(run)
            shutil.rmtree(death.folder, ignore_errors=True)
            for text in wrong:
                print(f"{len(done)} {cell} on {python}: {text}", flush=True)
            if len(done) % 50 == 0:
                print(f"{len(done)} of {args.runs}", file=sys.stderr, flush=True)
    return report(done[: args.runs])


def report(runs: list[dict[str, object]]) -> int:
    seconds = sorted(float(str(run["seconds"])) for run in runs)
    bad = sum(bool(run["wrong"]) for run in runs)
    cells = {(run["cell"], run["python"]) for run in runs}
    print(
        f"{len(runs)} deaths ({len(cells)} cells on {len(PYTHONS)} Pythons): {sum(bool(r['lost']) for r in runs)} "
        f"records lost, {sum(bool(r['hang']) for r in runs)} hangs, {bad} with anything wrong"
    )
    if seconds:
        print(
            f"whole process, start to reaped: median {seconds[len(seconds) // 2]:.3f} s, "
            f"p99 {seconds[int(len(seconds) * 0.99)]:.3f} s, longest {seconds[-1]:.3f} s, load {os.getloadavg()[0]:.1f}"
        )
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
