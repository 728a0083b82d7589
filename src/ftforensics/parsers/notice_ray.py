"""Ray's memory monitor: it kills a worker before the kernel has to.

Ray's other words about a lost worker (connection error code 2, a list of potential root causes, "may have exceeded K8s
pod memory limits") are guesses about a death it did not cause, and no notice.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from msgspec.structs import replace

from ftforensics.model.notice import Notice
from ftforensics.parsers.notice_line import NoticeLine, notice_lines

ANCHORS = (
    "which exceeds the memory usage threshold of ",
    "Ray killed ",
    "killed due to memory pressure (OOM)",
    "Top 10 memory users",
)

# 2.2 on; "task", "actor" or, lately, "lease". A name may hold anything but ends before ", pid=".
_ON_NODE = re.compile(
    r"Memory on the node (?:\(IP: (?P<host>[0-9a-fA-F.:]{2,45})(?:, ID: \w{1,80})?\) )?"
    r"(?:where the \w{1,12} (?P<victim>\(.{0,600}?\) )?was running )?was"
    r" (?P<how>[\d.]{1,12}GB / [\d.]{1,12}GB \([\d.]{1,12}\)), which exceeds the memory usage threshold of [\d.]{1,12}"
)
_PID = re.compile(r"pid=(\d{1,10}), memory used=([\d.]{1,12})GB")
_WORKER = re.compile(r"Ray killed this worker \(ID: (\w{1,80})\)")
# Newer versions choose several and list them behind.
_SEVERAL = re.compile(r"Ray killed (?P<count>\d{1,6}) worker\(s\) based on the killing policy")
_LISTED = re.compile(r"pid=(\d{1,10}), (?:[^()]{1,300}, )?actual memory used=([\d.]{1,12})GB")
_SUMMARY = re.compile(
    r"(?P<count>\d{1,7}) Workers \(tasks / actors\) killed due to memory pressure \(OOM\)"
    r"(?:.{0,300}?IP: (?P<host>[0-9a-fA-F.:]{2,45}))?"
)
_USER = re.compile(r"(?P<pid>\d{1,10})\s+(?P<used>\d{1,7}\.\d{1,4})\s+(?P<command>\S.{0,200})$")
_TOP_ROWS = 10
_SHOWN_USERS = 3


def read_ray(text: str, path: str | None = None) -> list[Notice]:
    return read_ray_lines(notice_lines(text), path)


def read_ray_lines(lines: Iterable[NoticeLine], path: str | None) -> list[Notice]:
    notices: list[Notice] = []
    rows = 0  # of a table of memory users that may still come
    users: list[str] = []
    for line in lines:
        notices.extend(_of_line(line, path))
        if "Top 10 memory users" in line.text:
            rows, users = _TOP_ROWS + 1, []  # the heading of the table stands below
            continue
        if rows and notices:
            rows -= 1
            user = _USER.search(line.text)
            if user and len(users) < _SHOWN_USERS:
                users.append(f"{user['command'].strip()[:60]} (pid {user['pid']}) {user['used']} GB")
                said = notices[-1].reason or ""
                head = said.partition("; top memory users: ")[0]
                notices[-1] = replace(notices[-1], reason=f"{head}; top memory users: {', '.join(users)}")
    return notices


def _of_line(line: NoticeLine, path: str | None) -> Iterator[Notice]:
    text = line.text
    cite = line.cite("ray", path)
    node = _ON_NODE.search(text)
    if node:
        named = _PID.search(node["victim"] or "")
        worker = _WORKER.search(text)
        listed = _LISTED.findall(text)
        several = _SEVERAL.search(text)
        base = Notice(
            "ray", "killed", cite, moment=line.moment, signal=9, host=node["host"] or line.host, reason=node["how"]
        )
        if listed:
            for pid, used in listed[:64]:
                yield replace(base, pid=int(pid), rss=_bytes(used))
        elif named:
            yield replace(base, pid=int(named[1]), rss=_bytes(named[2]), unit=worker[1] if worker else None)
        else:
            unit = worker[1] if worker else None
            yield replace(base, unit=unit, count=int(several["count"]) if several else None)
        return
    several = _SEVERAL.search(text)
    if several:
        base = Notice("ray", "killed", cite, moment=line.moment, signal=9, host=line.host)
        for pid, used in _LISTED.findall(text)[:64]:
            yield replace(base, pid=int(pid), rss=_bytes(used))
        return
    summary = _SUMMARY.search(text)
    if summary and int(summary["count"]):
        yield Notice(
            "ray",
            "killed",
            cite,
            moment=line.moment,
            signal=9,
            count=int(summary["count"]),
            host=summary["host"] or line.host,
            reason="memory pressure",
        )


def _bytes(gigabytes: str) -> int | None:
    """Ray's GB are 2**30 bytes."""
    try:
        return int(float(gigabytes) * (1 << 30))
    except ValueError:
        return None
