"""Builds the C extension. Everything else about the package stands in pyproject.toml."""

import platform
import sys
from glob import glob

from setuptools import Extension, setup

if sys.platform != "linux" or platform.machine() not in ("x86_64", "aarch64"):
    raise SystemExit("ftforensics: Linux on x86-64 or aarch64 only (signal frames and registers are read by hand).")

# One wheel for CPython 3.10 and later: nothing in csrc needs interpreter internals, so the stable ABI holds.
LIMITED_API = "0x030A0000"

setup(
    ext_modules=[
        Extension(
            "ftforensics._native",
            sources=sorted(glob("csrc/*.c")),
            depends=sorted(glob("csrc/*.h")),
            include_dirs=["csrc"],
            define_macros=[("Py_LIMITED_API", LIMITED_API), ("_GNU_SOURCE", None)],
            py_limited_api=True,
            extra_compile_args=[
                "-std=c11",
                "-O2",
                "-g",
                "-Wall",
                "-Wextra",
                "-fvisibility=hidden",
                # The handler runs on foreign and small stacks: no canary (its failure path is not signal-safe), no
                # lazily allocated TLS, no calls that the compiler may turn into something with locks.
                "-fno-stack-protector",
                # Debian's Python compiles extensions with _FORTIFY_SOURCE, which turns memcpy into __memcpy_chk: that
                # one reports through stdio.
                "-U_FORTIFY_SOURCE",
                "-ftls-model=initial-exec",
                "-fno-omit-frame-pointer",
            ],
            # No lazy binding: resolving a symbol inside a handler takes the loader's lock.
            extra_link_args=["-Wl,-z,now", "-Wl,-z,relro"],
        )
    ],
    options={"bdist_wheel": {"py_limited_api": "cp310"}},
)
