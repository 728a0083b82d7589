"""Which CUDA libraries `import torch` loads by path, ahead of its own: read from torch/__init__.py as text.

torch's libraries find those of the nvidia packages through RPATH; where that does not reach (packages in another
folder, a library that another one loads by name) `_load_global_deps` helps out. What it does changed with releases: in
2.0 only after a failure; in 2.9 NVRTC and nvJitLink after a success as well; in 2.13 the whole list. The text of the
installed file is asked instead of a table of versions; a torch that words it in another way preloads nothing, as far as
this can see.
"""

from __future__ import annotations

import re

import msgspec

# ("cublas", "libcublas.so.*[0-9]") and, in 2.0, 'cublas': 'libcublas.so.*[0-9]'
_PAIR = re.compile(
    r"[\"'](\w{1,40})[\"']\s{0,40}[,:]\s{0,40}[\"'](lib[\w-]{1,40}\.so\.\*\[0-9\])[\"'](, required=False)?"
)
_FUNCTION = re.compile(r"^def (\w+)\(.*?(?=^\S)", re.MULTILINE | re.DOTALL)
_NEEDS_WHEEL = re.compile(r"nvidia/cuda_runtime/lib/libcudart\.so")


class Preload(msgspec.Struct, frozen=True):
    """folder: below nvidia/ ("cublas"); pattern: of the file name, with * and [0-9] as glob takes them; required:
    where it is not found, the rest of the list is not loaded either."""

    folder: str
    pattern: str
    required: bool = True


class Preloads(msgspec.Struct, frozen=True):
    """after_failure: when libtorch_global_deps.so could not be loaded; after_success: when it could and brought a CUDA
    runtime, only_with_wheel: only one that lies in nvidia/cuda_runtime."""

    after_failure: list[Preload] = []
    after_success: list[Preload] = []
    only_with_wheel: bool = False


def preloads(text: str) -> Preloads:
    functions = {found[1]: found[0] for found in _FUNCTION.finditer(text)}
    whole = _pairs(functions.get("_preload_cuda_deps", ""))
    success, _, failure = functions.get("_load_global_deps", "").partition("except OSError")
    after = whole if "_preload_cuda_deps()" in success else _pairs(success)
    return Preloads(_pairs(failure) or whole, after, only_with_wheel=_NEEDS_WHEEL.search(success) is not None)


def _pairs(text: str) -> list[Preload]:
    return [Preload(folder, pattern, required=not optional) for folder, pattern, optional in _PAIR.findall(text)]
