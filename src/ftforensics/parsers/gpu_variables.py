"""Variables by which a job chooses its GPUs and network interfaces."""

from __future__ import annotations

import msgspec

_MOST = 256  # entries; no machine has as many GPUs


class Interfaces(msgspec.Struct, frozen=True):
    """What NCCL_SOCKET_IFNAME says (NCCL user guide): names, or how they begin; exclude: all but these; exact: whole
    names."""

    names: list[str]
    exclude: bool = False
    exact: bool = False

    def fitting(self, interfaces: list[str]) -> list[str]:
        """Of the machine's interfaces, those that are meant."""
        return [one for one in interfaces if any(self._is(one, name) for name in self.names) != self.exclude]

    def _is(self, interface: str, name: str) -> bool:
        return interface == name if self.exact else interface.startswith(name)


def visible_devices(value: str | None) -> list[str] | None:
    """Of CUDA_VISIBLE_DEVICES: indices, UUIDs or MIG names, in order; None: all. The first entry that is no device
    hides the rest, and "-1" is the usual way to say none (CUDA C++ Programming Guide, "CUDA Environment Variables")."""
    if value is None:
        return None
    found: list[str] = []
    for entry in value.split(",", _MOST)[:_MOST]:
        entry = entry.strip()
        if not (entry.isascii() and entry.isdigit()) and not entry.startswith(("GPU-", "MIG-")):
            break
        found.append(entry)
    return found


def interfaces(value: str) -> Interfaces:
    exclude = value.startswith("^")
    value = value.removeprefix("^")
    exact = value.startswith("=")
    names = [name for part in value.removeprefix("=").split(",")[:_MOST] if (name := part.partition(":")[0].strip())]
    return Interfaces(names, exclude, exact)


def whole_number(value: str | None) -> int | None:
    """A number of at most nine digits; None for anything else."""
    if value is None or len(value) > 9 or not (value.isascii() and value.isdigit()):
        return None
    return int(value)
