"""The environment ledger: one line when a run begins and one when it ends, and what changed between two runs.

`$XDG_STATE_HOME/ftforensics/ledger.jsonl`, this user's alone. Written by short-lived processes beside the job
(capture/ledger.py says by which rules), compacted by whoever finds it too long, read by `env`, `analyze` and `run`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress

import msgspec

from ftforensics.capture import VERSION, ledger, procfs
from ftforensics.capture.identity import printable
from ftforensics.host.host import Host, Refusal
from ftforensics.model.case import Case
from ftforensics.model.crash import CrashRecord, Driver
from ftforensics.model.ledger import Begun, Changes, Fingerprint, LedgerRun
from ftforensics.parsers.command_line import job
from ftforensics.sources.differences import differences
from ftforensics.sources.fingerprint import (
    Subject,
    read_fingerprint,
    subject_of_process,
    subject_of_record,
)
from ftforensics.sources.identity_here import boot_of, host_name
from ftforensics.sources.places import answers
from ftforensics.sources.processes import is_alive
from ftforensics.sources.software import package_folders
from ftforensics.wire.ledger import compacted, encode_line, read_runs

COMPACT_AT = 8 << 20  # bytes
KEPT_RUNS = 200
_READ = 16 << 20  # bytes from the end; compaction keeps the file below that
_RECENT = 1 << 20  # bytes in which a run that has just begun is looked for
_SLACK = 5.0  # seconds: a run is written down some seconds after it began


def read_ledger(host: Host, path: str | None = None) -> list[LedgerRun]:
    """The runs, oldest first; those without an end that still run say so. path: None for the user's own. Raises Refusal
    when there is none, or it is kept from us."""
    path = path or _path()
    if not answers(host, path):
        raise Refusal(path, "its file system does not answer")
    runs = read_runs(host.read_end(path, _READ))
    return [run if run.ended else msgspec.structs.replace(run, running=_runs(host, run.begun)) for run in runs]


def record_begun(
    host: Host,
    pid: int,
    environ: Mapping[str, str],
    *,
    driver: Driver | None = None,
) -> bool:
    """Write down what process `pid` runs on, once. environ: our own, in which the job has left what its run is called
    (capture.ledger.variables_for_children). False: it is not to be written, or has been.

    Raises OSError when the ledger cannot be written, Refusal when the process is gone.
    """
    path, run, folder = ledger.place(environ), environ.get(ledger.RUN), environ.get(ledger.FOLDER)
    if path is None or not run or folder is None or _recorded(host, path, run, pid):
        return False
    subject = subject_of_process(host, pid)
    fingerprint = read_fingerprint(host, subject, driver=driver)
    start = procfs.start_ticks(pid)
    begun = Begun(
        run=run,
        at=_started(host, start) or host.now(),
        job=job(fingerprint.argv, fingerprint.cwd),
        fingerprint=fingerprint,
        folder=printable(folder) or None,
        pid=pid,
        boot_id=boot_of(host),
        start_ticks=start,
        version=VERSION,
    )
    if ledger.append(path, encode_line(begun), make=True) > COMPACT_AT:
        compact(path)
    return True


def compact(path: str, most_runs: int = KEPT_RUNS) -> bool:
    """Keep the newest runs, and the last good one of each job. False when somebody else is at it. Raises OSError.

    Appending processes hold the lock for the length of one write, and look whether the file still has its name."""
    fd = ledger.open_locked(path, ledger.EXCLUSIVE)
    try:
        size = os.fstat(fd).st_size
        data = os.pread(fd, _READ, max(0, size - _READ))
        kept = compacted(data, most_runs)
        while len(kept) > COMPACT_AT // 2 and most_runs > 1:
            most_runs //= 2
            kept = compacted(data, most_runs)
        unfinished = f"{path}.{os.getpid()}"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            with os.fdopen(os.open(unfinished, flags, 0o600), "wb") as file:
                file.write(kept)
            os.replace(unfinished, path)
        except OSError:
            with suppress(OSError):  # it may not have been made; what was wrong first is told
                os.unlink(unfinished)
            raise
    except BlockingIOError:
        return False
    finally:
        os.close(fd)
    return True


def last_good(runs: list[LedgerRun], *, name: str | None, prefix: str | None, host: str | None) -> LedgerRun | None:
    """The newest good run of that job on that host; else of any job in that Python environment."""
    good = [run for run in runs if run.good and host in (None, run.begun.fingerprint.host)]
    same_job = [run for run in good if name is not None and run.begun.job == name]
    return next(reversed(same_job or [run for run in good if prefix and run.begun.fingerprint.prefix == prefix]), None)


def changes_since_good(host: Host, case: Case, path: str | None = None) -> Changes | None:
    """What differs between the run of this case and the last good one before it on this machine. None: the case is
    another machine's, or no good run is known.

    The run's own line counts; a run that died before it had one is described by its record and by what is installed
    now, as far as nothing has been installed since."""
    if not (case.records or case.rings or case.runs):
        return None  # logs alone name no run
    try:
        runs = read_ledger(host, path)
    except Refusal:
        return None
    crashed = _crashed(host, case, runs)
    if crashed is None:
        return None
    earlier = [run for run in runs if run.begun.at < crashed.at and run.begun.run != crashed.run]
    if not crashed.run:
        started = _started_at(case) or crashed.at
        earlier = [run for run in earlier if not _during(run, started)]
    fingerprint = crashed.fingerprint
    found = last_good(earlier, name=crashed.job, prefix=fingerprint.prefix, host=fingerprint.host)
    if found is None:
        return None
    return Changes(
        since=found.begun.at,
        run=found.begun.run,
        same_job=found.begun.job == crashed.job,
        items=differences(found.begun.fingerprint, fingerprint),
    )


def _crashed(host: Host, case: Case, runs: list[LedgerRun]) -> Begun | None:
    """The line of the run that the case is about, or one made up for it."""
    folders = _folders(case) if runs else set()
    died_at = _died_at(case)
    for run in reversed(runs):
        mine = run.begun.folder is not None and os.path.realpath(run.begun.folder) in folders
        if mine and (died_at is None or run.begun.at <= died_at + _SLACK) and not run.good:
            return run.begun
    return _described(host, case, died_at)


def _folders(case: Case) -> set[str]:
    paths = [*(one.path for one in case.records), *(one.path for one in case.rings), *(one.path for one in case.runs)]
    # A ring may lie elsewhere, linked from the folder of the run.
    links = [path for path in paths if path and os.path.islink(path)]
    folders = {os.path.dirname(path) or "." for path in paths if path}
    return {*map(os.path.realpath, folders), *(os.path.dirname(os.path.realpath(path)) for path in links)}


def _died_at(case: Case) -> float | None:
    """Seconds since the epoch: the latest that a record or `run` says."""
    times = [one.record.time.realtime for one in case.records if one.record.time and one.record.time.realtime]
    times += [run.ended.clocks.realtime for run in case.runs if run.ended]
    return max(times, default=None)


def _started_at(case: Case) -> float | None:
    """When the first process began to be watched, seconds since the epoch."""
    times = []
    for one in case.records:
        time = one.record.time
        if time and time.realtime is not None and time.monotonic is not None and time.installed is not None:
            times.append(time.realtime - (time.monotonic - time.installed))
    times += [run.started.clocks.realtime for run in case.runs if run.started]
    return min(times, default=None)


def _described(host: Host, case: Case, died_at: float | None) -> Begun | None:
    record = _first_record(case)
    subject = subject_of_record(record) if record is not None else _of_run(case)
    where = (record.job.host if record and record.job else None) or next(
        (run.started.host for run in case.runs if run.started), None
    )
    if subject is None or where is None or where != host_name(host) or died_at is None:
        return None
    if record is not None and record.software is not None:
        fingerprint = read_fingerprint(host, subject, software=record.software, driver=record.driver)
    else:
        fingerprint = read_fingerprint(host, subject, driver=record.driver if record else None)
        if _installed_since(host, fingerprint, died_at):
            fingerprint = msgspec.structs.replace(fingerprint, packages=[], torch=None)
    return Begun(run="", at=died_at, job=job(subject.argv, subject.cwd), fingerprint=fingerprint)


def _first_record(case: Case) -> CrashRecord | None:
    """Rank 0's where there is one: its command line is what the ledger compares."""
    records = [one.record for one in case.records if one.record.job is not None]
    return min(records, key=lambda record: (record.job.rank or 0) if record.job else 0, default=None)


