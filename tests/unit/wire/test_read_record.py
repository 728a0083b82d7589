"""Crash records: whole, cut, damaged, foreign."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ftforensics.model.crash import CrashRecord
from ftforensics.wire.record import LossKind, NewerSchema, NotARecord, ReadRecord, read_record
from synth.crash_record import MEMBERS, CrashText


def read(data: bytes) -> ReadRecord:
    reading = read_record(data)
    assert isinstance(reading, ReadRecord), reading
    return reading


def example(root: Path) -> bytes:
    return (root / "docs" / "example.crash.json").read_bytes()


def full() -> bytes:
    record = CrashText().segv(0x28, "read").code(b"\x48\x8b\x40\x28").python(("train.py", 88, "step"))
    return record.set(note='a "quoted" note, with ,\n inside', step=500).data()


def test_the_builder_states_the_same_members_as_the_model() -> None:
    assert CrashRecord.__struct_fields__ == MEMBERS


def test_a_whole_record_loses_nothing(root: Path) -> None:
    for data in (example(root), full()):
        reading = read(data)
        assert reading.losses == () and reading.complete
        assert reading.record.signal is not None and reading.record.signal.address == 0x28


def test_white_space_is_nobodys_business(root: Path) -> None:
    """`jq .` and `jq -c` write the same object in other lines."""
    whole = read(example(root)).record
    parsed = json.loads(example(root))
    assert read(json.dumps(parsed, indent=2).encode()).record == whole
    assert read(json.dumps(parsed).encode()).record == whole
    assert read(example(root).replace(b"\n", b"\r\n")).record == whole


@pytest.mark.parametrize("source", ["example", "synth"])
def test_every_prefix_yields_every_complete_line(root: Path, source: str) -> None:
    data = example(root) if source == "example" else full()
    whole = read(data).record
    ends = [index for index, byte in enumerate(data) if data[index : index + 2] == b",\n"]
    for length in range(len(data)):
        reading = read_record(data[:length])
        complete = sum(1 for end in ends if end + 2 <= length)
        if complete == 0 and isinstance(reading, NotARecord):
            continue
        assert isinstance(reading, ReadRecord), length
        for name in MEMBERS_IN_FILE(data)[:complete]:
            assert getattr(reading.record, name) == getattr(whole, name), (length, name)
        # What lies behind the cut is whole or absent, never half.
        for name in MEMBERS:
            assert getattr(reading.record, name) in (getattr(whole, name), None), (length, name)


def MEMBERS_IN_FILE(data: bytes) -> list[str]:
    return list(json.loads(data))


def test_a_number_that_the_cut_may_have_shortened_is_not_believed() -> None:
    data = full()
    cut = data[: data.index(b'"step": 500') + len(b'"step": 50')]
    reading = read(cut)
    assert reading.record.step is None
    assert any(loss.member == "step" and loss.kind is LossKind.CUT for loss in reading.losses)


def test_what_was_never_written_is_said() -> None:
    data = full()
    reading = read(data[: data.index(b'"maps"')])
    assert not reading.complete
    assert {"maps", "stages", "end"} <= {loss.member for loss in reading.losses if loss.kind is LossKind.NOT_WRITTEN}


def test_a_torn_line_in_the_middle_costs_that_line_only() -> None:
    data = full().replace(b'"step": 500,\n', b'"step": {50\x00,\n')
    reading = read(data)
    assert reading.record.step is None and reading.record.modules and reading.complete
    assert [loss.member for loss in reading.losses] == ["step"]


def test_a_member_of_the_wrong_type_costs_as_little_as_possible() -> None:
    record = CrashText().segv(0x28, "read")
    record.members["signal"]["number"] = "eleven"
    record.members["modules"].append({"path": "/no/base"})
    record.members["step"] = [1]
    record.members["limits"] = {"stack": 1.5, "core": 3}
    reading = read(record.data())
    assert reading.record.signal is not None and reading.record.signal.number is None
    assert reading.record.signal.name == "SIGSEGV"
    assert reading.record.modules is not None and len(reading.record.modules) == 1
    assert reading.record.limits is not None and (reading.record.limits.stack, reading.record.limits.core) == (None, 3)
    assert {loss.member for loss in reading.losses} == {"signal.number", "modules[1]", "step", "limits.stack"}
    assert {loss.kind for loss in reading.losses} == {LossKind.WRONG_TYPE}


@pytest.mark.parametrize(
    "value", ["0x1ffffffffffffffff", "-0x1", "zebra", "", 1.5, True, -1, 2**64, "0x" + "f" * 100000]
)
def test_an_address_that_is_none_is_refused(value: object) -> None:
    record = CrashText().segv(0x28, "read")
    record.members["signal"]["address"] = value
    reading = read(record.data())
    assert reading.record.signal is not None and reading.record.signal.address is None
    assert [loss.member for loss in reading.losses] == ["signal.address"]


def test_null_is_as_good_as_missing_everywhere() -> None:
    record = CrashText().segv(0x28, "read")
    record.members["process"] = {"pid": 1, "nspid": None}
    record.members["native"]["frames"] = None
    reading = read(record.data())
    assert reading.losses == ()
    assert reading.record.process is not None and reading.record.process.nspid == []


def test_a_member_given_twice_counts_once() -> None:
    data = full().replace(b'"step": 500,\n', b'"step": 500,\n"step": 7,\n')
    reading = read(data)
    assert reading.record.step == 500
    assert [(loss.member, loss.kind) for loss in reading.losses] == [("step", LossKind.DUPLICATE)]


def test_members_of_a_later_version_are_passed_over() -> None:
    reading = read(full().replace(b'"step": 500,\n', b'"step": 500,\n"colour": {"x": [1]},\n'))
    assert reading.losses == () and reading.record.step == 500


def test_bytes_that_are_no_text_cost_only_themselves() -> None:
    reading = read(full().replace(b"train.py", b"tr\xffin.py"))
    assert reading.record.python is not None and reading.record.python.text is not None
    assert "tr\ufffdin.py" in reading.record.python.text
    assert [loss.kind for loss in reading.losses] == [LossKind.NOT_UTF8]


def test_deep_nesting_is_bounded() -> None:
    reading = read(b'{"schema": "ftforensics.crash/1",\n"step": ' + b"[" * 2_000_000 + b",\n" + b'"note": "here",\n')
    assert reading.record.note == "here"
    assert reading.losses[0].member == "step"


def test_a_line_of_100_megabytes_is_passed_over() -> None:
    data = b'{"schema": "ftforensics.crash/1",\n"note": "' + b"x" * 100_000_000 + b'",\n"step": 3,\n'
    reading = read(data)
    assert reading.record.step == 3 and reading.record.note is None
    assert reading.losses[0].kind is LossKind.TOO_LONG


def test_a_tail_of_zeros_is_a_cut() -> None:
    data = full()
    reading = read(data[: data.index(b'"maps"')] + b"\0" * 5000)
    assert reading.record.modules and not reading.complete


def test_the_first_line_may_be_the_lost_one() -> None:
    data = full()
    reading = read(b"{" + data[data.index(b'"tool"') :])
    assert reading.record.signal is not None


@pytest.mark.parametrize(
    ("data", "word"),
    [
        (b"", "empty"),
        (b"\n  \n", "empty"),
        (b"\0" * 4096, "empty"),
        (b"\x7fELF\x02\x01\x01\0\0\0", "binary"),
        (b"[1, 2]", "object"),
        (b"Segmentation fault (core dumped)\n", "object"),
        (b'{"a": 1}', "schema"),
        (b'{"schema": "cargo/1"}', "cargo/1"),
        (b'{"schema": 1}', "schema is '1'"),
        (b'{"sch', "no complete line"),
        (b"{", "no complete line"),
    ],
)
def test_what_is_not_ours_is_named(data: bytes, word: str) -> None:
    reading = read_record(data)
    assert isinstance(reading, NotARecord)
    assert word in reading.message and "\n" not in reading.message


@pytest.mark.parametrize("version", ["2", "1.1", "99", ""])
def test_a_newer_record_is_not_half_understood(version: str) -> None:
    reading = read_record(full().replace(b"ftforensics.crash/1", b"ftforensics.crash/" + version.encode()))
    assert isinstance(reading, NewerSchema)
    assert "upgrade" in reading.message


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_damage_never_raises(data: st.DataObject) -> None:
    text = bytearray(full())
    for _ in range(data.draw(st.integers(1, 12))):
        at = data.draw(st.integers(0, len(text) - 1))
        match data.draw(st.integers(0, 2)):
            case 0:
                text[at] = data.draw(st.integers(0, 255))
            case 1:
                del text[at : at + data.draw(st.integers(1, 60))]
            case _:
                text[at:at] = data.draw(st.binary(max_size=40))
        if not text:
            text += b"{"
    read_record(bytes(text))


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)


@settings(max_examples=300, deadline=None)
@given(st.dictionaries(st.sampled_from(MEMBERS[1:]), json_values))
def test_any_json_in_any_member_is_read_or_told(members: dict[str, object]) -> None:
    data = json.dumps({"schema": "ftforensics.crash/1", **members}).encode()
    reading = read_record(data)
    assert isinstance(reading, ReadRecord)
