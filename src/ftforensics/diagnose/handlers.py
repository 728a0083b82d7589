"""Who gets each fatal signal, by library and function."""

from __future__ import annotations

from ftforensics.diagnose.names import Resolver
from ftforensics.model.basics import Address
from ftforensics.model.crash import CrashRecord, Handler, RawFrame
from ftforensics.model.diagnosis import Frame, SignalHandler, SignalOwners

_DEFAULT, _IGNORE = 0, 1  # SIG_DFL, SIG_IGN


def signal_owners(record: CrashRecord, resolve: Resolver) -> list[SignalOwners]:
    """One entry for each signal that the record tells about. Files are looked at only for foreign handlers."""
    handlers = record.handlers or []
    foreign = sorted({address for handler in handlers for address in _addresses(handler) if address > _IGNORE})
    # "context": an address that is itself the place, where a caller's frame holds the one after it.
    raw = [RawFrame(address, trust="context") for address in foreign]
    places = dict(zip(foreign, resolve(record, raw).frames, strict=True)) if raw else {}
    return [_owners(handler, places) for handler in handlers]


def _addresses(handler: Handler) -> list[Address]:
    current = [handler.current] if not handler.ours and handler.current is not None else []
    return [*current, *(previous.address for previous in handler.previous)]


def _owners(handler: Handler, places: dict[Address, Frame]) -> SignalOwners:
    chain = []
    if handler.ours:
        chain.append(SignalHandler("ours"))
    elif handler.current is not None:
        chain.append(_handler(handler.current, places))
    for previous in handler.previous:
        chain.append(_handler(previous.address, places, previous.library, previous.offset, bool(previous.taken_back)))
    return SignalOwners(handler.signal, chain)


def _handler(
    address: Address,
    places: dict[Address, Frame],
    library: str | None = None,
    offset: Address | None = None,
    taken_back: bool = False,
) -> SignalHandler:
    if address in (_DEFAULT, _IGNORE):
        return SignalHandler("ignore" if address else "default", taken_back=taken_back)
    frame = places.get(address) or Frame()
    return SignalHandler(
        "library",
        frame.function,
        library or frame.library,
        offset if offset is not None else frame.offset if frame.library else address,
        taken_back,
    )
