"""The commands that lead from one environment back to another: pip for packages, the shell for variables. Pure.

What no command here undoes (a driver, a configuration file) is a comment, so that the whole can be given to a shell.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Sequence

from ftforensics.facts.choose import INDEX
from ftforensics.model.ledger import Change, Fingerprint
from ftforensics.sources.differences import is_cut

# Distributions that PyTorch's own index has in one build for each CUDA.
_OF_TORCH = ("torch", "torchvision", "torchaudio", "torchtext", "torchao", "xformers")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,200}")
_VERSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+!-]{0,100}")
_VARIANT = re.compile(r"cu\d{2,4}|cpu|rocm\d[\d.]*|xpu")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_REDACTED = "[redacted]"


def rollback(before: Fingerprint, after: Fingerprint, changes: Sequence[Change]) -> list[str]:
    """Lines for a shell. before: where to; changes: `differences(before, after)`."""
    found = [*_packages(before, after, changes)]
    for change in changes:
        if change.kind == "variable":
            found.append(_variable(change))
        elif change.kind != "package":
            found.append(
                _comment(f"{change.kind} {change.name}: {change.after or '(none)'}, was {change.before or '(none)'}")
            )
    return found


def _packages(before: Fingerprint, after: Fingerprint, changes: Sequence[Change]) -> Iterator[str]:
    # With torch's CUDA in it the name of a version is for people; the package's own is for pip.
    wanted = {package.name: package.version for package in before.packages}
    there = {package.name: package.version for package in after.packages}
    names = [change.name for change in changes if change.kind == "package"]
    new = [name for name in names if name not in wanted and name in there]
    gone = [(name, wanted[name]) for name in names if name in wanted and wanted[name] != there.get(name)]
    if names and _other_environment(before, after):
        yield _comment(
            f"packages: the good run used {before.prefix}, this is {after.prefix}: run with the former again,"
        )
        yield _comment(f"or make this one like it: ftforensics env diff last-good {_quoted(after)} --rollback")
        return
    pip = _Pip(after)
    if any(change.kind == "package" for change in changes) and (before.prefix or after.prefix):
        yield _comment(f"packages of {after.prefix or before.prefix}")
    unsafe = [name for name in new if not _NAME.fullmatch(name)]
    unsafe += [name for name, version in gone if not (_NAME.fullmatch(name) and _VERSION.fullmatch(version))]
    for name in unsafe:
        yield _comment(f"{name}: not a name and version that pip could be given")
    # Of that name an index may hold what somebody else has put there.
    foreign = [name for name, _ in gone if name in before.elsewhere]
    for name in foreign:
        yield _comment(f"{name} {wanted[name]}: came from a folder, repository or URL, which has to give it again")
    gone = [pair for pair in gone if pair[0] not in foreign]
    new = [name for name in new if name not in unsafe]
    if new:
        yield f"{pip.uninstall()} {' '.join(map(shlex.quote, new))}"
    for index, packages in _by_index([pair for pair in gone if pair[0] not in unsafe]).items():
        listed = " ".join(shlex.quote(f"{name}=={version}") for name, version in packages)
        # The whole set is named; pip must not put anything else beside it.
        yield f"{pip.install()} --no-deps {listed}" + (f" --index-url {index}" if index else "")
    for name, version in gone:
        local = version.partition("+")[2]
        if local and not (name in _OF_TORCH and _VARIANT.fullmatch(local)) and name not in unsafe:
            yield _comment(f"{name} {version}: built elsewhere than for an index; its own source has to give it")


def _other_environment(before: Fingerprint, after: Fingerprint) -> bool:
    """Two moments of a machine, in two environments: nobody has asked for the one to be made like the other. Who names
    a folder has."""
    if before.kernel is None or after.kernel is None or before.prefix is None or after.prefix is None:
        return False
    return before.prefix != after.prefix


def _quoted(environment: Fingerprint) -> str:
    return shlex.quote(environment.prefix or "")


def _by_index(packages: Iterable[tuple[str, str]]) -> dict[str, list[tuple[str, str]]]:
    """ "" is pip's default index."""
    found: dict[str, list[tuple[str, str]]] = {}
    for name, version in packages:
        local = version.partition("+")[2]
        if local and name in _OF_TORCH and _VARIANT.fullmatch(local):
            found.setdefault(f"{INDEX}/{local}", []).append((name, version))
        elif not local:
            found.setdefault("", []).append((name, version))
    return dict(sorted(found.items(), reverse=True))


class _Pip:
    """pip of the environment that is to be changed; one that uv has made has none of its own."""

    def __init__(self, environment: Fingerprint) -> None:
        self._python = shlex.quote(f"{environment.prefix}/bin/python") if environment.prefix else "python"
        self._own = not environment.packages or any(package.name == "pip" for package in environment.packages)

    def install(self) -> str:
        return f"{self._python} -m pip install" if self._own else f"uv pip install --python {self._python}"

    def uninstall(self) -> str:
        return f"{self._python} -m pip uninstall -y" if self._own else f"uv pip uninstall --python {self._python}"


def _variable(change: Change) -> str:
    if not _VARIABLE.fullmatch(change.name) or (change.before and _REDACTED in change.before):
        return _comment(f"variable {change.name}: its value was not kept")
    if change.before is None:
        return f"unset {change.name}"
    if is_cut(change.before):
        return _comment(f"variable {change.name} began with {change.before}")
    return f"export {change.name}={shlex.quote(change.before)}"


def _comment(text: str) -> str:
    return "# " + "".join(char if char.isprintable() else "?" for char in text)
