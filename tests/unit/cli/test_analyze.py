"""`analyze` on good input."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ftforensics.cli.analysis import diagnose_case, records_in_order
from ftforensics.cli.inputs import gather
from ftforensics.cli.progress import Progress

Run = Callable[..., Any]


def variant(example: bytes, **members: object) -> bytes:
    """The example with top-level members replaced, one line a member as the handler writes it."""
    content = {**json.loads(example), **members}
    lines = [f"{json.dumps(name)}: {json.dumps(value)}" for name, value in content.items()]
    return ("{" + ",\n".join(lines) + "}").encode()


def rank(example: bytes, number: int, pid: int, at: float) -> bytes:
    content = json.loads(example)
    time = content["time"]
    passed = at - time["realtime"]
    return variant(
        example,
        process={**content["process"], "pid": pid, "tid": pid, "nspid": [pid]},
        job={**content["job"], "rank": number},
        time={**time, "realtime": at, "monotonic": time["monotonic"] + passed},
    )


def head(report: str) -> str:
    """What stands before the first blank line: verdict, process, what to do."""
    return report.partition("\n\n")[0]


def test_a_record_gives_a_report_and_status_0(run: Run, record: Path) -> None:
    shown = run("analyze", record)
    assert shown.status == 0
    assert shown.err == ""
    assert shown.out.splitlines()[0].endswith(("LIKELY", "PROVEN"))
    assert "null-read" in shown.out
    assert "rank 0 (pid 4242) on gpu-07" in shown.out


def test_undecided_is_status_3(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "x.crash.json"
    path.write_bytes(b'{"schema": "ftforensics.crash/1",\n"tool": {"name": "ftforensics"},\n')
    shown = run("analyze", path)
    assert shown.status == 3
    assert "UNDECIDED" in shown.out


def test_json_is_the_published_schema_and_has_the_same_verdict(run: Run, record: Path) -> None:
    shown = run("analyze", record, "--json")
    report = json.loads(shown.out)
    assert report["schema"] == "ftforensics.report/1"
    assert report["verdict"]["mechanism"] == "null-read"
    assert report["verdict"]["summary"].split()[0] in run("analyze", record).out
    assert shown.status == 0


def test_what_was_pretty_printed_by_jq_is_still_a_record(run: Run, example: bytes, tmp_path: Path) -> None:
    path = tmp_path / "pretty"
    path.write_text(json.dumps(json.loads(example), indent=2))
    shown = run("analyze", path)
    assert shown.status == 0
    assert "null-read" in shown.out


def test_a_record_is_known_by_its_content(run: Run, example: bytes, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_bytes(example)
    (tmp_path / "launcher.log").write_text("rank 0 died")
    (tmp_path / "sub").mkdir()
    os.mkfifo(tmp_path / "pipe.crash.json")
    shown = run("analyze", tmp_path)
    assert shown.status == 0
    assert "null-read" in shown.out


def test_in_a_run_folder_the_earliest_is_the_root_and_others_are_listed(
    run: Run, example: bytes, tmp_path: Path
) -> None:
    (tmp_path / "a.crash.json").write_bytes(rank(example, 1, 51, 1764434409.0))
    (tmp_path / "b.crash.json").write_bytes(rank(example, 0, 50, 1764434401.0))
    (tmp_path / "c.crash.json").write_bytes(rank(example, 2, 52, 1764434405.5))
    shown = run("analyze", tmp_path)
    assert "rank 0 (pid 50)" in head(shown.out)
    others = " ".join(shown.out.partition("\nRanks")[2].split())
    assert others.split(":")[0].endswith("root rank 0 (pid 50)")
    assert "ranks 1, 2: died of" in others
    assert ", 4.5 s to 8 s later" in others


def test_the_reports_get_the_records_in_the_order_of_the_processes(example: bytes, tmp_path: Path) -> None:
    (tmp_path / "a.crash.json").write_bytes(rank(example, 1, 51, 1764434409.0))
    (tmp_path / "b.crash.json").write_bytes(rank(example, 0, 50, 1764434401.0))
    with Progress() as progress:
        case = gather([str(tmp_path)], pid=None, rank=None, progress=progress)
    records = records_in_order(case, diagnose_case(case))
    assert [one.process.pid for one in records if one.process] == [50, 51]
    assert [one.record.process.pid for one in case.records if one.record.process] == [51, 50]


def test_pid_and_rank_narrow_it(run: Run, example: bytes, tmp_path: Path) -> None:
    (tmp_path / "a.crash.json").write_bytes(rank(example, 1, 51, 1764434409.0))
    (tmp_path / "b.crash.json").write_bytes(rank(example, 0, 50, 1764434401.0))
    assert "rank 1 (pid 51)" in head(run("analyze", tmp_path, "--rank", "1").out)
    assert "rank 1 (pid 51)" in head(run("analyze", tmp_path, "--pid", "51").out)
    shown = run("analyze", tmp_path, "--pid", "99")
    assert shown.status == 2
    assert "none of the records is of pid 99" in shown.complaint
    assert "rank 1 (pid 51)" in shown.complaint


def test_the_same_record_twice_is_one_process(run: Run, record: Path) -> None:
    shown = run("analyze", record, record.parent, record)
    assert shown.out.partition("\nRanks")[2].count("died of") == 1


def test_a_helper_report_beside_the_record_is_merged(run: Run, record: Path) -> None:
    frames = [{"function": "wait_for_batch", "file": "loader.py", "line": 7, "native": False}]
    helper = {
        "schema": "ftforensics.helper/1",
        "record": record.name,
        "pid": 4242,
        "tool": "py-spy",
        "threads": [{"tid": 4299, "name": "loader", "frames": frames}],
    }
    record.with_name("gpu-07-rank0.helper.json").write_text(json.dumps(helper))
    assert "wait_for_batch" in run("analyze", record, "-v").out
    # One that names another record is not ours, whatever lies in the folder.
    record.with_name("gpu-07-rank0.helper.json").rename(record.with_name("other.helper.json"))
    record.with_name("other.helper.json").write_text(json.dumps({**helper, "record": "else.crash.json"}))
    assert "wait_for_batch" not in run("analyze", record, "-v").out


def test_a_helper_report_of_another_process_is_left_out(run: Run, record: Path) -> None:
    """A folder copied together from two runs, or a pid that came round again."""
    frames = [{"function": "wait_for_batch", "file": "loader.py", "line": 7, "native": False}]
    helper = {"schema": "ftforensics.helper/1", "record": record.name, "pid": 99, "tool": "py-spy"}
    helper["threads"] = [{"tid": 4299, "name": "loader", "frames": frames}]
    record.with_name("gpu-07-rank0.helper.json").write_text(json.dumps(helper))
    shown = run("analyze", record, "-v")
    assert "wait_for_batch" not in shown.out
    assert "is about pid 99, not 4242: left out" in " ".join(shown.out.split())


def test_a_damaged_helper_report_is_told_and_costs_nothing_else(run: Run, record: Path) -> None:
    record.with_name("gpu-07-rank0.helper.json").write_text('{"schema": "ftforensics.helper/1", "thr')
    shown = run("analyze", record, "-v")
    assert shown.status == 0
    assert "helper: the helper's report is unreadable" in " ".join(shown.out.split())


def test_a_record_from_another_machine_says_that_this_machine_was_not_asked(run: Run, record: Path) -> None:
    flat = " ".join(run("analyze", record, "-v").out.split())
    assert "the record is from another machine (gpu-07); nothing live of this machine was used" in flat


def test_a_record_of_this_boot_says_no_such_thing(run: Run, example: bytes, tmp_path: Path) -> None:
    boot_id = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    path = tmp_path / "x.crash.json"
    path.write_bytes(variant(example, time={**json.loads(example)["time"], "boot_id": boot_id}))
    assert "this machine" not in run("analyze", path, "-v").out


def test_hostile_records_do_nothing_to_the_terminal(run: Run, example: bytes, tmp_path: Path) -> None:
    evil = "\x1b[31m\x9b2J\u202e[red]x[/red]\nFORGED\r"
    content = json.loads(example)
    path = tmp_path / "x.crash.json"
    path.write_bytes(
        variant(
            example,
            process={**content["process"], "thread_name": evil},
            job={**content["job"], "host": evil, "argv": [evil], "cwd": evil, "exe": evil},
            phase={"names": [evil]},
            note=evil,
            abort_message={"text": evil, "source": evil},
            cxx_exception={"type": evil, "what": evil},
            python={"text": f'Stack (most recent call first):\n  File "{evil}", line 1 in {evil}\n'},
            modules=[{"path": f"/{evil}.so", "base": "0x7f0000000000", "end": "0x7f0000200000", "build_id": evil}],
            libraries=[{"path": evil, "kind": evil, "package": evil, "version": evil}],
            driver={"module_version": evil, "note": evil},
            threads=[{"tid": 1, "name": evil}],
            stages=[{"name": evil, "ok": False, "error": evil}],
            signal={**content["signal"], "name": evil, "code_name": evil},
        )
    )
    for form in ((), ("-v",), ("--json",)):
        shown = run("analyze", path, *form)
        assert shown.status in (0, 3)
        assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", shown.out + shown.err)
        assert not any(line.startswith("FORGED") for line in shown.out.splitlines())


def test_output_writes_a_private_file_whole(run: Run, record: Path, tmp_path: Path) -> None:
    shown = run("analyze", record, "--output", tmp_path / "report.txt")
    assert shown.out == ""
    assert "null-read" in (tmp_path / "report.txt").read_text()
    assert (tmp_path / "report.txt").stat().st_mode & 0o077 == 0
    assert not list(tmp_path.glob(".ftforensics-*"))


def test_output_never_replaces_the_record(run: Run, record: Path, example: bytes, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(record)
    for target in (record, tmp_path / "link"):
        shown = run("analyze", record, "--output", target)
        assert shown.status == 2
        assert "the evidence itself" in shown.complaint
    assert record.read_bytes() == example


@pytest.mark.parametrize("name", ["node-7.exception.json", "error.json"])
def test_output_never_replaces_an_exception_record_of_the_folder(run: Run, tmp_path: Path, name: str) -> None:
    raised = tmp_path / name
    raised.write_text(
        '{"schema": "ftforensics.exception/1",\n"exceptions": [\n{"type": "ValueError", "message": "bad"}\n]\n}\n'
        if name != "error.json"
        else '{"message": {"message": "ValueError: bad", "extraInfo": {"py_callstack": "", "timestamp": "1796000000"}}}'
    )
    before = raised.read_bytes()
    for option in ("--output", "--html"):
        shown = run("analyze", tmp_path, option, raised)
        assert shown.status == 2
        assert "the evidence itself" in shown.complaint
    assert raised.read_bytes() == before


def test_output_never_replaces_what_a_container_runtime_said(run: Run, tmp_path: Path) -> None:
    state = {"OOMKilled": True, "ExitCode": 137, "Running": False, "Status": "exited"}
    said = tmp_path / "inspect.json"
    said.write_text(json.dumps([{"Id": "3b1c" * 16, "Name": "/train", "State": state}]))
    before = said.read_bytes()
    shown = run("analyze", said, "--output", said)
    assert shown.status == 2
    assert "the evidence itself" in shown.complaint
    assert said.read_bytes() == before


def test_two_reports_do_not_go_into_one_file(run: Run, record: Path, tmp_path: Path) -> None:
    there = tmp_path / "there"
    there.write_text("")
    for one, other in (("new", "./new"), ("there", "there")):
        shown = run("analyze", record, "--output", tmp_path / one, "--html", f"{tmp_path}/{other}")
        assert shown.status == 2 and "both name" in shown.complaint
    assert there.read_text() == "" and not (tmp_path / "new").exists()


def test_output_that_cannot_be_written_is_one_line(run: Run, record: Path, tmp_path: Path) -> None:
    shown = run("analyze", record, "--output", tmp_path / "none" / "x")
    assert shown.status == 1
    assert "its folder does not exist" in shown.complaint
    shown = run("analyze", record, "--output", tmp_path)
    assert shown.status == 1
    assert "Is a directory" in shown.complaint
    shown = run("analyze", record, "--output", "/dev/full")
    assert "No space left" in shown.complaint
    os.mkfifo(tmp_path / "nobody")
    assert "nobody reads this pipe" in run("analyze", record, "--output", tmp_path / "nobody").complaint


@pytest.mark.parametrize("width", ["80", "200"])
def test_lines_fit(run: Run, record: Path, monkeypatch: pytest.MonkeyPatch, width: str) -> None:
    monkeypatch.setenv("COLUMNS", width)
    for line in run("analyze", record).out.splitlines():
        assert len(line) <= int(width) or "/" in line


def test_colour_only_when_wanted(run: Run, record: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "\x1b" not in run("analyze", record).out
    assert "\x1b" in run("analyze", record, "--color", "always").out
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b" in run("analyze", record, "--color", "always").out
    assert "\x1b" not in run("analyze", record, "--color", "never").out


def test_many_records_are_quick(run: Run, example: bytes, tmp_path: Path) -> None:
    for number in range(64):
        (tmp_path / f"r{number}.crash.json").write_bytes(rank(example, number, 100 + number, 1764434400.0 + number))
    began = time.process_time()
    shown = run("analyze", tmp_path)
    assert shown.status == 0
    assert "rank 0 (pid 100)" in shown.out
    assert time.process_time() - began < 10
