"""What differs between two fingerprints, the most telling first. Pure: no file is read here.

What is another's at every start (ports, ids, dates, places of output) is no difference.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence

from ftforensics.model.ledger import NOT_UNDERSTOOD, Change, ConfigFile, Fingerprint, Setting
from ftforensics.parsers.command_line import options, program

_ORDER = (
    "package", "driver", "python", "kernel", "glibc", "image", "gpu", "cpu", "memory-limit", "memory", "shm",
    "world-size", "variable", "config", "argv",
)  # fmt: skip
# Packages that are looked at first, in this order, then nvidia-*, then the rest by name.
_FIRST_PACKAGES = ("torch", "torchvision", "torchaudio", "triton", "pytorch-triton")
# Words of an option's or key's name whose value is meant to be another at every start.
_RUN_WORDS = {
    "port", "ports", "addr", "address", "host", "hosts", "hostname", "endpoint", "id", "ids", "uid", "uuid",
    "pid", "rank", "timestamp", "date", "time",
}  # fmt: skip
_RUN_NAMES = {
    "output_dir", "output", "outdir", "out_dir", "logging_dir", "log_dir", "logdir", "logs", "save_dir",
    "run_name", "name", "exp_name", "experiment_name", "run", "run_dir", "work_dir", "job_name", "tag",
    "comment", "hostfile", "rdzv_conf", "resume", "resume_from_checkpoint", "local_rank", "node_rank",
}  # fmt: skip
_STAMPS = re.compile(
    r"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}"  # a UUID
    r"|\d{4}[-_]?[01]\d[-_]?[0-3]\d(?:[-_T ]?[0-2]\d[-_:h]?[0-5]\d(?:[-_:m]?[0-5]\d)?)?"  # a date, a time
    r"|\d{9,}"  # seconds since the epoch, a number that somebody drew
    r"|(?<![0-9a-z])(?=[a-f]*\d)[0-9a-f]{7,40}(?![0-9a-z])"  # a commit, a digest
)
_GIB = 1 << 30
_SHOWN = 200  # characters of a value
_CUT = "..."


def differences(before: Fingerprint, after: Fingerprint) -> list[Change]:
    """Of two runs, two moments or two environments. What one side does not know is no change: an environment's folder
    knows its packages alone."""
    found = [*_packages(before, after), *_python(before, after)]
    if before.kernel is not None and after.kernel is not None:
        if found and before.prefix and after.prefix:
            found += _plain("python", "environment", before.prefix, after.prefix)
        found += _machine(before, after)
        found += _settings("variable", before.variables, after.variables)
        if before.argv and after.argv:
            found += _run(before, after)
    return sorted(found, key=_rank)


def _rank(change: Change) -> tuple[int, int, str]:
    kind = _ORDER.index(change.kind)
    if change.kind != "package":
        return kind + 2, 0, change.name
    if change.name == "torch":
        return 0, 0, ""
    if change.name in _FIRST_PACKAGES:
        return 3, _FIRST_PACKAGES.index(change.name), change.name
    # The driver stands between torch and the libraries that go with it.
    return (3, 10, change.name) if change.name.startswith("nvidia-") else (4, 20, change.name)


def _packages(before: Fingerprint, after: Fingerprint) -> Iterable[Change]:
    old, new = _versions(before), _versions(after)
    if not old or not new:  # it could not be seen on one side
        return
    for fingerprint, versions in ((before, old), (after, new)):
        if fingerprint.torch is not None:
            versions["torch"] = fingerprint.torch
    for name in sorted(old.keys() | new.keys()):
        if old.get(name) != new.get(name):
            yield Change("package", name, old.get(name), new.get(name))


def _versions(fingerprint: Fingerprint) -> dict[str, str]:
    """Two dist-infos of one name are a fault that is seen as "1.0 and 2.0"."""
    found: dict[str, str] = {}
    for package in fingerprint.packages:
        known = found.get(package.name)
        found[package.name] = f"{known} and {package.version}" if known else package.version
    return found


def _python(before: Fingerprint, after: Fingerprint) -> Iterable[Change]:
    one, other = before.python, after.python
    # "3.11" is what a folder's name says, "3.11.7" what the interpreter says.
    if one and other and not f"{one}.".startswith(f"{other}.") and not f"{other}.".startswith(f"{one}."):
        yield Change("python", "python", one, other)


def _machine(before: Fingerprint, after: Fingerprint) -> Iterable[Change]:
    yield from _plain("driver", "driver", before.driver, after.driver)
    if before.libcuda and after.libcuda and (before.driver, after.driver) != (before.libcuda, after.libcuda):
        yield from _plain("driver", "libcuda", before.libcuda, after.libcuda)
    yield from _plain("kernel", "kernel", before.kernel, after.kernel)
    yield from _plain("glibc", "glibc", before.glibc, after.glibc)
    yield from _plain("image", "image", before.image, after.image)
    yield from _plain("gpu", "GPUs", _counted(before.gpus), _counted(after.gpus))
    yield from _plain("cpu", "processor", before.cpu, after.cpu)
    if before.cores and after.cores:
        yield from _plain("cpu", "cores", str(before.cores), str(after.cores))
    yield from _plain("memory-limit", "memory limit", _limit(before.memory_limit), _limit(after.memory_limit))
    if _differ(before.memory, after.memory):
        yield Change("memory", "memory", _size(before.memory), _size(after.memory))
    if _differ(before.shm, after.shm):
        yield Change("shm", "/dev/shm", _size(before.shm), _size(after.shm))


def _run(before: Fingerprint, after: Fingerprint) -> Iterable[Change]:
    if before.world_size and after.world_size:
        yield from _plain("world-size", "world size", str(before.world_size), str(after.world_size))
    yield from _files(before.files, after.files)
    old, new = program(before.argv, before.cwd), program(after.argv, after.cwd)
    if old.name != new.name:
        yield Change("argv", "program", old.name, new.name)
        return
    yield from _settings("argv", _options(old.rest), _options(new.rest))


def _options(arguments: Sequence[str]) -> list[Setting]:
    return [Setting(option.name, option.value) for option in options(arguments)]


def _files(before: list[ConfigFile], after: list[ConfigFile]) -> Iterable[Change]:
    """A file is the same by its path; else by its name, where that is the only one of it on both sides."""
    old = {file.path: file for file in before}
    new = {file.path: file for file in after}
    for path in [*old, *(path for path in new if path not in old)]:
        name = os.path.basename(path)
        one = old.get(path) or _only(name, before)
        other = new.get(path) or _only(name, after)
        if one is None or other is None or (one.path != path and one.path in new):
            continue  # another file is named now: the command line's change says so
        if path in new and path not in old and one.path in old:
            continue  # done under its old path
        if _understood(one) != _understood(other):
            continue  # another reader, not another file: PyYAML is there on one side only
        for change in _settings("config", one.settings, other.settings):
            yield Change("config", f"{name}: {change.name}", change.before, change.after)


def _understood(file: ConfigFile) -> bool:
    return all(setting.name != NOT_UNDERSTOOD for setting in file.settings)


def _only(name: str, files: list[ConfigFile]) -> ConfigFile | None:
    found = [file for file in files if os.path.basename(file.path) == name]
    return found[0] if len(found) == 1 else None


def _settings(kind: str, before: Sequence[Setting], after: Sequence[Setting]) -> Iterable[Change]:
    old = {setting.name: setting.value for setting in before}
    new = {setting.name: setting.value for setting in after}
    for name in [*old, *(name for name in new if name not in old)]:
        one, other = old.get(name), new.get(name)
        if one == other or (kind != "variable" and _of_one_run(name)):
            continue
        if one is not None and other is not None and _STAMPS.sub("*", one) == _STAMPS.sub("*", other):
            continue
        yield Change(kind, name, _shown(one), _shown(other))


def _of_one_run(name: str) -> bool:
    last = re.split(r"[.\]]", name.lstrip("-+"))[-1].lower().replace("-", "_")
    return last in _RUN_NAMES or last.rpartition("_")[2] in _RUN_WORDS


def _plain(kind: str, name: str, before: str | None, after: str | None) -> Iterable[Change]:
    if before != after:
        yield Change(kind, name, _shown(before), _shown(after))


def _shown(value: str | None) -> str | None:
    return value if value is None or len(value) <= _SHOWN else value[: _SHOWN - len(_CUT)] + _CUT


def is_cut(value: str) -> bool:
    """Is a value of a `Change` only the beginning of what was there? One of just this length that ends so by itself is
    taken for it."""
    return len(value) == _SHOWN and value.endswith(_CUT)


def _counted(names: list[str]) -> str | None:
    """ "8 x NVIDIA A100-SXM4-80GB"."""
    kinds = dict.fromkeys(names)
    return ", ".join(f"{names.count(kind)} x {kind}" for kind in kinds) or None


def _limit(size: int | None) -> str:
    return "none" if size is None else _size(size)


def _size(size: int | None) -> str:
    if size is None:
        return "unknown"
    return f"{size / _GIB:.1f} GiB" if size >= _GIB else f"{size / (1 << 20):.0f} MiB"


def _differ(one: int | None, other: int | None) -> bool:
    """A kernel keeps some megabytes more or less for itself."""
    return one is not None and other is not None and abs(one - other) > max(one, other) // 50
