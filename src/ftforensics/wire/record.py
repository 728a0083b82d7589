"""Reads a crash record, whole or cut at any byte.

csrc/ftf_handler.c writes one JSON object with one top-level member per line and each line ends with ",\\n", so that
what was on disk when the process died is a run of complete lines and at most one torn one. A record that went through
`jq` is the same object with other white space. Nothing here raises on bad input: a member, or an element deep in one,
that cannot be used is dropped and told as a `Loss`.
"""

from __future__ import annotations

import types
from contextlib import suppress
from enum import Enum
from typing import Any, Union, get_args, get_origin

import msgspec

from ftforensics.model.basics import Address
from ftforensics.model.crash import CrashRecord

SCHEMA_FAMILY = "ftforensics.crash/"
SCHEMA_VERSION = 1
LONGEST_LINE = 32 * 1024 * 1024  # maps and modules of the largest process seen were under 2 MiB
MOST_LOSSES = 200  # then we only count: a file of garbage must not become a report of garbage


class LossKind(str, Enum):
    CUT = "cut"  # the file ends inside this line
    NOT_JSON = "not JSON"
    NOT_UTF8 = "not UTF-8"
    TOO_LONG = "too long"
    TOO_DEEP = "nested too deeply"
    DUPLICATE = "given twice, the first was taken"
    WRONG_TYPE = "of the wrong type"
    NOT_WRITTEN = "never written"


class Loss(msgspec.Struct, frozen=True):
    """One thing in the file that could not be used. member: "signal" or a path in it ("modules[3].base"), None when
    not even its name could be read; line: 1-based; detail: what was wrong with it."""

    member: str | None
    line: int | None
    kind: LossKind
    detail: str | None = None


class ReadRecord(msgspec.Struct, frozen=True):
    """complete: the handler reached its last member."""

    record: CrashRecord
    losses: tuple[Loss, ...]
    complete: bool


class NewerSchema(msgspec.Struct, frozen=True):
    """Ours, but written by a later version whose members may mean something else."""

    schema: str

    @property
    def message(self) -> str:
        return (
            f"the record says {self.schema!r}, this version reads {SCHEMA_FAMILY}{SCHEMA_VERSION}: upgrade ftforensics"
        )


class NotARecord(msgspec.Struct, frozen=True):
    """Empty, binary, cut inside its first line, or somebody else's JSON. why: half a sentence without a full stop."""

    why: str

    @property
    def message(self) -> str:
        return f"not a crash record: {self.why}"


RecordReading = ReadRecord | NewerSchema | NotARecord


class _Refused(Exception):
    """A value cannot be used at all; args[0] says why. Never leaves this module."""


_FIELDS: dict[type, tuple[msgspec.structs.FieldInfo, ...]] = {}
_DECODERS: dict[str, msgspec.json.Decoder[Any]] = {}


def read_record(data: bytes) -> RecordReading:
    """The record in `data`, with what of it was unreadable; or why it is none."""
    # A journal replayed after power loss leaves the reserved tail of a file as zeros.
    data = data.rstrip(b"\0").removeprefix(b"\xef\xbb\xbf").rstrip()
    start = len(data) - len(data.lstrip())
    if start == len(data):
        return NotARecord("the file is empty")
    if data[start : start + 1] != b"{":
        controls = any(byte < 32 for byte in data[:4096].translate(None, b"\t\n\r\f\x1b"))
        return NotARecord("it is binary" if controls else "it is not a JSON object")
    sound = _sound(data)
    if sound is not None:
        return sound
    members, losses = _members_by_line(data)
    if any(loss.kind is LossKind.NOT_JSON for loss in losses):
        # Complete JSON in other white space (`jq .`) has members that span lines.
        whole = _object(data)
        if isinstance(whole, dict):
            members, losses = [(None, name, raw) for name, raw in whole.items()], []
    return _assemble(members, losses)


def _sound(data: bytes) -> ReadRecord | None:
    """A whole record as the handler writes it, a member a line, nothing lost: read at once, which takes a fifth of the
    time. None: anything else, to be read member by member."""
    if len(data) > LONGEST_LINE:
        return None
    members = _object(data)
    # In JSON no line ends inside a string. Fewer names than lines: one stands there twice.
    if not isinstance(members, dict) or data.count(b",\n") != len(members) - 1:
        return None
    if data.count(b"\n") > len(members):  # the last "}" may have a line of its own
        return None
    if not isinstance(_schema_of([(None, name, raw) for name, raw in members.items()]), str):
        return None
    try:
        record = _WHOLE.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return ReadRecord(record, (), True) if record.end is not None else None


