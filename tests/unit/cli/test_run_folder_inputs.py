"""What `run` kept of the kernel's log is a log of that boot: it covers the run, and only when nothing is lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from ftforensics.cli.inputs import gather
from ftforensics.cli.progress import Progress
from ftforensics.model.case import Case
from ftforensics.model.kernel import OomKill
from synth.run_evidence import BOOT, RunText

KILLED = "3,77,1009000000,-;Memory cgroup out of memory: Killed process 7 (python) total-vm:100kB, anon-rss:50kB"


def case_of(folder: Path, text: RunText) -> Case:
    (folder / "evidence.jsonl").write_bytes(text.data())
    with Progress() as progress:
        return gather([str(folder)], pid=None, rank=None, progress=progress)


def test_the_kernels_lines_are_a_log_of_that_boot(tmp_path: Path) -> None:
    case = case_of(tmp_path, RunText().started(kernel_log=True).kernel(KILLED).died(7, signal=9).ended(code=1))
    (log,) = case.kernel_logs
    assert [event.pid for event in log.events if isinstance(event, OomKill)] == [7]
    assert (log.boot_id, log.host, log.gap_free) == (BOOT, "gpu-07", True)
    assert log.first is not None and log.last is not None
    assert (log.first.monotonic, log.last.monotonic) == (1000.0, 1020.0)


@pytest.mark.parametrize(
    ("text", "logs", "gap_free"),
    [
        (RunText().started(kernel_log=True).ended(code=1), 1, True),  # it was silent, and that says something
        (RunText().started(kernel_log=True).kernel("<overrun>").ended(code=1), 1, False),
        (RunText().started(kernel_log=True), 1, False),  # the supervisor did not see the end
        (RunText().started(kernel_log=False).ended(code=1), 0, None),  # it was not allowed to read
    ],
)
def test_silence_excludes_only_when_it_is_known_to_be_whole(
    tmp_path: Path, text: RunText, logs: int, gap_free: bool | None
) -> None:
    case = case_of(tmp_path, text)
    assert len(case.kernel_logs) == logs
    assert [log.gap_free for log in case.kernel_logs] == ([gap_free] if logs else [])
