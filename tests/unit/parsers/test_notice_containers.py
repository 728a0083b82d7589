"""Kubernetes' and Docker's documents and events."""

from __future__ import annotations

import json

import pytest

from ftforensics.model.notice import Notice
from ftforensics.parsers import notices
from ftforensics.parsers.notice_docker import read_docker
from ftforensics.parsers.notice_kubernetes import read_kubernetes
from ftforensics.parsers.notices import read_notices

CONTAINER = "3b1c" * 16


def pod(**status: object) -> dict[str, object]:
    return {
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "train-0", "namespace": "ml", "uid": "u"},
        "spec": {"nodeName": "gpu7", "containers": []}, "status": status,
    }  # fmt: skip


def ended(reason: str, code: int, **more: object) -> dict[str, object]:
    return {"terminated": {"reason": reason, "exitCode": code, "finishedAt": "2026-11-29T13:29:01Z", **more}}


def read(document: object) -> list[Notice]:
    return read_kubernetes(json.dumps(document), "pod.json")


def test_oom_killed_container() -> None:
    state = ended("OOMKilled", 137, containerID=f"containerd://{CONTAINER}")
    (notice,) = read(pod(phase="Failed", containerStatuses=[{"name": "main", "state": state, "lastState": {}}]))
    assert (notice.authority, notice.kind, notice.unit, notice.exit_code) == ("kubernetes", "oom", CONTAINER, 137)
    assert (notice.signal, notice.host, notice.moment.realtime) == (None, "gpu7", 1795958941.0)
    assert notice.cite.locator == "pod.json: status.containerStatuses[0].state.terminated"
    assert "ml/train-0 container main: OOMKilled" in notice.cite.text


def test_an_earlier_end_and_137_without_a_reason() -> None:
    statuses = [{"name": "main", "lastState": ended("Error", 137), "state": {"running": {}}}]
    (notice,) = read(pod(containerStatuses=statuses))
    assert (notice.kind, notice.state, notice.unit) == ("state", "Error", "ml/train-0/main")
    assert (notice.exit_code, notice.signal) == (137, None)  # it may be the inner shell's
    (notice,) = read(pod(initContainerStatuses=[{"name": "i", "state": ended("Error", 1, signal=9)}]))
    assert notice.signal == 9


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (
            "The node was low on resource: memory. Threshold quantity: 100Mi, available: 90Mi. "
            "Container a was using 9Gi.",
            "memory",
        ),
        ("The node was low on resource: ephemeral-storage. ", "ephemeral-storage"),
        ('Usage of EmptyDir volume "shm" exceeds the limit "1Gi". ', "ephemeral-storage"),
        ("Something else", "Something else"),
    ],
)
def test_evicted(message: str, reason: str) -> None:
    (notice,) = read(pod(phase="Failed", reason="Evicted", message=message))
    assert (notice.kind, notice.reason, notice.unit, notice.state) == ("evicted", reason, "ml/train-0", "Failed")


@pytest.mark.parametrize(
    ("reason", "kind"),
    [("PreemptionByScheduler", "preempted"), ("DeletionByTaintManager", "evicted"), ("DeletionByPodGC", "node-failed")],
)
def test_disrupted(reason: str, kind: str) -> None:
    condition = {
        "type": "DisruptionTarget", "status": "True", "reason": reason, "lastTransitionTime": "2026-11-29T13:29:01Z",
    }  # fmt: skip
    (notice,) = read(pod(conditions=[condition, {"type": "Ready", "status": "False"}]))
    assert (notice.kind, notice.moment.realtime) == (kind, 1795958941.0)
    assert read(pod(conditions=[{**condition, "status": "False"}])) == []


def event(reason: str, message: str) -> dict[str, object]:
    return {
        "kind": "Event", "reason": reason, "message": message, "lastTimestamp": "2026-11-29T13:29:01Z",
        "eventTime": None,
        "involvedObject": {"kind": "Pod", "name": "train-0", "namespace": "ml"}, "source": {"host": "gpu7"},
    }  # fmt: skip


def test_events() -> None:
    killed = "Memory cgroup out of memory: Killed process 4242 (python) total-vm:9kB, anon-rss:1024kB, file-rss:0kB"
    found = read(
        {
            "kind": "List",
            "items": [
                event("OOMKilling", killed),
                event("SystemOOM", "System OOM encountered, victim process: python3, pid: 77"),
                event("Killing", "Stopping container main"),
                event("Evicted", "The node was low on resource: memory."),
                event("ExceededGracePeriod", "Container runtime did not kill the pod within specified grace period."),
                event("Pulled", "Container image already present"),
                {"kind": "Event", "reason": 3},
            ],
        }
    )
    assert [(one.kind, one.pid, one.comm, one.rss) for one in found] == [
        ("oom", 4242, "python", 1024 * 1024),
        ("oom", 77, "python3", None),
        ("stopped", None, None, None),
        ("evicted", None, None, None),
        ("killed", None, None, None),
    ]
    assert {(one.host, one.unit, one.moment.realtime) for one in found} == {("gpu7", "ml/train-0", 1795958941.0)}
    assert found[3].reason == "memory"
    assert found[4].cite.locator == "pod.json: items[4].message"


