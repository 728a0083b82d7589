"""Two C++ runtimes (libstdc++) meet, or one is older than a library needs.

## What it means

Compiled C++ code needs at least the libstdc++ that it was built with. Conda brings a new one in its own folder, the
system has an older one; whichever is loaded first serves the whole process. Code that needs the newer one fails to load
(`GLIBCXX_3.4.32 not found`). Where both are mapped, or a wheel has one linked in, locales, streams and exceptions of
one are handed to the other.

## How it is told apart

The loader's message is likely the cause when the process ended by it. In a crash it is likely when a libstdc++ from
outside the conda environment (or a second one) is mapped *and* the process died in libstdc++ while libraries were being
initialised; with one of the two signs it is possible. Conda's own libstdc++ in conda's environment is as it should be.

## What to do

1. Put the newer one first: `export LD_LIBRARY_PATH=$CONDA_PREFIX/lib` for a test, or
   `conda install -c conda-forge libstdcxx-ng`.
2. Remove what puts the system's first (`LD_PRELOAD`, `LD_LIBRARY_PATH=/usr/lib/...`).
3. Build extensions with the compiler of the environment they run in, and without `-static-libstdc++`.

## Seen in the field

- pytorch/pytorch#157709, #87279: `GLIBCXX_3.4.x' not found`, the system's libstdc++ came before conda's.
- pytorch/pytorch#109923: a segmentation fault in `std::codecvt...::do_in` below torch::Library; an extension with
  libstdc++ linked in.

## References

- GCC documentation, "ABI Policy and Guidelines" of libstdc++; man 8 ld.so
"""

from __future__ import annotations

from collections.abc import Iterator

from ftforensics.causes.library_evidence import (
    ended_by_exception,
    find_frame,
    frames,
    library_cite,
    likely_if,
    no_stack,
    own_fault,
    short_place,
    signal_name_of,
    software_texts,
    text_cites,
    variable,
    where,
)
from ftforensics.causes.library_set import folder
from ftforensics.causes.registry import Kind
from ftforensics.causes.stack import find_function
from ftforensics.model.basics import Cite
from ftforensics.model.case import Crash
from ftforensics.model.crash import Library
from ftforensics.model.death import Death
from ftforensics.model.diagnosis import Finding, Frame, Remedy
from ftforensics.parsers.library_name import kind_of

KIND = Kind.CIRCUMSTANCE
ORDER = 33
REFINES = ("python-exception",)
CHANGES = ("variable:LD_LIBRARY_PATH", "variable:LD_PRELOAD", "package:libstdcxx*", "image")
_STDCXX = "libstdc++"
_NEAR = 4  # frames: in which libstdc++ died, not one that merely calls through it
# The dynamic loader runs the constructors of a library that it has just loaded (elf/dl-init.c).
_INITIALISING = ("call_init", "_dl_init", "dl_init", "__libc_start_main", "_GLOBAL__sub_I")


def check(crash: Crash) -> Iterator[Finding]:
    loaded = [one for one in crash.record.libraries or [] if one.kind == _STDCXX]
    if not own_fault(crash) or not loaded:
        return
    wrong = _wrong(crash, loaded)
    died_there = _died_in_it(crash)
    if not wrong and died_there is None:
        return
    if len(loaded) == 1 and not wrong and not _torch_mapped(crash):
        return
    places = " and ".join(f"{one.version or 'one'} in {short_place(folder(one))}" for one in loaded)
    against = []
    if died_there is None and frames(crash):
        against.append(Cite("crash", "native.frames", "it did not die in libstdc++ while a library was initialised"))
    if not wrong:
        against.append(Cite("libraries", loaded[0].path, "one libstdc++ is mapped, and nothing shows a second one"))
    yield Finding(
        cause="libstdcxx-clash",
        confidence=likely_if(wrong and died_there is not None),
        summary=(
            f"{signal_name_of(crash)} {'in libstdc++ while a library was initialised' if died_there else ''}"
            f"{' with ' if died_there is None else '; '}libstdc++ {places}{(wrong and f': {wrong}') or ''}."
        ).replace("  ", " "),
        supports=[
            *([died_there] if died_there is not None else []),
            *(library_cite(one) for one in loaded),
            *variable(crash, "LD_LIBRARY_PATH")[1],
            *variable(crash, "LD_PRELOAD")[1],
            *where(crash),
        ],
        against=[*crash.reading.against, *against],
        unknown=[*crash.reading.unknown, *no_stack(crash)],
        remedies=_remedies(crash),
    )


