"""How a process ended: the signal behind a wait status, and what outsiders say about it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ftforensics.model.basics import Cite
from ftforensics.model.crash import CrashRecord
from ftforensics.model.death import Death, NoticeMatch, SentMatch, SignalMatch, Tie
from ftforensics.model.diagnosis import Confidence
from ftforensics.model.launcher import ExceptionSeen, NativeText, TextLine
from ftforensics.model.moment import Moment
from ftforensics.model.signals import signal_name

SIGABRT, SIGKILL, SIGTERM = 6, 9, 15
# SIGILL, SIGTRAP, SIGABRT, SIGBUS, SIGFPE, SIGSEGV, SIGSYS: what a program brings on itself.
FAULTS = (4, 5, 6, 7, 8, 11, 31)
FAULT_NAMES = tuple(signal_name(number) for number in FAULTS)
SI_USER, SI_TKILL, SI_KERNEL = 0, -6, 128
# Exit statuses that stand for a signal: 128+n is what shells, docker and kubelet report. 247 is sys.exit(-9), which
# launchers do with the returncode of subprocess (DeepSpeed's launch.py).
_SHELL = 128
_NEGATIVE = {256 - number: number for number in (6, 7, 9, 11, 15)}
_RECENT = 120.0  # seconds; a handled signal of long ago is another matter, and nobody's patience lasts longer
_CLOCK_SLACK = 2.0  # seconds between the clocks of two programs


def signal_of(death: Death) -> int | None:
    """The signal that ended it, also where only an exit status that stands for one is known."""
    if death.signal is not None:
        return death.signal
    if death.code is None:
        return None
    if _SHELL < death.code < _SHELL + 32:
        return death.code - _SHELL
    return _NEGATIVE.get(death.code)


def ended_badly(death: Death) -> bool:
    """Is it over, and not with exit status 0? An end that nobody saw counts."""
    return not death.alive and not (death.code == 0 and death.signal is None)


def ended_from_outside(death: Death) -> bool:
    """Did a signal end it that no program brings on itself?"""
    number = signal_of(death)
    return number is not None and number not in FAULTS


def is_killed(death: Death) -> bool:
    return signal_of(death) == SIGKILL


def is_unseen(death: Death) -> bool:
    """Nobody says how it ended: a ring without an end mark."""
    return death.signal is None and death.code is None and not death.alive


def seconds_before_end(death: Death, moment: Moment) -> float | None:
    """How long before the end that was; None when the two clocks cannot be compared."""
    end = death.when
    same_boot = end.boot_id is None or moment.boot_id is None or end.boot_id == moment.boot_id
    if end.monotonic is not None and moment.monotonic is not None and same_boot:
        return end.monotonic - moment.monotonic
    if end.realtime is not None and moment.realtime is not None:
        return end.realtime - moment.realtime
    return None


def fits_in_time(death: Death, moment: Moment, longest: float) -> bool | None:
    """Did the end follow `moment` within `longest` seconds? None: no clock tells."""
    before = seconds_before_end(death, moment)
    if before is None:
        return None
    slack = _CLOCK_SLACK + death.when.accuracy + moment.accuracy
    return -slack <= before <= longest + slack


def shortly_before(before: float | None) -> bool | None:
    """Was it within two minutes before the end? before: seconds; None: the clocks cannot be compared."""
    return None if before is None else -_CLOCK_SLACK <= before <= _RECENT


def senders(death: Death) -> Iterator[SentMatch]:
    """Traced signals of the number that ended it, sent by a process."""
    number = signal_of(death)
    return (sent for sent in death.sent if sent.sent.signal == number and not sent.by_kernel)


def is_own(death: Death, sent: SentMatch) -> bool:
    """Did the process send it to itself?"""
    sender = sent.sent.sender_pid if sent.sent.sender_pid is not None else sent.sent.sender_tid
    return sent.sender_role == "self" or sender in (death.host_pids or (death.pid,))


def best_tied(sent: Iterable[SentMatch]) -> SentMatch:
    return min(sent, key=lambda one: list(Tie).index(one.match.tie))


def sent_by_kernel(death: Death) -> SentMatch | None:
    """The traced SIGKILL (or other ending signal) that the kernel itself sent."""
    number = signal_of(death)
    return next((sent for sent in death.sent if sent.sent.signal == number and sent.by_kernel), None)


def last_signal(death: Death) -> SignalMatch | None:
    """The signal of the ending number that the recorder saw last.

    Python raises SIGINT once more on itself at the end, for the wait status; the one that came from elsewhere counts.
    """
    number = signal_of(death)
    fitting = _recent(death, number)
    foreign = [one for one in fitting if one.signal.sender is None or one.signal.sender.pid != death.pid]
    chosen = foreign or fitting
    return chosen[-1] if chosen else None


def asked_to_end(death: Death) -> list[SignalMatch]:
    """SIGTERMs shortly before the end: whoever sent one may then have lost patience and sent SIGKILL."""
    return _recent(death, SIGTERM)


def _recent(death: Death, number: int | None) -> list[SignalMatch]:
    return [one for one in death.signals if one.signal.number == number and (one.before or 0) <= _RECENT]


def only_the_ring_says(death: Death) -> bool:
    """No wait status: that it ended so is concluded from what the recorder saw arriving."""
    return death.given or all(cite.source == "ring" for cite in death.ending)


def notices(death: Death, authorities: tuple[str, ...], *kinds: str) -> Iterator[NoticeMatch]:
    return (found for found in death.notices if found.notice.authority in authorities and found.notice.kind in kinds)


def strength(tie: Tie, against: list[Cite]) -> Confidence:
    """What a record that names a killer is worth, by how it is tied to this process."""
    if tie in (Tie.EXACT, Tie.TEXT):
        return Confidence.LIKELY if against else Confidence.PROVEN
    if tie is Tie.STRONG:
        return Confidence.POSSIBLE if against else Confidence.LIKELY
    return Confidence.POSSIBLE


_ORDER = (Confidence.PROVEN, Confidence.LIKELY, Confidence.POSSIBLE, Confidence.RULED_OUT)


def rank_of(confidence: Confidence) -> int:
    """0 is the strongest."""
    return _ORDER.index(confidence)


def weaker(one: Confidence, other: Confidence) -> Confidence:
    return max(one, other, key=rank_of)


def sender_text(sent: SentMatch) -> str:
    return process_text(sent.sent.sender_comm, sent.sent.sender_pid or sent.sent.sender_tid)


def process_text(comm: str | None, pid: int | None, uid: int | None = None) -> str:
    """As "bash (pid 4711)" or "pid 4711 (uid 0)"."""
    known = [f"pid {pid}"] if pid is not None and comm else []
    known += [f"uid {uid}"] if uid is not None else []
    name = comm or (f"pid {pid}" if pid is not None else "an unknown process")
    return f"{name} ({', '.join(known)})" if known else name


def abort_texts(death: Death, kind: str) -> list[NativeText]:
    """What native code printed before SIGABRT ended it, where no crash record says more."""
    if death.alive or death.crash is not None or signal_of(death) != SIGABRT:
        return []
    return [one for one in death.texts if one.kind == kind]


_THROWN, _MESSAGE = Cite("crash", "cxx_exception", ""), Cite("crash", "abort_message", "")
_NO_REASON = "terminate called"  # of an exception whose text is not known
_GIVING_UP = ("cxx-exception", "heap", "assertion")
_GPU_WORDS = ("cuda", "cudnn", "gpu", "nccl", "nvml", "nvidia")


def is_about_gpu(raised: ExceptionSeen) -> bool:
    """Do its words say that the GPU or its software was the trouble?"""
    return says_gpu(f"{raised.type} {raised.message}")


def says_gpu(text: str) -> bool:
    return any(word in text.lower() for word in _GPU_WORDS)


def other_reason(death: Death) -> Cite | None:
    """What the process itself named at its end, when that is not the GPU or its software: the last exception, or why it
    gave up. What a library had printed before that did not end it."""
    number = signal_of(death)
    if number is None and death.exceptions and not is_about_gpu(death.exceptions[-1]):
        last = death.exceptions[-1]
        return _ended_after(line_cite(last.line), f"{last.type}: {last.message}")
    if number != SIGABRT:
        return None
    recorded = gave_up_over(death.crash.record) if death.crash is not None else None
    if recorded is not None:
        return recorded
    said = death.texts[-1] if death.texts else None
    if said is None or said.kind not in _GIVING_UP or says_gpu(f"{said.type} {said.message} {said.line.text}"):
        return None
    return _ended_after(line_cite(said.line), said.message or said.line.text)


def gave_up_over(record: CrashRecord) -> Cite | None:
    """The same of a record's own exception or last words."""
    thrown, message = record.cxx_exception, record.abort_message
    if thrown is not None and thrown.what:
        return None if says_gpu(f"{thrown.type} {thrown.what}") else _ended_after(_THROWN, thrown.what)
    if message is None or not message.text or message.text.startswith(_NO_REASON) or says_gpu(message.text):
        return None
    return _ended_after(_MESSAGE, message.text.strip())


def _ended_after(place: Cite, text: str) -> Cite:
    return Cite(place.source, place.locator, f"it ended after {text}"[:200])


def line_cite(line: TextLine) -> Cite:
    """A line of the job's log, or (number 0) what a process's own exception record says."""
    if line.number == 0:
        return Cite("exception", line.path or "exception record", line.text)
    return Cite("launcher", f"{line.path}:{line.number}" if line.path else f"line {line.number}", line.text)
