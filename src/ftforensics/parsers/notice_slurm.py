"""Slurm: what slurmstepd and srun print into a job's output, `sacct -P`, `sacct --json`, `scontrol show job`.

Its counter of OOM kills belongs to a step, not to a process. "hit memory limit" is only the limit's fail counter, which
page cache raises too: nobody was killed for it. Times are the cluster's local ones, without a zone, but in JSON.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

import msgspec

from ftforensics.model.basics import Cite
from ftforensics.model.moment import Moment
from ftforensics.model.notice import Notice
from ftforensics.parsers.launcher_line import local_time
from ftforensics.parsers.notice_line import NoticeLine, document_cite, notice_lines

AUTHORITY = "slurm"
ANCHORS = (
    "CANCELLED AT",
    "oom-kill event",
    "oom_kill event",
    "exceeded memory limit",
    "Exceeded job memory limit",
    "Exceeded step memory limit",
    "memory limit at least once",
    "memory+swap limit at least once",
    "UNCORRECTABLE MEMORY ERROR",
    "(non-zero exit code or other failure mode)",
    "STEPD TERMINATED",
    "error: Node failure on ",
    "srun: ",
    "JobID|",
    "|JobID",
    "JobState=",
)

# slurmstepd's req.c; 17.11 to 25.05 have the same words.
_CANCELLED = re.compile(
    r"\*\*\* (?:JOB|STEP) (?P<unit>[\w.+-]{1,60}) ON (?P<host>\S{1,255}) CANCELLED AT (?P<at>\S{1,40})"
    r"(?: DUE [Tt][Oo] (?P<why>.{1,120}?))? \*\*\*"
)
_ENTITY = r"\*\*\* (?:JOB|STEP) (?P<unit>\S{1,60}) "
_FAILED = re.compile(_ENTITY + r"ON (?P<host>\S{1,255}) FAILED \(non-zero exit code")
_HARDWARE = re.compile(_ENTITY + r"ON (?P<host>\S{1,255}) UNCORRECTABLE MEMORY ERROR AT")
_STUCK = re.compile(_ENTITY + r"STEPD TERMINATED ON (?P<host>\S{1,255}) AT \S{1,40} DUE TO ")
_OOM = re.compile(
    r"[Dd]etected (?P<count>\d{1,10}) oom[-_]kill event(?:\(s\)|s)? in (?:step |StepId=|JobId=|job )?"
    r"(?P<unit>[\w.+-]{1,60}\w)"
)
# Polling by jobacct_gather, without a line of the kernel's.
_EXCEEDED = re.compile(
    r"(?:(?:Job|Step|JobId=|StepId=) ?(?P<unit>[\w.+-]{1,60}) exceeded memory limit"
    r" \((?P<why>[^)]{1,80})\), being killed"
    r"|Exceeded (?:job|step) memory limit)"
)
_HIT = re.compile(
    r"(?:(?:Step|Job|StepId=|JobId=) ?(?P<unit>[\w.+-]{1,60}) )?hit memory(?:\+swap)? limit at least once"
)
_TASK_OOM = re.compile(r"srun: error: (?P<host>[^\s:]{1,255}): tasks? (?P<tasks>[\d,-]{1,200}): Out Of Memory")
_JOB = re.compile(r"\s*JobId=(\d{1,12}(?:_\d{1,9})?)\b")
# Of a client that lives on another node than the one that went away; several as "n[1-3]".
_NODE = re.compile(r"(?:srun|salloc|sbatch): error: Node failure on (?P<host>[\w.,\[\]-]{1,255})\s*$")
_ENDED = re.compile(r"srun: (?:Force Terminated|Terminating) (?:job step |StepId=|JobId=|job )(?P<unit>[\w.+-]{1,60})")

_WHY = {
    "TIME LIMIT": "time-limit",
    "PREEMPTION": "preempted",
    "JOB REQUEUE": "requeued",
    "NODE FAILURE": "node-failed",
    "TASK FAILURE": "stopped",
}
_STATES = {
    "OUT_OF_MEMORY": "oom",
    "TIMEOUT": "time-limit",
    "PREEMPTED": "preempted",
    "CANCELLED": "cancelled",
    "REQUEUED": "requeued",
    "NODE_FAIL": "node-failed",
    "BOOT_FAIL": "node-failed",
    "DEADLINE": "deadline",
}
_PENDING = frozenset({"RUNNING", "PENDING", "COMPLETING", "CONFIGURING", "SUSPENDED", "REQUEUE_HOLD", "RESIZING"})


def read_slurm(text: str, path: str | None = None) -> list[Notice]:
    if text.lstrip()[:1] == "{":
        return list(_of_json(text, path))
    return read_slurm_lines(notice_lines(text), path)


def read_slurm_lines(lines: Iterable[NoticeLine], path: str | None) -> list[Notice]:
    notices: list[Notice] = []
    columns: list[str] = []
    job: str | None = None  # of `scontrol show job`, whose state stands in a line of its own
    for line in lines:
        named = _JOB.match(line.text)
        if named:
            job = named[1]
        heading = line.text.rstrip("\r").split("|")
        if "JobID" in heading and "State" in heading:
            columns = heading  # with -p the last one is "", as every row ends in a separator
            continue
        if columns and line.text.count("|") >= len(columns) - 1:
            notices.extend(_of_row(line, columns, path))
            continue
        if "JobState=" in line.text:
            notices.extend(_of_scontrol(line, job, path))
            continue
        notices.extend(_of_line(line, path))
    return notices


# --- lines in a job's output ------------------------------------------------------------------------------------------


def _of_line(line: NoticeLine, path: str | None) -> Iterator[Notice]:
    text = line.text
    cite = line.cite(AUTHORITY, path)
    cancelled = _CANCELLED.search(text)
    if cancelled:
        why = cancelled["why"] or ""
        kind = next((kind for words, kind in _WHY.items() if why.startswith(words)), "cancelled")
        said = _notice(kind, line, cite, unit=cancelled["unit"], host=cancelled["host"], reason=why or None)
        yield msgspec.structs.replace(said, wall=local_time(cancelled["at"]))
        return
    oom = _OOM.search(text)
    if oom:
        unit = oom["unit"].rstrip(".")
        count = int(oom["count"])
        if count:  # a step whose counter is 0 was never under memory pressure that killed
            yield _notice("oom", line, cite, unit=unit, count=count)
        return
    exceeded = _EXCEEDED.search(text)
    if exceeded:
        why = f"memory limit ({exceeded['why']})" if exceeded["why"] else "memory limit"
        yield _notice("killed", line, cite, unit=exceeded["unit"], reason=why)
        return
    hit = _HIT.search(text)
    if hit:
        yield _notice("limit-hit", line, cite, unit=hit["unit"], reason="memory")
        return
    for pattern, kind, reason in (
        (_FAILED, "stopped", "another task failed"),
        (_HARDWARE, "state", "uncorrectable memory error"),
        (_STUCK, "stopped", "its processes did not end with signals"),
    ):
        found = pattern.search(text)
        if found:
            yield _notice(kind, line, cite, unit=found["unit"], host=found["host"], reason=reason)
            return
    node = _NODE.search(text)
    if node:
        yield _notice("node-failed", line, cite, host=node["host"])
        return
    task = _TASK_OOM.search(text)
    if task:
        said = _notice("oom", line, cite, host=task["host"], reason=f"task {task['tasks']}")
        yield msgspec.structs.replace(said, tasks=_listed(task["tasks"]))
        return
    ended = _ENDED.search(text)
    if ended:
        yield _notice("stopped", line, cite, unit=ended["unit"].rstrip("."), reason="srun ended the step")


def _notice(
    kind: str,
    line: NoticeLine,
    cite: Cite,
    *,
    unit: str | None = None,
    host: str | None = None,
    count: int | None = None,
    reason: str | None = None,
) -> Notice:
    return Notice(
        AUTHORITY, kind, cite, moment=line.moment, unit=unit, host=host or line.host, count=count, reason=reason
    )


def _listed(tasks: str) -> int:
    """5 for "0-3,7"."""
    ends = [part.partition("-")[::2] for part in tasks.split(",")]
    return sum(max(int(last or first) - int(first), 0) + 1 for first, last in ends if first.isdecimal())


def _of_scontrol(line: NoticeLine, job: str | None, path: str | None) -> Iterator[Notice]:
    """`scontrol show job`: the exit code is in the state's line only with -o."""
    fields = dict(part.split("=", 1) for part in line.text.split() if "=" in part)
    state = fields.get("JobState", "")
    if not state or state in _PENDING:
        return
    code, signal = _exit(fields.get("ExitCode", ""))
    yield Notice(
        AUTHORITY,
        _STATES.get(state, "state"),
        line.cite(AUTHORITY, path),
        unit=job,
        state=state,
        reason=fields.get("Reason"),
        exit_code=code,
        signal=signal,
        host=fields.get("BatchHost"),
    )


