"""earlyoom, from its output or the journal. SIGTERM comes first; SIGKILL at its lower limit, or as an escalation.

"process N exited after" says nothing: earlyoom prints it as well when the kernel was faster.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from msgspec.structs import replace

from ftforensics.model.notice import Notice
from ftforensics.parsers.notice_line import NoticeLine, notice_lines
from ftforensics.parsers.signal_words import signal_of

ANCHORS = ("sending SIG", "killing process ", "escalating to SIGKILL")

# 1.4 on. A name may hold quotes and anything else, so it ends at the last `": ` before the scores.
_SENDING = re.compile(
    r'sending (?P<signal>SIG[A-Z0-9]+) to process (?P<pid>\d{1,10})(?: uid \d{1,10})? "(?P<comm>.{0,64})":'
    r" (?:oom_score|badness) \d{1,6},(?: oom_score_adj -?\d{1,5},)? VmRSS (?P<rss>\d{1,9}) MiB"
)
# Up to 1.3.
_KILLING = re.compile(
    r'killing process (?P<pid>\d{1,10}) "(?P<comm>.{0,64})" with signal (?P<signal>\d{1,2}):'
    r" badness \d{1,6}, VmRSS (?P<rss>\d{1,9}) MiB"
)
_ESCALATING = re.compile(r"escalating to SIGKILL after")


def read_earlyoom(text: str, path: str | None = None) -> list[Notice]:
    return read_earlyoom_lines(notice_lines(text), path)


def read_earlyoom_lines(lines: Iterable[NoticeLine], path: str | None) -> list[Notice]:
    notices: list[Notice] = []
    for line in lines:
        found = _SENDING.search(line.text) or _KILLING.search(line.text)
        if found:
            notices.append(
                Notice(
                    "earlyoom",
                    "killed",
                    line.cite("earlyoom", path),
                    moment=line.moment,
                    pid=int(found["pid"]) or None,
                    comm=found["comm"],
                    signal=signal_of(found["signal"]),
                    host=line.host,
                    rss=int(found["rss"]) << 20,
                )
            )
        elif notices and _ESCALATING.search(line.text) and notices[-1].signal != 9:
            # It watches one process at a time: the one that it had just signalled.
            notices.append(replace(notices[-1], cite=line.cite("earlyoom", path), moment=line.moment, signal=9))
    return notices
