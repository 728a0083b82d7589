"""The static members: valid lines of the published schema, whatever the machine is called."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from pathlib import Path

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from ftforensics.capture import VERSION, identity
from ftforensics.model.basics import decode_hook
from ftforensics.model.crash import CrashRecord

ROOT = Path(__file__).resolve().parents[3]


def decode(lines: bytes) -> CrashRecord:
    return msgspec.json.decode(b"{" + lines.rstrip(b",\n") + b"}", type=CrashRecord, dec_hook=decode_hook)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text() | st.floats(allow_nan=False, allow_infinity=False),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
        max_leaves=20,
    )
)
def test_json_text_means_what_json_reads(value: object) -> None:
    text = identity.json_text(value)  # type: ignore[arg-type]
    assert json.loads(text) == value
    assert "\n" not in text


def test_surrogates_and_raw_bytes_become_plain_ascii() -> None:
    assert identity.printable(os.fsdecode(b"caf\xe9")) == "caf\\xe9"
    assert identity.printable("\ud800x") == "\\ud800x"
    assert identity.json_text(os.fsdecode(b"\xff")) == '"\\\\xff"'


def test_static_members_decode_as_the_record_model() -> None:
    environ = {"RANK": "3", "WORLD_SIZE": "8", "LD_LIBRARY_PATH": "/x", "HF_TOKEN": "hunter2", "SECRET": "hunter2"}
    lines = identity.static_members(environ, "auto", False, ["0::/job"])
    assert lines.count(b"\n") == 3
    assert all(line.endswith(b",") for line in lines.splitlines())
    record = decode(lines)
    assert record.tool is not None and record.job is not None and record.core is not None
    assert (record.tool.version, record.tool.helper, record.tool.raw_stack) == (VERSION, "auto", False)
    assert record.tool.python == platform.python_version()
    assert (record.job.rank, record.job.world_size, record.job.local_rank) == (3, 8, None)
    assert record.job.host == os.uname().nodename
    assert record.job.cgroup == ["0::/job"]
    assert record.job.cpu_flags and record.job.cpu_model
    assert record.job.glibc == platform.libc_ver()[1]
    assert {v.name for v in record.job.environment} == {"RANK", "WORLD_SIZE", "LD_LIBRARY_PATH"}
    assert b"hunter2" not in lines
    assert record.core.pattern == Path("/proc/sys/kernel/core_pattern").read_text().strip()


def test_every_member_of_the_model_is_written() -> None:
    written = json.loads(b"{" + identity.static_members({}, "none", True, []).rstrip(b",\n") + b"}")
    record = decode(identity.static_members({}, "none", True, []))
    assert set(written["job"]) == set(record.job.__struct_fields__)  # type: ignore[union-attr]
    assert set(written["tool"]) == set(record.tool.__struct_fields__)  # type: ignore[union-attr]
    assert set(written["core"]) == set(record.core.__struct_fields__)  # type: ignore[union-attr]


def test_arguments_that_are_not_utf8_and_secret_ones(tmp_path: Path) -> None:
    code = (
        "import sys; from ftforensics.capture import identity;"
        "sys.stdout.buffer.write(identity.static_members({}, 'auto', False, []))"
    )
    argv = [sys.executable.encode(), b"-c", code.encode(), b"caf\xe9", b"--api-key", b"hunter2", b"--password=hunter3"]
    # dangling working directory: the record says null
    gone = tmp_path / "gone"
    gone.mkdir()
    argv = [b"/bin/sh", b"-c", b'rmdir "$PWD"; exec "$@"', b"sh", *argv]
    done = subprocess.run(
        argv, cwd=gone, env={"PYTHONPATH": str(ROOT / "src")}, capture_output=True, timeout=60, check=True
    )
    job = decode(done.stdout).job
    assert job is not None
    assert job.argv[-4:] == ["caf\\xe9", "--api-key", "[redacted]", "--password=[redacted]"]
    assert job.cwd is None
    assert b"hunter" not in done.stdout


def test_the_version_is_the_package_version() -> None:
    assert f'\nversion = "{VERSION}"\n' in (ROOT / "pyproject.toml").read_text()