def _members_by_line(data: bytes) -> tuple[list[tuple[int | None, str, msgspec.Raw]], list[Loss]]:
    members: list[tuple[int | None, str, msgspec.Raw]] = []
    losses: list[Loss] = []
    lines = data.split(b"\n")
    for number, line in enumerate(lines, 1):
        last = number == len(lines)
        text = line.strip()
        if number == 1:
            text = text[1:].lstrip()
        if not text or text == b"}":
            continue
        if len(text) > LONGEST_LINE:
            losses.append(Loss(_name_of(text), number, LossKind.TOO_LONG, f"{len(text)} bytes"))
            continue
        found: dict[str, msgspec.Raw] | LossKind
        if text.endswith(b","):
            found = _object(b"{" + text[:-1] + b"}")
        else:
            found = _object(b"{" + text + b"}")
            if not isinstance(found, dict):
                found = _object(b"{" + text)
            elif last:
                # Cut right behind a value. A number cannot be told from a shorter one: 50 of 500.
                found = LossKind.CUT if _ends_in_number(found) else found
        if isinstance(found, dict):
            members.extend((number, name, raw) for name, raw in found.items())
        elif len(losses) < MOST_LOSSES:
            kind = LossKind.CUT if last and found is LossKind.NOT_JSON else found
            losses.append(Loss(_name_of(text), number, kind))
    return members, losses


def _object(text: bytes) -> dict[str, msgspec.Raw] | LossKind:
    try:
        return msgspec.json.decode(text, type=dict[str, msgspec.Raw])
    except RecursionError:
        return LossKind.TOO_DEEP
    except UnicodeDecodeError:
        return LossKind.NOT_UTF8
    except msgspec.DecodeError:
        return LossKind.NOT_JSON


def _ends_in_number(members: dict[str, msgspec.Raw]) -> bool:
    *_, value = members.values()
    return bytes(value).strip()[-1:] in b"0123456789"


def _name_of(text: bytes) -> str | None:
    """The member's name, when the line still starts with one."""
    if not text.startswith(b'"'):
        return None
    name, quote, _ = text[1:65].partition(b'"')
    return name.decode("ascii", "backslashreplace") if quote else None


