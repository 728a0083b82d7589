"""`ftforensics check`: before a run, whether it can work here; or whether a torch that is not here would."""

from __future__ import annotations

import argparse
import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ftforensics.host.host import Host
    from ftforensics.model.crash import Driver, Gpu
    from ftforensics.model.preflight import Preflight
    from ftforensics.preflight.options import Options

NAME = "check"
HELP = "before a run: driver, torch, libraries, machine; would a crash be seen"
DESCRIPTION = """\
Look, before a run, at what is known to end runs: does the driver fit torch, do
the libraries that would be loaded belong together, are their files whole, is
there room in memory, /dev/shm and on disk, would a crash here be recorded.
Nothing is imported or started; torch need not work for this.

  ftforensics check --data-path /data/train --distributed
  ftforensics check --for "torch==2.9.1+cu128" --driver 530.30.02 --gpu A100
  $(ftforensics check --install torch)

Exit status: 0 no check fails (warnings allowed), 1 one does, 2 bad usage."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--prefix", metavar="DIR", help="environment of the job (default: the one this runs in)")
    parser.add_argument(
        "--data-path",
        metavar="PATH",
        action="append",
        default=[],
        help="must be there, readable, not empty; repeatable",
    )
    parser.add_argument(
        "--checkpoints", metavar="DIR", action="append", default=[], help="must be writable, with room; repeatable"
    )
    parser.add_argument("--verify", action="store_true", help="compare file contents too, not only sizes (slower)")
    parser.add_argument(
        "--distributed", action="store_true", help="also the meeting place, rank to GPU, backend; run it as a rank"
    )
    parser.add_argument("--backend", choices=("nccl", "gloo", "mpi", "ucc"), help="the one that the job names")
    parser.add_argument(
        "--start-method", choices=("fork", "spawn", "forkserver"), help="of worker processes, if the job sets it"
    )
    parser.add_argument("--install", metavar="torch", help="print the pip line for this driver, GPU and Python")
    parser.add_argument("--for", dest="wheel", metavar="TORCH", help='a torch that is not here: "torch==2.9.1+cu128"')
    parser.add_argument(
        "--driver", metavar="VERSION", help="with --for, --install: another than this, 530.30.02 or 530"
    )
    parser.add_argument("--gpu", metavar="GPU", help="with --for, --install: 8.0, sm_80, A100; or several: 8.0,9.0")
    parser.add_argument("--python", metavar="VERSION", help="with --for, --install: another Python, as 3.11")
    parser.add_argument("--json", action="store_true", help="the answer for programs, schema ftforensics.check/1")
    parser.add_argument("-v", "--verbose", action="store_true", help="the evidence of each check, every remedy")
    parser.add_argument(
        "--color", choices=("auto", "always", "never"), default="auto", help="colour the status words (default: auto)"
    )


def run(options: argparse.Namespace) -> int:
    _usage(options)
    from ftforensics.host.host import Host

    host = Host()
    if options.prefix is not None:
        _require_environment(host, options.prefix)
    if options.install is not None:
        return _install(host, options)
    preflight = _for_wheel(host, options) if options.wheel is not None else _here(host, options)
    _show(preflight, options)
    return 1 if preflight.failed else 0


def _usage(options: argparse.Namespace) -> None:
    from ftforensics.cli.errors import BadUsage

    if options.install is not None and options.install != "torch":
        raise BadUsage(f"--install knows torch only, not {options.install!r}", hint="ftforensics check --install torch")
    if options.install is not None and options.wheel is not None:
        raise BadUsage("--install and --for are two questions", hint="ask one at a time")
    if options.install is None and options.wheel is None:
        for name in ("driver", "gpu", "python"):
            if getattr(options, name) is not None:
                raise BadUsage(f"--{name} goes with --for or --install", hint='--for "torch==2.9.1+cu128"')
    else:
        for name in ("prefix", "data_path", "checkpoints", "verify", "distributed", "backend", "start_method"):
            if getattr(options, name):
                option = f"--{name.replace('_', '-')}"
                raise BadUsage(f"{option} is about this machine, --for and --install are not", hint="ask one at a time")
    for name in ("backend", "start_method"):
        if getattr(options, name) and not options.distributed:
            raise BadUsage(f"--{name.replace('_', '-')} goes with --distributed", hint="give both")
    for path in (*options.data_path, *options.checkpoints, options.prefix or "."):
        if not path or "\0" in path:
            raise BadUsage(f"{path!r} is no path")
    if options.prefix is not None and not os.path.isdir(options.prefix):
        raise BadUsage(f"--prefix {options.prefix}: no such folder", hint="the folder that holds bin/python")


def _require_environment(host: Host, prefix: str) -> None:
    from ftforensics.cli.errors import BadUsage
    from ftforensics.sources.interpreter import is_environment

    if not is_environment(host, os.path.abspath(prefix)):
        raise BadUsage(f"--prefix {prefix}: not a Python environment", hint="the folder that holds bin/python")


def _here(host: Host, options: argparse.Namespace) -> Preflight:
    from ftforensics.preflight.run import run_checks

    return run_checks(host, _wishes(options))


def _wishes(options: argparse.Namespace) -> Options:
    from ftforensics.preflight.options import Options, Variable
    from ftforensics.supervise.lasting import passing_file_system

    try:
        cwd = os.getcwd()
    except OSError:  # it has been removed
        cwd = "/"
    folder = os.environ.get("FTFORENSICS_DIR") or None
    folder = os.path.abspath(os.path.expanduser(folder)) if folder else None
    return Options(
        environment=[Variable(name, value) for name, value in os.environ.items()],
        cwd=cwd,
        prefix=os.path.abspath(options.prefix) if options.prefix else None,
        data=[os.path.abspath(path) for path in options.data_path],
        checkpoints=[os.path.abspath(path) for path in options.checkpoints],
        run_folder=folder,
        passing=passing_file_system(folder or cwd, os.environ),
        verify=options.verify,
        distributed=options.distributed,
        backend=options.backend,
        start_method=options.start_method,
    )


def _for_wheel(host: Host, options: argparse.Namespace) -> Preflight:
    from ftforensics.cli.errors import BadUsage
    from ftforensics.preflight.wheel import NotUnderstood, asked_torch, check_wheel

    try:
        asked = asked_torch(options.wheel)
        driver, gpus, python = _elsewhere(host, options)
        if python is None and options.driver is None:
            python = _this_python()
    except NotUnderstood as error:
        raise BadUsage(str(error), hint=error.hint) from None
    if driver is None and asked.cuda is not None:
        raise BadUsage(
            "no NVIDIA driver is seen here, and none is named", hint="--driver 535.104.05 asks about that one"
        )
    return check_wheel(asked, driver, gpus, python, os.uname().machine)


def _install(host: Host, options: argparse.Namespace) -> int:
    """The pip line alone on standard output; where there is none, one line on standard error says why."""
    from ftforensics.cli.errors import BadUsage
    from ftforensics.cli.output import complain, write_json, write_stdout
    from ftforensics.preflight.advice import install_line
    from ftforensics.preflight.wheel import NotUnderstood

    try:
        driver, gpus, python = _elsewhere(host, options)
    except NotUnderstood as error:
        raise BadUsage(str(error), hint=error.hint) from None
    if driver is not None and not driver.gpus and not gpus and options.driver is None:
        complain("the GPUs were not seen, so the line is for any; --gpu 8.0 names one")
    line, why = install_line(driver, gpus, python or _this_python(), os.uname().machine)
    if line is None:
        complain(why)
        return 1
    if options.json:
        import msgspec

        write_json(msgspec.json.encode(line).decode() + "\n")
    else:
        write_stdout(f"{line.command}\n")
    return 0


def _elsewhere(host: Host, options: argparse.Namespace) -> tuple[Driver | None, list[Gpu], str | None]:
    """The driver, GPUs and Python that are named, else this machine's. GPUs of here go with the driver of here."""
    from ftforensics.model.crash import Driver
    from ftforensics.parsers.gpu_variables import visible_devices
    from ftforensics.preflight.gpus import with_visible
    from ftforensics.preflight.seen import driver_here
    from ftforensics.preflight.wheel import asked_driver, asked_gpus, asked_python

    gpus = asked_gpus(options.gpu) if options.gpu is not None else []
    python = asked_python(options.python) if options.python is not None else None
    if options.driver is not None:
        return Driver(module_version=asked_driver(options.driver), gpus=gpus), gpus, python
    here = driver_here(host, None)
    if not isinstance(here, Driver):
        return None, gpus, python
    return with_visible(here, visible_devices(os.environ.get("CUDA_VISIBLE_DEVICES"))), gpus, python


def _this_python() -> str:
    return ".".join(str(part) for part in sys.version_info[:3])


def _show(preflight: Preflight, options: argparse.Namespace) -> None:
    from ftforensics.cli.output import in_colour, write_json, write_stdout

    if options.json:
        from ftforensics.report import json

        write_json(json.render(preflight))
        return
    import shutil

    from ftforensics.report import check, plot, terminal

    view = terminal.View(
        width=shutil.get_terminal_size().columns,
        colour=in_colour(options.color),
        verbose=options.verbose,
        ascii=not plot.drawable(getattr(sys.stdout, "encoding", None)),
    )
    write_stdout(check.render(preflight, view))
