"""What `run` puts into the job's environment, so that its Pythons record without a line of code, and its native threads
get alternate stacks. See docs/injection.md.

    FTFORENSICS_RUN    the ask: `ftforensics-run.pth` starts the capture in every Python that has it
    FTFORENSICS_DIR    the run folder
    LD_PRELOAD         the pthread_create shim, behind whatever the user preloads (an allocator wants to be first)

The shim is left out where the loader would complain about it, or where the environment reaches a foreign file system:
a preload that cannot be opened prints an error line for every program that starts.
"""

from __future__ import annotations

import glob
import os
import re
import struct
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ftforensics.capture.autostart import ASKED, PROBE
from ftforensics.capture.spawn import package_parent

Refused = tuple[str, str, "str | None"]  # source, why, grant

FOLDER = "FTFORENSICS_DIR"
PRELOAD = "LD_PRELOAD"
STARTER = "ftforensics-run.pth"

_NO_OVERFLOW = "stack overflows of native threads leave no record"
_RUNNERS = {
    "apptainer", "bwrap", "ch-run", "charliecloud", "chroot", "docker", "enroot", "flatpak", "kubectl", "lxc-attach",
    "machinectl", "nerdctl", "nsenter", "podman", "proot", "sarus", "schroot", "shifter", "singularity",
    "systemd-nspawn", "udocker",
}  # fmt: skip
# Programs that run the command in their arguments on this file system.
_WRAPPERS = {
    "chrt", "doas", "env", "ionice", "nice", "nohup", "numactl", "prlimit", "setsid", "srun", "stdbuf", "strace",
    "sudo", "taskset", "time", "timeout", "unshare",
}  # fmt: skip
_WRAPPERS_NUMBER = re.compile(r"[\d.,:x+-]+[smhd]?|all")
_MOST_WORDS = 64
_PROBE_SECONDS = 5.0


class Executable(NamedTuple):
    """What the kernel would start. machine: e_machine of the ELF header, bits: 32 or 64, None when it is no ELF file;
    loader: the dynamic loader it names, "" for a static program; secure: setuid or setgid, whose loader ignores
    LD_PRELOAD; interpreter: the program behind a script's first line."""

    path: str
    machine: int | None = None
    bits: int | None = None
    loader: str = ""
    secure: bool = False
    interpreter: tuple[str, ...] = ()


def environment(
    environ: Mapping[str, str], run_folder: str, preload: bool, command: Sequence[str]
) -> tuple[dict[str, str], list[Refused]]:
    """(the job's environment, what could not be arranged and why). run_folder: absolute; command: the job's argv."""
    variables = {**environ, ASKED: "1", FOLDER: run_folder}
    refused: list[Refused] = []
    words = _program(command)
    program = _resolve(words[0], variables) if words else None
    runner = _container_runner(command)
    if runner:
        why = f"{runner} starts the job in another file system, where nothing of this environment may hold"
        grant = f"pass {ASKED} and {FOLDER} into the container, mount {run_folder} there, and install ftforensics in it"
        refused.append(("injection", why, grant))
    for word in command[: len(command) - len(words)]:
        if os.path.basename(word) in ("sudo", "doas"):
            why = f"{word} starts the job with an environment of its own: its Pythons may record nothing"
            refused.append(("injection", why, "sudo -E ftforensics run -- COMMAND"))
    if preload:
        why = _no_preload(runner, program)
        if why:
            refused.append(("preload", f"{why}: {_NO_OVERFLOW}", None))
        else:
            variables[PRELOAD] = _appended(variables.get(PRELOAD, ""), shim() or "")
    python = _python(program, variables)
    if python is not None and _starts_capture(python, variables) is False:
        refused.append(_not_installed(python))
    return variables, refused


def shim() -> str | None:
    """Path of the library to preload; None when this installation has none."""
    found = sorted(glob.glob(os.path.join(glob.escape(package_parent()), "ftforensics", "_preload*.so")))
    return found[0] if found else None


def _appended(before: str, library: str) -> str:
    """ld.so(8): the list is separated by colons or blanks. The user's separator is kept."""
    listed = before.replace(":", " ").split()
    if library in listed:
        return before  # `run` inside `run`
    if not listed:
        return library
    separator = " " if ":" not in before and any(blank in before.strip() for blank in " \t\n") else ":"
    return f"{before.rstrip(' :')}{separator}{library}"


def _no_preload(runner: str, program: Executable | None) -> str:
    """Why the shim is left out; empty when nothing speaks against it."""
    library = shim()
    if library is None:
        return "this installation has no library to preload"
    if any(char in library for char in " \t\n:"):
        return f"LD_PRELOAD cannot name {library}: its path holds a blank or a colon"
    if runner:
        return f"{runner} starts the job in another file system"
    return "" if program is None else _other_loader(program)


def _other_loader(program: Executable) -> str:
    if program.machine is None:
        return ""
    own = _elf(os.path.realpath("/proc/self/exe"))
    if own is not None and (own.machine, own.bits) != (program.machine, program.bits):
        return f"{program.path} is built for another architecture than this Python"
    if program.secure:
        return f"{program.path} is setuid: the loader ignores LD_PRELOAD there"
    # A static program takes no notice of LD_PRELOAD; what it starts (uv and other launchers are static) does.
    if "musl" in os.path.basename(program.loader):
        return f"{program.path} runs on the C library musl"
    return ""


