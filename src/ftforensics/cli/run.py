"""`ftforensics run [options] -- COMMAND...`: run a job, and say what ended it if it ends badly."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Callable
from types import FrameType
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from ftforensics.model.diagnosis import Diagnosis
    from ftforensics.supervise.supervisor import Outcome

NAME = "run"
HELP = "run a job; when it dies, say what ended it"
DESCRIPTION = """\
Run COMMAND as if it had been started without us: same terminal, same signals,
same exit status. When it ends badly, what was seen is kept in the run folder
and judged; the report goes to standard error. A run that ends well prints
nothing and leaves nothing."""

_FAULTS = (signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGTRAP, signal.SIGSYS, signal.SIGABRT)
DEADLINE = 30.0  # seconds for the judgement, after the command's end

Say = Callable[[str], None]


class _Enough(BaseException):
    """The deadline, or a signal: a BaseException, so that no `except Exception` on the way swallows it."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--dir", metavar="DIR", help="run folder (default: $FTFORENSICS_DIR, else ./ftforensics/ID)")
    parser.add_argument("--no-preload", action="store_true", help="do not add our library to LD_PRELOAD")
    parser.add_argument("--no-trace", action="store_true", help="do not follow the kernel log and signal senders")
    parser.add_argument("--no-log", action="store_true", help="keep no launcher.log; the job gets our own streams")
    parser.add_argument("--on-failure", metavar="CMD", help="shell command to run when the job has ended badly")
    parser.add_argument("--quiet", action="store_true", help="no report and no remarks on standard error")
    parser.add_argument("command", metavar="COMMAND", nargs=argparse.REMAINDER, help="the job, after --")


def run(options: argparse.Namespace) -> int:
    from ftforensics.cli.errors import BadUsage
    from ftforensics.cli.output import complain

    command: list[str] = options.command
    if command[:1] == ["--"]:
        command = command[1:]
    if not command:
        raise BadUsage("no command to run", hint="ftforensics run -- torchrun --nproc_per_node 8 train.py")
    say: Say = (lambda _: None) if options.quiet else complain
    outcome = _supervised(command, options, say)
    if outcome.status != 0:
        _after(outcome, options, say)
    from ftforensics.supervise.ending import end_like

    return end_like(outcome.status)


def _supervised(command: list[str], options: argparse.Namespace, say: Say) -> Outcome:
    from ftforensics.supervise import child

    found = child.surroundings()
    try:
        from ftforensics.supervise.supervisor import Settings, supervise

        settings = Settings(options.dir, not options.no_preload, not options.no_trace, not options.no_log)
        return supervise(command, settings, found, say)
    except KeyboardInterrupt:  # before the command was started
        from ftforensics.supervise.ending import die_of

        die_of(signal.SIGINT)
    except Exception as error:  # noqa: BLE001 - a training run must not fail for want of its witness
        say(f"the job runs without us: {type(error).__name__}: {error}")
        child.become(command, os.environb, dict.fromkeys(found.closed), found)


def _after(outcome: Outcome, options: argparse.Namespace, say: Say) -> None:
    """Judge and tell; then the person's own command is told, whatever became of that. A signal ends the one or the
    other; nothing of this changes the status."""
    try:
        _let_signals_end_this()
        told = {**_unjudged(outcome), **_judged_in_time(outcome, options.quiet, say)}
        if options.on_failure:
            from ftforensics.supervise.on_failure import run_on_failure

            wrong = run_on_failure(options.on_failure, told)
            if wrong:
                say(f"the command given with --on-failure {wrong}")
    except _Enough as enough:
        say(f"{enough}; {_kept(outcome.folder)}")
    except Exception as error:  # noqa: BLE001
        say(f"{_reason(error)}; {_kept(outcome.folder)}")


def _judged_in_time(outcome: Outcome, quiet: bool, say: Say) -> dict[str, str]:
    if outcome.folder is None or outcome.interrupted:
        return {}
    try:
        signal.setitimer(signal.ITIMER_REAL, DEADLINE)
        return _judged(outcome, quiet, say)
    except _Enough as enough:
        say(f"{enough}; {_kept(outcome.folder)}")
    except Exception as error:  # noqa: BLE001
        say(f"{_reason(error)}; {_kept(outcome.folder)}")
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    return {}


def _reason(error: Exception) -> str:
    from ftforensics.cli.errors import Failure

    return str(error) if isinstance(error, Failure) else f"{type(error).__name__}: {error}"


def _kept(folder: str | None) -> str:
    if folder is None:
        return "there was no place for evidence"
    if not os.path.isdir(folder):
        return f"the run folder {folder} was removed"
    return f"the evidence is kept: ftforensics analyze {folder}"


