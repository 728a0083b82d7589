"""Extensions that need what the torch beside them does not export, told from their symbol tables."""

from __future__ import annotations

from collections.abc import Iterable

from ftforensics.host.host import Host
from ftforensics.model.crash import Library
from ftforensics.model.software import MissingSymbols, Software


def missing_symbols(host: Host, extensions: Iterable[Library], libraries: Iterable[Library]) -> list[MissingSymbols]:
    """Of each extension, the names of torch's that neither torch's libraries among `libraries` nor anything else that
    it is linked with exports. An extension or a torch whose file is no longer the mapped one is left out."""
    raise NotImplementedError


def complete_software(host: Host, software: Software, libraries: Iterable[Library]) -> Software:
    """`software` with `missing` filled in for the extensions among `libraries`. Quick: symbol tables only."""
    raise NotImplementedError


def torch_extensions(host: Host, software: Software) -> list[str]:
    """The extension modules of the installed packages that require torch, by their RECORDs."""
    raise NotImplementedError
