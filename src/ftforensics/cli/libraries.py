"""`ftforensics libraries PID|RECORD`: which CUDA, torch and runtime libraries a process has, or had, loaded."""

from __future__ import annotations

import argparse
import os
import shutil
from typing import TYPE_CHECKING

from ftforensics.cli.errors import BadUsage, UnreadableInput

if TYPE_CHECKING:
    from ftforensics.cli.progress import Progress
    from ftforensics.host.host import Host
    from ftforensics.model.stack import LoadedStack

NAME = "libraries"
HELP = "which CUDA, torch and runtime libraries a process has loaded"
DESCRIPTION = """\
Which CUDA, torch, OpenMP, cuDNN, NCCL and C++ runtime libraries a process has
loaded: from where, in which version and how that is known, whether it is the
version that the installed torch demands, and whether the file is still the one
that was loaded. Then the driver and the GPUs.

The argument is the pid of a process of this machine, or a crash record, or a
folder with one in it. Nothing is imported, and the process does not notice."""

DRIVER_TIMEOUT = 3.0  # seconds


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "process", metavar="PID|RECORD", help="a process of this machine, a *.crash.json, or a folder with one"
    )
    parser.add_argument(
        "--verify",
        action="store_true",
        help="compare every file of torch and of NVIDIA's packages with what was installed (reads gigabytes)",
    )
    parser.add_argument("--json", action="store_true", help="print it as JSON (schema ftforensics.libraries/1)")


def run(options: argparse.Namespace) -> int:
    from ftforensics.cli.output import write_json, write_stdout
    from ftforensics.cli.progress import Progress
    from ftforensics.host.host import Host

    host = Host()
    with Progress() as progress:
        progress.say("looking at libraries")
        if options.process.isdecimal() and not os.path.exists(options.process):
            stack, files = _of_process(int(options.process), host)
        else:
            stack, files = _of_record(options.process, host, progress), host
        if options.verify:
            stack = _verified(stack, files, progress)
    if options.json:
        from ftforensics.report import json

        write_json(json.render(stack))
    else:
        from ftforensics.report import libraries

        write_stdout(libraries.render(stack, shutil.get_terminal_size().columns))
    return 0


def _of_process(pid: int, host: Host) -> tuple[LoadedStack, Host]:
    """With the machine that its paths belong to: a container's root is not ours."""
    from ftforensics.host.host import Host, Refusal
    from ftforensics.model.basics import Gap
    from ftforensics.model.stack import LoadedStack
    from ftforensics.sources.driver import installed_driver
    from ftforensics.sources.process_stack import in_other_files, stack_of_process

    files = Host(root=f"/proc/{pid}/root") if in_other_files(host, pid) else host
    try:
        found = stack_of_process(host, pid, files)
    except Refusal as refusal:
        if refusal.absent:
            raise BadUsage(f"no process {pid} is running here", hint="ps -e lists those that are") from None
        hint = "try as its user, or with sudo" if os.geteuid() else "try inside its container, or with CAP_SYS_PTRACE"
        raise UnreadableInput(f"process {pid}: {refusal}", hint=hint) from None
    if not found.mapped:
        raise UnreadableInput(f"process {pid} has nothing loaded: it has ended, or it is a part of the kernel")
    driver = installed_driver(files, found.libcuda, DRIVER_TIMEOUT)
    gaps = list(found.software.gaps)
    if isinstance(driver, Gap):
        gaps.append(driver)
    elif files is not host:
        gaps.append(
            Gap("driver", f"process {pid} sees other files, as in a container: its libcuda was not asked from outside")
        )
    stack = LoadedStack(
        pid=pid,
        libraries=found.libraries,
        software=found.software,
        driver=None if isinstance(driver, Gap) else driver,
        gaps=gaps,
    )
    return stack, files


def _of_record(path: str, host: Host, progress: Progress) -> LoadedStack:
    from ftforensics.cli.inputs import gather
    from ftforensics.model.stack import LoadedStack
    from ftforensics.sources.loaded import loaded

    records = gather([path], pid=None, rank=None, progress=progress).records
    if len(records) != 1:
        names = ", ".join(str(one.path) for one in records[:4])
        raise BadUsage(
            f"{path} holds {len(records) or 'no'} crash record{'s' * (len(records) != 1)}",
            hint=f"give one of them: {names}" if records else "give the pid of a process, or a *.crash.json",
        )
    record = records[0].record
    found = loaded(record, host)
    return LoadedStack(
        pid=record.process.pid if record.process else None,
        record=records[0].path,
        libraries=found.libraries or [],
        software=found.software,
        driver=found.driver,
        gaps=[*records[0].gaps, *found.gaps, *(found.software.gaps if found.software else [])],
    )


def _verified(stack: LoadedStack, host: Host, progress: Progress) -> LoadedStack:
    import msgspec

    from ftforensics.model.basics import Gap
    from ftforensics.sources.integrity import verify
    from ftforensics.sources.missing_symbols import complete_software

    if stack.software is None or not stack.software.site_packages:
        gap = Gap("packages", "no folder of installed packages is known, so nothing could be compared")
        return msgspec.structs.replace(stack, gaps=[*stack.gaps, gap])

    def tell(done: int, whole: int) -> None:
        progress.say(f"comparing files: {done >> 20} of {whole >> 20} MiB")

    software = verify(host, stack.software, hash_files=True, progress=tell)
    new = [gap for gap in software.gaps if gap not in stack.software.gaps]
    software = complete_software(host, software, stack.libraries)
    return msgspec.structs.replace(stack, software=software, gaps=[*stack.gaps, *new])
