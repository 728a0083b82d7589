"""The report of a kill in a terminal, as a person sees it."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from ftforensics.model.basics import Cite
from ftforensics.model.crash import AbortMessage, CrashRecord
from ftforensics.model.diagnosis import Attempt, Confidence, Diagnosis, Exit, Finding, LastSecond, Verdict
from ftforensics.report.terminal import View, render

Make = Callable[..., Diagnosis]

KILLED = """\
Killed by the kernel: the job's own memory limit was reached.             PROVEN
  rank 3 (pid 18033) on gpu-07, in save_checkpoint, step 500, 2025-11-29
  16:42:11 UTC
  Fix: ZeRO-3, or save on one rank only

For       Memory cgroup out of memory: Killed process 18033 (python) anon-rss
          61.2 GiB; limit of /slurm/job_4411                       kmsg 51234.10
          oom_kill 0 -> 1 in this job's own group           cgroup memory.events
Against   nothing found
Excluded  host-oom: vmstat oom_kill did not change
            oom_kill 0 -> 1 in this job's own group         cgroup memory.events

The last minute                                        memory of /slurm/job_4411
  -60 s ▂▂▂▂▂▂▂▂▂▂▂▂▂▂▃▃▃▃▃▃▃▄▄▄▄▄▄▄▅▅▅▅▅▅▅▆▆▆▆▆▆▇▇▇▇▇▇▇████ 0  █ = limit 64 GiB
  63.9 GiB of 64 GiB in use (99.8 %), the limit of /slurm/job_4411
  grew 1.0 GiB/s for 47 s, from 15.8 GiB to 63.9 GiB; 8 of 8 ranks grew together
  about 3 GiB of the group's usage was page cache, which the kernel drops first
  largest: rank 3 (pid 18033) 8.1 GiB; other (pid 77) 5 GiB; rank 0 (pid 18030)
  4 GiB
  last sample 64 ms before the end                             gpu-07-rank3.ring

The last second                                 group: usage of the memory group
   before  anon GiB  file MiB shmem MiB group GiB  free GiB
     47 s  phase save_checkpoint
      2 s  step 500
    1.1 s      7.75     200.0       0.0     62.90    400.25
   964 ms      7.77     200.0       0.0     63.00    400.25
   864 ms      7.80     200.0       0.0     63.10    400.25
   764 ms      7.82     200.0       0.0     63.20    400.25
   664 ms      7.85     200.0       0.0     63.30    400.25
   564 ms      7.88     200.0       0.0     63.40    400.25
   500 ms  note: shard 7
   464 ms      7.90     200.0       0.0     63.50    400.25
   364 ms      7.92     200.0       0.0     63.60    400.25
   310 ms  SIGTERM from pid 17987 (torchrun)
   264 ms      7.95     200.0       0.0     63.70    400.25
   164 ms      7.97     200.0       0.0     63.80    400.25
    64 ms      8.00     200.0       0.0     63.90    400.25
  no end mark: SIGKILL leaves no time for one

Why it came to that: checkpoint-clone-per-rank                            likely
For       8 ranks x 13.5 GB                                           crash argv

Ranks                                                                8 on gpu-07
  root        rank 3 (pid 18033): killed by SIGKILL
  collateral  ranks 0-2, 4-7: ended by SIGTERM from 17987 (torchrun), 1.9 s
              later
  collateral    4 workers of rank 0: killed by SIGKILL, 2 s to 5 s later

Earlier attempts
  - attempt 1: cgroup-oom (proven), as this time

Not seen  tracefs: not armed
            to see it: needs root

Also worth trying
  - Request 136 GiB

More: ftforensics explain cgroup-oom
All numbers: ftforensics analyze -v ftforensics/4411
"""

UNEXPLAINED = """\
Killed by SIGKILL; who sent it is not known.                           UNDECIDED
  pid 438, 2025-11-29 16:42:11 UTC
  Cheapest next step: Look at the kernel log on the node
       journalctl -k --since "14:02" | grep -i killed

Known     DataLoader worker (pid 438) is killed by signal: Killed
                                                        launcher launcher.log:12
Possible  cgroup-oom (possible): usage 91 % at the last sample, rising 1.1 GiB/s
Excluded  host-oom: /proc/vmstat oom_kill did not change
            3 before and after                                   vmstat oom_kill

