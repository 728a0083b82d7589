"""The one-line form, for stderr, a launcher's summary or a container's termination log."""

from __future__ import annotations

from ftforensics.model.diagnosis import Diagnosis
from ftforensics.report.phrases import (
    analyze_command,
    ended_well,
    excerpt,
    fate,
    name,
    nobody_here,
    root,
    summary,
    who_in_short,
)

LONGEST_SUMMARY = 200  # characters


def render(diagnosis: Diagnosis, folder: str) -> str:
    """As "ftforensics: rank 3 killed by the kernel, cgroup-oom (proven), in save; ftforensics analyze DIR".

    No line feed at the end. folder: what `analyze` is to be given.
    """
    verdict = diagnosis.verdict
    process = root(diagnosis)
    if ended_well(diagnosis):
        return f"ftforensics: {_begun(diagnosis)}; {analyze_command(folder)}"
    if nobody_here(diagnosis):
        first = _begun(diagnosis)  # it names whom to look for; the processes here are innocent
    else:
        several = len({one.host for one in diagnosis.processes if one.host}) > 1
        first = f"{who_in_short(process, with_host=several)} {fate(diagnosis)}" if process else "a process ended"
    cause = name(verdict.cause) if verdict.cause else "cause not known"
    parts = [first, f"{cause} ({name(verdict.confidence)})"]
    if process and process.phase and not nobody_here(diagnosis):
        parts.append(f"in {name(process.phase)}")
    return f"ftforensics: {', '.join(parts)}; {analyze_command(folder)}"


def _begun(diagnosis: Diagnosis) -> str:
    """The summary as the beginning of a longer sentence."""
    return excerpt(summary(diagnosis), LONGEST_SUMMARY).removesuffix(".")
