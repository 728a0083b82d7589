"""systemd, systemd-oomd, earlyoom, Ray; and all of them found by content."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ftforensics.model.notice import Notice
from ftforensics.parsers.notice_earlyoom import read_earlyoom
from ftforensics.parsers.notice_ray import read_ray
from ftforensics.parsers.notice_systemd import read_systemd
from ftforensics.parsers.notices import read_notices

PREFIXES = {
    "short": ("Nov 29 14:29:01 gpu7 {0}[581]: ", None),
    "short-iso": ("2026-11-29T14:29:01+0100 gpu7 {0}[581]: ", 1795958941.0),
    "rsyslog": ("2026-11-29T14:29:01.500000+01:00 gpu7 {0}[581]: ", 1795958941.5),
    "short-unix": ("1795958941.250000 gpu7 {0}[581]: ", 1795958941.25),
    "short-monotonic": ("[  812.500000] gpu7 {0}[581]: ", None),
}


def one(notices: list[Notice]) -> Notice:
    (notice,) = notices
    return notice


SCOPE = "/user.slice/user-1000.slice/user@1000.service/app.slice/train.scope"
PRESSURE = (
    f"Killed {SCOPE} due to memory pressure for /user.slice being 55.71% > 50.00% for > 20s with reclaim activity"
)


@pytest.mark.parametrize("style", PREFIXES)
def test_oomd_in_every_journal_style(style: str) -> None:
    prefix, realtime = PREFIXES[style]
    notice = one(read_systemd(prefix.format("systemd-oomd") + PRESSURE + "\n"))
    assert (notice.authority, notice.kind, notice.group, notice.signal) == ("systemd-oomd", "killed", SCOPE, 9)
    assert (notice.host, notice.moment.realtime, notice.pid) == ("gpu7", realtime, None)
    assert notice.reason is not None
    assert notice.reason.startswith("memory pressure for /user.slice being 55.71%")
    assert notice.moment.monotonic == (812.5 if style == "short-monotonic" else None)


@pytest.mark.parametrize("message", [PRESSURE, list(PRESSURE.encode())])
def test_journal_json(message: object) -> None:
    entry = {
        "__REALTIME_TIMESTAMP": "1795958941250000", "__MONOTONIC_TIMESTAMP": "812500000", "_HOSTNAME": "gpu7",
        "_BOOT_ID": "0123456789abcdef0123456789abcdef", "SYSLOG_IDENTIFIER": "systemd-oomd", "MESSAGE": message,
    }  # fmt: skip
    notice = one(read_notices(json.dumps(entry).encode() + b"\n", "j.json"))
    assert (notice.group, notice.host) == (SCOPE, "gpu7")
    assert (notice.moment.realtime, notice.moment.monotonic) == (1795958941.25, 812.5)
    assert notice.moment.boot_id == "01234567-89ab-cdef-0123-456789abcdef"


def test_oomd_with_prekill_hooks() -> None:
    why = "memory used (123) / total (124) and swap used (1) / total (1) being more than 90%"
    text = f"Marked {SCOPE} for killing due to {why}"
    assert one(read_systemd(f"Nov 29 14:29:01 gpu7 systemd-oomd[581]: {text}\n")).group == SCOPE


@pytest.mark.parametrize(
    ("line", "authority", "kind", "fields"),
    [
        ("a.scope: systemd-oomd killed 12 process(es) in this unit.", "systemd-oomd", "killed", {"count": 12}),
        ("train.service: A process of this unit has been killed by the OOM killer.", "systemd", "oom", {}),
        ("train.service: Failed with result 'oom-kill'.", "systemd", "state", {"state": "oom-kill"}),
        ("train.service: Main process exited, code=killed, status=9/KILL", "systemd", "state", {"signal": 9}),
        ("train.service: Main process exited, code=dumped, status=11/SEGV", "systemd", "state", {"signal": 11}),
        ("train.service: Main process exited, code=exited, status=3/NOT", "systemd", "state", {"exit_code": 3}),
        (
            "train.service: State 'stop-sigterm' timed out. Killing.",
            "systemd", "stopped", {"reason": "stop-sigterm timed out"},
        ),
        ("train.service: Service reached runtime time limit. Stopping.", "systemd", "time-limit", {}),
        (
            'train.service: Killing process 1234 (py) (x "y") with signal SIGKILL.',
            "systemd", "killed", {"pid": 1234, "comm": 'py) (x "y"', "signal": 9},
        ),
    ],
)  # fmt: skip
def test_units(line: str, authority: str, kind: str, fields: dict[str, object]) -> None:
    notice = one(read_systemd(f"Nov 29 14:29:02 gpu7 systemd[1]: {line}\n"))
    assert (notice.authority, notice.kind) == (authority, kind)
    assert notice.unit in ("a.scope", "train.service")
    for name, value in fields.items():
        assert getattr(notice, name) == value


def test_systemd_says_other_things_too() -> None:
    for line in (
        "Nov 29 14:29:02 gpu7 systemd[1]: train.service: Deactivated successfully.",
        "Nov 29 14:29:02 gpu7 systemd[1]: Started Training.",
        "Nov 29 14:29:02 gpu7 systemd-oomd[581]: Considered 12 cgroups for killing, top candidates were:",
        "we talked about a process that has been killed by the OOM killer",
        "a.scope: systemd-oomd killed 0 process(es) in this unit.",
    ):
        assert read_systemd(line) == []


def test_earlyoom() -> None:
    text = (
        "low memory! at or below SIGTERM limits: mem 10.00%, swap 10.00%\n"
        'sending SIGTERM to process 4242 uid 1000 "a": \\"b": oom_score 911, oom_score_adj 0, VmRSS 31000 MiB, \n'
        "escalating to SIGKILL after 6.2 seconds\n"
        "process 4242 exited after 6.5 seconds\n"
    )
    term, kill = read_earlyoom(text, "e.log")
    assert (term.pid, term.comm, term.signal, term.rss) == (4242, 'a": \\"b', 15, 31000 << 20)
    assert (kill.pid, kill.signal, kill.kind, kill.cite.locator) == (4242, 9, "killed", "e.log:3")


def test_earlyoom_of_old() -> None:
    old = one(read_earlyoom('killing process 4243 "python" with signal 15: badness 900, VmRSS 1234 MiB\n'))
    assert (old.pid, old.comm, old.signal, old.rss) == (4243, "python", 15, 1234 << 20)
    newer = one(read_earlyoom('sending SIGKILL to process 5 "x": badness 900, VmRSS 1 MiB\n'))
    assert (newer.pid, newer.signal) == (5, 9)
    assert read_earlyoom("escalating to SIGKILL after 5 seconds\nprocess 9 exited after 1 seconds\n") == []


RAY = (
    "(raylet) Memory on the node (IP: 10.97.37.135, ID: 50eef2b9) where the task (task ID: NIL_ID, name=f(x, pid=1), "
    "pid=115205, memory used=0.25GB) was running was 14.67GB / 15.44GB (0.95015), which exceeds the "
    "memory usage threshold "
    "of 0.95. Ray killed this worker (ID: 1c42378b72) because it was the most recently scheduled task; to see more\n"
    "Top 10 memory users:\nPID\tMEM(GB)\tCOMMAND\n3048142\t49.21\tray::Worker.fit\n12\t1.00\tpython "
    "x\n13\t0.9\ta\n14\t0.8\tb\n"
)


def test_ray() -> None:
    notice = one(read_ray(RAY, "r.log"))
    assert (notice.kind, notice.pid, notice.host, notice.unit, notice.rss) == (
        "killed", 115205, "10.97.37.135", "1c42378b72", 1 << 28,
    )  # fmt: skip
    assert notice.reason == (
        "14.67GB / 15.44GB (0.95015); top memory users: ray::Worker.fit (pid 3048142) 49.21 GB, "
        "python x (pid 12) 1.00 GB,"
        " a (pid 13) 0.9 GB"
    )


def test_ray_that_chose_several() -> None:
    text = (
        "Error: 2 worker(s) were killed due to the node running low on memory. Memory on the node "
        "(IP: 10.0.50.112, ID: 4c) "
        "was 28.62GB / 30.00GB (0.954017), which exceeds the memory usage threshold of 0.950000; "
        "Object store [x]; Ray killed "
        "2 worker(s) based on the killing policy: [(Task: job ID=05, task name=Map(f), pid=478, "
        "actual memory used=12.5GB, "
        "worker ID=aa), (Actor(6d86) pid=479, actual memory used=0.5GB)]"
    )
    assert [(one.pid, one.rss) for one in read_ray(text)] == [(478, int(12.5 * (1 << 30))), (479, 1 << 29)]
    summary = (
        "(raylet) node_manager.cc:3064: 3 Workers (tasks / actors) killed due to memory pressure "
        "(OOM), 0 Workers crashed due"
        " to other reasons at node (ID: ab, IP: 10.0.0.7) over the last time period."
    )
    notice = one(read_ray(summary))
    assert (notice.count, notice.host, notice.pid) == (3, "10.0.0.7", None)


def test_ray_guesses() -> None:
    for text in (
        "Worker exit type: SYSTEM_ERROR Worker exit detail: Worker unexpectedly exits with a "
        "connection error code 2. There are"
        " some potential root causes. (1) The process is killed by SIGKILL by OOM killer due to high memory usage.",
        "The worker may have exceeded K8s pod memory limits.",
        "0 Workers (tasks / actors) killed due to memory pressure (OOM), 3 Workers crashed due to "
        "other reasons at node",
    ):
        assert read_ray(text) == []


# --- by content -------------------------------------------------------------------------------------------------------

SLURM = "slurmstepd: error: Detected 1 oom_kill event in StepId=191.0. Some of the step tasks have been OOM Killed.\n"


def test_all_in_one_log() -> None:
    text = "step 1\n" * 50 + SLURM + RAY + f"Nov 29 14:29:01 gpu7 systemd-oomd[581]: {PRESSURE}\n"
    found = read_notices(text.encode(), "job.log")
    assert [(one.authority, one.cite.locator) for one in found] == [
        ("slurm", "job.log:51"),
        ("systemd-oomd", "job.log:59"),
        ("ray", "job.log:52"),
    ]
    assert found[2].reason is not None
    assert "ray::Worker.fit" in found[2].reason


def test_a_large_log_is_read_around_its_anchors() -> None:
    filler = b"step 1 loss 0.5 and some more text to fill the line up\n" * 250_000
    data = filler + SLURM.encode() + RAY.encode() + filler + SLURM.encode()
    assert len(data) > 16 << 20
    found = read_notices(data, "big.log")
    assert [(one.authority, one.cite.locator) for one in found] == [
        ("slurm", "big.log:250001"),
        ("slurm", "big.log:500009"),
        ("ray", "big.log:250002"),
    ]
    assert found[2].reason is not None
    assert "ray::Worker.fit" in found[2].reason


def test_in_a_containers_log() -> None:
    wrapped = f"2026-11-29T13:29:01.5Z stderr F {SLURM}"
    notice = one(read_notices(wrapped.encode()))
    assert (notice.unit, notice.moment.realtime) == ("191.0", 1795958941.5)


def test_an_ordinary_log_has_none() -> None:
    assert read_notices(b"step 1\nKilled\nOOM is not the cause\n") == []
    assert read_notices(b"") == []


PARTS = [
    SLURM, RAY, PRESSURE, "JobID|State\n", "1|OUT_OF_MEMORY\n", '{"kind":"Pod","status":{}}', '[{"Id":"x","State":{}}]',
    '{"jobs":[{}]}', "\n", "|", '{"MESSAGE":', "\x00", "\udc80", "JobState=", "srun: ", "Top 10 memory users",
]  # fmt: skip


@settings(max_examples=150, deadline=None)
@given(st.lists(st.one_of(st.sampled_from(PARTS), st.text(max_size=20)), max_size=20), st.binary(max_size=50))
def test_never_raises(parts: list[str], tail: bytes) -> None:
    read_notices("".join(parts).encode("utf-8", "surrogatepass") + tail, "x")