def _wrong(crash: Crash, loaded: list[Library]) -> str | None:
    """What is wrong with the set of them, None: nothing."""
    if len({folder(one) for one in loaded}) > 1:
        return "two are loaded"
    prefix, _ = variable(crash, "CONDA_PREFIX")
    software = crash.record.software
    root = (software.prefix if software is not None else None) or (
        crash.record.job.sys_prefix if crash.record.job else None
    )
    if prefix is None or root is None or not (root == prefix or root.startswith(f"{prefix}/envs/")):
        return None
    if loaded[0].origin == "conda" or loaded[0].path.startswith(f"{root}/"):
        return None
    return f"it is not the one of the conda environment {root}"


def _died_in_it(crash: Crash) -> Cite | None:
    inside = find_frame(crash, lambda frame: kind_of(frame.library or "") == _STDCXX)
    near = any(kind_of(frame.library or "") == _STDCXX for index, frame in frames(crash) if index < _NEAR)
    if inside is None or not near:
        return None
    starting = find_function(crash, _INITIALISING) or find_frame(crash, _initialises)
    return inside if starting is not None else None


def _initialises(frame: Frame) -> bool:
    name = frame.function or ""
    return name.startswith("_GLOBAL__sub_I") or "__static_initialization_and_destruction" in name


def _torch_mapped(crash: Crash) -> bool:
    return any(one.kind == "libtorch_cpu" for one in crash.record.libraries or [])


def _remedies(crash: Crash) -> list[Remedy]:
    remedies = []
    if variable(crash, "CONDA_PREFIX")[0] is not None:
        remedies.append(
            Remedy("Bring the environment's libstdc++ up to date", "conda install -c conda-forge libstdcxx-ng")
        )
    for name in ("LD_PRELOAD", "LD_LIBRARY_PATH"):
        if variable(crash, name)[0] is not None:
            remedies.append(
                Remedy(f"Start the job without {name}, which may put another libstdc++ first", f"unset {name}")
            )
    settles = Remedy(
        "Run once with the newest libstdc++ for the whole process. If it still dies, this was not the cause",
        "LD_PRELOAD=$(gcc -print-file-name=libstdc++.so.6) python ...",
        settles=True,
    )
    return [*remedies, settles]


def check_death(death: Death) -> Iterator[Finding]:
    texts = [one for one in software_texts(death, "symbol-version") if _is_stdcxx(one.symbol)]
    if not texts:
        return
    text = next((one for one in texts if ended_by_exception(death, one)), texts[-1])
    sure = ended_by_exception(death, text)
    library = (text.library or "a library").rpartition("/")[2]
    yield Finding(
        cause="libstdcxx-clash",
        confidence=likely_if(sure),
        summary=f"{library} needs {text.symbol}, which {text.file or 'the loaded libstdc++'} does not have.",
        supports=text_cites(death, [text]),
        against=[] if sure else [Cite("launcher", f"line {text.line.number}", "the process went on after it")],
        remedies=[
            Remedy(
                "In a conda environment: bring its libstdc++ up to date", "conda install -c conda-forge libstdcxx-ng"
            ),
            Remedy(
                "Run once with the environment's libstdc++ first",
                # An empty entry would be the working directory (man 8 ld.so).
                "LD_LIBRARY_PATH=$CONDA_PREFIX/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} python ...",
                settles=True,
            ),
        ],
    )


def _is_stdcxx(symbol: str | None) -> bool:
    return (symbol or "").startswith(("GLIBCXX_", "CXXABI_"))