# --- sacct -P ---------------------------------------------------------------------------------------------------------


def _of_row(line: NoticeLine, columns: list[str], path: str | None) -> Iterator[Notice]:
    # A job's name may hold the separator: the columns before it count from the left, those behind it from the right.
    values = line.text.split("|")
    spare = len(values) - len(columns)
    if spare > 0 and "JobName" in columns:
        at = columns.index("JobName")
        values = [*values[:at], "|".join(values[at : at + spare + 1]), *values[at + spare + 1 :]]
    row = dict(zip(columns, values, strict=False))
    word, _, rest = row.get("State", "").partition(" ")
    state = word.rstrip("+")  # cut by a narrow column
    if not state.isupper() or state in _PENDING:
        return
    code, signal = _exit(row.get("ExitCode", ""))
    reason = rest.strip() or row.get("Reason", "").strip()  # "CANCELLED by 1000"
    yield Notice(
        AUTHORITY,
        _STATES.get(state, "state"),
        line.cite(AUTHORITY, path),
        unit=row.get("JobID") or None,
        state=state,
        reason=reason if reason not in ("", "None") else None,
        exit_code=code,
        signal=signal,
        host=row.get("NodeList") or None,
        rss=_bytes(row.get("MaxRSS", "")),
    )


def _exit(text: str) -> tuple[int | None, int | None]:
    """(code, signal) of "0:9". 125 in the signal's place is Slurm's own mark for out of memory."""
    code, _, signal = text.partition(":")
    if not code.isdecimal() or not signal.isdecimal() or len(text) > 9:
        return None, None
    number = int(signal)
    return int(code), number if 0 < number < 65 else None


