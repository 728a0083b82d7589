"""An extension needs functions that the installed torch does not have.

## What it means

A C++ extension is compiled against one torch and calls functions of libc10 and libtorch by their mangled names, which
spell out every argument. Another torch has other arguments, or was built with the other layout of `std::string`
("pre-cxx11" wheels up to torch 2.6, "cxx11" from 2.7 on): the name does not exist there. The import fails with
`undefined symbol`; where the call was bound lazily, the process ends at the call.

## How it is told apart

The names that the extension asks for were compared with what the loaded libc10 and libtorch export, and some are
missing; it is likely the cause when the stack leads into that extension, possible when it does not. Without a crash
record it is likely when the process ended by an error that says `undefined symbol` with a name of c10, at or torch;
possible when the process went on after that.

## What to do

1. Install the extension's wheel for this torch, CUDA and C++ ABI (flash-attn names them all in the file name).
2. Or build it here, against the torch that is installed:
   `pip install --no-binary :all: --no-build-isolation --force-reinstall --no-deps PACKAGE`.
3. Clear what was compiled at first use for the torch before: `rm -rf ~/.cache/torch_extensions`.

## Seen in the field

- Dao-AILab/flash-attention#1644, #853, #919: `undefined symbol: _ZN3c105ErrorC2ENS_14SourceLocation...`.
- huggingface/open-r1#684: the same after torch had been upgraded beside a built extension.

## References

- GCC manual, "Dual ABI" of libstdc++; PyTorch 2.7 release notes (cxx11 ABI of the wheels)
"""

from __future__ import annotations

from collections.abc import Iterator

from ftforensics.causes.library_evidence import (
    ended_by_exception,
    find_frame,
    is_bad_pointer,
    likely_if,
    no_stack,
    not_in_the_stack,
    own_fault,
    rebuild,
    signal_name_of,
    software_texts,
    text_cites,
    where,
)
from ftforensics.causes.registry import Kind
from ftforensics.model.basics import Cite, Gap
from ftforensics.model.case import Crash
from ftforensics.model.death import Death
from ftforensics.model.diagnosis import Finding, Remedy
from ftforensics.model.launcher import StackText
from ftforensics.model.software import MissingSymbols, Software
from ftforensics.parsers.cxx_name import demangled, short_name

KIND = Kind.CIRCUMSTANCE
ORDER = 30
REFINES = ("python-exception",)
CHANGES = ("package:torch", "image")
_NAMESPACES = ("3c10", "2at", "5torch", "4c10d", "6caffe2")
# Mangled names (Itanium C++ ABI 5.1): functions, constant ones, vtables, type descriptions and their names; then its
# plain C interfaces.
_NAMES = (
    *(f"_Z{form}{space}" for form in ("N", "NK", "TVN", "TIN", "TSN") for space in _NAMESPACES),
    "THP",
    "aoti_torch_",
)
_ABI = {"pre-cxx11": "the old std::string (pre-cxx11)", "cxx11": "the new std::string (cxx11)"}
_MOST = 3  # names in a finding


def check(crash: Crash) -> Iterator[Finding]:
    software = crash.record.software
    if not own_fault(crash) or software is None or not software.missing:
        return
    mine = [one for one in software.missing if _frame(crash, one) is not None]
    first = (mine or software.missing)[0]
    frame = _frame(crash, first)
    name = first.path.rpartition("/")[2]
    against = [] if frame is not None else not_in_the_stack(crash, name)
    yield Finding(
        cause="abi-mismatch",
        confidence=likely_if(frame is not None and is_bad_pointer(crash)),
        summary=(
            f"{signal_name_of(crash)} {'in' if frame is not None else 'with'} {name}, which needs {first.count} "
            f"function{'s' if first.count != 1 else ''} that {_torch(software)} does not have"
            f"{f': it was built with {_ABI[first.abi]}' if first.abi in _ABI else ''}."
        ),
        supports=[*_cites(first), *([frame] if frame is not None else []), *where(crash)],
        against=[*crash.reading.against, *against],
        unknown=[*crash.reading.unknown, *no_stack(crash)],
        remedies=_remedies(first.package, first.path, software),
    )


def _frame(crash: Crash, missing: MissingSymbols) -> Cite | None:
    return find_frame(crash, lambda frame: frame.library == missing.path)


def _torch(software: Software | None) -> str:
    return f"torch {software.torch.version}" if software is not None and software.torch is not None else "torch"


def _cites(missing: MissingSymbols) -> list[Cite]:
    return [Cite("symbols", missing.path, f"needs {_plain(name)}") for name in missing.names[:_MOST]]


def _plain(symbol: str) -> str:
    return (demangled(symbol) or symbol)[:300]


def _remedies(package: str | None, path: str, software: Software | None) -> list[Remedy]:
    remedies = []
    if "/torch_extensions/" in path:
        remedies.append(Remedy("Let it be compiled again for this torch", "rm -rf ~/.cache/torch_extensions"))
    elif package:
        remedies.append(
            Remedy(f"Install the wheel of {package} for {_torch(software)}, or build it here", rebuild(package))
        )
    else:
        remedies.append(Remedy(f"Build {path.rpartition('/')[2]} again, against {_torch(software)}"))
    settles = Remedy("Import it alone, so that every name is looked up at once", "LD_BIND_NOW=1 python -c 'import ...'")
    return [*remedies, Remedy(settles.text, settles.command, settles=True)]


def check_death(death: Death) -> Iterator[Finding]:
    texts = [one for one in software_texts(death, "undefined-symbol") if _is_torchs(one)]
    if not texts:
        return
    text = next((one for one in texts if ended_by_exception(death, one)), texts[-1])
    software = death.crash.record.software if death.crash is not None else None
    known = next((one for one in software.missing if one.path == text.library), None) if software is not None else None
    library = (text.library or "").rpartition("/")[2] or "an extension"
    sure = ended_by_exception(death, text)
    against = [] if sure else [Cite("launcher", f"line {text.line.number}", "the process went on after it")]
    yield Finding(
        cause="abi-mismatch",
        confidence=likely_if(sure),
        summary=f"{library} was built for another torch: it needs {short_name(_plain(text.symbol or ''))[:200]}, "
        f"which {_torch(software)} does not have.",
        supports=[*text_cites(death, [text]), *(_cites(known) if known is not None else [])],
        against=against,
        unknown=[Gap("software", "which torch is installed, and for which one it was built", "ftforensics check")]
        if software is None
        else [],
        remedies=_remedies(known.package if known is not None else None, text.library or library, software),
    )


def _is_torchs(text: StackText) -> bool:
    """Does the name belong to torch's C++ interface, rather than to one that mentions it among its arguments?"""
    return (text.symbol or "").startswith(_NAMES)
