"""What to do about a crash in native code: by who is blamed, and by what went wrong. Most useful first."""

from __future__ import annotations

from collections.abc import Iterator

from ftforensics.causes.blame import Blame, blame, frame_name, in_interpreter, library_text, line_text
from ftforensics.causes.library_evidence import reinstall
from ftforensics.model.case import Crash
from ftforensics.model.crash import Library
from ftforensics.model.diagnosis import Frame, Remedy
from ftforensics.model.mechanism import Mechanism
from ftforensics.parsers.library_name import is_torch, kind_of

_POINTERS = (
    Mechanism.NULL_READ, Mechanism.NULL_WRITE, Mechanism.NULL_CALL, Mechanism.WILD_READ, Mechanism.WILD_WRITE,
    Mechanism.WILD_CALL, Mechanism.NON_CANONICAL, Mechanism.WRITE_TO_READONLY, Mechanism.EXECUTE_DATA,
)  # fmt: skip
_NULLS = (Mechanism.NULL_READ, Mechanism.NULL_WRITE, Mechanism.NULL_CALL)
_CUDA = ("libcuda", "libcudart", "libtorch_cuda")
# Packages that work on memory which their callers hand over.
_ARRAYS = {"torch": "tensors", "numpy": "arrays"}
# glibc 2.34 moved MALLOC_CHECK_ into a library of its own (its NEWS); without it the variable does nothing.
_DEBUG_LIBRARY = (2, 34)


def advice(crash: Crash) -> list[Remedy]:
    """For a fault. One of them, the test, tells whether the suspicion holds."""
    return [*_about_blame(crash, blame(crash)), *_tests(crash)]


def _about_blame(crash: Crash, blamed: Blame) -> Iterator[Remedy]:
    if crash.reading.mechanism is Mechanism.INTEGER_DIVISION:
        where = frame_name(blamed.frame).partition(" (")[0] if blamed.frame is not None else "the code that died"
        yield Remedy(f"Look for the divisor in {where}: it was 0, or -1 under the smallest integer")
    if blamed.border is not None and blamed.python is not None:
        yield Remedy(_about_border(crash, blamed, line_text(blamed.python)))
        if blamed.frame is not None and (found := package_of(crash, blamed.frame)) is not None:
            yield from _reinstall(found, blamed.frame)
    elif blamed.frame is not None:
        yield from _about_library(crash, blamed, blamed.frame)
    elif blamed.python is not None:
        where = line_text(blamed.python)
        yield Remedy(
            f"The interpreter itself died at {where}: an object was damaged earlier. "
            "Look at the native extensions that ran before"
            if in_interpreter(crash)
            else f"Look at the native code that {where} called: its stack could not be followed"
        )
    else:
        yield Remedy("No frame of anybody's own code is in the stack: get a core file and look at it with gdb")


def _about_border(crash: Crash, blamed: Blame, where: str) -> str:
    if blamed.frame is not None:
        name = frame_name(blamed.frame).partition(" (")[0]
        return (
            f"Check what {where} passes to {name} through {blamed.border} (argtypes and restype declared? buffers "
            f"still alive?); if that is right, the bug is in {library_text(blamed.frame)}"
        )
    if crash.reading.mechanism is Mechanism.INTEGER_DIVISION:
        return f"Check the numbers that {where} passes through {blamed.border}"
    what = f"Check the pointers that {where} passes through {blamed.border}"
    if crash.reading.mechanism in _NULLS:
        return f"{what}: one of them is null"
    address = crash.reading.address
    if blamed.border == "ctypes" and address is not None and address >> 32 in (0, 0xFFFFFFFF):
        return f"{what}: one may have been cut to 32 bits, as happens without restype = c_void_p"
    return f"{what}: argtypes and restype declared? Buffers still alive?"