def _bytes(text: str) -> int | None:
    """ "131072K", "2.5G", "1024" of sacct's sizes."""
    found = re.fullmatch(r"(\d{1,15})(?:\.(\d{1,6}))?([KMGTP]?)", text.strip())
    if found is None:
        return None
    value = float(f"{found[1]}.{found[2] or 0}") * 1024 ** ("_KMGTP".index(found[3]) if found[3] else 0)
    return int(value)


# --- sacct --json -----------------------------------------------------------------------------------------------------


class _Number(msgspec.Struct):
    """Slurm 23.02 and later wrap numbers."""

    number: int | float | None = None
    set: bool = True


class _Signal(msgspec.Struct):
    id: int | _Number | None = None
    signal_id: int | _Number | None = None
    name: str | None = None


class _ExitCode(msgspec.Struct):
    return_code: int | _Number | None = None
    signal: _Signal | None = None


class _State(msgspec.Struct):
    current: str | list[str] | None = None
    reason: str | None = None


class _Time(msgspec.Struct):
    end: int | _Number | None = None


class _StepName(msgspec.Struct):
    id: str | int | _StepId | None = None
    name: str | None = None


class _StepId(msgspec.Struct):
    job_id: int | _Number | None = None
    step_id: int | str | _Number | None = None


class _Nodes(msgspec.Struct):
    names: list[str] | None = msgspec.field(default=None, name="list")


class _Step(msgspec.Struct):
    step: _StepName | None = None
    state: str | list[str] | _State | None = None
    exit_code: _ExitCode | None = None
    time: _Time | None = None
    nodes: str | _Nodes | None = None


class _Job(msgspec.Struct):
    job_id: int | _Number | None = None
    state: str | list[str] | _State | None = None
    exit_code: _ExitCode | None = None
    time: _Time | None = None
    nodes: str | None = None
    steps: list[msgspec.Raw] = []


class _Answer(msgspec.Struct):
    jobs: list[msgspec.Raw]


def _of_json(text: str, path: str | None) -> Iterator[Notice]:
    try:
        answer = msgspec.json.decode(text, type=_Answer)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return
    for at, raw in enumerate(answer.jobs):
        try:
            job = msgspec.json.decode(raw, type=_Job)
        except msgspec.DecodeError:
            continue
        unit = str(_number(job.job_id)) if _number(job.job_id) is not None else None
        yield from _entry(job, unit, job.nodes, path, f"jobs[{at}]")
        for step_at, raw_step in enumerate(job.steps):
            try:
                step = msgspec.json.decode(raw_step, type=_Step)
            except msgspec.DecodeError:
                continue
            nodes = step.nodes if isinstance(step.nodes, str) else ",".join((step.nodes and step.nodes.names) or [])
            yield from _entry(step, _step_unit(step, unit), nodes, path, f"jobs[{at}].steps[{step_at}]")


def _entry(entry: _Job | _Step, unit: str | None, nodes: str | None, path: str | None, where: str) -> Iterator[Notice]:
    said = entry.state.current if isinstance(entry.state, _State) else entry.state
    words = [said] if isinstance(said, str) else said or []
    if not words or any(word in _PENDING for word in words):
        return
    state = next((word for word in words if word in _STATES), words[0])
    ended = entry.exit_code or _ExitCode()
    code = _number(ended.return_code)
    signal = _number(ended.signal.id if ended.signal and ended.signal.id is not None else None)
    if signal is None and ended.signal is not None:
        signal = _number(ended.signal.signal_id)
    if signal is not None and not 0 < signal < 65:
        signal = None
    end = _number(entry.time.end) if entry.time else None
    text = f"{unit} {','.join(words)} exit {code}:{signal or 0}"
    yield Notice(
        AUTHORITY,
        _STATES.get(state, "state"),
        document_cite(AUTHORITY, path, f"{where}.state", text),
        moment=Moment(realtime=float(end), accuracy=1.0) if end else Moment(),
        unit=unit,
        state=state,
        reason=entry.state.reason if isinstance(entry.state, _State) and entry.state.reason != "None" else None,
        exit_code=code,
        signal=signal,
        host=nodes or None,
    )


def _step_unit(step: _Step, job: str | None) -> str | None:
    named = step.step.id if step.step else None
    if isinstance(named, _StepId):
        number = named.step_id if isinstance(named.step_id, str) else _number(named.step_id)
        return f"{job}.{number}"
    return str(named) if named is not None else job


def _number(value: int | float | _Number | str | None) -> int | None:
    if isinstance(value, _Number):
        value = value.number if value.set else None
    return int(value) if isinstance(value, (int, float)) else None
