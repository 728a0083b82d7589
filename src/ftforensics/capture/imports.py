"""Acting when the job imports something, without a place on sys.meta_path.

A finder of ours would be a Python frame in every import and a stranger in every `__spec__`. Instead the two loader
classes of importlib get their `exec_module` wrapped in C: nothing shows in a traceback, specs stay what they were.
"""

from __future__ import annotations

# The module behind importlib.machinery; importing the public name would load `importlib` and `warnings`.
import _frozen_importlib_external as _loaders
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

_MISSING = object()


class Patch:
    """One attribute of ours on somebody else's class or module; undone only while it is still ours."""

    def __init__(self, owner: object, name: str, make: Callable[[], object]) -> None:
        """make: builds the replacement, called before the attribute is set."""
        self._owner = owner
        self._name = name
        self._before = vars(owner).get(name, _MISSING)
        self._ours = make()
        setattr(owner, name, self._ours)

    def undo(self) -> None:
        if vars(self._owner).get(self._name) is not self._ours:
            return
        if self._before is _MISSING:
            delattr(self._owner, self._name)
        else:
            setattr(self._owner, self._name, self._before)


def after_extension_imports(native: ModuleType) -> list[Patch]:
    """Look for stolen signal handlers right after each extension module was loaded and after it was initialised."""
    loader = _loaders.ExtensionFileLoader

    def wrapped(name: str) -> Patch:
        return Patch(loader, name, lambda: native.wrap_method(loader, name, None, native.check_handlers))

    return [wrapped("create_module"), wrapped("exec_module")]


class Watch:
    """Calls an action once for a module: now when it is loaded already, else when its import has finished."""

    def __init__(self, native: ModuleType) -> None:
        self._native = native
        self._waiting: dict[str, tuple[str, Callable[[ModuleType], None]]] = {}
        self._patch: Patch | None = None

    def when_loaded(self, name: str, attribute: str, action: Callable[[ModuleType], None]) -> None:
        """attribute: what the action needs; a module that still runs its own top level may not have it yet."""
        module = sys.modules.get(name)
        if module is not None and hasattr(module, attribute):
            action(module)
            return
        self._waiting[name] = (attribute, action)
        if self._patch is None:
            loader = _loaders.SourceFileLoader
            self._patch = Patch(
                loader, "exec_module", lambda: self._native.wrap_method(loader, "exec_module", None, self._look)
            )

    def stop(self) -> None:
        self._waiting.clear()
        if self._patch is not None:
            self._patch.undo()
            self._patch = None

    def _look(self) -> None:
        # Runs after every source module that is imported: two dictionary look-ups, and nothing once both were seen.
        for name in list(self._waiting):
            module = sys.modules.get(name)
            if module is None:
                continue
            attribute, action = self._waiting[name]
            if hasattr(module, attribute):
                del self._waiting[name]
                action(module)
        if not self._waiting:
            self.stop()
