"""Reads and writes the lines of the environment ledger, schema `ftforensics.ledger/1`, and snapshots.

Many processes append to the file, some of them while a disk fills up: a line that cannot be used costs itself, and
nothing here raises on bad input, but for a snapshot, which is one value.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ftforensics.model.ledger import Begun, Ended, LedgerRun, Snapshot

LONGEST_LINE = 1 << 20  # bytes; one with 500 packages and eight configuration files has 100 KB
MOST_LINES = 100_000
_LATEST = float(1 << 33)  # seconds since the epoch: the year 2242; what is later no clock has said
SNAPSHOT_FAMILY = "ftforensics.snapshot/"

LedgerLine = Begun | Ended
_DECODER: msgspec.json.Decoder[LedgerLine] = msgspec.json.Decoder(LedgerLine)


def read_lines(data: bytes) -> list[LedgerLine]:
    """Every usable line, in their order."""
    return [line for text in data.split(b"\n")[-MOST_LINES:] if (line := _line(text)) is not None]


def read_runs(data: bytes) -> list[LedgerRun]:
    """The runs, oldest first. A run without a `begun` is left out: nothing is known of it but its end."""
    lines = read_lines(data)
    joined: dict[tuple[str, str | None], list[LedgerRun]] = {}
    for line in sorted((line for line in lines if isinstance(line, Begun)), key=lambda line: line.at):
        of_launch = joined.setdefault(_key_of_line(line), [])
        if line.pid not in [run.begun.pid for run in of_launch]:
            of_launch.append(LedgerRun(line))
    for end in sorted((line for line in lines if isinstance(line, Ended)), key=lambda line: line.at):
        of_launch = joined.get(_key_of_line(end), [])
        if of_launch:
            at = _whose(of_launch, end)
            before = of_launch[at].ended
            of_launch[at] = LedgerRun(of_launch[at].begun, _worse(before, end) if before else end)
    return sorted((run for of_launch in joined.values() for run in of_launch), key=lambda run: run.begun.at)


def _whose(runs: list[LedgerRun], end: Ended) -> int:
    """A Slurm step that runs two programs, one after the other, is one launch: all of its runs have one id.

    Where the process is none that has begun one, it is another rank, of the oldest that still ran; with none left, of
    the latest."""
    own = [at for at, run in enumerate(runs) if end.pid is not None and run.begun.pid == end.pid]
    running = [at for at, run in enumerate(runs) if run.ended is None and run.begun.at <= end.at]
    return [*own, *running, max((at for at, run in enumerate(runs) if run.begun.at <= end.at), default=0)][0]


def _worse(one: Ended, other: Ended) -> Ended:
    """Rank 0 may have left well where another one died: a run is as good as its worst end. A cause is kept."""
    worse, better = (one, other) if (one.how == "ok", one.at) <= (other.how == "ok", other.at) else (other, one)
    return worse if worse.cause or better.how == "ok" else msgspec.structs.replace(worse, cause=better.cause)


def encode_line(line: LedgerLine) -> bytes:
    """With its newline."""
    return msgspec.json.encode(line) + b"\n"


def compacted(data: bytes, most_runs: int) -> bytes:
    """The lines of the newest runs, and of the last good run of each job, in their order."""
    runs = read_runs(data)
    kept = {_key(run) for run in runs[-most_runs:]} if most_runs > 0 else set()
    last_good = {(run.begun.job, run.begun.fingerprint.host): _key(run) for run in runs if run.good}
    kept.update(last_good.values())
    lines = read_lines(data)
    return b"".join(encode_line(line) for line in lines if _key_of_line(line) in kept)


def _key(run: LedgerRun) -> tuple[str, str | None]:
    return run.begun.run, run.begun.fingerprint.host


def _key_of_line(line: LedgerLine) -> tuple[str, str | None]:
    return line.run, line.fingerprint.host if isinstance(line, Begun) else line.host


def _line(text: bytes) -> LedgerLine | None:
    if not text.startswith(b"{") or len(text) > LONGEST_LINE:
        return None
    try:
        line = _DECODER.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return line if 0 <= line.at < _LATEST else None


def encode_snapshot(snapshot: Snapshot) -> str:
    """Indented: a person reads it, and version control compares it."""
    return msgspec.json.format(msgspec.json.encode(snapshot), indent=2).decode() + "\n"


def read_snapshot(data: bytes) -> Snapshot:
    """Raises ValueError, which says what is wrong with it."""
    try:
        snapshot = msgspec.json.decode(data, type=Snapshot)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"not a snapshot: {error}") from error
    if not snapshot.schema.startswith(SNAPSHOT_FAMILY):
        raise ValueError(f"not a snapshot: its schema is {snapshot.schema[:60]!r}")
    return snapshot


def encode_runs(runs: Sequence[LedgerRun]) -> str:
    return msgspec.json.format(msgspec.json.encode(list(runs)), indent=2).decode() + "\n"
