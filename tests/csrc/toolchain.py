"""The compilers that csrc/ is built with in these tests, with the flags that setup.py gives the extension."""

from __future__ import annotations

import os
import platform
import re
import subprocess
import sysconfig
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from setuptools import Extension

from conditions import HAS_AARCH64, ROOT

CSRC = ROOT / "csrc"


@cache
def extension() -> Extension:
    """The one extension of setup.py, as setuptools sees it."""
    from distutils.core import run_setup  # setuptools provides it, also where the standard library no longer does

    before = os.getcwd()
    os.chdir(ROOT)
    try:
        return run_setup("setup.py", stop_after="init").ext_modules[0]
    finally:
        os.chdir(before)


def flags() -> list[str]:
    made = extension()
    macros = [f"-D{name}" if value is None else f"-D{name}={value}" for name, value in made.define_macros]
    includes = [f"-I{ROOT / folder}" for folder in made.include_dirs]
    return ["-fPIC", *macros, *includes, f"-I{sysconfig.get_path('include')}", *made.extra_compile_args]


@dataclass(frozen=True)
class Toolchain:
    """prefix: of the binutils, "aarch64-linux-gnu-"; before: flags that stand in front of setup.py's own, as the
    interpreter's CFLAGS do."""

    name: str
    prefix: str
    before: tuple[str, ...] = ()

    def __str__(self) -> str:
        return self.name

    def compile(self, source: Path, target: Path, *more: str) -> subprocess.CompletedProcess[str]:
        command = [f"{self.prefix}gcc", *self.before, *flags(), *more, "-c", str(source), "-o", str(target)]
        return subprocess.run(command, capture_output=True, text=True, cwd=ROOT)

    def symbols(self, target: Path, kind: str) -> set[str]:
        """kind: "u" for undefined, "d" for defined and visible to other objects."""
        option = {"u": "--undefined-only", "d": "--defined-only"}[kind]
        made = subprocess.run(
            [f"{self.prefix}nm", "--extern-only", "--format=posix", option, str(target)],
            capture_output=True,
            text=True,
            check=True,
        )
        return {line.split()[0] for line in made.stdout.splitlines() if line.strip()}


# What the interpreter was built with comes first; and once what Debian's and Ubuntu's interpreters bring.
_OWN = tuple((sysconfig.get_config_var("CFLAGS") or "-O3").split())
_HARDENED = ("-O2", "-fstack-protector-strong", "-D_FORTIFY_SOURCE=2", "-fstack-clash-protection")

NATIVE = Toolchain(platform.machine(), "", _OWN)
HARDENED = Toolchain(f"{platform.machine()}-hardened", "", (*_HARDENED, "-fcf-protection=full"))
TOOLCHAINS = [NATIVE]
if platform.machine() == "x86_64":
    TOOLCHAINS.append(HARDENED)
    if HAS_AARCH64:
        TOOLCHAINS.append(Toolchain("aarch64", "aarch64-linux-gnu-", _HARDENED))


_CONTEXT = re.compile(r"/\* CONTEXT: (SIGNAL|ANY|NORMAL)\b")


def context(source: Path) -> str | None:
    """ "SIGNAL", "ANY" or "NORMAL" as the first line of the file declares it."""
    with source.open() as text:
        declared = _CONTEXT.match(text.readline())
    return declared[1] if declared else None


def sources(*contexts: str) -> list[Path]:
    return [path for path in sorted(CSRC.glob("*.c")) if context(path) in contexts]


@cache
def allowed_symbols() -> set[str]:
    """The entries of the list; one may end in `*`."""
    lines = (line.split("#")[0].strip() for line in (CSRC / "signal_safe_symbols.txt").read_text().splitlines())
    return {line for line in lines if line}
