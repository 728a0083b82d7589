from __future__ import annotations

from collections.abc import Sequence

from ftforensics.diagnose.handlers import signal_owners
from ftforensics.diagnose.names import Resolution
from ftforensics.model.basics import Address
from ftforensics.model.crash import ChainedHandler, CrashRecord, Handler, RawFrame
from ftforensics.model.diagnosis import Frame, SignalHandler, SignalOwners

THIEF, DEFAULT = Address(0x7F0000001500), Address(0)


def named(record: CrashRecord, raw: Sequence[RawFrame]) -> Resolution:
    assert all(frame.trust == "context" for frame in raw), "a handler's address is no return address"
    return Resolution([Frame(function=f"at_{frame.pc}", library="/x/libucs.so", offset=Address(1)) for frame in raw])


def test_who_gets_a_signal_in_order() -> None:
    stolen = ChainedHandler(THIEF, "/x/libucs.so", Address(0x1500), taken_back=True)
    record = CrashRecord(
        handlers=[
            Handler("SIGSEGV", True, Address(0x7F1000000000), [stolen, ChainedHandler(DEFAULT)]),
            Handler("SIGBUS", False, THIEF, [ChainedHandler(Address(1))]),
        ]
    )
    library = SignalHandler("library", "at_0x7f0000001500", "/x/libucs.so", Address(0x1500), taken_back=True)
    assert signal_owners(record, named) == [
        SignalOwners("SIGSEGV", [SignalHandler("ours"), library, SignalHandler("default")]),
        SignalOwners(
            "SIGBUS",
            [SignalHandler("library", "at_0x7f0000001500", "/x/libucs.so", Address(1)), SignalHandler("ignore")],
        ),
    ]


def test_no_file_is_opened_when_all_are_ours() -> None:
    def refuse(record: CrashRecord, raw: Sequence[RawFrame]) -> Resolution:
        raise AssertionError("asked")

    record = CrashRecord(handlers=[Handler("SIGSEGV", True, THIEF, [ChainedHandler(DEFAULT)])])
    assert signal_owners(record, refuse) == [SignalOwners("SIGSEGV", [SignalHandler("ours"), SignalHandler("default")])]
    assert signal_owners(CrashRecord(), refuse) == []
