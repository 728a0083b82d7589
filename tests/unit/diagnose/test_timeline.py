"""What happened when: monotonic times of the record as times of the wall clock."""

from __future__ import annotations

from ftforensics.diagnose.timeline import timeline
from ftforensics.model.crash import CrashRecord
from ftforensics.wire.record import ReadRecord, read_record
from synth.crash_record import CrashText

DIED = 1764434400.5  # at 1000.5 of the monotonic clock, in the builder's record


def record(text: CrashText) -> CrashRecord:
    reading = read_record(text.data())
    assert isinstance(reading, ReadRecord) and not reading.losses
    return reading.record


def test_every_event_stands_at_its_time_in_order() -> None:
    stolen = {"address": "0x7f0000001500", "library": "libucs.so", "taken_back": True, "at": 992.25}
    text = CrashText().segv(0, "read")
    text.set(
        phase={"names": ["train", "save"], "since": 999.5},
        signals_seen=[
            {"name": "SIGTERM", "at": 1000.0, "sender": {"pid": 7, "uid": 0}},
            {"name": "SIGHUP", "at": 991.0},
        ],
        handlers=[{"signal": "SIGSEGV", "ours": True, "previous": [stolen]}],
    )
    assert [(DIED - event.at, event.text) for event in timeline(record(text))] == [
        (10.5, "ftforensics installed"),
        (9.5, "SIGHUP received"),
        (8.25, "libucs.so had taken SIGSEGV; taken back"),
        (1.0, "entered phase train > save"),
        (0.5, "SIGTERM received from pid 7"),
        (0.0, "SIGSEGV: the process died"),
    ]


def test_without_the_pair_of_clocks_only_the_death_has_a_time() -> None:
    text = CrashText().segv(0, "read").set(phase={"names": ["train"], "since": 999.5})
    text.members["time"]["monotonic"] = None
    assert [event.text for event in timeline(record(text))] == ["SIGSEGV: the process died"]
    assert timeline(record(text.set(time=None))) == []
