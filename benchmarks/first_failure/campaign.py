"""Who failed first? Hundreds of real torchrun jobs, each with a culprit that is known.

    make campaign                       all of it; what was done already is not done again
    python benchmarks/first_failure/campaign.py --work DIR [--again] [--only KIND]

{SIGKILL, OOM, SIGSEGV, SIGABRT, exception, exit 3, SIGTERM from outside} x {rank 0, 1, the last} x {2, 4 ranks}
x {with, without @record}, mid-collective, twice under `ftforensics run` and once without us. The first are judged by
their run folder, the others by what torchrun and the kernel printed alone. Evidence stays in DIR; --again judges it
anew.

Needs root and a version 1 memory hierarchy for the OOM kills. Writes results/first_failure.jsonl and .md. Exit status 1
when an answer was wrong or too few were decided.
"""

from __future__ import annotations

import argparse
import collections
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec

sys.path.insert(0, str(Path(__file__).resolve().parent))
from runs import KINDS, Plan, Result, Said, judged, run

RESULTS = Path(__file__).resolve().parent.parent / "results"
FROM_FOLDER, FROM_LOGS = 0.99, 0.90  # shares that are to be decided


def plans() -> Iterator[Plan]:
    for turn, ours in ((0, True), (0, False), (1, True)):
        for kind in KINDS:
            for ranks in (2, 4):
                for culprit in sorted({0, 1, ranks - 1}):
                    for record in (False, True):
                        yield Plan(kind, culprit, ranks, record, ours, turn)


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True, help="where the evidence of each run lies")
    parser.add_argument("--again", action="store_true", help="judge the evidence that is there, run nothing")
    parser.add_argument("--only", choices=KINDS)
    parser.add_argument("--without-us", action="store_true", help="only the runs that are judged by logs")
    parser.add_argument("--results", type=Path, default=RESULTS)
    options = parser.parse_args(arguments)
    done = {result.plan: result for result in _read(options.results / "first_failure.jsonl")}
    todo = [plan for plan in plans() if options.only in (None, plan.kind) and not (options.without_us and plan.ours)]
    for number, plan in enumerate(todo, 1):
        folder = options.work / plan.name
        if options.again:
            if plan in done and folder.is_dir():
                done[plan] = judged(done[plan], folder)
        elif plan not in done:
            done[plan] = run(plan, folder)
            _write(options.results, done)
            said = done[plan].folder or done[plan].logs
            print(f"{number}/{len(todo)} {plan.name}: {done[plan].verdict(said)} {said}", flush=True)
    _write(options.results, done)
    text, good = summary(list(done.values()))
    (options.results / "first_failure.md").write_text(text)
    print(text)
    return 0 if good else 1


def summary(results: Sequence[Result]) -> tuple[str, bool]:
    """(a page in Markdown, are the figures reached)."""
    ours = [one for one in results if one.plan.ours]
    alone = [one for one in results if not one.plan.ours]
    lines = [
        "# Who failed first?",
        "",
        f"{len(results)} real torchrun jobs (gloo, torch on CPU), mid-collective (`benchmarks/first_failure`). Right:",
        "the culprit's rank and pid have the role root, and nothing untrue is said about how it ended. torchrun's own",
        'answer is the rank under its "Root Cause (first observed failure)". Logs alone do not say who sent a SIGKILL.',
        "",
        "| kind | from the run folder | from the two logs alone | torchrun, without us |",
        "|---|---|---|---|",
    ]
    for kind in KINDS:
        cells = [
            _cell(kind, ours, lambda one: one.verdict(one.folder), lambda one: one.folder),
            _cell(kind, alone, lambda one: one.verdict(one.logs), lambda one: one.logs),
            _cell(kind, alone, _torchrun),
        ]
        lines.append(f"| {kind} | {' | '.join(cells)} |")
    totals = [
        _cell(None, ours, lambda one: one.verdict(one.folder), lambda one: one.folder),
        _cell(None, alone, lambda one: one.verdict(one.logs), lambda one: one.logs),
        _cell(None, alone, _torchrun),
    ]
    lines += [f"| **all** | {' | '.join(totals)} |", ""]
    with_us = [one for one in ours if _torchrun(one) == "right"]
    lines.append(
        f"Under `ftforensics run`, which gives torchrun's summary the time of each death, torchrun itself names the"
        f" right rank in {len(with_us)} of {len(ours)}."
    )
    told = [one for one in alone if one.plan.kind != "term"]
    good = (
        not any(one.verdict(one.folder) == "wrong" for one in ours)
        and not any(one.verdict(one.logs) == "wrong" for one in alone)
        and _share(ours, lambda one: one.verdict(one.folder)) >= FROM_FOLDER
        and _share(told, lambda one: one.verdict(one.logs)) >= FROM_LOGS
    )
    folder, logs = _share(ours, lambda one: one.verdict(one.folder)), _share(told, lambda one: one.verdict(one.logs))
    lines += [
        "",
        f"Decided: {folder:.1%} from the run folder (to reach: {FROM_FOLDER:.0%}), {logs:.1%} from the logs without the"
        f" SIGTERMs from outside (to reach: {FROM_LOGS:.0%}).",
        "",
    ]
    return "\n".join(lines), good


def _torchrun(one: Result) -> str:
    if one.torchrun is None:
        return "undecided"
    return "right" if one.torchrun == one.plan.culprit else "wrong"


def _cell(
    kind: str | None,
    results: Sequence[Result],
    judge: Callable[[Result], str],
    said: Callable[[Result], Said | None] | None = None,
) -> str:
    chosen = [one for one in results if kind in (None, one.plan.kind)]
    counted = collections.Counter(judge(one) for one in chosen)
    if not chosen:
        return "-"
    text = f"{counted['right']} of {len(chosen)} right, {counted['wrong']} wrong"
    if said is None:
        return text
    answers = [answer for one in chosen if (answer := said(one)) is not None]
    return f"{text}; cause named in {sum(answer.confidence != 'undecided' for answer in answers)}"


def _share(results: Sequence[Result], judge: Callable[[Result], str]) -> float:
    return sum(judge(one) != "undecided" for one in results) / len(results) if results else 0.0


def _read(path: Path) -> list[Result]:
    if not path.exists():
        return []
    return [msgspec.json.decode(line, type=Result) for line in path.read_bytes().splitlines() if line.strip()]


def _write(folder: Path, done: dict[Plan, Result]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    order = list(plans())
    lines = [msgspec.json.encode(done[plan]) for plan in order if plan in done]
    unfinished = folder / "first_failure.jsonl.unfinished"
    unfinished.write_bytes(b"\n".join(lines) + b"\n")
    unfinished.rename(folder / "first_failure.jsonl")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
