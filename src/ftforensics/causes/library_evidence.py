"""What a stack, an environment and a log say about libraries: questions that the causes of the library set share."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from ftforensics.causes.cuda_stack import gave_up, is_fault
from ftforensics.causes.ending import SIGABRT, ended_badly, ended_from_outside, line_cite, other_reason, signal_of
from ftforensics.causes.library_set import is_cuda_or_torch, published_wheel
from ftforensics.causes.stack import frame_text, places
from ftforensics.causes.stack_said import stack_said
from ftforensics.facts.choose import install_command
from ftforensics.model.basics import Cite, Gap
from ftforensics.model.case import Crash
from ftforensics.model.crash import Library
from ftforensics.model.death import Death
from ftforensics.model.diagnosis import Confidence, Frame, Remedy
from ftforensics.model.launcher import ExceptionSeen, StackText
from ftforensics.model.mechanism import Mechanism
from ftforensics.model.signals import signal_name
from ftforensics.model.software import TorchBuild

# Faults that another thing than wrong code explains: a file, the hardware.
_FOREIGN = (Mechanism.BUS_TRUNCATED_FILE, Mechanism.BUS_SHM_FULL, Mechanism.BUS_HARDWARE)
# Ends that say themselves what went wrong; a library set explains one only when the stack leads into it.
_TOLD = (
    Mechanism.STACK_OVERFLOW, Mechanism.INTEGER_DIVISION, Mechanism.ABORT_CXX_EXCEPTION, Mechanism.ABORT_HEAP,
    Mechanism.ABORT_ASSERT, Mechanism.ABORT_OTHER,
)  # fmt: skip
_PACKAGES = ("/site-packages/", "/dist-packages/")  # Debian's Python has the other name
_One = TypeVar("_One")
_DEPTH = 64  # frames; what stands further out set the work going, long before


def own_fault(crash: Crash) -> bool:
    """Did the process's own code end it, as far as the record says?"""
    return is_fault(crash) and crash.reading.mechanism not in _FOREIGN


def is_bad_pointer(crash: Crash) -> bool:
    """A fault of memory access or execution that does not say itself where it comes from."""
    return own_fault(crash) and crash.reading.mechanism not in _TOLD and not gave_up(crash)


def signal_name_of(crash: Crash) -> str:
    signal = crash.record.signal
    if signal is None or (signal.name is None and signal.number is None):
        return "A crash"
    return signal.name or signal_name(signal.number or 0)


def frames(crash: Crash) -> list[tuple[int, Frame]]:
    """Frames that are no guesses, with their place in the stack."""
    return [(index, one) for index, one in enumerate(crash.native[:_DEPTH]) if one.trust != "scan" and one.library]


def find_frame(crash: Crash, fits: Callable[[Frame], bool]) -> Cite | None:
    """The innermost frame that fits."""
    for index, frame in frames(crash):
        if fits(frame):
            return Cite("crash", f"native.frames[{index}]", frame_text(frame))
    return None


def frame_in(crash: Crash, paths: Iterable[str]) -> Cite | None:
    wanted = set(paths)
    return find_frame(crash, lambda frame: frame.library in wanted)


def nearest(crash: Crash, found: Sequence[_One], path_of: Callable[[_One], str]) -> _One:
    """The one whose file the stack leads into first; the first of them where it leads into none. found: not empty."""
    paths = (frame.library for _, frame in frames(crash))
    return next((one for path in paths for one in found if path_of(one) == path), found[0])


def cuda_or_torch_frame(crash: Crash) -> Cite | None:
    """The innermost frame in a library of CUDA's or torch's. Who asks about CUDA alone: `cuda_stack.cuda_frame`."""
    return find_frame(crash, lambda frame: is_cuda_or_torch(frame.library or ""))


def not_in_the_stack(crash: Crash, what: str) -> list[Cite]:
    """What speaks against a library: the stack is known and leads elsewhere."""
    if not frames(crash):
        return []
    return [Cite("crash", "native.frames", f"no frame of the stack lies in {what}")]


def no_stack(crash: Crash) -> list[Gap]:
    if frames(crash):
        return []
    return [Gap("crash", "whether the stack leads into one of them: no frame of it is known")]


def where(crash: Crash) -> list[Cite]:
    return [*crash.reading.supports, *places(crash)]


