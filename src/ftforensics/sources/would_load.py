"""What the dynamic loader would map for `import torch`, told from the files, without importing anything."""

from __future__ import annotations

import msgspec

from ftforensics.host.host import Host
from ftforensics.model.basics import Gap
from ftforensics.model.crash import Library
from ftforensics.model.software import Software


class SearchEnvironment(msgspec.Struct, frozen=True):
    """What of a process's environment the dynamic loader looks at (man 8 ld.so). cwd: for relative and empty entries;
    where it is None they are left out, and said."""

    library_path: str | None = None  # LD_LIBRARY_PATH
    preload: str | None = None  # LD_PRELOAD
    cwd: str | None = None


class NotFound(msgspec.Struct, frozen=True):
    """A library that would not be loaded. name: as it is asked for; needed_by: the file that asks, None: torch itself
    or LD_PRELOAD; why: "not found", or what is wrong with the file that was found; optional: asked for by name at run
    time (libcuda.so.1), `import torch` goes on without it."""

    name: str
    needed_by: str | None = None
    why: str = "not found"
    optional: bool = False


class WouldLoad(msgspec.Struct, frozen=True):
    """libraries: of interest, in load order, as `sources.libraries` sees them; files: every path that would be mapped,
    in load order; not_found: in the order met; gaps: what of the loader's search could not be followed."""

    libraries: list[Library] = []
    files: list[str] = []
    not_found: list[NotFound] = []
    gaps: list[Gap] = []


def would_load(host: Host, software: Software, environment: SearchEnvironment) -> WouldLoad:
    """For the torch and the Python of `software`. A torch that is not there gives an empty answer and a Gap."""
    raise NotImplementedError
