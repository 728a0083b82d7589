"""JSON Schema (draft 2020-12) of what we write: `python -m ftforensics.wire.schema [FOLDER]`, docs by default.

Made from the Structs, with two promises of the formats added: every member may be missing or null, and a later
version may add members.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import msgspec

from ftforensics.model.basics import Address
from ftforensics.model.crash import CrashRecord
from ftforensics.model.diagnosis import Diagnosis
from ftforensics.model.exception import ExceptionRecord
from ftforensics.model.helper_report import HelperReport
from ftforensics.model.ledger import Snapshot
from ftforensics.model.preflight import Preflight
from ftforensics.model.run import RunEvent
from ftforensics.model.stack import LoadedStack
from ftforensics.wire.ledger import LedgerLine

PUBLISHED: dict[str, tuple[type[msgspec.Struct], str]] = {
    "check.schema.json": (Preflight, "ftforensics.check/1"),
    "crash.schema.json": (CrashRecord, "ftforensics.crash/1"),
    "exception.schema.json": (ExceptionRecord, "ftforensics.exception/1"),
    "helper.schema.json": (HelperReport, "ftforensics.helper/1"),
    "report.schema.json": (Diagnosis, "ftforensics.report/1"),
    "libraries.schema.json": (LoadedStack, "ftforensics.libraries/1"),
    "snapshot.schema.json": (Snapshot, "ftforensics.snapshot/1"),
}
EVIDENCE = "evidence.schema.json"
LEDGER = "ledger.schema.json"
# Files of one JSON object a line: the kinds of line, the schema's name, the file.
PUBLISHED_LINES: dict[str, tuple[Any, str, str]] = {
    EVIDENCE: (RunEvent, "ftforensics.evidence/1", "evidence.jsonl"),
    LEDGER: (LedgerLine, "ftforensics.ledger/1", "ledger.jsonl"),
}


def json_schema(struct: type[msgspec.Struct], name: str) -> dict[str, Any]:
    """The schema of `struct`, whose "schema" member must be `name`."""
    (top,), definitions = msgspec.json.schema_components([struct], schema_hook=_address, ref_template="#/$defs/{name}")
    for definition in definitions.values():
        _loosen(definition)
    root = definitions[struct.__name__]
    root["properties"]["schema"] = {"const": name}
    root["required"] = ["schema"]
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": name,
        **top,
        "$defs": dict(sorted(definitions.items())),
    }


def line_schema(kinds: Any, name: str, file: str) -> dict[str, Any]:
    """The schema of one line of `file`: which of the `kinds` it is, its `type` says."""
    (top,), definitions = msgspec.json.schema_components([kinds], schema_hook=_address, ref_template="#/$defs/{name}")
    for definition in definitions.values():
        tagged = "type" in definition.get("required", ())
        _loosen(definition)
        if tagged:
            definition["properties"]["type"] = definition["properties"]["type"]["anyOf"][0]
            definition["required"] = ["type"]
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": name,
        "description": f"One line of {file}.",
        **top,
        "$defs": dict(sorted(definitions.items())),
    }


def write_schemas(folder: Path) -> list[Path]:
    """Write every published schema into `folder`; returns the files."""
    written = []
    for file_name, (struct, name) in PUBLISHED.items():
        written.append(_write(folder / file_name, json_schema(struct, name)))
    for file_name, (kinds, name, file) in PUBLISHED_LINES.items():
        written.append(_write(folder / file_name, line_schema(kinds, name, file)))
    return written


def _write(path: Path, schema: dict[str, Any]) -> Path:
    path.write_text(json.dumps(schema, indent=2) + "\n", encoding="utf-8")
    return path


def _address(wanted: type) -> dict[str, Any]:
    if wanted is Address:
        return {"type": "string", "pattern": "^0x[0-9a-f]{1,16}$", "description": "64-bit value in hexadecimal"}
    raise NotImplementedError(f"no schema for {wanted!r}")


def _loosen(definition: dict[str, Any]) -> None:
    """Members may be missing or null; closed lists of words stay closed, other members are welcome."""
    definition.pop("required", None)
    for name, member in definition.get("properties", {}).items():
        member.pop("default", None)
        if not _nullable(member):
            definition["properties"][name] = {"anyOf": [member, {"type": "null"}]}


def _nullable(member: dict[str, Any]) -> bool:
    return member.get("type") == "null" or any(arm.get("type") == "null" for arm in member.get("anyOf", []))


if __name__ == "__main__":
    for written_path in write_schemas(Path(sys.argv[1] if len(sys.argv) > 1 else "docs")):
        print(written_path)
