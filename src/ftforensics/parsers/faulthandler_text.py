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
    r"^(?:Stack|(?P<current>Current )?[Tt]hread 0x(?P<ident>[0-9a-fA-F]+)(?: \[(?P<name>.*)\])?) \(most recent call first\):"
)
# File names come between quotes unescaped, so the last `", line` is the separator; `???` has no quotes.
_FRAME = re.compile(r'^  File (?:"(?P<file>.*)"|\?\?\?), line (?P<line>\d+|\?\?\?) in (?P<function>.*)$')
_OTHER_SECTION = re.compile(r"^(Extension modules:|.*C stack trace \(most recent call first\):|Fatal Python error:)")
_CUT = ("...", "<truncated rest of calls>")


def parse_faulthandler(text: str) -> list[PythonThread]:
    """The threads of a dump in its order; a text cut anywhere gives what was complete."""
    threads: list[PythonThread] = []
    inside = False
    for line in text.split("\n"):
        heading = _HEADING.match(line)
        if heading:
            ident = heading["ident"]
            threads.append(
                PythonThread(
                    ident=int(ident, 16) if ident else None,
                    name=heading["name"],
                    current=ident is None or heading["current"] is not None,
                    frames=[],
                    notes=[],
                )
            )
            inside = True
        elif _OTHER_SECTION.match(line):
            inside = False
        elif inside and line.startswith("  "):
            threads[-1] = _with_line(threads[-1], line)
        elif line == "..." and threads:
            break  # more threads than faulthandler prints (100)
    return threads


def _with_line(thread: PythonThread, line: str) -> PythonThread:
    frame = _FRAME.match(line)
    frames, notes, truncated = thread.frames, thread.notes, thread.truncated
    if frame:
        number, function = frame["line"], frame["function"]
        frames = [
            *frames,
            PythonFrame(
                file=frame["file"],
                line=int(number) if number.isdigit() else None,
                function=None if function == "???" else function,
            ),
        ]
    elif line.strip() in _CUT:
        truncated = True
    elif not line.startswith("  File "):
        notes = [*notes, line.strip()]
    return PythonThread(thread.ident, thread.name, thread.current, frames, truncated, notes)
