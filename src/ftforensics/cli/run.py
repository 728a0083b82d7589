"""`ftforensics run [options] -- COMMAND...`: run a job, and say what ended it if it ends badly."""

from __future__ import annotations

import argparse

NAME = "run"
HELP = "run a job; when it dies, say what ended it"
DESCRIPTION = """\
Run COMMAND as if it had been started without us: same terminal, same signals,
same exit status. When it ends badly, what was seen is kept in the run folder
and judged; the report goes to standard error. A run that ends well prints
nothing and leaves nothing."""

DEADLINE = 30  # seconds for everything after the command's end


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--dir", metavar="DIR", help="run folder (default: $FTFORENSICS_DIR, else ./ftforensics/ID)")
    parser.add_argument("--no-preload", action="store_true", help="do not add our library to LD_PRELOAD")
    parser.add_argument("--no-trace", action="store_true", help="do not follow the kernel log and signal senders")
    parser.add_argument("--no-log", action="store_true", help="keep no launcher.log; the job gets our own streams")
    parser.add_argument("--on-failure", metavar="CMD", help="shell command to run after a failure, see docs/run.md")
    parser.add_argument("--quiet", action="store_true", help="no report and no remarks on standard error")
    parser.add_argument("command", metavar="COMMAND", nargs=argparse.REMAINDER, help="the job, after --")


def run(options: argparse.Namespace) -> int:
    from ftforensics.cli.errors import BadUsage
    from ftforensics.supervise.supervisor import Settings, supervise

    command: list[str] = options.command
    if command[:1] == ["--"]:
        command = command[1:]
    if not command:
        raise BadUsage("no command to run", hint="ftforensics run -- torchrun --nproc_per_node 8 train.py")
    settings = Settings(options.dir, not options.no_preload, not options.no_trace, not options.no_log)
    outcome = supervise(command, settings, (lambda _: None) if options.quiet else _say)
    from ftforensics.supervise import ending

    return ending.end_like(outcome.status)


def _say(text: str) -> None:
    from ftforensics.cli.output import complain

    complain(text)
