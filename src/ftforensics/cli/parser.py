"""The parser of the command line, made of what each command module says about itself."""

from __future__ import annotations

import argparse
import importlib
import os.path
from collections.abc import Sequence
from typing import TYPE_CHECKING, NoReturn, Protocol

from ftforensics.cli.errors import BadUsage
from ftforensics.cli.output import write_stdout

if TYPE_CHECKING:
    from _typeshed import SupportsWrite


class Command(Protocol):
    NAME: str
    HELP: str
    DESCRIPTION: str

    def add_arguments(self, parser: argparse.ArgumentParser) -> None: ...

    def run(self, options: argparse.Namespace) -> int: ...


class Parser(argparse.ArgumentParser):
    """argparse that reports through the funnel instead of printing its usage and leaving."""

    def error(self, message: str) -> NoReturn:
        raise BadUsage(message, hint=f"{self.prog} --help shows what is understood")

    def print_help(self, file: SupportsWrite[str] | None = None) -> None:
        """argparse passes over a failed write in silence (3.11, ArgumentParser._print_message); ours is told."""
        if file is None:
            write_stdout(self.format_help())
        else:
            super().print_help(file)


class Version(argparse.Action):
    """--version without importing the package's version before it is asked for."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object, **__: object) -> NoReturn:
        from ftforensics import __version__

        write_stdout(f"ftforensics {__version__}\n")
        parser.exit()


def make_parser(commands: Sequence[str]) -> Parser:
    parser = Parser(
        prog="ftforensics",
        description="What killed this training run, how sure is that, and what to change.",
        epilog="Exit status: 0 a verdict, 3 undecided, 2 bad usage or unreadable input, 1 the work could not be done.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action=Version, nargs=0, help="print the version and leave")
    subparsers = parser.add_subparsers(metavar="COMMAND", required=True)
    for module in commands:
        command = load(module)
        sub = subparsers.add_parser(
            command.NAME,
            help=command.HELP,
            description=command.DESCRIPTION,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        command.add_arguments(sub)
        sub.set_defaults(run_command=command.run)
    return parser


def load(module: str) -> Command:
    command: Command = importlib.import_module(f"ftforensics.cli.{module}")
    return command


def meant(name: str, commands: Sequence[str]) -> str:
    """What to type instead of the unknown command `name`."""
    if os.path.exists(name):
        return f"to read a record: ftforensics analyze {name}"

    import difflib

    close = difflib.get_close_matches(name, commands, n=1)
    return f"did you mean {close[0]}?" if close else f"the commands are {', '.join(commands)}"
