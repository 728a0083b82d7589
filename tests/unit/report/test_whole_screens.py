"""Whole screens, as a person sees them: 80 columns, no colour, redirected."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from ftforensics.model.basics import Cite
from ftforensics.model.diagnosis import Attempt, Diagnosis, Event
from ftforensics.report.terminal import View, render

Make = Callable[..., Diagnosis]

RAISED = """\
CUDA ran out of memory in forward(), model.py:41.                         LIKELY
  rank 1 (pid 51) on gpu-07, in save, step 7, model.py:41 forward(), 2025-11-29
  16:40:00 UTC
  Fix: A smaller batch

Where it was raised                                       torch.OutOfMemoryError
  CUDA out of memory. Tried to allocate 20.00 MiB
  cross_entropy  functional.py:3029
  forward        model.py:41
  ... 3 lines of torch; -v shows all
  main           train.py:120
  raised while handling KeyError: 'lr'                        config.py:5 load()

For       OutOfMemoryError in rank 1              exception rank1.exception.json
Against   nothing found

Ranks                                                                4 on gpu-07
  root        rank 1 (pid 51): raised torch.OutOfMemoryError
  collateral  ranks 0, 2, 3: raised torch.distributed.DistBackendError, 250 ms
              later

Timeline                         from the first failure, 2025-11-29 16:40:00 UTC
  0               rank 1 raised OutOfMemoryError
  +1.9 s ±500 ms  torchrun sent SIGTERM to rank 3
  +2.5 s          torchrun gave up

More: ftforensics explain cuda-out-of-memory
All numbers: ftforensics analyze -v ftforensics/4411
"""

PEER_LOST = """\
Nobody here failed first: rank 1 on node gpu-09 went away; look there.    LIKELY
  seen by ranks 2, 3 on gpu-08, first at 2025-11-29 16:40:00 UTC
  Cheapest next step: look at what was left on gpu-09: ftforensics analyze, on
                      the run folder there

For       Connection closed by peer [10.0.0.9]:29500    launcher launcher.log:40
Against   nothing found

Ranks                                                           2 of 4 on gpu-08
  missing     ranks 0, 1: nothing here is known of them; ran on gpu-09
  collateral  ranks 2, 3: raised torch.distributed.DistBackendError

More: ftforensics explain peer-lost
All numbers: ftforensics analyze -v ftforensics/4411
"""

ATTEMPTS = """\
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

Why it came to that: checkpoint-clone-per-rank                            likely
For       8 ranks x 13.5 GB                                           crash argv

Ranks                                                                8 on gpu-07
  root        rank 3 (pid 18033): killed by SIGKILL
  collateral  ranks 0-2, 4-7: ended by SIGTERM from 17987 (torchrun), 1.9 s
              later
  collateral    4 workers of rank 0: killed by SIGKILL, 2 s to 5 s later

Earlier attempts
  - attempts 0-2: the same cause 3 times: cgroup-oom (proven), rank 3, as this
    time
    ftforensics analyze ftforensics/4411.2

Not seen  tracefs: not armed
            to see it: needs root

Also worth trying
  - Request 136 GiB

More: ftforensics explain cgroup-oom
All numbers: ftforensics analyze -v ftforensics/4411
"""

HUGE = """\
Killed by the kernel: the job's own memory limit was reached.             PROVEN
  rank 4711 (pid 18033) on node0588, in save_checkpoint, step 500, 2025-11-29
  16:42:11 UTC
  Fix: ZeRO-3, or save on one rank only

For       Memory cgroup out of memory: Killed process 18033 (python) anon-rss
          61.2 GiB; limit of /slurm/job_4411                       kmsg 51234.10
          oom_kill 0 -> 1 in this job's own group           cgroup memory.events
Against   nothing found
Excluded  host-oom: vmstat oom_kill did not change
            oom_kill 0 -> 1 in this job's own group         cgroup memory.events

Why it came to that: checkpoint-clone-per-rank                            likely
For       8 ranks x 13.5 GB                                           crash argv

Ranks                                                9998 of 10000 on 1250 hosts
  root        rank 4711 (pid 18033) on node0588: killed by SIGKILL
  collateral  ranks 0-16, 19-4710, 4712-9999 on 1250 hosts: ended by SIGTERM
              from each host's torchrun, 1.9 s to 3.5 s later
  missing     ranks 17, 18: nothing here is known of them; ran on node0002

Earlier attempts
  - attempt 1: cgroup-oom (proven), as this time

Not seen  ring: rank 0: cut short
          ring: rank 1: cut short
          ring: rank 2: cut short
          ring: rank 3: cut short
          ring: rank 4: cut short
          ring: rank 5: cut short
          ... 9994 more; -v shows more

Also worth trying
  - Request 136 GiB

