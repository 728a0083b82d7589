"""Many files, read by as many processes as there are processors; the results in the order of the files.

Each share is read by a child that leaves its result in memory of its own and ends. A child that comes to grief costs
time, nothing else: its share is read again here.
"""

from __future__ import annotations

import os
import pickle
import signal
from collections.abc import Callable, Iterator, Sequence
from math import ceil
from typing import BinaryIO, TypeVar

_MOST = 8  # processes; then the disk is what one waits for
_WORTH_IT = 1500  # items; below that to start a process takes longer than it helps
_HANDING_OVER = 0.08  # of a child's time goes into handing over what it read

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


def in_shares(items: Sequence[_Item], work: Callable[[Sequence[_Item]], _Result]) -> list[_Result]:
    """`work` on consecutive shares of the items, in their order. It must not touch what is outside it."""
    count = min(_MOST, len(os.sched_getaffinity(0)), len(items) // _WORTH_IT + 1)
    shares = list(_parts(items, count))
    children: list[tuple[int, BinaryIO]] = []
    try:
        for share in shares[1:]:
            children.append(_started(share, work))
        results = [work(share) for share in shares[:1]]
        for share in shares[1:]:
            pid, answer = children.pop(0)
            with answer:
                _, status = os.waitpid(pid, 0)
                answer.seek(0)
                results.append(pickle.load(answer) if status == 0 else work(share))
        return results
    finally:
        for pid, answer in children:  # an interrupt: nobody waits for them any more
            answer.close()
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def _parts(items: Sequence[_Item], count: int) -> Iterator[Sequence[_Item]]:
    """The first is for this process, which hands its result to nobody: it can do more in the same time."""
    begin, parts = 0, (count - 1) * (1 - _HANDING_OVER) + 1
    for number in range(count):
        done = 1 + number * (1 - _HANDING_OVER)
        end = len(items) if number == count - 1 else min(ceil(len(items) * done / parts), len(items))
        if end > begin:
            yield items[begin:end]
        begin = max(end, begin)


def _started(share: Sequence[_Item], work: Callable[[Sequence[_Item]], _Result]) -> tuple[int, BinaryIO]:
    answer = os.fdopen(os.memfd_create("ftforensics-share"), "w+b")
    pid = os.fork()
    if pid:
        return pid, answer
    status = 1
    try:
        pickle.dump(work(share), answer, pickle.HIGHEST_PROTOCOL)
        answer.flush()
        status = 0
    finally:
        os._exit(status)
