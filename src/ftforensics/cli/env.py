"""`ftforensics env snapshot|diff|history`: what runs on this machine ran on, and what has changed since."""

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING

from ftforensics.cli.errors import BadUsage, UnreadableInput
from ftforensics.cli.output import complain, write_file, write_json, write_stdout
from ftforensics.report.escape import printable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ftforensics.model.ledger import Change, Fingerprint, LedgerRun

NAME = "env"
HELP = "what has changed since the last good run: packages, driver, settings"
DESCRIPTION = """\
The environment ledger: install() and run write down what each run ran on, and
how it ended (docs/ledger.md). FTFORENSICS_LEDGER=0 switches that off."""

_WHO_WRITES = "runs of two seconds or more are written down, by ftforensics.install() and ftforensics run"

SNAPSHOT = """\
What a run that is started here and now would run on, as JSON."""
DIFF = """\
What differs between A and B, each of them one of

  FILE        a snapshot
  FOLDER      a Python environment (venv or conda); only packages are compared
  last-good   the last run on this machine that ended well
  now         this moment, in the active environment
  RUN         a run's id, as `env history` shows it

Exit status: 0 no difference, 1 differences, 2 bad usage."""
HISTORY = """\
The runs of the ledger, newest last: when, which job, how it ended, and what had
changed against the run before of the same job."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    commands = parser.add_subparsers(metavar="snapshot|diff|history", required=True, dest="env_command")

    def command(name: str, line: str, text: str, run: Callable[[argparse.Namespace], int]) -> argparse.ArgumentParser:
        sub = commands.add_parser(
            name,
            help=line,
            description=text,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        sub.set_defaults(run_env=run)
        return sub

    snapshot = command("snapshot", "what a run here and now would run on, as JSON", SNAPSHOT, _snapshot)
    snapshot.add_argument("--output", metavar="FILE", help="write there instead of standard output")
    diff = command("diff", "what has changed since the last good run, or between two others", DIFF, _diff)
    diff.add_argument("before", metavar="A", nargs="?", default="last-good", help="default: last-good")
    diff.add_argument("after", metavar="B", nargs="?", default="now", help="default: now")
    diff.add_argument("--rollback", action="store_true", help="print the commands that lead from B back to A")
    diff.add_argument("--json", action="store_true", help="the differences as JSON")
    history = command("history", "the runs, how they ended, what had changed", HISTORY, _history)
    history.add_argument("--json", action="store_true", help="the runs as JSON, fingerprints included")


def run(options: argparse.Namespace) -> int:
    handle: Callable[[argparse.Namespace], int] = options.run_env
    return handle(options)


def _snapshot(options: argparse.Namespace) -> int:
    import time

    from ftforensics.model.ledger import Snapshot
    from ftforensics.wire.ledger import encode_snapshot

    text = encode_snapshot(Snapshot(round(time.time(), 3), _now(None)))
    if options.output:
        write_file(options.output, text)
    else:
        write_json(text)
    return 0


def _diff(options: argparse.Namespace) -> int:
    if options.rollback and options.json:
        raise BadUsage("--rollback prints commands, --json the differences", hint="give one of them")
    from ftforensics.sources.differences import differences

    before = _resolved(options.before, None)
    after = _resolved(options.after, before)
    changes = differences(before, after)
    if options.json:
        import msgspec

        write_json(msgspec.json.format(msgspec.json.encode(changes), indent=2).decode() + "\n")
    elif options.rollback:
        from ftforensics.sources.rollback import rollback

        write_stdout("".join(f"{line}\n" for line in rollback(before, after, changes)))
    else:
        write_stdout("".join(f"{line}\n" for line in _listed(changes)))
    return 1 if changes else 0


def _listed(changes: list[Change]) -> Iterator[str]:
    from ftforensics.report.changes import line

    if not changes:
        yield "no difference"
    for change in changes:
        yield line(change)


def _history(options: argparse.Namespace) -> int:
    runs = _ledger()
    if options.json:
        from ftforensics.wire.ledger import encode_runs

        write_json(encode_runs(runs))
    elif runs:
        write_stdout("".join(f"{line}\n" for line in _told(runs)))
    else:
        complain(f"no run is in the ledger yet: {_WHO_WRITES}")
    return 0


def _told(runs: list[LedgerRun]) -> Iterator[str]:
    import time

    from ftforensics.report.changes import line
    from ftforensics.sources.differences import differences

    earlier: dict[tuple[str, str | None], Fingerprint] = {}
    names = max(len(printable(one.begun.run)) for one in runs)
    ends = max(len(_end(one)) for one in runs)
    for one in runs:
        begun = one.begun
        when = time.strftime("%Y-%m-%d %H:%M", time.localtime(begun.at))
        yield f"{when}  {printable(begun.run):<{names}}  {_end(one):<{ends}}  {printable(begun.job)}"
        key = (begun.job, begun.fingerprint.host)
        if key in earlier:
            changes = differences(earlier[key], begun.fingerprint)
            for change in changes[:3]:
                yield f"{'':18}{line(change)}"
            if len(changes) > 3:
                yield f"{'':18}and {len(changes) - 3} more"
        earlier[key] = begun.fingerprint


def _end(run: LedgerRun) -> str:
    import signal

    if run.ended is None:
        return "running" if run.running else "unseen"
    cause = f" {printable(run.ended.cause)}" if run.ended.cause else ""
    if run.ended.how == "signal" and run.ended.signal is not None:
        try:
            return signal.Signals(run.ended.signal).name + cause
        except ValueError:
            return f"signal {run.ended.signal}{cause}"
    return f"code {run.ended.code}{cause}" if run.ended.how == "code" else printable(run.ended.how)


def _resolved(wanted: str, other: Fingerprint | None) -> Fingerprint:
    """The fingerprint that a word of the command line means. other: of the side that is known already, whose
    configuration files are read again for `now`."""
    if wanted == "now":
        return _now(other)
    if wanted == "last-good":
        return _last_good().begun.fingerprint
    if os.path.isdir(wanted):
        return _environment(wanted)
    if os.path.exists(wanted):
        return _file(wanted)
    found = [run for run in _ledger() if run.begun.run == wanted]
    found = found or [run for run in _ledger() if run.begun.run.startswith(wanted)]
    if not found:
        raise BadUsage(
            f"{wanted!r} is no snapshot, no environment and no run of the ledger",
            hint="ftforensics env history lists the runs",
        )
    if len({run.begun.run for run in found}) > 1:
        raise BadUsage(f"{wanted!r} may be any of {len(found)} runs", hint="give the whole id")
    return found[-1].begun.fingerprint


def _now(like: Fingerprint | None) -> Fingerprint:
    from ftforensics.host.host import Host
    from ftforensics.sources.fingerprint import read_fingerprint, subject_here

    return read_fingerprint(Host(), subject_here(os.environ, like))


def _last_good() -> LedgerRun:
    from ftforensics.sources.ledger import last_good

    here = _now(None)
    runs = _ledger()
    found = last_good(runs, name=None, prefix=here.prefix, host=here.host)
    if found is None:
        good = [run for run in runs if run.good and run.begun.fingerprint.host == here.host]
        found = good[-1] if good else None
    if found is None:
        raise UnreadableInput(
            f"no run that ended well is in the ledger ({len(runs)} runs)",
            hint=_WHO_WRITES,
        )
    return found


def _ledger() -> list[LedgerRun]:
    from ftforensics.host.host import Host, Refusal
    from ftforensics.sources.ledger import read_ledger

    try:
        return read_ledger(Host())
    except Refusal as refusal:
        if refusal.absent:
            return []
        raise UnreadableInput(str(refusal)) from None


def _environment(folder: str) -> Fingerprint:
    from ftforensics.host.host import Host, Refusal
    from ftforensics.sources.fingerprint import environment_folder

    try:
        return environment_folder(Host(), os.path.abspath(folder))
    except Refusal as refusal:
        raise UnreadableInput(str(refusal), hint="give the folder that holds bin/python") from None


def _file(path: str) -> Fingerprint:
    from ftforensics.host.host import Host, Refusal
    from ftforensics.wire.ledger import read_snapshot

    try:
        return read_snapshot(Host().read_bytes(path)).fingerprint
    except Refusal as refusal:
        raise UnreadableInput(str(refusal)) from None
    except ValueError as error:
        raise UnreadableInput(f"{path}: {error}", hint="ftforensics env snapshot --output FILE makes one") from None