def _container_runner(command: Sequence[str]) -> str:
    """The program of the command line that starts the job in another root file system, or ""."""
    words = list(command[:_MOST_WORDS])
    for index, word in enumerate(words):
        name = os.path.basename(word)
        if name in _RUNNERS:
            return name
        rest = words[index + 1 :]
        if name == "srun" and any(other.startswith(("--container", "--image=", "--image")) for other in rest):
            return "srun --container"
        if name == "unshare" and any(other == "-R" or other.startswith("--root") for other in rest):
            return "unshare --root"
        if name not in _WRAPPERS and not _is_wrappers_argument(word):
            return ""
    return ""


def _program(command: Sequence[str]) -> list[str]:
    """The command behind `env A=b`, `nice -n 5`, `numactl -m 0` and the like: a guess, since every wrapper has options
    of its own; a wrong one costs a check, no more."""
    for index, word in enumerate(command[:_MOST_WORDS]):
        if os.path.basename(word) not in _WRAPPERS and not (index and _is_wrappers_argument(word)):
            return list(command[index:])
    return []


def _is_wrappers_argument(word: str) -> bool:
    """An option, an assignment, a number, a duration or a list of processors."""
    return word.startswith("-") or "=" in word.partition("/")[0] or bool(_WRAPPERS_NUMBER.fullmatch(word))


def _resolve(name: str, environ: Mapping[str, str]) -> Executable | None:
    """The file that execvpe would start; None when there is none, or it cannot be read."""
    if "/" in name:
        return _executable(name)
    for folder in environ.get("PATH", os.defpath).split(":"):
        path = os.path.join(folder or ".", name)
        if os.path.isfile(path) and os.access(path, os.X_OK):
            return _executable(path)
    return None


def _executable(path: str) -> Executable | None:
    found = _elf(path)
    if found is not None:
        return found
    try:
        with open(path, "rb") as file:
            first = file.read(256).split(b"\n", 1)[0]
    except OSError:
        return None
    words = os.fsdecode(first[2:]).split(None, 1) if first.startswith(b"#!") else []
    if words and os.path.basename(words[0]) == "env":
        # "#!/usr/bin/env python3", "#!/usr/bin/env -S python3 -u"
        words = [word for word in (words[1:] or [""])[0].split() if not word.startswith("-") and "=" not in word]
    return Executable(path, interpreter=tuple(words[:1]))


def _elf(path: str) -> Executable | None:
    """The headers of an ELF file (elf(5)); None when it is none."""
    try:
        with open(path, "rb") as file:
            head = file.read(64)
            if len(head) < 52 or head[:4] != b"\x7fELF" or head[4] not in (1, 2) or head[5] not in (1, 2):
                return None
            order = "<" if head[5] == 1 else ">"
            wide = head[4] == 2
            (machine,) = struct.unpack_from(order + "H", head, 18)
            (table,) = struct.unpack_from(order + ("Q" if wide else "I"), head, 32 if wide else 28)
            size, count = struct.unpack_from(order + "HH", head, 54 if wide else 42)
            file.seek(table)
            headers = file.read(min(size * count, 1 << 16))
            loader = ""
            for at in range(0, len(headers) - size + 1, max(size, 1)):
                if struct.unpack_from(order + "I", headers, at)[0] == 3:  # PT_INTERP
                    offset, length = (
                        struct.unpack_from(order + "Q16xQ", headers, at + 8)
                        if wide
                        else struct.unpack_from(order + "I8xI", headers, at + 4)
                    )
                    file.seek(offset)
                    loader = os.fsdecode(file.read(min(length, 4096)).rstrip(b"\0"))
            mode = os.fstat(file.fileno()).st_mode
    except (OSError, struct.error, OverflowError, ValueError):
        return None
    return Executable(path, machine, 64 if wide else 32, loader, bool(mode & 0o6000))


def _python(program: Executable | None, environ: Mapping[str, str]) -> str | None:
    """The Python that the command starts; None when it starts something else, or a script that may start any."""
    for _ in range(4):  # the kernel follows a script's first line so often (BINPRM_MAX_RECURSION is 4 or 5)
        if program is None:
            return None
        if not program.interpreter:
            return program.path if _is_python(program.path) else None
        program = _resolve(program.interpreter[0], environ)
    return None


def _is_python(path: str) -> bool:
    return os.path.basename(path).rstrip("0123456789.td") == "python"


def _starts_capture(python: str, environ: Mapping[str, str]) -> bool | None:
    """Whether this interpreter gets to `ftforensics.capture.autostart` by itself; None when it does not say."""
    home = os.path.dirname(os.path.dirname(os.path.abspath(python)))
    beside = glob.glob(f"{glob.escape(home)}/lib*/python3*/*-packages/{STARTER}")
    if any(os.path.isdir(os.path.join(os.path.dirname(path), "ftforensics")) for path in beside):
        return True
    # Only the interpreter knows its site directories, its PYTHONPATH and its editable installations.
    ask = "import sys; sys.exit('ftforensics.capture.autostart' not in sys.modules)"
    try:
        done = subprocess.run(
            [python, "-c", ask],
            env={**environ, ASKED: PROBE},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=_PROBE_SECONDS,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return {0: True, 1: False}.get(done.returncode)


def _not_installed(python: str) -> Refused:
    parent = package_parent()
    source = os.path.exists(os.path.join(os.path.dirname(parent), "pyproject.toml"))
    what = f"-e {os.path.dirname(parent)}" if source else "ftforensics"
    why = f"ftforensics is not installed in the job's environment ({python}): its Pythons record nothing by themselves"
    if os.path.realpath(python) == os.path.realpath(sys.executable):
        why += "; it was started from a source tree, which Python's start does not look at"
    return "injection", why, f"{python} -m pip install --no-deps {what}"