def test_lists_of_pods() -> None:
    one = pod(containerStatuses=[{"name": "a", "state": ended("OOMKilled", 137)}])
    found = read({"kind": "PodList", "items": [one, {"kind": "Pod", "status": "odd"}, pod(), one]})
    assert [notice.cite.locator.partition(".status")[0] for notice in found] == [
        "pod.json: items[0]",
        "pod.json: items[3]",
    ]


def test_other_documents() -> None:
    for text in ("", "{", "[]", "3", '{"kind": "Status", "status": "Failure"}', '{"kind": "Pod"}', "{" * 5000):
        assert read_kubernetes(text) == []
        assert read_docker(text) == []


# --- Docker -----------------------------------------------------------------------------------------------------------


def inspected(**state: object) -> str:
    return json.dumps([{"Id": CONTAINER, "Name": "/train", "State": {"Status": "exited", "Running": False, **state}}])


def test_inspect() -> None:
    text = inspected(OOMKilled=True, ExitCode=137, Error="", FinishedAt="2026-11-29T13:29:01.123456789Z")
    (notice,) = read_docker(text, "docker inspect train")
    assert (notice.authority, notice.kind, notice.unit, notice.exit_code) == ("docker", "oom", CONTAINER, 137)
    assert notice.moment.realtime == pytest.approx(1795958941.123456789)
    assert notice.cite.text == "train: OOMKilled true, ExitCode 137"
    (notice,) = read_docker(inspected(OOMKilled=False, ExitCode=137, FinishedAt="0001-01-01T00:00:00Z"))
    assert (notice.kind, notice.signal, notice.moment.realtime) == ("state", None, None)
    assert read_docker(inspected(Running=True, ExitCode=0)) == []


def test_events_as_text() -> None:
    text = (
        f"2026-11-29T14:29:01.000000000+01:00 container oom {CONTAINER} (image=a, name=train)\n"
        f"2026-11-29T14:29:01.100000000+01:00 container kill {CONTAINER} (image=a, name=signal=3, signal=9)\n"
        f"2026-11-29T14:29:01.200000000+01:00 container die {CONTAINER} (execDuration=3, exitCode=137, image=a)\n"
        f"2026-11-29T14:29:01.300000000+01:00 container start {CONTAINER} (image=a)\n"
        f"2026-11-29T14:29:01.300000000+01:00 network disconnect {CONTAINER} (image=a)\n"
    )
    found = read_notices(text.encode(), "events.txt")
    assert [(one.kind, one.signal, one.exit_code, one.unit) for one in found] == [
        ("oom", None, None, CONTAINER),
        ("stopped", 9, None, CONTAINER),
        ("state", None, 137, CONTAINER),
    ]
    assert found[0].moment.realtime == 1795958941.0
    assert found[2].cite.locator == "events.txt:3"


def test_events_as_json() -> None:
    def line(action: str, **attributes: str) -> str:
        return json.dumps(
            {
                "status": action, "id": CONTAINER, "Type": "container", "Action": action, "time": 1795958941,
                "Actor": {"ID": CONTAINER, "Attributes": {"name": "train", **attributes}},
                "timeNano": 1795958941500000000,
            },
            separators=(",", ":"),
        )  # fmt: skip

    text = "\n".join([line("oom"), line("kill", signal="15"), line("die", exitCode="137"), line("exec_start: sh")])
    found = read_notices(text.encode())
    assert [(one.kind, one.signal, one.exit_code) for one in found] == [
        ("oom", None, None),
        ("stopped", 15, None),
        ("state", None, 137),
    ]
    assert found[0].moment.realtime == 1795958941.5


def test_found_by_content() -> None:
    document = pod(containerStatuses=[{"name": "main", "state": ended("OOMKilled", 137)}])
    assert [one.authority for one in read_notices(json.dumps(document, indent=2).encode())] == ["kubernetes"]
    assert [one.authority for one in read_notices(inspected(OOMKilled=True, ExitCode=137).encode())] == ["docker"]


@pytest.mark.parametrize("text", ["[rank0]: step 1\n", "\n[2026-11-29 13:29:01] step 1\n"])
def test_a_log_that_begins_with_a_bracket_is_no_document(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a document it would be read line by line by every reader: ten seconds for 1.5 MB."""
    monkeypatch.setattr(notices, "_of_document", lambda *_: pytest.fail("read as a document"))
    [found] = read_notices((text + "slurmstepd: error: Detected 1 oom_kill event in StepId=7.0.\n").encode())
    assert found.kind == "oom"
