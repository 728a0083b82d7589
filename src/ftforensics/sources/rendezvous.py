"""The place where the ranks of a job meet: does its name resolve, does its port answer, or is it free to listen on?"""

from __future__ import annotations

import os
import sys

import msgspec

from ftforensics.host.host import Host, Refusal

SECONDS = 2.0  # for a connection
TIMEOUT = 4.0  # seconds, with the name's look-up


class Rendezvous(msgspec.Struct, frozen=True):
    """addresses: what the name resolves to; outcome: "connected", "refused" (the machine answers, nobody listens yet),
    "no answer", "free" and "in use" (asked by the one that shall listen), or the system's own words; error: of the
    look-up; silent: the look-up did not end in time."""

    addresses: list[str] = []
    outcome: str | None = None
    error: str | None = None
    silent: bool = False


class _Answer(msgspec.Struct):
    addresses: list[str] = []
    outcome: str | None = None
    error: str | None = None


def ask_rendezvous(host: Host, address: str, port: int, *, listen: bool) -> Rendezvous | None:
    """listen: this process will be the one that listens. None: a copied root has no network."""
    if not host.runs_commands:
        return None
    program = os.path.join(os.path.dirname(__file__), "rendezvous_child.py")
    how = "bind" if listen else "connect"
    try:
        done = host.run([sys.executable, "-I", "-S", program, how, address, str(port), str(SECONDS)], TIMEOUT, 1 << 16)
    except (Refusal, ValueError) as refusal:
        return Rendezvous(error=str(refusal))
    found = Rendezvous(silent=done.timed_out)
    for line in done.stdout.splitlines():
        try:
            answer = msgspec.json.decode(line, type=_Answer)
        except (msgspec.DecodeError, UnicodeDecodeError):
            continue
        found = msgspec.structs.replace(
            found,
            addresses=answer.addresses or found.addresses,
            outcome=answer.outcome or found.outcome,
            error=answer.error or found.error,
        )
    if not done.timed_out and found == Rendezvous():
        return Rendezvous(error=done.complaint(TIMEOUT))
    return found
