"""The published JSON Schemas: current, valid, and true of what is written."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import msgspec
import pytest

from ftforensics.diagnose import diagnose
from ftforensics.model.basics import encode_hook
from ftforensics.model.case import Case, CaseRecord
from ftforensics.model.ledger import Begun, ConfigFile, Ended, Fingerprint, Setting, Snapshot
from ftforensics.model.software import Package
from ftforensics.wire.ledger import encode_line, encode_snapshot
from ftforensics.wire.record import ReadRecord, read_record
from ftforensics.wire.schema import EVIDENCE, LEDGER, PUBLISHED, PUBLISHED_LINES, write_schemas
from synth.crash_record import CrashText
from synth.run_evidence import RunText


def schema(root: Path, name: str) -> jsonschema.Draft202012Validator:
    content = json.loads((root / "docs" / name).read_text())
    jsonschema.Draft202012Validator.check_schema(content)
    return jsonschema.Draft202012Validator(content)


@pytest.mark.parametrize("name", [*PUBLISHED, *PUBLISHED_LINES])
def test_the_published_schema_is_current(root: Path, tmp_path: Path, name: str) -> None:
    write_schemas(tmp_path)
    assert (root / "docs" / name).read_text() == (tmp_path / name).read_text(), "run: python -m ftforensics.wire.schema"


def test_a_line_of_evidence_fits_and_another_type_does_not(root: Path) -> None:
    validator = schema(root, EVIDENCE)
    text = RunText().started().died(7, signal=9).counted(1011.0, "death", oom_kill=3, job=1).kernel("3,1,2,-;x")
    for line in text.sent(9, 7, 5).gap("kmsg", "refused").ended(code=1).data().splitlines():
        validator.validate(json.loads(line))
    with pytest.raises(jsonschema.ValidationError):
        validator.validate({"type": "born", "pid": 7})
    with pytest.raises(jsonschema.ValidationError):
        validator.validate({"pid": 7})


RAN_ON = Fingerprint(
    host="gpu-07",
    packages=[Package("torch", "2.9.1+cu128")],
    variables=[Setting("OMP_NUM_THREADS", "8")],
    files=[ConfigFile("ds_config.json", [Setting("zero_optimization.stage", "2")])],
)


def test_a_line_of_the_ledger_fits_and_another_type_does_not(root: Path) -> None:
    validator = schema(root, LEDGER)
    for line in (Begun("4411", 1764434400.5, "/work/train.py", RAN_ON, pid=7), Ended("4411", 2.0, "signal", signal=11)):
        validator.validate(json.loads(encode_line(line)))
    with pytest.raises(jsonschema.ValidationError):
        validator.validate({"type": "born", "run": "4411"})
    with pytest.raises(jsonschema.ValidationError):
        validator.validate({"type": "begun", "run": "4411", "fingerprint": {"packages": "torch"}})


def test_a_snapshot_fits(root: Path) -> None:
    validator = schema(root, "snapshot.schema.json")
    validator.validate(json.loads(encode_snapshot(Snapshot(1764434400.5, RAN_ON))))
    with pytest.raises(jsonschema.ValidationError):
        validator.validate({"schema": "ftforensics.snapshot/1", "at": "yesterday"})


def test_records_fit(root: Path) -> None:
    validator = schema(root, "crash.schema.json")
    validator.validate(json.loads((root / "docs" / "example.crash.json").read_text()))
    validator.validate(json.loads(CrashText().segv(0x28, "read").data()))
    validator.validate({"schema": "ftforensics.crash/1"})


def test_every_member_may_be_null_and_more_may_come(root: Path) -> None:
    validator = schema(root, "crash.schema.json")
    record = json.loads(CrashText().segv(0x28, "read").data())
    for name in record:
        if name != "schema":
            validator.validate({**record, name: None})
    record["signal"] = dict.fromkeys(record["signal"], None)
    validator.validate({**record, "colour": {"x": 1}})


@pytest.mark.parametrize(
    "change", [{"schema": "ftforensics.crash/2"}, {"step": "x"}, {"signal": {"address": 40}}, {"maps": "text"}]
)
def test_what_does_not_fit_is_refused(root: Path, change: dict[str, object]) -> None:
    record = json.loads(CrashText().segv(0x28, "read").data())
    with pytest.raises(jsonschema.ValidationError):
        schema(root, "crash.schema.json").validate({**record, **change})


def test_a_report_fits(root: Path) -> None:
    reading = read_record((root / "docs" / "example.crash.json").read_bytes())
    assert isinstance(reading, ReadRecord)
    diagnosis = diagnose(Case([CaseRecord(reading.record)]))
    report = json.loads(msgspec.json.encode(diagnosis, enc_hook=encode_hook))
    schema(root, "report.schema.json").validate(report)
    report["verdict"] = 3
    with pytest.raises(jsonschema.ValidationError):
        schema(root, "report.schema.json").validate(report)
