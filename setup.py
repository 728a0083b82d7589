"""Builds the C extension, the library to preload, and the start file. All else stands in pyproject.toml."""

import os
import platform
import sys
from glob import glob

from setuptools import Extension, setup
from setuptools.command.build_py import build_py

if sys.platform != "linux" or platform.machine() not in ("x86_64", "aarch64"):
    raise SystemExit("ftforensics: Linux on x86-64 or aarch64 only (signal frames and registers are read by hand).")

# One wheel for CPython 3.10 and later: nothing in csrc needs interpreter internals, so the stable ABI holds.
LIMITED_API = "0x030A0000"

# Both run on foreign and small stacks: no canary (its failure path is not signal-safe), no calls that the compiler may
# turn into something with locks. Debian's Python compiles extensions with _FORTIFY_SOURCE, which turns memcpy into
# __memcpy_chk: that one reports through stdio.
COMPILE = [
    "-std=c11",
    "-O2",
    "-g",
    "-Wall",
    "-Wextra",
    "-fvisibility=hidden",
    "-fno-stack-protector",
    "-U_FORTIFY_SOURCE",
]
# No lazy binding: resolving a symbol inside a handler takes the loader's lock.
LINK = ["-Wl,-z,now", "-Wl,-z,relro"]

# Python executes the lines of *.pth files that lie in site-packages itself, beside the packages. setuptools has no word
# for such a file.
START_FILE = "ftforensics-run.pth"


class BuildPython(build_py):
    def run(self):
        super().run()
        self.copy_file(os.path.join("src", START_FILE), os.path.join(self._site_packages(), START_FILE))

    def _site_packages(self):
        # An editable installation packs what "install" would put into site-packages, and nothing of build_lib.
        if getattr(self, "editable_mode", False):
            return self.get_finalized_command("install").install_purelib
        return self.build_lib

    def get_source_files(self):
        return [*super().get_source_files(), os.path.join("src", START_FILE)]

    def get_outputs(self, include_bytecode=1):
        outputs = super().get_outputs(include_bytecode)
        return (
            outputs if getattr(self, "editable_mode", False) else [*outputs, os.path.join(self.build_lib, START_FILE)]
        )


setup(
    cmdclass={"build_py": BuildPython},
    ext_modules=[
        Extension(
            "ftforensics._native",
            sources=sorted(glob("csrc/*.c")),
            depends=sorted(glob("csrc/*.h")),
            include_dirs=["csrc"],
            define_macros=[("Py_LIMITED_API", LIMITED_API), ("_GNU_SOURCE", None)],
            py_limited_api=True,
            extra_compile_args=[
                *COMPILE,
                "-ftls-model=initial-exec",  # no lazily allocated TLS
                "-fno-omit-frame-pointer",
            ],
            extra_link_args=LINK,
        ),
        # No Python in it: it is for LD_PRELOAD, so it must load into any program. An extension module only in that
        # setuptools then compiles it and puts it into the package.
        Extension(
            "ftforensics._preload",
            sources=["csrc/preload/ftf_preload.c"],
            define_macros=[("_GNU_SOURCE", None)],
            py_limited_api=True,
            extra_compile_args=[
                *COMPILE,
                # pthread_exit and cancellation unwind through the frame that begins a thread.
                "-fasynchronous-unwind-tables",
            ],
            extra_link_args=LINK,
        ),
    ],
    options={"bdist_wheel": {"py_limited_api": "cp310"}},
)
