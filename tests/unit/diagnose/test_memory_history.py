"""Which curve, which limit, how fast, since when, who held it."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from ftforensics.diagnose.memory import MOST_POINTS, memory_history
from ftforensics.diagnose.ring_view import last_second
from ftforensics.model.basics import Cite
from ftforensics.model.crash import Sender
from ftforensics.model.death import Death, Match, NoticeMatch, OomMatch, SignalMatch, Tie
from ftforensics.model.diagnosis import MemoryHistory
from ftforensics.model.kernel import LogLine, OomKill, OomTask
from ftforensics.model.moment import Moment
from ftforensics.model.notice import Notice
from ftforensics.model.reading import GroupReading, Reading
from ftforensics.model.ring import (
    ChildUse,
    ClockPair,
    FastSample,
    Ring,
    RingEnd,
    RingMark,
    RingProcess,
    RingSignal,
    SlowSample,
)

GIB = 1 << 30
BOOT = "b0070000-0000-4000-8000-000000000001"
GROUP = "/slurm/job_4411"
BEGIN = 5000.0  # CLOCK_MONOTONIC of the first sample
SECONDS = 60
Height = Callable[[float], float]


def climbing(seconds: float) -> float:
    """GiB: flat, then 1 GiB a second from the thirteenth second on."""
    return 16 + max(seconds - 13, 0)


def make_ring(
    usage: Height = climbing,
    own: Height = lambda t: climbing(t) / 8,
    *,
    rank: int | None = 3,
    pid: int = 18033,
    groups: Callable[[float], list[GroupReading]] | None = None,
    total: float | None = 512,
    available: Height = lambda _: 400,
    hertz: int = 10,
    boot: str = BOOT,
    **changed: object,
) -> Ring:
    """A minute of samples. usage: GiB of the process's own group; groups: GROUP with a limit of 64 GiB by default."""

    def chain(seconds: float) -> list[GroupReading]:
        if groups is not None:
            return groups(seconds)
        return [GroupReading(GROUP, 1, usage=int(usage(seconds) * GIB), limit=64 * GIB)]

    fast = [
        FastSample(
            at=BEGIN + n / hertz,
            rss_anon=int(own(n / hertz) * GIB),
            rss_file=GIB // 8,
            rss_shmem=0,
            usage=int(usage(n / hertz) * GIB),
            available=int(available(n / hertz) * GIB),
        )
        for n in range(SECONDS * hertz + 1)
    ]
    slow = [
        SlowSample(
            at=BEGIN + n,
            reading=Reading(
                Moment(monotonic=BEGIN + n),
                "ring",
                groups=chain(n),
                mem_total=int(total * GIB) if total is not None else None,
            ),
        )
        for n in range(SECONDS + 1)
    ]
    process = RingProcess(
        pid, boot_id=boot, rank=rank, host="gpu-07", comm="python", cgroup=[f"4:memory:{GROUP}", "0::/"]
    )
    values: dict[str, object] = {
        "process": process,
        "clocks": [ClockPair(1764434400.0 + n, BEGIN + n, BEGIN + n) for n in (0, SECONDS)],
        "last": fast[-1].at,
        "fast": fast,
        "slow": slow,
    }
    return Ring(**{**values, **changed})  # type: ignore[arg-type]


def make_kill(**changed: object) -> OomMatch:
    values: dict[str, object] = {
        "line": LogLine("Memory cgroup out of memory: Killed process 18033 (python)", number=9),
        "pid": 18033,
        "comm": "python",
        "scope": "memcg",
        "limit_group": GROUP,
        "victim_group": GROUP,
        "usage": 64 * GIB,
        "limit": 64 * GIB,
    }
    kill = OomKill(**{**values, **changed})  # type: ignore[arg-type]
    return OomMatch(kill, Match(Tie.EXACT), Cite("kmsg", "kmsg 51234.10", kill.line.text), own_group=True)


