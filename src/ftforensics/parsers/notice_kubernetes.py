"""Kubernetes: `kubectl get pod -o json` (one pod or a list) and `kubectl get events -o json`.

"OOMKilled" is set on the container when its runtime saw an OOM event: a killed child of PID 1 sets it too, and events
get lost, so its absence excludes nothing. An exit code of 137 alone may be the inner shell's.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

from ftforensics.model.basics import Cite
from ftforensics.model.moment import Moment
from ftforensics.model.notice import Notice
from ftforensics.parsers.launcher_line import moment_of
from ftforensics.parsers.notice_line import document_cite

AUTHORITY = "kubernetes"
_NESTED = 3  # lists within lists


class _Terminated(msgspec.Struct):
    exitCode: int | None = None
    signal: int | None = None
    reason: str | None = None
    message: str | None = None
    finishedAt: str | None = None
    containerID: str | None = None


class _ContainerState(msgspec.Struct):
    terminated: _Terminated | None = None


class _Container(msgspec.Struct):
    name: str = ""
    containerID: str | None = None
    state: _ContainerState | None = None
    lastState: _ContainerState | None = None


class _Condition(msgspec.Struct):
    type: str = ""
    status: str = ""
    reason: str | None = None
    message: str | None = None
    lastTransitionTime: str | None = None


class _PodStatus(msgspec.Struct):
    phase: str | None = None
    reason: str | None = None
    message: str | None = None
    containerStatuses: list[_Container] | None = None
    initContainerStatuses: list[_Container] | None = None
    ephemeralContainerStatuses: list[_Container] | None = None
    conditions: list[_Condition] | None = None


class _Metadata(msgspec.Struct):
    name: str = ""
    namespace: str = ""
    uid: str | None = None


class _PodSpec(msgspec.Struct):
    nodeName: str | None = None


class _Pod(msgspec.Struct):
    metadata: _Metadata = msgspec.field(default_factory=_Metadata)
    spec: _PodSpec = msgspec.field(default_factory=_PodSpec)
    status: _PodStatus = msgspec.field(default_factory=_PodStatus)


class _Source(msgspec.Struct):
    host: str | None = None


class _Event(msgspec.Struct):
    reason: str = ""
    message: str | None = None
    note: str | None = None  # events.k8s.io/v1
    involvedObject: _Metadata | None = None
    regarding: _Metadata | None = None
    lastTimestamp: str | None = None
    firstTimestamp: str | None = None
    eventTime: str | None = None
    source: _Source | None = None
    reportingInstance: str | None = None


class _Kind(msgspec.Struct):
    kind: str = ""
    items: list[msgspec.Raw] | None = None


# pod.status.reason, set by the kubelet or a controller.
_POD_REASONS = {
    "Evicted": "evicted",
    "Preempting": "preempted",
    "Preempted": "preempted",
    "DeadlineExceeded": "deadline",
    "NodeLost": "node-failed",
    "NodeShutdown": "stopped",
    "Shutdown": "stopped",
    "Terminated": "stopped",
}
# The condition DisruptionTarget, 1.26 and later.
_DISRUPTIONS = {
    "PreemptionByScheduler": "preempted",
    "PreemptionByKubeScheduler": "preempted",
    "DeletionByTaintManager": "evicted",
    "EvictionByEvictionAPI": "evicted",
    "DeletionByPodGC": "node-failed",
    "TerminationByKubelet": "stopped",
}
_EVENTS = {
    "Evicted": "evicted",
    "TaintManagerEviction": "evicted",
    "Killing": "stopped",
    "Preempted": "preempted",
    "Preempting": "preempted",
    "ExceededGracePeriod": "killed",
    "NodeNotReady": "node-failed",
    "OOMKilling": "oom",  # node-problem-detector: the kernel's line
    "SystemOOM": "oom",  # the kubelet, about the node
    "DeadlineExceeded": "deadline",
}
_RESOURCE = re.compile(r"low on resource: ([\w./-]{1,60})")
_STORAGE = re.compile(r"ephemeral|EmptyDir|local storage", re.IGNORECASE)
_VICTIM = re.compile(
    r"(?:Killed process (?P<pid>\d{1,10}) \((?P<comm>.{0,40}?)\)(?:.{0,80}?anon-rss:(?P<rss>\d{1,15})kB)?"
    r"|victim process: (?P<name>.{0,40}?), pid: (?P<number>\d{1,10}))"
)


def read_kubernetes(text: str, path: str | None = None) -> list[Notice]:
    return list(_of_document(text, path, "", 0))


def _of_document(text: str | msgspec.Raw, path: str | None, where: str, depth: int) -> Iterator[Notice]:
    try:
        document = msgspec.json.decode(text, type=_Kind)
        if document.kind == "Pod":
            yield from _of_pod(msgspec.json.decode(text, type=_Pod), path, where)
        elif document.kind == "Event":
            yield from _of_event(msgspec.json.decode(text, type=_Event), path, where)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return
    if document.kind.endswith("List") and depth < _NESTED:
        for at, item in enumerate(document.items or []):
            yield from _of_document(item, path, f"{where}items[{at}].", depth + 1)


def _of_pod(pod: _Pod, path: str | None, where: str) -> Iterator[Notice]:
    status, node = pod.status, pod.spec.nodeName
    name = f"{pod.metadata.namespace}/{pod.metadata.name}"
    for key in ("initContainerStatuses", "containerStatuses", "ephemeralContainerStatuses"):
        containers: list[_Container] = getattr(status, key) or []
        for at, container in enumerate(containers):
            for of, state in (("lastState", container.lastState), ("state", container.state)):
                ended = state.terminated if state else None
                if ended is not None:
                    said = f"{name} container {container.name}: {ended.reason}, exitCode {ended.exitCode}"
                    cite = document_cite(AUTHORITY, path, f"{where}status.{key}[{at}].{of}.terminated", said)
                    yield _terminated(ended, container, name, node, cite)
    kind = _POD_REASONS.get(status.reason or "")
    if kind is not None:
        yield Notice(
            AUTHORITY,
            kind,
            document_cite(AUTHORITY, path, f"{where}status.reason", f"{name}: {status.reason}: {status.message or ''}"),
            unit=name,
            state=status.phase,
            reason=_resource(status.message) if kind == "evicted" else status.message,
            host=node,
        )
        return
    for at, condition in enumerate(status.conditions or []):
        kind = _DISRUPTIONS.get(condition.reason or "")
        if condition.type == "DisruptionTarget" and condition.status == "True" and kind is not None:
            said = f"{name}: {condition.reason}: {condition.message or ''}"
            yield Notice(
                AUTHORITY,
                kind,
                document_cite(AUTHORITY, path, f"{where}status.conditions[{at}]", said),
                moment=moment_of(condition.lastTransitionTime or ""),
                unit=name,
                reason=_resource(condition.message) if kind == "evicted" else condition.reason,
                host=node,
            )


def _terminated(ended: _Terminated, container: _Container, pod: str, node: str | None, cite: Cite) -> Notice:
    identity = (ended.containerID or container.containerID or "").rpartition("//")[2]
    return Notice(
        AUTHORITY,
        "oom" if ended.reason == "OOMKilled" else "state",
        cite,
        moment=moment_of(ended.finishedAt or ""),
        unit=identity or f"{pod}/{container.name}",
        state=ended.reason,
        reason=ended.message[:300] if ended.message else None,
        exit_code=ended.exitCode,
        signal=ended.signal or None,
        host=node,
    )


def _of_event(event: _Event, path: str | None, where: str) -> Iterator[Notice]:
    kind = _EVENTS.get(event.reason)
    if kind is None:
        return
    about = event.involvedObject or event.regarding or _Metadata()
    message = (event.message or event.note or "").strip()
    victim = _VICTIM.search(message) if kind == "oom" else None
    moment = Moment()
    for stamp in (event.lastTimestamp, event.eventTime, event.firstTimestamp):
        if stamp and moment.realtime is None:
            moment = moment_of(stamp)
    yield Notice(
        AUTHORITY,
        kind,
        document_cite(AUTHORITY, path, f"{where}message", f"{event.reason}: {message}"),
        moment=moment,
        pid=int(victim["pid"] or victim["number"]) if victim else None,
        comm=(victim["comm"] or victim["name"]) if victim else None,
        unit=f"{about.namespace}/{about.name}" if about.namespace else about.name or None,
        reason=_resource(message) if kind == "evicted" else message[:300] or None,
        host=(event.source.host if event.source else None) or event.reportingInstance,
        rss=int(victim["rss"]) * 1024 if victim and victim["rss"] else None,
    )


def _resource(message: str | None) -> str | None:
    """Which resource ran out, of an eviction's message; else the message."""
    if not message:
        return None
    found = _RESOURCE.search(message)
    if found:
        return found[1].rstrip(".")
    return "ephemeral-storage" if _STORAGE.search(message) else message[:300]
