"""What the causes about schedulers share."""

from __future__ import annotations

from collections.abc import Iterator

from ftforensics.causes.authority import statement
from ftforensics.model.death import Death
from ftforensics.model.diagnosis import Finding, Remedy

_NAMES = (("slurm", "Slurm"), ("kubernetes", "Kubernetes"), ("docker", "Docker"), ("systemd", "systemd"))
# SIGXCPU, SIGUSR1, SIGUSR2: warnings before the limit, which end a program that does not handle them.
_ENDINGS = (9, 15, 24, 10, 12)


def name_of(authority: str) -> str:
    return next((name for known, name in _NAMES if known == authority), authority)


def decided(death: Death, cause: str, kinds: tuple[str, ...], did: str, remedies: list[Remedy]) -> Iterator[Finding]:
    """A scheduler's decision that it gives the reason of. did: the end of the sentence that begins with its name."""
    said = statement(death, ("slurm", "kubernetes", "systemd"), *kinds, endings=_ENDINGS)
    if said is None:
        return
    unit = f" {said.notice.unit}" if said.notice.unit else ""
    yield Finding(
        cause=cause,
        confidence=said.confidence,
        summary=f"{name_of(said.notice.authority)} {did.replace('the job', f'job{unit}') if unit else did}.",
        supports=said.supports,
        against=said.against,
        remedies=remedies,
    )