More: ftforensics explain cgroup-oom
All numbers: ftforensics analyze -v ftforensics/4411
"""

SUCCEEDED = """\
The run ended well: status 0.
"""

NARROW = """\
Killed by the kernel: the job's   PROVEN
  own memory limit was reached.
  rank 4711 (pid 18033) on node0588, in
  save_checkpoint, step 500, 2025-11-29
  16:42:11 UTC
  Fix: ZeRO-3, or save on one rank only

For       Memory cgroup out of memory:
          Killed process 18033 (python)
          anon-rss 61.2 GiB; limit of
          /slurm/job_4411
                           kmsg 51234.10
          oom_kill 0 -> 1 in this job's
          own group
                    cgroup memory.events
Against   nothing found
Excluded  host-oom: vmstat oom_kill did
          not change
            oom_kill 0 -> 1 in this
            job's own group
                    cgroup memory.events

Why it came to that:
checkpoint-clone-per-rank
  likely
For       8 ranks x 13.5 GB   crash argv

Ranks        9998 of 10000 on 1250 hosts
  root        rank 4711 (pid 18033) on
              node0588: killed by
              SIGKILL
  collateral  ranks 0-16, 19-4710,
              4712-9999 on 1250 hosts:
              ended by SIGTERM from each
              host's torchrun, 1.9 s to
              3.5 s later
  missing     ranks 17, 18: nothing here
              is known of them; ran on
              node0002

Earlier attempts
  - attempt 1: cgroup-oom (proven), as
    this time

Not seen  ring: rank 0: cut short
          ring: rank 1: cut short
          ring: rank 2: cut short
          ring: rank 3: cut short
          ring: rank 4: cut short
          ring: rank 5: cut short
          ... 9994 more; -v shows more

Also worth trying
  - Request 136 GiB

More: ftforensics explain cgroup-oom
All numbers:
    ftforensics analyze -v ftforensics/4411
"""


def bare(diagnosis: Diagnosis) -> Diagnosis:
    """Without the memory, which has screens of its own."""
    first = msgspec.structs.replace(diagnosis.processes[0], memory=None, last_second=None)
    return msgspec.structs.replace(diagnosis, processes=[first, *diagnosis.processes[1:]])


def screen(diagnosis: Diagnosis, width: int = 80) -> str:
    return render(diagnosis, View(width=width, path="ftforensics/4411"))


def test_an_exception_and_those_who_lost_their_peer(make_raised: Make) -> None:
    assert screen(make_raised()) == RAISED


def test_nobody_here(make_peer_lost: Make) -> None:
    assert screen(make_peer_lost()) == PEER_LOST


def test_the_fourth_attempt_for_the_same_cause(make_attempts: Make) -> None:
    assert screen(bare(make_attempts())) == ATTEMPTS


def test_ten_thousand_ranks(make_huge: Make) -> None:
    assert screen(bare(make_huge())) == HUGE


def test_ten_thousand_ranks_in_a_narrow_window(make_huge: Make) -> None:
    assert screen(bare(make_huge()), 40) == NARROW


def test_it_ended_well(make_succeeded: Make) -> None:
    assert screen(make_succeeded()) == SUCCEEDED


def test_why_each_has_its_role_only_when_asked(make_raised: Make, make_peer_lost: Make) -> None:
    short, long = render(make_raised(), View()), render(make_raised(), View(verbose=True))
    assert "because" not in short
    for rank in (0, 2, 3):
        assert (
            f"      rank {rank} (pid {50 + rank}) on gpu-07, 250 ms later\n"
            f"        because: Connection closed by peer        exception rank{rank}.exception.json\n"
        ) in long
    shared = render(make_peer_lost(), View(verbose=True))
    assert shared.count("because: Connection closed by peer [10.0.0.9]:29500") == 1


@pytest.mark.parametrize("foreign", ["m" * 10_000, "\x1b[2J\u202e训\n" * 1000], ids=["long", "hostile"])
def test_ten_kilobytes_stay_bounded(make_any: Make, foreign: str, dangerous: list[str]) -> None:
    short, long = (render(make_any(foreign), View(verbose=verbose)) for verbose in (False, True))
    assert not [character for character in dangerous if character in short + long]
    # Commands are kept whole: they are copied.
    assert len(short) < 80_000
    assert len(long) < 400_000


def test_a_hostile_name_makes_no_second_line(make_raised: Make) -> None:
    evil = "x\n  root        rank 0 (pid 1): killed by SIGKILL\n"
    diagnosis = make_raised(evil, attempts=[Attempt(evil, "failed", evil, evil, evil, root=evil, path=evil)])
    diagnosis = msgspec.structs.replace(
        diagnosis, missing=[9], missing_on=[evil], timeline=[Event(1.0, evil, Cite(evil, evil, evil), "failure")] * 2
    )
    for verbose in (False, True):
        text = render(diagnosis, View(width=118, verbose=verbose))
        assert [line for line in text.splitlines() if line.startswith("  root        rank 0")] == []
