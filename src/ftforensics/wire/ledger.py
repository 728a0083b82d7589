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
    begun: dict[tuple[str, str | None], Begun] = {}
    ended: dict[tuple[str, str | None], Ended] = {}
    for line in read_lines(data):
        if isinstance(line, Begun):
            begun.setdefault((line.run, line.fingerprint.host), line)
        else:
            key = (line.run, line.host)
            ended[key] = _worse(ended[key], line) if key in ended else line
    runs = [LedgerRun(one, ended.get(key)) for key, one in begun.items()]
    return sorted(runs, key=lambda run: run.begun.at)


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
