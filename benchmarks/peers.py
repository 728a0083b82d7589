"""Two programs from the package index beside ours, on every labelled case: right, wrong, undecided.

    python benchmarks/peers.py --peers PYTHON    ask them and us, keep the answers, write the page
    python benchmarks/peers.py                   write the page from the answers that are kept

PYTHON is an interpreter with `gpualert` and `denpex` installed (denpex also needs Node.js 18). Each gets what it can
take: one text. That is the launcher's output alone; with the kernel's lines behind it; and with those among the OOM
kills, faults and Xids of forty other processes. Ours gets the same texts as files. What their classes mean stands in
peer_classes.py; the answers are kept in results/peers.json and the page is docs/peers.md.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import json
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "tests"), str(Path(__file__).parent)]

from peer_classes import DENPEX, GPUALERT, Claim, hints, says  # noqa: E402

from cases.foreign_noise import beside_others  # noqa: E402
from cases.judging import CASES, label_of, roots_of, verdict_of  # noqa: E402
from ftforensics.causes.registry import find_cause  # noqa: E402
from ftforensics.cli.errors import UnreadableInput  # noqa: E402

ANSWERS = Path(__file__).parent / "results" / "peers.json"
PAGE = ROOT / "docs" / "peers.md"
INPUTS = {
    "log": "launcher output alone",
    "kernel": "with the kernel's lines",
    "others": "with those of 40 other processes among them",
}
PROGRAMS = ("gpualert", "denpex", "ftforensics")

# Runs in the peers' interpreter. denpex's batch call runs the same engine as its command `diagnose-local`.
ASK = """
import importlib.metadata, json, os, sys
os.environ["DENPEX_USE_CANONICAL_OFFLINE"] = "1"
from gpualert.parse_errors import parse_errors
import denpex_local
asked = json.load(sys.stdin)
found = denpex_local.local_diagnose_batch([one["text"] for one in asked])
json.dump({
    "versions": {name: importlib.metadata.version(name) for name in ("gpualert", "denpex")},
    "gpualert": [parse_errors("", one["text"], one["status"]).split("\\n")[0] for one in asked],
    "denpex": [[
        one["failureType"], ((one.get("forensicReport") or {}).get("rankGraph") or {}).get("rootRank")
    ] for one in found],
}, sys.stdout)
"""


def inputs_of(case: Path, folder: Path) -> dict[str, list[Path]]:
    log, kernel = case / "launcher.log", case / "kernel.log"
    return {"log": [log], "kernel": [log, kernel], "others": [log, *beside_others(case, folder)]}


def asked() -> Iterator[tuple[str, str, dict[str, Any], str | None, str, list[int | None]]]:
    """Case, input, what the peers get, and what ours says: cause, confidence, ranks of the roots."""
    for case in CASES:
        if list(case.glob("*.crash.json")):
            continue  # a crash record: nothing that a program for log texts could read
        with tempfile.TemporaryDirectory() as folder:
            for name, files in inputs_of(case, Path(folder)).items():
                text = "".join(file.read_text(errors="replace") for file in files)
                status = label_of(case).get("launcher_exit", 1)
                try:
                    found = verdict_of(case, files)
                except UnreadableInput:
                    ours: tuple[str | None, str, list[int | None]] = (None, "undecided", [])
                else:
                    ours = (found.verdict.cause, found.verdict.confidence, [rank for _, rank in roots_of(found)])
                yield case.name, name, {"text": text, "status": status}, *ours


def ask(peers: str) -> dict[str, Any]:
    questions = list(asked())
    done = subprocess.run(
        [peers, "-c", ASK], input=json.dumps([question for _, _, question, *_ in questions]),
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    said = json.loads(done.stdout)
    answers: dict[str, dict[str, Any]] = {}
    for number, (case, name, _, cause, confidence, ranks) in enumerate(questions):
        answers.setdefault(case, {})[name] = {
            "gpualert": said["gpualert"][number],
            "denpex": said["denpex"][number][0],
            "denpex_rank": said["denpex"][number][1],
            "ftforensics": cause,
            "confidence": confidence,
            "ranks": ranks,
        }
    today = datetime.datetime.now(datetime.timezone.utc).date().isoformat()
    return {"date": today, "versions": said["versions"], "answers": answers}


def claim_of(program: str, answer: dict[str, Any]) -> Claim:
    if program == "gpualert":
        return GPUALERT[re.sub(r"(exited with code) .*", r"\1", answer["gpualert"])]
    if program == "denpex":
        return DENPEX[answer["denpex"]]
    cause = answer["ftforensics"]
    return hints() if cause is None or answer["confidence"] == "undecided" else says(cause)


def score(label: dict[str, Any], claim: Claim) -> str:
    """A class that is the coarser name of the label's cause (python-exception for loss-nan) is right."""
    accepted: list[str | None] = label.get("cause", [])
    known = [cause for identifier in accepted if identifier and (cause := find_cause(identifier))]
    fitting = {*accepted, *(coarser for cause in known for coarser in cause.refines)}
    if claim.causes & fitting:
        return "right"
    if not claim.causes or claim.weak:
        return "right" if not accepted or None in accepted else "undecided"
    if not accepted:
        return "wrong" if claim.causes <= set(label["not_cause"]) else "right"
    return "wrong"


