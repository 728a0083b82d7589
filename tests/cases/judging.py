"""A labelled case and what the product says of it, from what lies in its folder alone. Used by the tests beside it and
by benchmarks/peers.py."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from ftforensics.cli.inputs import gather
from ftforensics.cli.progress import Progress
from ftforensics.diagnose import diagnose
from ftforensics.diagnose.names import Resolution, module_offsets
from ftforensics.host.host import Host
from ftforensics.model.crash import CrashRecord, RawFrame
from ftforensics.model.diagnosis import Diagnosis
from ftforensics.sources.live import with_live

HERE = Path(__file__).parent
CASES = sorted(path.parent for path in HERE.glob("*/expected.json"))


def label_of(case: Path) -> dict[str, Any]:
    label: dict[str, Any] = json.loads((case / "expected.json").read_text())
    return label


def files_of(case: Path) -> list[Path]:
    return [case / "launcher.log", case / "kernel.log", *sorted(case.glob("*.crash.json"))]


def verdict_of(case: Path, files: Sequence[Path] = ()) -> Diagnosis:
    """files: what is read in place of the case's own."""
    label = label_of(case)
    symbols: dict[str, str] = label.get("symbols", {})
    with Progress() as progress:
        paths = [str(file) for file in files or files_of(case)]
        gathered = gather(paths, pid=None, rank=None, progress=progress, **label.get("given", {}))

    def named(record: CrashRecord, raw: Sequence[RawFrame]) -> Resolution:
        found = module_offsets(record, raw)
        frames = [
            msgspec.structs.replace(frame, function=symbols.get(f"{frame.library}+{frame.offset or 0:#x}"))
            for frame in found.frames
        ]
        return Resolution(frames, found.gaps)

    return diagnose(with_live(gathered, Host()), named if symbols else module_offsets)


def roots_of(diagnosis: Diagnosis) -> list[tuple[int | None, int | None]]:
    """Pid and rank of whoever failed first."""
    return [(process.pid, process.rank) for process in diagnosis.processes if process.role == "root"]
