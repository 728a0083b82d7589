"""The command line: `ftforensics COMMAND ...`.

One file a command. Such a module has NAME, HELP, DESCRIPTION, `add_arguments(parser)` and `run(options) -> int`, the
exit status; it parses options, calls one function of the layers below and prints. Heavy imports (msgspec, rich) belong
inside `run`: then `--help` and `explain` are quick.

`main` is the funnel that every error passes: the user sees one line that says what, why and what to try, and never a
Python traceback. Exit status: 0 a verdict, 3 undecided, 2 bad usage or unreadable input, 1 this program could not do
its work (a full disk, a missing package, a fault of its own), 130 interrupted, 141 the reader of a pipe went away.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from ftforensics.cli.errors import BadUsage, Failure, missing_package
from ftforensics.cli.output import StreamFailure, close_stdout, complain, flush_stdout

COMMANDS = ("analyze", "check", "env", "explain", "facts", "libraries", "run")
# Started by the capture side, never typed by a person: not in --help. They have `main(arguments) -> int` instead.
HIDDEN = ("crash_reporter", "inventory", "ledger")

INTERRUPTED = 130  # 128 + SIGINT, what a shell reports
PIPE_GONE = 141  # 128 + SIGPIPE


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command. Returns the exit status; never raises."""
    try:
        try:
            status = _dispatch(list(sys.argv[1:] if argv is None else argv))
        except SystemExit as leaving:  # argparse, after --help and --version
            status = leaving.code if isinstance(leaving.code, int) else 0
        flush_stdout()
    except StreamFailure as failure:
        close_stdout()
        return _fail(failure)
    except Failure as failure:
        return _fail(failure)
    except KeyboardInterrupt:
        complain("interrupted")
        return INTERRUPTED
    except BrokenPipeError:
        close_stdout()
        return PIPE_GONE
    except ImportError as error:
        _debug()
        return _fail(missing_package(error))
    except MemoryError:
        complain("out of memory while reading the input; give fewer records at a time")
        return 1
    except BaseException as error:  # noqa: BLE001 - the funnel; a panic of a Rust package (cpp-demangle) is no Exception
        return _own_fault(error)
    return status


def _fail(failure: Failure) -> int:
    complain(str(failure))
    return failure.status


def _own_fault(error: BaseException) -> int:
    _debug()
    place = ""
    trace = error.__traceback__
    while trace:
        place = f" at {os.path.basename(trace.tb_frame.f_code.co_filename)}:{trace.tb_lineno}"
        trace = trace.tb_next
    complain(
        f"a fault of ftforensics itself{place}: {type(error).__name__}: {error}; "
        "FTFORENSICS_DEBUG=1 shows the traceback to report"
    )
    return 1


def _debug() -> None:
    if os.environ.get("FTFORENSICS_DEBUG"):
        import traceback

        traceback.print_exc()


def _dispatch(argv: list[str]) -> int:
    name = argv[0] if argv else ""
    hidden = name.replace("-", "_")
    if hidden in HIDDEN:
        import importlib

        return int(importlib.import_module(f"ftforensics.cli.{hidden}").main(argv[1:]))

    from ftforensics.cli.parser import make_parser, meant

    if name and not name.startswith("-") and name not in COMMANDS:
        raise BadUsage(f"no command {name!r}", hint=meant(name, COMMANDS))
    parser = make_parser(COMMANDS)
    if not argv:
        parser.print_help(sys.stderr)
        return BadUsage.status
    options = parser.parse_args(argv)
    return int(options.run_command(options))
