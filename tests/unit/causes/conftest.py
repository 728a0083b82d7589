"""`ask(cause id, record text, functions...)`: what one cause says about one record, its frames named by hand.
`ask_death(cause id, death)`: what it says about an end of any kind."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from ftforensics.causes.registry import find_cause
from ftforensics.diagnose.crash import prepare
from ftforensics.diagnose.names import Resolution
from ftforensics.model.case import CaseRecord
from ftforensics.model.crash import CrashRecord, RawFrame
from ftforensics.model.diagnosis import Finding, Frame
from ftforensics.wire.record import ReadRecord, read_record
from synth.crash_record import PC, CrashText
from synth.death import DeathBuilder

Ask = Callable[..., list[Finding]]
AskDeath = Callable[[str, DeathBuilder], list[Finding]]


@pytest.fixture
def ask() -> Ask:
    def asked(cause: str, text: CrashText, *functions: str, library: str = "/usr/lib/libx.so") -> list[Finding]:
        if functions and text.members["native"] is not None:
            text.frames(*(PC + 16 * index for index in range(len(functions))))

        def named(record: CrashRecord, raw: Sequence[RawFrame]) -> Resolution:
            names = functions or (None,) * len(raw)
            return Resolution(
                [
                    Frame(function=name, library=library, trust=frame.trust)
                    for name, frame in zip(names, raw, strict=True)
                ]
            )

        reading = read_record(text.data())
        assert isinstance(reading, ReadRecord) and not reading.losses
        found = find_cause(cause)
        assert found is not None and found.check is not None
        return list(found.check(prepare(CaseRecord(reading.record, "x.crash.json"), named)))

    return asked


@pytest.fixture
def ask_death() -> AskDeath:
    def asked(cause: str, builder: DeathBuilder) -> list[Finding]:
        found = find_cause(cause)
        assert found is not None and found.check_death is not None
        return list(found.check_death(builder.death))

    return asked