def _assemble(members: list[tuple[int | None, str, msgspec.Raw]], losses: list[Loss]) -> RecordReading:
    schema = _schema_of(members)
    if isinstance(schema, NewerSchema | NotARecord):
        return schema
    known = {field.encode_name: field for field in _fields(CrashRecord)}
    values: dict[str, Any] = {}
    seen: set[str] = set()
    for line, name, raw in members:
        field = known.get(name)
        if field is None:
            continue  # a later minor version may add members
        if name in values:
            losses.append(Loss(name, line, LossKind.DUPLICATE))
            continue
        seen.add(name)
        with suppress(msgspec.ValidationError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            values[name] = _decoder(name, field.type).decode(raw)
            if values[name] is None:
                del values[name]
            continue
        # Something in it is not as it should be: what is good of it is kept.
        parsed = _parse(raw)
        if parsed is LossKind.NOT_UTF8:
            # The writer escapes such bytes; if one is here all the same, the rest of the text is still worth having.
            losses.append(Loss(name, line, LossKind.NOT_UTF8, "the bytes were replaced"))
            parsed = _parse(msgspec.Raw(bytes(raw).decode("utf-8", "replace")))
        if isinstance(parsed, LossKind):
            losses.append(Loss(name, line, parsed))
            continue
        if parsed is None:
            continue
        try:
            values[name] = _salvage(parsed, field.type, name, line, losses)
        except _Refused as refusal:
            losses.append(Loss(name, line, LossKind.WRONG_TYPE, str(refusal)))
    complete = values.get("end") is not None
    if not complete:
        lost = {loss.member for loss in losses}
        losses.extend(Loss(name, None, LossKind.NOT_WRITTEN) for name in known if name not in seen and name not in lost)
    return ReadRecord(CrashRecord(**values), tuple(losses[: MOST_LOSSES + len(known)]), complete)


def _schema_of(members: list[tuple[int | None, str, msgspec.Raw]]) -> str | NewerSchema | NotARecord:
    first: dict[str, Any] = {}
    for _, name, raw in members:
        if name in ("schema", "tool") and name not in first:
            first[name] = _parse(raw)
    schema, tool = first.get("schema"), first.get("tool")
    if schema is None and isinstance(tool, dict) and tool.get("name") == "ftforensics":
        return SCHEMA_FAMILY + str(SCHEMA_VERSION)  # its first line was lost, the rest is ours
    if schema is None:
        return NotARecord("it has no schema member" if members else "no complete line is in it")
    if not isinstance(schema, str) or not schema.startswith(SCHEMA_FAMILY):
        return NotARecord(f"its schema is {str(schema)[:80]!r}")
    version = schema.removeprefix(SCHEMA_FAMILY)
    if version != str(SCHEMA_VERSION):
        return NewerSchema(schema[:80])
    return schema


def _parse(raw: msgspec.Raw) -> Any | LossKind:
    try:
        return msgspec.json.decode(raw)
    except RecursionError:
        return LossKind.TOO_DEEP
    except UnicodeDecodeError:
        return LossKind.NOT_UTF8
    except msgspec.DecodeError as error:
        return LossKind.NOT_UTF8 if "utf-8" in str(error).lower() else LossKind.NOT_JSON


def _decoder(name: str, wanted: Any) -> msgspec.json.Decoder[Any]:
    """For one member of a record."""
    if name not in _DECODERS:
        _DECODERS[name] = msgspec.json.Decoder(wanted | None, dec_hook=_decoded)
    return _DECODERS[name]


def _decoded(wanted: type, value: Any) -> Any:
    if wanted is Address:
        try:
            return _address(value)
        except _Refused as refusal:
            raise ValueError(str(refusal)) from None
    raise NotImplementedError(f"no decoder for {wanted!r}")


_WHOLE: msgspec.json.Decoder[CrashRecord] = msgspec.json.Decoder(CrashRecord, dec_hook=_decoded)


def _fields(struct: type[msgspec.Struct]) -> tuple[msgspec.structs.FieldInfo, ...]:
    if struct not in _FIELDS:
        _FIELDS[struct] = msgspec.structs.fields(struct)
    return _FIELDS[struct]


def _salvage(value: Any, wanted: Any, path: str, line: int | None, losses: list[Loss]) -> Any:
    """`value` as `wanted`; unusable optional fields and list elements are dropped into `losses`.

    The recursion is as deep as our own types, whatever the input.
    """
    if get_origin(wanted) in (Union, types.UnionType):
        wanted = next(arm for arm in get_args(wanted) if arm is not types.NoneType)
    if get_origin(wanted) is list:
        return _salvage_list(value, get_args(wanted)[0], path, line, losses)
    if isinstance(wanted, type) and issubclass(wanted, msgspec.Struct):
        return _salvage_struct(value, wanted, path, line, losses)
    if wanted is Address:
        return _address(value)
    try:
        return msgspec.convert(value, wanted)
    except (msgspec.ValidationError, ValueError, OverflowError) as error:
        raise _Refused(str(error)) from None


def _salvage_list(value: Any, element: Any, path: str, line: int | None, losses: list[Loss]) -> list[Any]:
    if not isinstance(value, list):
        raise _Refused(f"expected an array, got {type(value).__name__}")
    kept = []
    for index, item in enumerate(value):
        where = f"{path}[{index}]"
        try:
            kept.append(_salvage(item, element, where, line, losses))
        except _Refused as refusal:
            if len(losses) < MOST_LOSSES:
                losses.append(Loss(where, line, LossKind.WRONG_TYPE, str(refusal)))
    return kept


def _salvage_struct(value: Any, struct: type[msgspec.Struct], path: str, line: int | None, losses: list[Loss]) -> Any:
    if not isinstance(value, dict):
        raise _Refused(f"expected an object, got {type(value).__name__}")
    values = {}
    for field in _fields(struct):
        item = value.get(field.encode_name)
        where = f"{path}.{field.encode_name}"
        if item is None:
            if field.required:
                raise _Refused(f"{field.encode_name} is missing")
            continue
        try:
            values[field.name] = _salvage(item, field.type, where, line, losses)
        except _Refused as refusal:
            if field.required:
                raise _Refused(f"{field.encode_name}: {refusal}") from None
            if len(losses) < MOST_LOSSES:
                losses.append(Loss(where, line, LossKind.WRONG_TYPE, str(refusal)))
    return struct(**values)


def _address(value: Any) -> Address:
    if isinstance(value, str):
        try:
            number = int(value[:32], 16)
        except ValueError:
            raise _Refused(f"{value[:32]!r} is not a hex number") from None
    elif isinstance(value, int) and not isinstance(value, bool):
        number = value
    else:
        raise _Refused(f"expected a hex string, got {type(value).__name__}")
    if not 0 <= number < 2**64:
        raise _Refused("not a 64-bit address")
    return Address(number)