def _unjudged(outcome: Outcome) -> dict[str, str]:
    """What --on-failure is told when nothing more is known."""
    killed = os.WIFSIGNALED(outcome.status)
    how = f"died of signal {os.WTERMSIG(outcome.status)}" if killed else f"exited {os.WEXITSTATUS(outcome.status)}"
    more = f"; ftforensics analyze {outcome.folder}" if outcome.folder else ""
    return {
        "FTFORENSICS_FOLDER": outcome.folder or "",
        "FTFORENSICS_REPORT": "",
        "FTFORENSICS_VERDICT": f"ftforensics: the job {how}{more}",
        "FTFORENSICS_CAUSE": "",
        "FTFORENSICS_CONFIDENCE": "undecided",
    }


def _let_signals_end_this() -> None:
    from ftforensics.supervise.supervisor import PASSED_ON

    def enough(number: int, _frame: FrameType | None) -> NoReturn:
        late = number == signal.SIGALRM
        raise _Enough(f"no report within {DEADLINE:g} s" if late else f"interrupted by {signal.Signals(number).name}")

    for number in (signal.SIGALRM, signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, enough)
    for other in PASSED_ON:
        if signal.getsignal(other) is signal.SIG_DFL and other not in _FAULTS:
            signal.signal(other, lambda *_: None)  # the job's; it is gone. A handler, unlike "ignore", ends at an exec
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [*PASSED_ON, signal.SIGWINCH, signal.SIGCHLD])


def _judged(outcome: Outcome, quiet: bool, say: Say) -> dict[str, str]:
    """Diagnose the folder, write the reports into it, tell the person. Returns what --on-failure is told."""
    folder = outcome.folder or "."
    try:
        from ftforensics.cli.analysis import completed, diagnose_case, records_in_order
        from ftforensics.cli.inputs import gather
        from ftforensics.cli.output import OutputFailure, write_file
        from ftforensics.cli.progress import Progress
        from ftforensics.diagnose.own_run import of_own_run
        from ftforensics.host.host import Host
        from ftforensics.report import html, json, one_line
    except ImportError as error:
        # Installed with --no-deps beside a training stack: the judgement is made elsewhere.
        say(
            f"the evidence is kept; to judge it, {error.name or 'a package'} is missing here: "
            f"where ftforensics is installed with its dependencies, ftforensics analyze {folder}"
        )
        return {}
    with Progress() as progress:
        case = gather([folder], pid=None, rank=None, progress=progress, deep=False)
        case = completed(of_own_run(case, os.path.join(folder, f"{outcome.prefix}evidence.jsonl")), Host())
        diagnosis = diagnose_case(case)
    records = records_in_order(case, diagnosis)
    report = os.path.join(folder, f"{outcome.prefix}report.json")
    try:
        write_file(report, json.render(diagnosis), follow=False)
        write_file(os.path.join(folder, f"{outcome.prefix}report.html"), html.render(diagnosis, records), follow=False)
    except OutputFailure as failure:  # a full disk: then it is told at least
        say(str(failure))
        report = ""
    if not quiet:
        _tell(diagnosis, folder)
    return {
        "FTFORENSICS_REPORT": report,
        "FTFORENSICS_VERDICT": one_line.render(diagnosis, folder),
        "FTFORENSICS_CAUSE": diagnosis.verdict.cause or "",
        "FTFORENSICS_CONFIDENCE": diagnosis.verdict.confidence,
    }


def _tell(diagnosis: Diagnosis, folder: str) -> None:
    """The whole report where somebody looks, five lines where a log is written; there one is enough when the crash
    reporter has written the same five from within the job."""
    from ftforensics.cli.spawned import tell

    if not _is_terminal():
        from ftforensics.report import brief, one_line

        tell([one_line.render(diagnosis, folder)] if _is_told(diagnosis) else brief.brief(diagnosis, folder))
        return
    import termios

    from ftforensics.cli.output import refuses_colour
    from ftforensics.report import plot, terminal

    columns, rows = os.get_terminal_size(2)  # not shutil's: standard output is none of ours any more
    view = terminal.View(
        width=columns or 80,
        height=rows or 24,
        colour=not refuses_colour(),
        path=folder,
        ascii=not plot.drawable(sys.stderr.encoding),
    )
    # A job that was killed has left the terminal as it had set it.
    end = "" if termios.tcgetattr(2)[1] & termios.OPOST else "\r"
    tell(line + end for line in terminal.render(diagnosis, view).rstrip("\n").split("\n"))


def _is_told(diagnosis: Diagnosis) -> bool:
    """The crash reporter leaves its own file before it tells."""
    from ftforensics.cli.crash_reporter import helper_path
    from ftforensics.report.phrases import root

    process = root(diagnosis)
    return process is not None and process.record is not None and os.path.exists(helper_path(process.record))


def _is_terminal() -> bool:
    try:
        return sys.stderr is not None and sys.stderr.isatty()
    except ValueError:  # closed
        return False