def make_death(ring: Ring | None, **changed: object) -> Death:
    values: dict[str, object] = {
        "pid": 18033,
        "rank": 3,
        "host": "gpu-07",
        "boot_id": BOOT,
        "groups": [GROUP],
        "signal": 9,
        "ring": ring,
        "ring_path": "ftforensics/4411/gpu-07-rank3.ring" if ring is not None else None,
        "when": Moment(monotonic=BEGIN + SECONDS + 0.064, boot_id=BOOT),
    }
    return Death(**{**values, **changed})  # type: ignore[arg-type]


def history(death: Death, *others: Ring) -> MemoryHistory:
    found = memory_history(death, others)
    assert found is not None
    return found


def test_a_kill_by_the_groups_limit() -> None:
    found = history(make_death(make_ring(), oom=[make_kill()]))
    assert found.quantity == f"memory of {GROUP}"
    assert (found.limit, found.limit_of) == (64 * GIB, GROUP)
    assert found.trend == "rising"
    assert found.growth == pytest.approx(GIB, rel=0.01)
    assert found.since == pytest.approx(47, abs=0.5)
    assert found.until == pytest.approx(0.064)
    assert found.started_at == pytest.approx(16 * GIB, rel=0.02)
    assert found.used == 63 * GIB
    assert found.full == pytest.approx(63 / 64)
    assert found.last_age == pytest.approx(0.064)
    assert found.ring == "ftforensics/4411/gpu-07-rank3.ring"


def test_points_are_few_and_keep_the_peak_and_the_last() -> None:
    ring = make_ring(lambda t: 63.5 if 30.05 < t < 30.15 else climbing(t) / 4, hertz=100)
    found = history(make_death(ring, oom=[make_kill()]))
    assert len(found.points) <= MOST_POINTS + 1
    assert max(point.used for point in found.points) == int(63.5 * GIB)
    assert found.points[-1].before == pytest.approx(0.064)
    assert found.points[0].before == pytest.approx(60.064, abs=0.3)
    assert [point.before for point in found.points] == sorted((point.before for point in found.points), reverse=True)


def test_the_limit_of_a_group_above_is_shown_with_that_groups_curve() -> None:
    def chain(seconds: float) -> list[GroupReading]:
        return [
            GroupReading(GROUP, 2, usage=int(climbing(seconds) * GIB / 4)),
            GroupReading("/slurm", 2, usage=int(climbing(seconds) * GIB), limit=64 * GIB),
            GroupReading("/", 2),
        ]

    ring = make_ring(lambda t: climbing(t) / 4, groups=chain)
    for death in (make_death(ring), make_death(ring, oom=[make_kill(limit_group="/slurm")])):
        found = history(death)
        assert (found.quantity, found.limit_of) == ("memory of /slurm", "/slurm")
        assert found.used == 63 * GIB
        assert found.growth == pytest.approx(GIB, rel=0.02)


def test_the_smallest_limit_of_the_chain_is_the_one() -> None:
    def chain(seconds: float) -> list[GroupReading]:
        return [
            GroupReading(GROUP, 1, usage=GIB, limit=(1 << 63) - 4096),
            GroupReading("/slurm", 1, usage=2 * GIB, limit=96 * GIB),
            GroupReading("/", 1, usage=3 * GIB, limit=128 * GIB),
        ]

    found = history(make_death(make_ring(groups=chain)))
    assert (found.limit, found.limit_of) == (96 * GIB, "/slurm")


def test_a_group_seen_from_inside_a_cgroup_namespace() -> None:
    """The kernel says /docker/77..., the process sees itself in "/": the limit tells that they are one."""

    def chain(seconds: float) -> list[GroupReading]:
        return [GroupReading("/", 2, usage=int(climbing(seconds) * GIB), limit=64 * GIB)]

    ring = make_ring(groups=chain)
    found = history(make_death(ring, groups=["/"], oom=[make_kill(limit_group="/docker/77aa")]))
    assert (found.used, found.limit_of) == (63 * GIB, "/docker/77aa")
    assert found.full == pytest.approx(63 / 64)

    def below(seconds: float) -> list[GroupReading]:
        return [GroupReading("/step", 2, usage=GIB), *chain(seconds)]

    kill = msgspec.structs.replace(make_kill(limit_group="/docker/77aa"), own_group=None)
    found = history(make_death(make_ring(groups=below), groups=["/step"], oom=[kill]))
    assert (found.used, found.limit_of) == (63 * GIB, "/docker/77aa")