def mapped(crash: Crash) -> list[str]:
    paths = [one.path for one in crash.record.modules or []]
    return paths or [one.path for one in crash.record.libraries or []]


def variable(crash: Crash, name: str) -> tuple[str | None, list[Cite]]:
    """An environment variable's value and its cite; (None, []) when it was not set or is not in the record."""
    for one in crash.record.job.environment if crash.record.job else []:
        if one.name == name and one.value:
            return one.value, [Cite("crash", "job.environment", f"{name}={one.value[:300]}")]
    return None, []


def short_place(path: str) -> str:
    """A folder for a sentence: ".../site-packages/nvidia/cudnn/lib"."""
    found = _packages_in(path)
    return f"...{found}{path.rpartition(found)[2]}" if found else path


def below_packages(path: str) -> str:
    """ "nvidia/cudnn/lib" of ".../site-packages/nvidia/cudnn/lib"; "": it lies in no folder of packages."""
    found = _packages_in(path)
    return path.rpartition(found)[2] if found else ""


def _packages_in(path: str) -> str | None:
    return next((name for name in _PACKAGES if name in path), None)


def library_cite(library: Library) -> Cite:
    said = [part for part in (library.kind, library.version) if part]
    whose = library.package or (f"a copy of {library.vendored_by}'s" if library.vendored_by else None)
    place = "from elsewhere" if library.origin == "other" else library.origin
    about = [part for part in (whose, place, f"built for CUDA {library.cuda}" if library.cuda else None) if part]
    return Cite("libraries", library.path, " ".join(said) + (f" ({', '.join(about)})" if about else ""))


def reinstall(package: str, version: str | None) -> str:
    """version: None takes the newest."""
    wanted = f"{package}=={version}" if version else package
    return f"pip install --force-reinstall --no-deps {shlex.quote(wanted)}"


def reinstall_torch(torch: TorchBuild | None) -> Remedy | None:
    """torch anew with everything that belongs to it, from the index that it came from."""
    wheel = published_wheel(torch)
    if wheel is None:
        return None
    command = install_command(wheel).replace("pip install", "pip install --force-reinstall", 1)
    return Remedy("Install torch again, with the libraries and companions that belong to it", command)


def unset() -> Remedy:
    text = "Start the job without LD_LIBRARY_PATH: a CUDA wheel finds its libraries by itself"
    return Remedy(text, "unset LD_LIBRARY_PATH")


def software_texts(death: Death, *kinds: str) -> list[StackText]:
    """What the log says about the software, of a process that ended through its own fault."""
    if not ended_badly(death) or ended_from_outside(death):
        return []
    return [one for one in stack_said(death) if one.kind in kinds]


def ended_by_exception(death: Death, text: StackText) -> bool:
    """Is this text the end's own? An exception that was caught leaves the same words in a log, and the job goes on."""
    number = signal_of(death)
    if number is not None or text.form == "warning":
        return number == SIGABRT and text.form == "what"
    if death.code is None and text.form != "exception":
        return False  # nobody says how it ended
    return (
        not death.exceptions or text.line.number == 0 or text.line.number >= _last_failure(death.exceptions).line.number
    )


def _last_failure(raised: list[ExceptionSeen]) -> ExceptionSeen:
    """The exception that the last one came of: Python prints what led to it above it."""
    first = len(raised) - 1
    while first > 0 and raised[first].chained:
        first -= 1
    return raised[first]


def goes_with_end(death: Death, text: StackText) -> bool:
    """The same of what a library prints itself when it cannot go on: nobody catches that."""
    known = death.code is not None or death.signal is not None
    printed = text.form not in ("exception", "warning")
    return (known and printed and other_reason(death) is None) or ended_by_exception(death, text)


def text_cites(death: Death, texts: Iterable[StackText]) -> list[Cite]:
    return [*(line_cite(one.line) for one in texts), *death.ending]


def likely_if(sure: object) -> Confidence:
    return Confidence.LIKELY if sure else Confidence.POSSIBLE


def stem(text: StackText) -> str:
    """Of the library that a text names: "/opt/lib/libcudnn.so.9" -> "libcudnn"; "" where it names none."""
    return (text.library or "").rpartition("/")[2].partition(".so")[0]


def rebuild(package: str) -> str:
    """Compiles it here, against the torch that is installed rather than one that pip fetches for the build."""
    return f"pip install --no-binary :all: --no-build-isolation --force-reinstall --no-deps {shlex.quote(package)}"
