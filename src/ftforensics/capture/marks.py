"""What the job says about itself: the phase it is in, its step, a note. A record shows the last of each."""

from __future__ import annotations

from ftforensics.capture.identity import printable
from ftforensics.capture.redact import redact

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType
    from typing import Any, TypeVar

    F = TypeVar("F", bound=Callable[..., Any])

MAX_NAME = 200
MAX_NOTE = 1000

# The extension while we are installed. Without it marks are accepted and dropped: a job runs the same with capture off.
_native: ModuleType | None = None
_open: list[phase] = []
_names: dict[str, bytes] = {}
# The phases that were open when an exception left the innermost of them. It is known by its address, lest we hold on to
# it, and the next mark has it forgotten, lest another one at that address passes for it.
_left: tuple[int, list[str]] | None = None
_step: int | None = None

# An exception class may have properties of these names, which would run the job's code.
_CAUSE, _CONTEXT = (vars(BaseException)[name].__get__ for name in ("__cause__", "__context__"))
_COROUTINE, _GENERATOR, _ASYNC_GENERATOR = 0x80, 0x20, 0x200  # co_flags, see the inspect module


class phase:  # lower case: it is used like a function
    """Names what the job is doing: `with phase("save_checkpoint"): ...` or `@phase("evaluate")`.

    Phases nest, also across threads: the record lists the open ones, outermost first. Names are redacted and cut at 200
    characters. Raises TypeError for a name that is not text and ValueError for an empty one.
    """

    def __init__(self, name: str) -> None:
        if not isinstance(name, str):
            raise TypeError(f"phase() takes a name (str), not {type(name).__name__}")
        if not name.strip():
            raise ValueError("phase() takes a name that is not empty")
        self.name = name
        self._entered: list[phase] = []

    def __enter__(self) -> phase:
        # One object may be entered again (a decorated function that calls itself): each time is an entry of its own.
        global _left
        _left = None
        entry = phase(self.name)
        self._entered.append(entry)
        _open.append(entry)
        _publish()
        return self

    def __exit__(self, kind: object = None, value: object = None, traceback: object = None) -> None:
        global _left
        entry = self._entered.pop()
        if value is None:
            _left = None
        elif _left is None or _left[0] != id(value):
            _left = (id(value), [opened.name for opened in _open])
        # By identity, not from the end: another thread may have opened a phase in between, or be closing one now.
        try:
            _open.remove(entry)  # a phase equals none but itself; one step under the GIL
        except ValueError:
            pass
        _publish()

    def __call__(self, function: F) -> F:
        import functools  # only when decorating: install() must stay light, and the job has loaded it by then

        if not callable(function):
            raise TypeError(f"@phase({self.name!r}) decorates a function, not {type(function).__name__}")
        name = self.name
        flags = getattr(getattr(function, "__code__", None), "co_flags", 0)
        if flags & _ASYNC_GENERATOR:
            raise TypeError(f"@phase({name!r}) cannot decorate an async generator: use `with phase(...)` inside it")
        wrapper: Callable[..., Any]
        if flags & _COROUTINE:

            async def wrapper(*args: Any, **kwargs: Any) -> Any:
                with phase(name):
                    return await function(*args, **kwargs)

        elif flags & _GENERATOR:

            def wrapper(*args: Any, **kwargs: Any) -> Any:
                with phase(name):
                    return (yield from function(*args, **kwargs))

        else:

            def wrapper(*args: Any, **kwargs: Any) -> Any:
                with phase(name):
                    return function(*args, **kwargs)

        return functools.update_wrapper(wrapper, function)  # type: ignore[return-value]


def step(number: int) -> None:
    """Say which training step runs now. Takes any integer (also numpy's and torch's) of 64 bits."""
    global _left, _step
    try:
        value = number.__index__()
    except (AttributeError, TypeError):
        raise TypeError(f"step() takes an integer, not {type(number).__name__}") from None
    if not -(1 << 63) <= value < 1 << 63:
        raise ValueError(f"step() takes an integer of 64 bits, not {value}")
    _left, _step = None, value
    if _native is not None:
        _native.set_step(value)
        _native.check_thread()


def note(text: str) -> None:
    """Leave a line of text for the record, in place of the last: redacted, cut at 1000 characters. "" removes it."""
    if not isinstance(text, str):
        raise TypeError(f"note() takes text (str), not {type(text).__name__}")
    if _native is not None:
        _native.set_note(_clean(text, MAX_NOTE))


def last_step() -> int | None:
    """What step() was told last."""
    return _step


def phase_of(error: BaseException) -> str | None:
    """The phases, joined by " > ", in which `error` was raised, or what it came from; when it has left none of them,
    those that are open now. None when there are none."""
    names = [entry.name for entry in _open]
    if _left is not None and _left[0] in (id(error), id(_CAUSE(error)), id(_CONTEXT(error))):
        names = _left[1]
    return " > ".join(_clean(name, MAX_NAME).decode("utf-8", "replace") for name in names) or None


def attach(native: ModuleType | None) -> None:
    """Marks go to this extension from now on (None: nowhere). Phases opened before are told to it."""
    global _native
    _native = native
    if native is not None and _open:
        _publish()


def _publish() -> None:
    native = _native
    if native is None:
        return
    told: list[phase] | None = None
    while told != _open:  # what another thread opened or closed meanwhile is told too
        told = list(_open)
        names = []
        for entry in told:
            known = _names.get(entry.name)
            if known is None:
                known = _clean(entry.name, MAX_NAME)
                if len(_names) < 1000:
                    _names[entry.name] = known
            names.append(known)
        native.set_phase(names)
    native.check_thread()


def _clean(text: str, limit: int) -> bytes:
    # Cut to four times the limit first: redaction is linear, but a job may pass a megabyte. What a cut secret leaves
    # behind lies beyond the second cut, unless redaction shortened the text before it, so a cut tail word goes too.
    head = text[: 4 * limit]
    if len(head) < len(text):
        head = head.rpartition(" ")[0]
    return printable(redact(head))[:limit].encode("utf-8")