def _of_run(case: Case) -> Subject | None:
    started = next((run.started for run in case.runs if run.started), None)
    if started is None:
        return None
    pairs = (entry.partition("=") for entry in started.environment)
    return Subject(
        argv=started.argv,
        cwd=started.cwd,
        environ={name: value for name, _, value in pairs},
        cgroup=started.cgroup,
    )


def _during(run: LedgerRun, started: float) -> bool:
    """Whether a process that started then was a part of that run: rank 0 has left well in it, another has died, and so
    it was not so good."""
    return run.begun.at <= started and (run.ended is None or started < run.ended.at)


def _installed_since(host: Host, fingerprint: Fingerprint, moment: float) -> bool:
    """Whether packages came or went after `moment`: then what is there now says nothing about a run before it. pip
    makes and removes folders there, which sets the folder's own time."""
    for folder in package_folders(fingerprint.prefix, host.listed) if fingerprint.prefix else ():
        try:
            if host.stat(folder).st_mtime > moment:
                return True
        except Refusal:
            continue
    return False


def _recorded(host: Host, path: str, run: str, pid: int) -> bool:
    """The inventory is made again whenever a job loads more libraries; its run begins once."""
    try:
        recent = host.read_end(path, _RECENT)
    except Refusal:
        return False
    name = host_name(host)
    begun = [one.begun for one in read_runs(recent)]
    return any((one.run, one.pid, one.fingerprint.host) == (run, pid, name) for one in begun)


def _started(host: Host, start_ticks: int | None) -> float | None:
    """Seconds since the epoch."""
    if start_ticks is None or not host.live:
        return None
    try:
        uptime = float(host.read_text("/proc/uptime", 4096).split()[0])
    except (Refusal, ValueError, IndexError):
        return None
    return round(host.now() - uptime + start_ticks / os.sysconf("SC_CLK_TCK"), 3)


def _runs(host: Host, begun: Begun) -> bool:
    if begun.pid is None or begun.fingerprint.host != host_name(host):
        return False
    return is_alive(host, begun.pid, begun.start_ticks, begun.boot_id) is True


def _path() -> str:
    path = ledger.place(os.environ)
    if path is None:
        raise Refusal("the environment ledger", f"switched off ({ledger.SWITCH}=0), or no home for it")
    return path