def _about_library(crash: Crash, blamed: Blame, frame: Frame) -> Iterator[Remedy]:
    found = package_of(crash, frame)
    name = frame_name(frame).partition(" (")[0]
    from_python = f" ({line_text(blamed.python)})" if blamed.python else ""
    if found is not None and found.package in _ARRAYS and crash.reading.mechanism in _POINTERS:
        yield Remedy(
            f"Check the {_ARRAYS[found.package]} that {name} got{from_python}: memory that was freed or never theirs "
            "(from_blob, frombuffer, shared storage), or an index out of range"
        )
        yield from _reinstall(found, frame)
    elif found is not None:
        yield from _reinstall(found, frame)
    elif "/lib-dynload/" in (frame.library or ""):
        yield Remedy(f"Check what is passed to Python's own module{from_python}: it was given damaged memory")
    elif _is_ours_to_build(frame):
        yield Remedy(
            f"Look at {name} in the source of {library_text(frame)}{from_python}; "
            "if it was built for another torch or Python, rebuild it"
        )
    else:
        yield Remedy(f"Look at what {name} of {library_text(frame)} is called with{from_python}")


def _is_ours_to_build(frame: Frame) -> bool:
    path = frame.library or ""
    return not path.startswith(("/usr/lib", "/lib", "/opt/nvidia", "/usr/local/cuda"))


def _reinstall(library: Library, frame: Frame) -> Iterator[Remedy]:
    package, version = library.package, library.version
    if package is None or library.vendored_by:
        owner = library.vendored_by or library_text(frame)
        yield Remedy(f"Reinstall or rebuild {owner}, which brings {library_text(frame)}")
        return
    text = f"{package} {version}" if version else package
    build = " (built for another torch or Python?)" if library.kind == "extension" and package not in _ARRAYS else ""
    command = reinstall(package, version) if library.how == "record" else None
    yield Remedy(f"Reinstall or rebuild {text}{build}, or try its next version", command)


def package_of(crash: Crash, frame: Frame) -> Library | None:
    """What is known about the frame's library; of one without any package only when the name says what it is."""
    for library in crash.record.libraries or []:
        if library.path == frame.library:
            return library if library.package or library.vendored_by else None
    kind = kind_of(frame.library or "")
    return Library(frame.library or "", kind, package="torch") if kind and is_torch(kind) else None


def _tests(crash: Crash) -> Iterator[Remedy]:
    word = crash.reading.mechanism
    if on_cuda(crash):
        yield Remedy(
            "Run once so that each kernel is waited for: the Python line is then the right one",
            "CUDA_LAUNCH_BLOCKING=1 python ...",
            settles=True,
        )
    elif blame(crash).frame is None and blame(crash).border is None and crash.python:
        yield Remedy(
            "Run once with Python's own allocator checks: an object written over is then reported where it is freed",
            "PYTHONMALLOC=debug python -X dev ...",
            settles=True,
        )
    elif word in _POINTERS and word not in _NULLS:
        yield heap_check(crash)


def heap_check(crash: Crash) -> Remedy:
    """The cheapest run that tells whether memory is overwritten or used after it was freed."""
    command = "MALLOC_CHECK_=3 MALLOC_PERTURB_=165 python ..."
    if _glibc(crash) >= _DEBUG_LIBRARY:
        command = "LD_PRELOAD=libc_malloc_debug.so.0 " + command
    return Remedy(
        "Run once with a checking allocator. If the failure moves or changes, memory is overwritten or used after "
        "it was freed: valgrind or a build with -fsanitize=address then names the culprit",
        command,
        settles=True,
    )


def _glibc(crash: Crash) -> tuple[int, ...]:
    version = (crash.record.job.glibc if crash.record.job else None) or ""
    parts = version.split(".")[:2]
    return tuple(int(part) for part in parts) if all(part.isdigit() for part in parts) else (0,)


def on_cuda(crash: Crash) -> bool:
    """Is CUDA in use in this process, as far as its libraries tell? libcuda is there only once something opened it."""
    paths = [module.path for module in crash.record.modules or []]
    return any(kind_of(path.removesuffix(" (deleted)")) in _CUDA for path in paths)


def has_torch(crash: Crash) -> bool:
    kinds = (kind_of(module.path) for module in crash.record.modules or [])
    return any(kind is not None and is_torch(kind) for kind in kinds)
