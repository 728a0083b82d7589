"""The one-line form, for stderr, a launcher's summary or a container's termination log."""

from __future__ import annotations

from ftforensics.model.diagnosis import Diagnosis
from ftforensics.report.escape import printable
from ftforensics.report.phrases import analyze_command, fate, root, who_in_short


def render(diagnosis: Diagnosis, folder: str) -> str:
    """As "ftforensics: rank 3 killed by the kernel, cgroup-oom (proven), in save; ftforensics analyze DIR".

    No line feed at the end. folder: what `analyze` is to be given.
    """
    verdict = diagnosis.verdict
    cause = printable(verdict.cause) if verdict.cause else "cause not known"
    process = root(diagnosis)
    parts = [
        f"{who_in_short(process)} {fate(diagnosis)}" if process else "a process ended",
        f"{cause} ({printable(verdict.confidence)})",
    ]
    if process and process.phase:
        parts.append(f"in {printable(process.phase)}")
    return f"ftforensics: {', '.join(parts)}; {analyze_command(folder)}"