def rank_of(case: Path) -> int | None:
    """The rank that failed first, where the label or the launcher's log ties it to the label's pid."""
    label = label_of(case)
    if "made" in label and not label.get("any_root") and label["root"] != "nobody":
        rank: int = label["made"]["rank"]
        return rank
    log = (case / "launcher.log").read_text(errors="replace")
    found = re.search(rf"rank +: (\d+) \(local_rank: \d+\)\n +exitcode +: \S+ \(pid: {label['root']}\)", log)
    return int(found[1]) if found else None


def ranks_said(program: str, answer: dict[str, Any]) -> list[int]:
    said = {"gpualert": [], "denpex": [answer["denpex_rank"]], "ftforensics": answer["ranks"]}[program]
    return [rank for rank in said if rank is not None]


def page(kept: dict[str, Any]) -> str:
    answers = {case: kept["answers"][case.name] for case in CASES if case.name in kept["answers"]}
    versions = {**kept["versions"], "ftforensics": "this tree"}
    rows = []
    for name, meaning in INPUTS.items():
        for program in PROGRAMS:
            causes = Counter(score(label_of(case), claim_of(program, said[name])) for case, said in answers.items())
            ranks: Counter[str] = Counter()
            for case, said in answers.items():
                truth, named = rank_of(case), ranks_said(program, said[name])
                if truth is not None:
                    ranks["none" if not named else "right" if named == [truth] else "wrong"] += 1
            cells = [*(causes[word] for word in ("right", "wrong", "undecided")),
                     *(ranks[word] for word in ("right", "wrong", "none"))]  # fmt: skip
            rows.append(f"| {meaning} | {program} {versions[program]} | " + " | ".join(map(str, cells)) + " |\n")
    wrong = []
    for program in PROGRAMS:
        seen = Counter(
            f"{answer['gpualert'] if program == 'gpualert' else answer[program]}"
            for case, said in answers.items()
            for answer in said.values()
            if score(label_of(case), claim_of(program, answer)) == "wrong"
        )
        named = ", ".join(f"{word} ({count})" for word, count in seen.most_common(6))
        wrong.append(f"- {program}: {named or 'none'}\n")
    return PAGE_TEXT.format(
        date=kept["date"], count=len(answers), ranked=sum(rank_of(case) is not None for case in answers),
        rows="".join(rows), wrong="".join(wrong),
    )  # fmt: skip


PAGE_TEXT = """\
# Beside two other programs

Two programs from the package index also read the log of a training job and say what happened: `gpualert`
(`parse_errors`: fifteen patterns, the first that matches wins) and `denpex` (`denpex diagnose-local`). Here they answer
the {count} labelled cases of `tests/cases` that have no crash record, as on {date}. Written by `benchmarks/peers.py`.

| input | program | cause right | wrong | undecided | first rank right | wrong | not named |
|---|---|---|---|---|---|---|---|
{rows}
**How it is scored.** An answer is right when it is one of the causes that the label accepts, or the coarser name of
one (`python-exception` for `loss-nan`); undecided when it makes no claim; wrong otherwise. Where the truth is not in
the texts, the label accepts "undecided", which then is right. What the others' classes mean in our words stands, with
the reasons, in `benchmarks/peer_classes.py`; it is meant to be generous: a class that only repeats that there was a
traceback, a signal or an exit status never counts as wrong. The first rank is counted over the {ranked} cases in which
one rank of several is known to have failed first.

**What this is not.** No independent sample: the cases were made, or retold, for this project, and its tests demand
that it is right on each with the kernel's lines; a case on which it is not yet right is not among them.
Both other programs do things that are not asked here. Their answers are kept in `benchmarks/results/peers.json`.

The wrong answers, over the three inputs:

{wrong}"""


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--peers", metavar="PYTHON", help="an interpreter that has gpualert and denpex")
    given = options.parse_args()
    if given.peers:
        with open(os.devnull, "w") as nowhere, contextlib.redirect_stderr(nowhere):
            kept = ask(given.peers)
        ANSWERS.write_text(json.dumps(kept, indent=1) + "\n")
    unknown = {
        (program, answer[program])
        for said in json.loads(ANSWERS.read_text())["answers"].values()
        for answer in said.values()
        for program, classes in (("gpualert", GPUALERT), ("denpex", DENPEX))
        if re.sub(r"(exited with code) .*", r"\1", answer[program]) not in classes
    }
    if unknown:
        sys.exit(f"no meaning in peer_classes.py for: {sorted(unknown)}")
    PAGE.write_text(page(json.loads(ANSWERS.read_text())))
    print(PAGE.read_text())
    return 0


if __name__ == "__main__":
    sys.exit(main())