def test_a_kill_of_the_whole_machine_shows_the_machine() -> None:
    ring = make_ring(lambda _: 5, lambda _: 4, available=lambda t: 480 - 8 * t + 1)
    for death in (
        make_death(ring, oom=[make_kill(scope="host", limit_group=None, limit=None, usage=None)]),
        make_death(
            ring,
            notices=[NoticeMatch(Notice("earlyoom", "killed", Cite("journal", "3", "x")), Match(Tie.EXACT))],
        ),
    ):
        found = history(death)
        assert found.quantity == "memory in use on the machine"
        assert found.limit == 512 * GIB
        assert found.growth == pytest.approx(8 * GIB, rel=0.01)
        assert found.used == pytest.approx(511 * GIB)


def test_a_machine_that_is_nearly_full_matters_more_than_a_group_that_is_not() -> None:
    found = history(make_death(make_ring(lambda _: 5, available=lambda _: 3)))
    assert found.quantity == "memory in use on the machine"
    assert found.trend == "flat"
    assert found.growth is None


def test_without_any_limit_it_is_the_processs_own_memory() -> None:
    ring = make_ring(groups=lambda _: [GroupReading(GROUP, 2, usage=GIB)], own=climbing)
    found = history(make_death(ring))
    assert found.quantity == "this process's own memory"
    assert (found.limit, found.full) == (None, None)
    assert found.used == 63 * GIB


def test_the_largest_number_of_version_1_is_no_limit() -> None:
    ring = make_ring(groups=lambda _: [GroupReading(GROUP, 1, usage=GIB, limit=(1 << 63) - 4096)], total=None)
    found = history(make_death(ring))
    assert (found.quantity, found.limit) == ("this process's own memory", None)


def test_cache_that_hides_the_rise_is_taken_out() -> None:
    """Usage stands at the limit from the start, filled by the data set's cache; anonymous memory replaces it."""

    def chain(seconds: float) -> list[GroupReading]:
        held = climbing(seconds) * 0.7
        cache = GroupReading(
            GROUP,
            1,
            usage=64 * GIB,
            limit=64 * GIB,
            anon=int((held - 1) * GIB),
            shmem=GIB,
            file=int((64 - held + 1) * GIB),
        )
        return [cache]

    found = history(make_death(make_ring(lambda _: 64, groups=chain), oom=[make_kill()]))
    assert found.quantity == f"memory of {GROUP} without page cache"
    assert found.growth == pytest.approx(0.7 * GIB, rel=0.05)
    assert found.used == pytest.approx(63 * 0.7 * GIB, rel=0.01)
    assert found.page_cache == pytest.approx((64 - 63 * 0.7) * GIB, rel=0.01)


def test_flat_memory_is_flat() -> None:
    found = history(make_death(make_ring(lambda _: 20, lambda _: 2)))
    assert found.trend == "flat"
    assert (found.growth, found.since, found.rising) == (None, None, None)


def test_the_ranks_that_grew_together() -> None:
    others = [make_ring(rank=rank, pid=100 + rank) for rank in (0, 1, 2, 4, 5, 6)]
    steady = make_ring(own=lambda _: 3.0, rank=7, pid=107)
    worker = make_ring(rank=10, pid=300)
    worker = msgspec.structs.replace(worker, process=msgspec.structs.replace(worker.process, worker_of=18033))
    elsewhere = make_ring(rank=8, pid=108, boot="another")
    gone = make_ring(rank=9, pid=109, fast=[FastSample(BEGIN + 1, rss_anon=GIB)], slow=[])
    found = history(make_death(make_ring(), oom=[make_kill()]), *others, steady, worker, elsewhere, gone)
    assert (found.rising, found.ranks) == (7, 8)