The last minute                                        memory of /slurm/job_4411
"""


def test_a_memory_kill(make_killed: Make) -> None:
    assert render(make_killed(), View(path="ftforensics/4411")) == KILLED


def test_a_kill_that_nobody_explains(make_unexplained: Make) -> None:
    text = render(make_unexplained(), View())
    assert text.startswith(UNEXPLAINED)
    rest = text[len(UNEXPLAINED) :]
    assert "Not seen  kmsg: not readable in this container" in rest
    assert "to see it: run the collector on the node" in rest
    assert "The last second" not in rest
    assert "nothing found" not in text


def test_a_ring_alone_shows_its_curve_and_its_last_second(make_ring_alone: Make) -> None:
    text = render(make_ring_alone(), View())
    for piece in (
        "The last minute",
        "The last second",
        "no end mark: ended unseen",
        "times are before the last sample",
        "trouble of the recorder itself: no space",
        "how old the last sample was at the end is not known",
    ):
        assert piece in text, piece
    assert "Where it died" not in text
    alive = render(make_ring_alone(alive=True), View())
    assert "it still runs" in alive
    assert "ended unseen," not in alive


def test_a_fault_shows_its_memory_only_when_asked(make_diagnosis: Make, make_killed: Make) -> None:
    fault = make_diagnosis()
    memory = make_killed().processes[0]
    process = msgspec.structs.replace(fault.processes[0], memory=memory.memory, last_second=memory.last_second)
    diagnosis = make_diagnosis(processes=[process])
    short, long = render(diagnosis, View()), render(diagnosis, View(verbose=True))
    assert "The last minute" not in short and "The last second" not in short
    assert "The last minute" in long and "The last second" in long
    assert "Where it died" in short


def test_a_kill_by_a_person_has_no_curve_unless_asked(make_killed: Make) -> None:
    verdict = Verdict("failed", "killed-by-process", "killed-by-process", "proven", "pid 9 sent it.", "killed")
    diagnosis = make_killed(verdict=verdict)
    assert "The last minute" not in render(diagnosis, View())
    assert "The last minute" in render(diagnosis, View(verbose=True))


@pytest.mark.parametrize("mechanism", [None, "killed", "sent-by-process"])
def test_no_empty_place_where_it_died(make_killed: Make, mechanism: str | None) -> None:
    verdict = Verdict("failed", "cgroup-oom", "cgroup-oom", "proven", "x", mechanism)
    assert "Where it died" not in render(make_killed(verdict=verdict), View())


def test_a_fault_known_from_the_kernels_line_alone_has_a_mechanism(make_killed: Make) -> None:
    verdict = Verdict("failed", "native-fault", "native-fault", "likely", "x", "null-read")
    assert "mechanism: null-read" in render(make_killed(verdict=verdict), View())


def test_the_plot_has_rows_where_there_is_room(make_killed: Make) -> None:
    def limits(**view: object) -> tuple[int, int]:
        """(lines that draw the limit, lines that draw the curve)"""
        lines = render(make_killed(), View(**view)).splitlines()  # type: ignore[arg-type]
        return sum("┄" in line for line in lines), sum("█" in line for line in lines)

    assert limits(width=80) == (0, 1)
    assert limits(width=200, height=24) == (0, 1)
    assert limits(width=200, height=60) == (1, 4)
    assert limits(width=80, verbose=True) == (1, 8)


@pytest.mark.parametrize("verbose", [False, True])
def test_without_block_characters_everything_is_ascii(make_killed: Make, verbose: bool) -> None:
    text = render(make_killed(), View(ascii=True, verbose=verbose, width=118, height=60))
    assert text.isascii()
    assert "limit 64 GiB" in text


def test_every_line_of_the_plot_ends_at_the_edge(make_killed: Make) -> None:
    for width in (40, 80, 118):
        lines = render(make_killed(), View(width=width)).splitlines()
        assert [len(line) for line in lines if "= limit" in line] == [width]


def test_verbose_names_each_consequence(make_killed: Make) -> None:
    text = render(make_killed(), View(verbose=True))
    for rank in (0, 1, 2, 4, 5, 6, 7):
        assert f"      rank {rank} (pid {18030 + rank}) on gpu-07, 1.9 s later" in text


def test_what_excludes_several_stands_once(make_killed: Make) -> None:
    same, other = [Cite("vmstat", "oom_kill", "3 before and after")], [Cite("kmsg", "1-9", "no such line")]
    excluded = [
        Finding("host-oom", Confidence.RULED_OUT, "Not the machine.", against=same),
        Finding("numa-oom", Confidence.RULED_OUT, "Not a node.", against=same),
        Finding("earlyoom", Confidence.RULED_OUT, "Not earlyoom.", against=other),
    ]
    for view in (View(), View(verbose=True)):
        text = render(make_killed(hypotheses=excluded), view)
        assert text.count("3 before and after") == 1
        assert text.index("Not a node.") < text.index("3 before and after") < text.index("Not earlyoom.")
        assert text.index("Not earlyoom.") < text.index("no such line")


def test_without_a_limit_the_top_is_what_was_highest(make_killed: Make, make_history: Callable[..., object]) -> None:
    process = make_killed().processes[0]
    history = msgspec.structs.replace(make_history(), limit=None, full=None)
    text = render(make_killed(processes=[msgspec.structs.replace(process, memory=history)]), View())
    assert "█ = 63.9 GiB\n" in text


def test_only_the_latest_attempts_without_verbose(make_killed: Make) -> None:
    diagnosis = make_killed(
        attempts=[
            Attempt(f"attempt {number}", "failed", None, "undecided", f"it ended {number}") for number in range(9)
        ]
    )
    short, long = render(diagnosis, View()), render(diagnosis, View(verbose=True))
    assert "- attempt 8" in short and "attempt 0" not in short and "5 earlier ones" in short
    assert "- attempt 0" in long


def test_a_collaterals_crash_record_is_not_the_killed_ones(make_killed: Make) -> None:
    diagnosis = make_killed()
    other = msgspec.structs.replace(diagnosis.processes[1], record="other.crash.json")
    diagnosis = msgspec.structs.replace(diagnosis, processes=[diagnosis.processes[0], other])
    text = render(diagnosis, View(), [CrashRecord(abort_message=AbortMessage(text="not its words"))])
    assert "Where it died" not in text
    assert "not its words" not in text


def test_an_end_mark_is_told(make_ring_alone: Make) -> None:
    diagnosis = make_ring_alone()
    process = diagnosis.processes[0]
    for end, words in (("exit", "ended by itself"), ("exec", "became another program"), ("x\x1b", "end mark: x\\x1b")):
        marked = msgspec.structs.replace(process, last_second=LastSecond(end=end))
        assert words in render(msgspec.structs.replace(diagnosis, processes=[marked]), View())
    exited = msgspec.structs.replace(process, exit=Exit(code=1))
    text = render(msgspec.structs.replace(diagnosis, processes=[exited]), View(verbose=True))
    assert "no end mark\n" in text
