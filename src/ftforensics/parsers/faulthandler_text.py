"""The text that CPython's faulthandler writes (Python/traceback.c, `_Py_DumpTraceback` and its callers, 3.10 to 3.14).

Current thread 0x00007f12 [worker] (most recent call first):
  File "train.py", line 88 in step
  ...
"""

from __future__ import annotations

import re

from ftforensics.model.case import PythonFrame, PythonThread

# "Stack" heads a dump of the current thread alone. Thread names appeared in 3.14.
_HEADING = re.compile(
    r"^(?:Stack|(?P<current>Current )?[Tt]hread 0x(?P<ident>[0-9a-fA-F]+)(?: \[(?P<name>.*)\])?)"
    r" \(most recent call first\):"
)
# File names come between quotes unescaped, so the last `", line` is the separator; `???` has no quotes.
_FRAME = re.compile(r'^  File (?:"(?P<file>.*)"|\?\?\?), line (?P<line>\d+|\?\?\?) in (?P<function>.*)$')
_OTHER_SECTION = re.compile(r"^(Extension modules:|.*C stack trace \(most recent call first\):|Fatal Python error:)")
_CUT = ("...", "<truncated rest of calls>")


def parse_faulthandler(text: str) -> list[PythonThread]:
    """The threads of a dump in its order; a text cut anywhere gives what was complete."""
    threads: list[PythonThread] = []
    thread: _Thread | None = None
    whole, _, torn = text.rpartition("\n")  # every line of a dump ends in a newline
    for line in whole.split("\n"):
        heading = _HEADING.match(line)
        if heading:
            if thread is not None:
                threads.append(thread.finished())
            thread = _Thread(heading)
        elif thread is None:
            continue
        elif _OTHER_SECTION.match(line) or line == "...":  # "...": more threads than faulthandler prints (100)
            threads.append(thread.finished())
            thread = None
        elif line.startswith("  "):
            thread.add(line)
    if thread is not None:
        thread.truncated |= bool(torn)
        threads.append(thread.finished())
    return threads


class _Thread:
    def __init__(self, heading: re.Match[str]) -> None:
        ident = heading["ident"]
        self.ident = int(ident, 16) if ident else None
        self.name: str | None = heading["name"]
        self.current = ident is None or heading["current"] is not None
        self.frames: list[PythonFrame] = []
        self.notes: list[str] = []
        self.truncated = False

    def add(self, line: str) -> None:
        frame = _FRAME.match(line)
        if frame:
            number, function = frame["line"], frame["function"]
            self.frames.append(
                PythonFrame(
                    file=frame["file"],
                    line=int(number) if number.isdigit() and len(number) < 10 else None,
                    function=None if function == "???" else function,
                )
            )
        elif line.strip() in _CUT:
            self.truncated = True
        elif not line.startswith("  File "):  # such a line was cut by the end of the text
            self.notes.append(line.strip())

    def finished(self) -> PythonThread:
        return PythonThread(self.ident, self.name, self.current, self.frames, self.truncated, self.notes)
