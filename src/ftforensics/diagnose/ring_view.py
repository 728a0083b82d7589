"""The last second of a recorder's ring: a few samples, and what the job said or received among them."""

from __future__ import annotations

from collections.abc import Sequence

from ftforensics.diagnose.ring_end import ring_end
from ftforensics.model.death import Death
from ftforensics.model.diagnosis import LastEvent, LastSample, LastSecond
from ftforensics.model.ring import FastSample, Ring, RingSignal

SPAN = 1.05  # seconds before the last sample; eleven samples at 10 Hz
FEWEST, MOST = 4, 11  # samples
MOST_EVENTS = 12
MOST_EARLIER = 4  # events from before the samples


def last_second(death: Death) -> LastSecond | None:
    """None without a ring, or with one that holds nothing."""
    ring = death.ring
    if ring is None:
        return None
    samples = _last_samples(ring.fast)
    times = [*(sample.at for sample in samples), *([ring.last] if ring.last is not None else [])]
    events = _events(death, ring)
    if not times and not events:
        return None
    end = ring_end(death, ring, max(times) if times else events[-1][0])
    begin = samples[0].at if samples else end.at - SPAN
    earlier = [event for event in events if event[0] < begin]
    among = [event for event in events if event[0] >= begin]
    return LastSecond(
        samples=[
            LastSample(
                before=_rounded(end.at - sample.at),
                rss_anon=sample.rss_anon,
                rss_file=sample.rss_file,
                rss_shmem=sample.rss_shmem,
                usage=sample.usage,
                available=sample.available,
            )
            for sample in samples
        ],
        events=[
            LastEvent(_rounded(end.at - at), kind, text, sender)
            for at, kind, text, sender in [*_worth_telling(earlier), *among[-MOST_EVENTS:]]
        ],
        end=ring.end.how,
        recorder=ring.end.recorder,
        from_end=end.known,
    )


def _last_samples(fast: Sequence[FastSample]) -> list[FastSample]:
    """Those of the last second; thinned when the recorder ran fast, more than a second when it ran slow."""
    if not fast:
        return []
    recent = [sample for sample in fast if sample.at >= fast[-1].at - SPAN]
    if len(recent) < FEWEST:
        return list(fast[-FEWEST:])
    if len(recent) <= MOST:
        return recent
    step = (len(recent) - 1) / (MOST - 1)
    return [recent[round(number * step)] for number in range(MOST)]


_Event = tuple[float, str, str, str | None]  # at, kind, text, sender


def _events(death: Death, ring: Ring) -> list[_Event]:
    named: list[_Event] = [(mark.at, mark.kind, mark.text, None) for mark in ring.marks]
    named += [(signal.at, "signal", signal.name, _sender(death, signal)) for signal in ring.signals]
    if ring.phase and ring.phase_since is not None and not any(mark.kind == "phase" for mark in ring.marks):
        named.append((ring.phase_since, "phase", ring.phase, None))
    return sorted(named, key=lambda event: event[0])


def _sender(death: Death, signal: RingSignal) -> str | None:
    if signal.sender is None:
        return None
    comm = next((match.sender_comm for match in death.signals if match.signal == signal), None)
    return f"pid {signal.sender.pid} ({comm})" if comm else f"pid {signal.sender.pid}"


def _worth_telling(earlier: Sequence[_Event]) -> list[_Event]:
    """The latest of each kind: a job says a step a thousand times, and its phase once, long before."""
    latest = {event[1]: event for event in earlier}
    return sorted(latest.values(), key=lambda event: event[0])[-MOST_EARLIER:]


def _rounded(seconds: float) -> float:
    return round(max(seconds, 0.0), 4)