def test_one_rank_alone_grows_with_nobody() -> None:
    found = history(make_death(make_ring(), oom=[make_kill()]))
    assert (found.rising, found.ranks) == (None, None)


@pytest.mark.parametrize(
    ("when", "age"),
    [
        (Moment(monotonic=BEGIN + SECONDS + 0.03, boot_id=BOOT), 0.03),
        (Moment(monotonic=BEGIN + SECONDS - 0.02, boot_id=BOOT), 0.0),  # the kill line came before the last sample
        (Moment(monotonic=BEGIN + SECONDS + 0.03, boot_id="another"), None),
        (Moment(realtime=1764434460.05, accuracy=0.01), 0.05),
        (Moment(realtime=1764434460.0, accuracy=1.0), None),  # a log with whole seconds
        (Moment(monotonic=9.0), None),
        (Moment(), None),
    ],
)
def test_the_age_of_the_last_sample(when: Moment, age: float | None) -> None:
    found = history(make_death(make_ring(), when=when))
    assert found.last_age == (None if age is None else pytest.approx(age, abs=1e-5))
    assert found.points[-1].before == pytest.approx(age or 0.0, abs=1e-4)


def test_holders_come_from_the_kernels_table() -> None:
    tasks = [
        OomTask(18033, "python", rss=8 * GIB),
        OomTask(77, "other", rss=40 * GIB),
        OomTask(100, "pt_main_thread", rss=9 * GIB),
        OomTask(1, "sh", rss=0),
        *[OomTask(1000 + n, "small", rss=n + 1) for n in range(50)],
    ]
    other = make_ring(rank=0, pid=12)
    other = msgspec.structs.replace(other, process=msgspec.structs.replace(other.process, nspid=[100, 12]))
    found = history(make_death(make_ring(), oom=[make_kill(tasks=tasks)]), other)
    named = [(holder.name, holder.rank, holder.rss // GIB) for holder in found.holders[:3]]
    assert named == [("other", None, 40), ("pt_main_thread", 0, 9), ("python", 3, 8)]
    assert len(found.holders) == 8
    assert all(holder.cite is not None and holder.cite.locator == "kmsg 51234.10" for holder in found.holders)


def test_without_a_table_holders_come_from_the_rings() -> None:
    ring = make_ring()
    children = [ChildUse(500, "pt_data_worker", 30 * GIB), ChildUse(501, "sh", None)]
    ring = msgspec.structs.replace(ring, slow=[*ring.slow, SlowSample(BEGIN + SECONDS, children=children)])
    other = make_ring(own=lambda _: 20.0, rank=0, pid=12)
    gone = make_ring(own=lambda _: 60.0, rank=1, pid=13)
    gone = msgspec.structs.replace(gone, fast=gone.fast[:300])
    found = history(make_death(ring), other, gone)
    assert [(holder.pid, holder.rank) for holder in found.holders] == [(500, None), (12, 0), (18033, 3)]
    assert [holder.cite.locator for holder in found.holders if holder.cite is not None] == [
        f"gpu-07-rank3.ring slow[{SECONDS + 1}]",
        "ring of rank 0 fast[600]",
        "gpu-07-rank3.ring fast[600]",
    ]


def test_a_worker_without_a_ring_is_seen_through_its_rank() -> None:
    parent = make_ring(pid=400, rank=3)
    grown = [
        msgspec.structs.replace(slow, children=[ChildUse(18033, "pt_data_worker", int((1 + n / 2) * GIB))])
        for n, slow in enumerate(parent.slow)
    ]
    parent = msgspec.structs.replace(parent, slow=grown)
    death = make_death(None, worker_of=400, rank=None, oom=[make_kill()])
    found = history(death, parent)
    assert (found.quantity, found.used) == (f"memory of {GROUP}", 63 * GIB)
    assert found.ring is None
    assert found.holders[0].pid == 18033
    no_limit = msgspec.structs.replace(
        parent, slow=[msgspec.structs.replace(slow, reading=None) for slow in parent.slow]
    )
    found = history(make_death(None, worker_of=400), no_limit)
    assert (found.quantity, found.used) == ("this process's own memory", 31 * GIB)
    assert found.growth == pytest.approx(GIB / 2, rel=0.01)


def test_the_kernels_log_alone_gives_limit_and_holders() -> None:
    found = history(make_death(None, oom=[make_kill(tasks=[OomTask(18033, "python", rss=61 * GIB)])]))
    assert (found.points, found.limit, found.used, found.limit_of) == ([], 64 * GIB, 64 * GIB, GROUP)
    assert (found.trend, found.last_age, found.growth) == (None, None, None)
    assert found.holders[0].rss == 61 * GIB


def test_nothing_known_is_nothing() -> None:
    assert memory_history(Death(), []) is None
    assert memory_history(make_death(Ring(RingProcess(1))), []) is None


def test_readings_that_another_rank_took_serve_all() -> None:
    """The heavy parts of a slow sample are read once per node."""
    mine = make_ring(slow=[], groups=lambda _: [])
    found = history(make_death(mine), make_ring(rank=0, pid=12))
    assert (found.limit, found.limit_of) == (64 * GIB, GROUP)


def test_the_last_second() -> None:
    term = RingSignal(BEGIN + SECONDS - 0.25, "SIGTERM", 15, Sender(17987, 0))
    ring = make_ring(
        marks=[
            RingMark(BEGIN + 10, "phase", "train"),
            RingMark(BEGIN + 20, "phase", "train > save_checkpoint"),
            *[RingMark(BEGIN + 30 + n / 10, "step", str(n)) for n in range(50)],
            RingMark(BEGIN + SECONDS - 0.5, "note", "shard 7"),
        ],
        signals=[term],
    )
    death = make_death(ring, signals=[SignalMatch(term, Cite("ring", "signals[0]", "x"), sender_comm="torchrun")])
    found = last_second(death)
    assert found is not None
    assert len(found.samples) == 11
    assert [sample.before for sample in found.samples[-2:]] == [pytest.approx(0.164), pytest.approx(0.064)]
    assert found.samples[-1].usage == 63 * GIB
    assert [(event.kind, event.text, event.sender) for event in found.events] == [
        ("phase", "train > save_checkpoint", None),
        ("step", "49", None),
        ("note", "shard 7", None),
        ("signal", "SIGTERM", "pid 17987 (torchrun)"),
    ]
    assert found.events[0].before == pytest.approx(40.064)
    assert (found.end, found.from_end) == (None, True)


def test_a_fast_recorder_is_thinned_and_a_slow_one_is_not() -> None:
    fast = last_second(make_death(make_ring(hertz=100)))
    slow = last_second(make_death(make_ring(hertz=1)))
    assert fast is not None and slow is not None
    assert len(fast.samples) == 11
    assert (fast.samples[0].before, fast.samples[-1].before) == (pytest.approx(1.114), pytest.approx(0.064))
    assert len(slow.samples) == 4


def test_an_end_mark_is_the_end_and_a_living_process_has_none() -> None:
    ended = make_ring(end=RingEnd("exit", BEGIN + SECONDS + 0.02))
    found = last_second(make_death(ended, when=Moment()))
    assert found is not None
    assert (found.end, found.from_end, found.samples[-1].before) == ("exit", True, pytest.approx(0.02))
    found = last_second(make_death(make_ring(), alive=True))
    assert found is not None
    assert (found.from_end, found.samples[-1].before) == (False, 0.0)


def test_a_ring_with_nothing_in_it_has_no_last_second() -> None:
    assert last_second(make_death(Ring(RingProcess(1)))) is None
    assert last_second(Death()) is None
