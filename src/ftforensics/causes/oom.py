"""Weighs what speaks for a kill by the kernel for want of memory, for all causes of that kind together.

Who was killed and which limit was reached are two questions. The kernel's own line answers both; a counter of the
process's group answers the first; how full memory was at the last look answers neither, it only fits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timezone

import msgspec

from ftforensics.causes.authority import decisions
from ftforensics.causes.ending import (
    SIGKILL,
    asked_to_end,
    is_killed,
    is_unseen,
    notices,
    senders,
    sent_by_kernel,
    strength,
    weaker,
)  # fmt: skip
from ftforensics.causes.pressure import Pressure, has_no_limit, pressures
from ftforensics.causes.sizes import enough_for, size_text, time_text
from ftforensics.model.basics import Cite, Gap
from ftforensics.model.death import CounterChange, Death, OomMatch, Tie
from ftforensics.model.diagnosis import Confidence, Finding, Remedy
from ftforensics.model.kernel import OomKill
from ftforensics.parsers.cgroup_path import is_at_or_below

CGROUP, ANCESTOR, HOST, NUMA, GROUP = "cgroup-oom", "ancestor-cgroup-oom", "host-oom", "numa-oom", "oom-group-kill"
IDS = (CGROUP, ANCESTOR, HOST, NUMA, GROUP)
_SCOPE_OF_PRESSURE = {"own": CGROUP, "above": ANCESTOR, "machine": HOST}
_SAVING = ("save", "checkpoint", "ckpt")
_AUTHORITIES = ("slurm", "kubernetes", "docker", "systemd")


class Weighed(msgspec.Struct, frozen=True):
    """One cause of the kind and what was found for it.

    rests_on: "kernel", "counter", "notice", "enforced" (by Slurm itself) or "pressure"; "" when it is ruled out;
    match: the kernel's record; pressure: the last look at that limit.
    """

    cause: str
    confidence: Confidence
    rests_on: str = ""
    match: OomMatch | None = None
    pressure: Pressure | None = None
    supports: list[Cite] = []
    against: list[Cite] = []
    unknown: list[Gap] = []

    @property
    def kill(self) -> OomKill | None:
        return self.match.kill if self.match is not None else None

    @property
    def limit(self) -> int | None:
        """Bytes."""
        return (self.kill.limit if self.kill else None) or (self.pressure.limit if self.pressure else None)

    @property
    def limit_group(self) -> str | None:
        """Whose limit it was."""
        return (self.kill.limit_group if self.kill else None) or (self.pressure.name if self.pressure else None)


class _Basis(msgspec.Struct, frozen=True):
    """Confidence for the kill, and which limits it may have been."""

    rests_on: str
    confidence: Confidence
    causes: tuple[str, ...]
    supports: list[Cite]
    against: list[Cite] = []
    unknown: list[Gap] = []
    match: OomMatch | None = None


def findings(
    death: Death,
    cause: str,
    summary: Callable[[Death, Weighed], str],
    remedies: Callable[[Death, Weighed], list[Remedy]],
    excluded: str,
) -> Iterator[Finding]:
    """What `cause` says of this death. summary: asked when more is known than how full memory was; excluded: the
    sentence for when it is ruled out."""
    for weighed in weigh(death):
        if weighed.cause != cause:
            continue
        gone = weighed.confidence is Confidence.RULED_OUT
        yield Finding(
            cause=cause,
            confidence=weighed.confidence,
            summary=excluded if gone else _how_it_looked(weighed) or summary(death, weighed),
            supports=list(dict.fromkeys([*weighed.supports, *_holder(death, weighed)])),
            against=list(dict.fromkeys(weighed.against)),
            unknown=weighed.unknown,
            remedies=[] if gone else remedies(death, weighed),
        )


def _holder(death: Death, weighed: Weighed) -> list[Cite]:
    found = None if weighed.confidence is Confidence.RULED_OUT else holder(death, weighed)
    return [found] if found is not None else []


def weigh(death: Death) -> list[Weighed]:
    """All causes of the kind that have something to say, each once."""
    if death.alive or not (is_killed(death) or is_unseen(death)):
        return []
    excluding = exclusions(death)
    named = _from_kernel(death)
    believed = None if death.oom and death.oom[0].kill.line.forgeable else named
    basis = believed or _from_counters(death) or _from_notices(death) or named or _from_pressure(death)
    if basis is None or (excluding and basis.rests_on == "pressure"):
        return [Weighed(cause, Confidence.RULED_OUT, against=excluding) for cause in IDS] if excluding else []
    doubts = [*basis.against, *excluding, *_rivals(death, basis)]
    confidence = basis.confidence
    if excluding:
        confidence = weaker(confidence, Confidence.POSSIBLE)
    elif doubts:
        confidence = weaker(confidence, Confidence.LIKELY)
    confidence = weaker(confidence, _ceiling(death, basis))
    seen = pressures(death)
    found = []
    for cause in basis.causes:
        fitting = next((one for one in seen if _SCOPE_OF_PRESSURE[one.scope] == cause), None)
        supports, against, sure = list(basis.supports), list(doubts), confidence
        if fitting is not None and fitting.fraction >= 0.8:
            supports.append(fitting.cite)
        elif fitting is not None and _was_roomy(fitting) and confidence is not Confidence.PROVEN:
            against.append(fitting.cite)
            if len(basis.causes) > 1:
                sure = weaker(sure, Confidence.POSSIBLE)
        found.append(Weighed(cause, sure, basis.rests_on, basis.match, fitting, supports, against, basis.unknown))
    return found


def exclusions(death: Death) -> list[Cite]:
    """What shows that no OOM kill took this process: counters read before and after, or a log without a gap."""
    found = []
    for change in death.counters:
        counts_it = change.counter == "vmstat oom_kill" or (change.counter == "oom_kill" and change.own)
        if counts_it and change.bracketing and change.delta == 0 and not _had_moved(death, change.group):
            found.append(change.cite)
    if death.kernel_log_covers and not death.oom:
        found.append(
            Cite("kmsg", "whole log", "the kernel's log covers the end without a gap and names no OOM kill of it")
        )
    return found


def _had_moved(death: Death, group: str | None) -> bool:
    """Was it in another group than the one that is counted, when the kernel took it? By its very own record only: of
    the group that it was started in nobody says that it stayed there (cgexec, systemd-run, a write to cgroup.procs)."""
    if group is None or not death.oom or death.oom[0].match.tie is not Tie.EXACT:
        return False
    victim = death.oom[0].kill.victim_group
    return victim is not None and not is_at_or_below(victim, group)


def _from_kernel(death: Death) -> _Basis | None:
    if not death.oom:
        return None
    match = death.oom[0]
    confidence = strength(match.match.tie, match.match.against)
    against = list(match.match.against)
    if match.kill.line.forgeable:
        confidence = weaker(confidence, Confidence.POSSIBLE)
        against.append(
            Cite(match.cite.source, match.cite.locator, "a program wrote this line through /dev/kmsg, not the kernel")
        )
    causes, unknown = _limit_of(death, match)
    if unknown:
        confidence = weaker(confidence, Confidence.LIKELY)
    supports = [match.cite, *match.cites, *rising(death), *match.match.why]
    basis = _Basis("kernel", confidence, causes, supports, list(dict.fromkeys(against)), unknown, match)
    counted = _from_counters(death)
    # A counter that accounts for every kill of the group is as good as the exact pid, whoever the line names.
    if counted and counted.confidence is Confidence.PROVEN and causes == counted.causes and not against:
        return msgspec.structs.replace(basis, confidence=Confidence.PROVEN)
    return basis


def _limit_of(death: Death, match: OomMatch) -> tuple[tuple[str, ...], list[Gap]]:
    kill = match.kill
    if not kill.chosen:
        return (GROUP,), []
    if kill.scope == "memcg":
        if match.own_group is not None:
            return ((CGROUP if match.own_group else ANCESTOR),), []
        return (CGROUP,), [Gap("kmsg", "whose limit it was: the line stands alone, without the block around it")]
    full = any(one.scope == "machine" and one.fraction >= 0.9 for one in pressures(death))
    if kill.scope == "host" and kill.constraint is None and kill.header is None and not full:
        # These words also stand for memory nodes and policies (mm/oom_kill.c, oom_kill_process).
        return (HOST,), [Gap("kmsg", "whether all of the machine's memory was meant: the line stands alone")]
    if kill.scope == "host":
        return (HOST,), []
    if kill.scope in ("cpuset", "mempolicy"):
        return (NUMA,), []
    why = "which limit was reached: the line stands alone, without the block around it"
    fullest = next(iter(pressures(death)), None)
    if fullest is not None and fullest.fraction >= 0.9:
        return (_SCOPE_OF_PRESSURE[fullest.scope],), [Gap("kmsg", why)]
    return ((HOST,) if has_no_limit(death) else (CGROUP, HOST)), [Gap("kmsg", why)]


def rising(death: Death) -> list[Cite]:
    """Counters that rose and speak of a kill or a reached limit."""
    return [
        change.cite
        for change in death.counters
        if change.delta > 0 and (change.own or change.group is None or change.counter in ("oom", "local_oom"))
    ]


def _change(death: Death, counter: str, own: bool = True) -> CounterChange | None:
    return next((one for one in death.counters if one.counter == counter and one.own is own), None)


def _from_counters(death: Death) -> _Basis | None:
    """The group's own count of killed members. It counts every OOM kill of a member, whichever limit was reached
    (mm/oom_kill.c, __oom_kill_process), so which limit it was comes from the other counters. It proves nothing: that
    the member was this one would take somebody who watched them all."""
    own = _change(death, "oom_kill")
    if own is None or own.delta <= 0:
        return None
    causes = _limit_from_counters(death)
    others = _others(death)
    confidence = Confidence.LIKELY
    if is_unseen(death) and not (own.bracketing and _was_short(death)):
        confidence = Confidence.POSSIBLE  # it may have ended otherwise, and another member was killed later
    elif death.died_together > own.delta and death.role != "root":
        confidence = Confidence.POSSIBLE  # some of the SIGKILL deaths were no OOM kills: which, nobody says
    return _Basis("counter", confidence, causes, rising(death), others, _no_log(death))


def _was_short(death: Death) -> bool:
    """Memory was nearly full when it was last seen, or its whole group was killed."""
    group = _change(death, "oom_group_kill")
    if group is not None and group.delta > 0:
        return True
    return any(one.fraction >= 0.9 or one.reached_by_now for one in pressures(death))


def _limit_from_counters(death: Death) -> tuple[str, ...]:
    """Which limit.

    v2 counts "oom" where a limit made an allocation fail, in that group and in all above; v1 has failcnt, which counts
    every charge that the limit refused at first.
    """
    hit = _change(death, "local_oom") or _change(death, "oom")
    above = [one for one in death.counters if one.counter in ("oom", "local_oom") and not one.own]
    if hit is not None and hit.delta > 0:
        return (CGROUP,)
    if hit is not None and any(one.delta > 0 for one in above):
        return (ANCESTOR,)
    if hit is not None:
        return (HOST,)
    refused = _change(death, "failcnt")
    if refused is not None and refused.delta > 0:
        return (CGROUP,)
    if refused is not None and any(one.counter == "failcnt" and one.delta > 0 for one in death.counters):
        return (ANCESTOR,)
    fullest = next(iter(pressures(death)), None)
    if fullest is not None and fullest.fraction >= 0.9:
        return (_SCOPE_OF_PRESSURE[fullest.scope],)
    return (HOST,) if has_no_limit(death) else (CGROUP, HOST)


def _from_notices(death: Death) -> _Basis | None:
    """Slurm, Kubernetes, Docker and systemd say that a member of the unit was OOM killed, not which one."""
    found = [one for one in notices(death, _AUTHORITIES, "oom") if one.match.tie is not Tie.WEAK]
    # Slurm's own memory enforcement kills the job for its limit, without the kernel.
    found += [one for one in notices(death, ("slurm",), "killed") if one.match.tie is not Tie.WEAK]
    if not found:
        return None
    certain = [one for one in found if one.alone and not one.match.against]
    # srun's "task 1: Out Of Memory" says both in one line, as a rule behind slurmstepd's count of the step's kills. Of
    # several tasks it does not say which one was killed: Slurm gives that status to each that ends after a kill.
    named = {one.notice.cite.locator for one in certain if one.notice.tasks in (None, 1)}
    same_line = any(cite.locator in named for cite in death.ending)
    sure = bool(certain) and (is_killed(death) or (same_line and is_unseen(death)))
    cites = [cite for one in found for cite in (one.notice.cite, *one.match.why)]
    # The kubelet and its helpers name the killed process and say not whose limit it was; the others know the unit.
    causes = _limit_from_counters(death) if found[0].notice.pid is not None else (CGROUP,)
    enforced = all(one.notice.kind == "killed" for one in found)
    against = [cite for one in found for cite in one.match.against]
    confidence = Confidence.LIKELY if sure else Confidence.POSSIBLE
    supports = [*cites, *rising(death)]
    return _Basis(
        "enforced" if enforced else "notice", confidence, causes, supports, [*against, *_others(death)], _no_log(death)
    )


def _from_pressure(death: Death) -> _Basis | None:
    """Memory was full, or about to be. Only the fullest limit is named."""
    seen = pressures(death)
    if not seen:
        return None
    fullest = next((one for one in seen if one.full), None)
    near = fullest or next((one for one in seen if one.reached_by_now and (one.age or 0) <= 30), None)
    if near is None:
        return None
    machine = next((one for one in death.counters if one.counter == "vmstat oom_kill"), None)
    supports = [near.cite, *([machine.cite] if machine is not None and machine.delta > 0 else [])]
    others = _others(death)
    sure = (
        fullest is not None
        and is_killed(death)
        and not others
        and death.role != "collateral"
        and not asked_to_end(death)  # that speaks of somebody who stops a job and then loses patience
        and not decisions(death)
    )
    confidence = Confidence.LIKELY if sure else Confidence.POSSIBLE
    return _Basis("pressure", confidence, (_SCOPE_OF_PRESSURE[near.scope],), supports, others, _no_log(death))


def _others(death: Death) -> list[Cite]:
    """OOM kills of other processes around that time: noted, and never a support."""
    return [
        Cite("kmsg", f"pid {event.pid}", f"the kernel killed another process then, {event.comm} (pid {event.pid})")
        for event in death.others_oom
        if isinstance(event, OomKill)
    ]


def _rivals(death: Death, basis: _Basis) -> Iterator[Cite]:
    """Somebody else is known to have sent this SIGKILL."""
    for sent in senders(death):
        if sent.match.tie is not Tie.WEAK:
            yield sent.cite
    if basis.match is None:
        yield from (outside.cite for outside in death.ended_by if outside.signal in (None, SIGKILL))


def _ceiling(death: Death, basis: _Basis) -> Confidence:
    """Where a killer is known by name, memory that was merely full explains nothing."""
    if basis.match is not None:
        return Confidence.PROVEN
    if any(sent.match.tie is not Tie.WEAK for sent in senders(death)):
        return Confidence.POSSIBLE
    if any(outside.signal in (None, SIGKILL) for outside in death.ended_by):
        return Confidence.POSSIBLE
    return Confidence.PROVEN


def _was_roomy(seen: Pressure) -> bool:
    """A recent look found much room."""
    return seen.fraction < 0.7 and seen.age is not None and seen.age <= 1.0 and not seen.reached_by_now


def _no_log(death: Death) -> list[Gap]:
    if death.kernel_log_covers or sent_by_kernel(death) is not None:
        return []
    return [gap for gap in death.gaps if gap.source in ("kmsg", "kernel log", "kernel")]


def limit_text(death: Death, weighed: Weighed) -> str:
    """As "the memory limit of /slurm/job_4411 (64 GiB)"."""
    name, limit = weighed.limit_group, weighed.limit
    if name is None and weighed.cause == CGROUP and death.groups:
        name = death.groups[0]
    of = f"the memory limit of {name}" if name else "the memory limit of its group"
    return f"{of} ({size_text(limit)})" if limit else of


def peak_of(weighed: Weighed) -> int | None:
    """Bytes that were wanted at the least: what was in use when the limit was reached."""
    kill = weighed.kill
    seen = [kill.usage, kill.limit, (kill.anon_rss or 0) + (kill.shmem_rss or 0)] if kill is not None else []
    seen += [weighed.pressure.used, weighed.pressure.limit] if weighed.pressure is not None else []
    known = [size for size in seen if size]
    return max(known) if known else None


def request_text(weighed: Weighed) -> str:
    """As "request 80 GiB (now 64 GiB)"."""
    peak = peak_of(weighed)
    if peak is None:
        return "request more memory"
    now = f" (now {size_text(weighed.limit)})" if weighed.limit else ""
    return f"request at least {enough_for(peak)}{now}"


def holder(death: Death, weighed: Weighed) -> Cite | None:
    """Another process that held more than the one that was killed: the victim is not always who used the memory."""
    if weighed.match is not None and weighed.match.kill.tasks:
        kill = weighed.match.kill
        tasks = sorted((task for task in kill.tasks if task.rss is not None), key=lambda task: task.rss or 0)
        own = next((task.rss for task in tasks if task.pid == kill.pid), None) or _sum(
            (kill.anon_rss, kill.file_rss, kill.shmem_rss)
        )
        if tasks and tasks[-1].pid != kill.pid and (tasks[-1].rss or 0) > own:
            most = tasks[-1]
            text = f"{most.name} (pid {most.pid}) held more, {size_text(most.rss or 0)} against {size_text(own)}"
            return Cite(weighed.match.cite.source, f"{weighed.match.cite.locator} task table", text)
    slow = death.ring.slow[-1] if death.ring is not None and death.ring.slow else None
    fast = death.ring.fast[-1] if death.ring is not None and death.ring.fast else None
    if slow is not None and fast is not None and slow.children_rss and slow.children_count:
        own = _sum((fast.rss_anon, fast.rss_file, fast.rss_shmem))
        if slow.children_rss > own > 0:
            text = f"its {slow.children_count} children held {size_text(slow.children_rss)}, itself {size_text(own)}"
            return Cite("ring", death.ring_path or "recorder", text)
    return None


def _how_it_looked(weighed: Weighed) -> str | None:
    """The sentence for when nothing is known but how full memory was."""
    seen = weighed.pressure
    if weighed.rests_on != "pressure" or seen is None:
        return None
    when = f" {time_text(seen.age)} before" if seen.age is not None else " at the last look"
    what = "the machine's memory" if seen.scope == "machine" else f"the memory limit of {seen.name}"
    reached = f"was {seen.fraction:.0%} used" if seen.fraction >= 0.97 else f"was {seen.fraction:.0%} used and rising"
    return f"Killed by SIGKILL; {what} ({size_text(seen.limit)}) {reached}{when}."


def remedies(death: Death, weighed: Weighed) -> list[Remedy]:
    """The first one is what a person does who wants the next run to live."""
    found = []
    more = holder(death, weighed)
    if weighed.cause in (HOST, NUMA):
        found.append(Remedy("Run fewer ranks or workers on this machine, or take one with more memory"))
    else:
        found.append(Remedy(f"Let it use less, or {request_text(weighed)}"))
    if more is not None:
        found.append(Remedy(f"Look at who used the memory: {more.text}"))
    phase = death.ring.phase if death.ring is not None else None
    if phase and any(word in phase.lower() for word in _SAVING):
        found.append(Remedy("Save on one rank only, or in shards: each rank that gathers the weights needs a copy"))
    elif death.worker_of is not None or (more is not None and "children" in more.text):
        found.append(Remedy("Use fewer DataLoader workers, or a smaller prefetch_factor"))
    if weighed.confidence is not Confidence.PROVEN:
        found.append(settling_look(death))
    return found


def settling_look(death: Death) -> Remedy:
    """The cheapest look that tells whether the kernel killed it."""
    moment = death.when.realtime if death.when.realtime is not None else death.earliest.realtime
    since = ""
    if moment is not None:
        start = datetime.fromtimestamp(moment - 60, tz=timezone.utc)
        since = f' --since "{start:%Y-%m-%d %H:%M:%S} UTC"'
    on = f"On {death.host}, as root" if death.host not in (None, "localhost") else "On the node, as root"
    named = death.oom[0] if death.oom else None
    if named is not None and (named.kill.limits is not None or named.kill.constraint is not None):
        who = f"pid {named.kill.pid} ({named.kill.comm})"
        return Remedy(f"Find out whether {who}, which the kernel killed, was this process", settles=True)
    if named is not None and named.match.tie is Tie.WEAK:
        who = f"pid {named.kill.pid} ({named.kill.comm})"
        return Remedy(f"Find out whether {who}, which the kernel killed, belonged to the job", settles=True)
    if named is not None:
        text = f"{on}: what stands around the kernel's line? The limit that was reached, if it was printed"
        return Remedy(text, f"journalctl -k{since} | grep -B 60 'Killed process {named.kill.pid} '", settles=True)
    return Remedy(f"{on}: does the kernel name it?", f"journalctl -k{since} | grep -i killed", settles=True)


def _sum(sizes: Sequence[int | None]) -> int:
    return sum(size or 0 for size in sizes)
