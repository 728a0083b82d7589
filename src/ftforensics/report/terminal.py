"""The report in a terminal.

The first lines say what happened, how sure that is and what to do. Then the evidence, each piece with its place, what
speaks against, and what could not be seen. `verbose` adds the numbers. Only the verdict's confidence is coloured.

The text is built from `rich.text.Text` objects, never from markup, so `[red]` in a thread name stays `[red]`. Every
foreign string passes `escape.printable` here.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence

import msgspec
from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from ftforensics.causes.blame import is_library_code
from ftforensics.causes.sizes import size_text, time_text
from ftforensics.model.basics import Cite, Gap
from ftforensics.model.crash import CrashRecord
from ftforensics.model.diagnosis import (
    Confidence,
    Diagnosis,
    Finding,
    Frame,
    MemoryHistory,
    ProcessReport,
    ThreadStack,
)
from ftforensics.report import attempts, changes, course, details, fates, memory, plot, raised, ring
from ftforensics.report.escape import printable, shortened
from ftforensics.report.frames import Line, folded, line_of
from ftforensics.report.phrases import (
    LONGEST_EXCERPT,
    analyze_command,
    called_at,
    circumstances,
    confidence_word,
    ended_at,
    ended_well,
    excerpt,
    finding_of_verdict,
    has_fault,
    killed_for_memory,
    name,
    next_step,
    nobody_here,
    place_of,
    record_of_root,
    root,
    summary,
    thefts,
    who,
    with_records,
)

NARROWEST = 40
WIDEST = 118  # longer lines are hard to read, however wide the window is
LABEL = 10  # columns of "Against", "Not seen", ...
MOST_FRAMES = 14  # of a stack, without verbose
MOST_CITES = 8  # of a finding, without verbose
MOST_ATTEMPTS = 4  # lines of the latest, without verbose
MOST_FATES, MOST_FATES_VERBOSE = 8, 60
MOST_MEMBERS = 32  # of one fate, named with verbose
MOST_LINES = 200  # of anything that a hostile or huge input could make endless, with verbose
MOST_RECORDS = 16  # whose numbers verbose shows
ROOMY, WIDE, HIGH_WINDOW = 60, 100, 40  # columns, columns and lines from which a plot has several rows
MIDDLE, TALL = 4, 8  # rows of it
# Where else evidence about an end can come from, as gaps name it.
WITNESSES = frozenset(
    (
        "cgroup", "container", "journal", "kernel log", "kmsg", "machine", "meminfo", "process events", "psi", "shm",
        "slurm", "this machine", "trace", "vmstat",
    )
)  # fmt: skip
COLOURS = {"PROVEN": "bold green", "LIKELY": "bold yellow", "UNDECIDED": "bold magenta"}


class View(msgspec.Struct, frozen=True):
    """width, height: columns and lines of the terminal, height None when it is none; colour: may the verdict be
    coloured; path: what `analyze` was given, for the last line; verbose: show the numbers; ascii: draw without block
    characters, because the output's encoding has none (`plot.drawable`)."""

    width: int = 80
    colour: bool = False
    verbose: bool = False
    path: str | None = None
    height: int | None = None
    ascii: bool = False


def render(diagnosis: Diagnosis, view: View, records: Sequence[CrashRecord] = ()) -> str:
    """The whole report, with a final line feed. records: the crash records it was made from, in the order of the
    processes that left one; they supply what verbose shows and the last words of the process."""
    page = Page(view)
    _head(page, diagnosis)
    if ended_well(diagnosis) and not view.verbose:
        _attempts(page, diagnosis)
        return page.text()
    if raised.is_raised(diagnosis):
        if view.verbose or not nobody_here(diagnosis):  # where the innocent heard of it is no place to look
            _where_it_was_raised(page, diagnosis)
    elif not ended_well(diagnosis):
        _where_it_died(page, diagnosis, records)
    _evidence(page, diagnosis)
    _last_minute(page, diagnosis)
    _last_second(page, diagnosis)
    _why(page, diagnosis)
    _fates(page, diagnosis)
    _course(page, diagnosis)
    _changes(page, diagnosis)
    _attempts(page, diagnosis)
    _not_seen(page, diagnosis)
    if view.verbose:
        _numbers(page, diagnosis, records)
    _last(page, diagnosis)
    return page.text()


class Page:
    """Lines being laid out. `wide` is the width in use."""

    def __init__(self, view: View) -> None:
        self.view = view
        self.wide = max(NARROWEST, min(view.width, WIDEST))
        self._lines: list[Text] = []
        # The console measures and wraps; it never prints to the real terminal.
        self._console = Console(
            file=io.StringIO(), width=self.wide, force_terminal=False, color_system=None, legacy_windows=False
        )

    def text(self) -> str:
        out = io.StringIO()
        console = Console(
            file=out,
            width=10_000,  # everything is wrapped by now, and a path that is too long must stay one word
            force_terminal=self.view.colour,
            color_system="standard" if self.view.colour else None,
            no_color=not self.view.colour,
            legacy_windows=False,
            _environ={},  # NO_COLOR and friends were weighed by the command line
        )
        for line in self._lines:
            line.rstrip()
            console.print(line, no_wrap=True, crop=False, overflow="ignore", soft_wrap=True)
        return out.getvalue()

    def line(self, text: str | Text = "") -> None:
        self._lines.append(Text(text) if isinstance(text, str) else text)

    def blank(self) -> None:
        if self._lines and self._lines[-1].plain:
            self.line()

    def wrapped(self, text: str, width: int) -> list[str]:
        return [piece.plain.rstrip() for piece in Text(text).wrap(self._console, max(width, 10))] or [""]

    def hanging(self, first: str, text: str, *, right: str = "") -> None:
        """`text` behind `first`, continued below it; `right` at the right edge of the last line, where it fits."""
        indent = " " * cell_len(first)
        text, right = shortened(text, 4 * LONGEST_EXCERPT), shortened(right, LONGEST_EXCERPT)
        pieces = self.wrapped(text, self.wide - cell_len(first))
        lines = [(first if number == 0 else indent) + piece for number, piece in enumerate(pieces)]
        if right and cell_len(lines[-1]) + 3 + cell_len(right) <= self.wide:
            lines[-1] = self.edge(lines[-1], right)
        elif right and cell_len(indent) + cell_len(right) <= self.wide:
            lines.append(" " * (self.wide - cell_len(right)) + right)
        elif right:
            lines.extend(indent + piece for piece in self.wrapped(right, self.wide - cell_len(indent)))
        for line in lines:
            self.line(line)

    def edge(self, left: str, right: str) -> str:
        return left + " " * max(3, self.wide - cell_len(left) - cell_len(right)) + right

    def heading(self, text: str, right: str = "") -> None:
        self.blank()
        text, right = shortened(text, LONGEST_EXCERPT), shortened(right, LONGEST_EXCERPT)
        if not right:
            self.hanging("", text)
        elif cell_len(text) + cell_len(right) + 3 <= self.wide:
            self.line(self.edge(text, right))
        else:
            self.hanging("", text)
            self.hanging("  ", right)

    def command(self, first: str, text: str) -> None:
        """Something to copy: never wrapped, because a wrapped command copies with a line feed in it."""
        if cell_len(first) + cell_len(text) <= self.wide:
            self.line(first + text)
        else:
            if first.strip():
                self.line(first.rstrip())
            self.line("    " + text)


def _head(page: Page, diagnosis: Diagnosis) -> None:
    word = confidence_word(diagnosis)
    pieces = page.wrapped(summary(diagnosis), page.wide - len(word) - 3)
    first = Text(page.edge(pieces[0], word) if word else pieces[0])
    if style := COLOURS.get(word):
        first.stylize(style, len(first) - len(word))
    page.line(first)
    for piece in pieces[1:]:
        page.line("  " + piece)
    if ended_well(diagnosis):
        return
    if nobody_here(diagnosis):
        page.hanging("  ", fates.witnesses(diagnosis))
    elif process := root(diagnosis):
        page.hanging("  ", ", ".join([who(process), *circumstances(process)]))
    mendable = diagnosis.verdict.confidence != "undecided" and not nobody_here(diagnosis)
    step = next_step(diagnosis)
    if diagnosis.remedies:
        remedy = diagnosis.remedies[0]
        page.hanging("  Fix: " if mendable else "  Cheapest next step: ", excerpt(remedy.text))
        if remedy.command:
            page.command("       ", printable(remedy.command))
    elif step:
        page.hanging("  Cheapest next step: ", step)
    else:
        page.hanging("  ", "No remedy is known for this; the evidence follows.")


def _where_it_died(page: Page, diagnosis: Diagnosis, records: Sequence[CrashRecord]) -> None:
    process = root(diagnosis)
    record = record_of_root(diagnosis, records)
    mechanism = printable(diagnosis.verdict.mechanism or "")
    if not record and not has_fault(diagnosis):
        return
    signal = details.signal_line(record.signal, record.process) if record and record.signal else ""
    shown = ", ".join(part for part in (mechanism, signal) if part)
    page.heading("Where it died", f"mechanism: {shown}" if mechanism else shown)
    if process and process.stack:
        stack(page, process.stack)
    else:
        page.hanging("  ", "no stack of the crashing thread could be read")
    if record:
        said = _said(diagnosis)
        for label, text in details.last_words(record):
            if page.view.verbose or text not in said:
                page.hanging(f"  {label}: ", text)


def _where_it_was_raised(page: Page, diagnosis: Diagnosis) -> None:
    process = root(diagnosis)
    if process is None:
        return
    own = process.raised[0] if process.raised else None
    page.heading("Where it was raised", name(own.type) if own else "")
    said = _said(diagnosis)
    if own and own.message and (page.view.verbose or excerpt(own.message) not in said):
        page.hanging("  ", excerpt(own.message, 4 * LONGEST_EXCERPT if page.view.verbose else LONGEST_EXCERPT))
    frames = raised.frames(process)
    if frames:
        stack(page, frames)
    else:
        page.line("  no traceback was kept")
    origins = raised.origins(process)
    most = len(origins) if page.view.verbose else raised.MOST_ORIGINS
    for origin in origins[:most]:
        place = called_at(origin.place) if origin.place and not page.view.verbose else ""
        page.hanging("  ", origin.words, right=place)
        if page.view.verbose:
            stack(page, origin.frames, indent="    ")
    if len(origins) > most:
        page.line(f"  ... {len(origins) - most} more; -v shows all")


def _said(diagnosis: Diagnosis) -> str:
    """What the verdict and its evidence say anyway."""
    finding = finding_of_verdict(diagnosis)
    return "\n".join([summary(diagnosis), *(excerpt(cite.text) for cite in (finding.supports if finding else []))])


def stack(page: Page, frames: Sequence[Frame], indent: str = "  ") -> None:
    """Innermost first, repeats folded, cut to what matters unless verbose."""
    rows: list[Line | str] = []
    # Of a traceback only one's own lines are of interest; in a stack with native frames any may be the one that counts.
    short = not page.view.verbose and all(frame.python for frame in frames)
    for piece in raised.pieces(frames) if short else [raised.Piece(list(frames))]:
        if piece.libraries:
            of = raised.packages(piece.frames) or "libraries"
            rows.append(f"... {len(piece.frames)} lines of {of}; -v shows all")
            continue
        for fold in folded(piece.frames):
            rows.extend(line_of(frame, full=page.view.verbose) for frame in fold.frames)
            if fold.times > 1:
                size = len(fold.frames)
                over = "the line above" if size == 1 else f"the {size} lines above"
                rows.append(f"... {over}, {fold.times} times in all")
    if not page.view.verbose and len(rows) > MOST_FRAMES + 4:  # leaving out two or three helps nobody
        rows = _cut(rows, frames)
    lines = [row for row in rows if isinstance(row, Line)]
    # Names get what the places leave, within reason; a long name is cut in the middle rather than wrapped.
    longest_place = max((cell_len(row.place) for row in lines), default=0)
    longest_name = max((cell_len(row.name) for row in lines), default=0)
    names = min(longest_name, max(page.wide - len(indent) - 2 - longest_place, (page.wide - len(indent) - 2) * 3 // 5))
    for row in rows:
        if isinstance(row, str):
            page.line(indent + row)
            continue
        name = shortened(row.name, 4 * LONGEST_EXCERPT) if page.view.verbose else fitted(row.name, names)
        gap = " " * max(2, names - cell_len(name) + 2)
        room = page.wide - len(indent) - cell_len(name) - len(gap)
        place = shortened(row.place, 4 * LONGEST_EXCERPT)
        if row.remark:
            remark = f"({row.remark})"
            place = place if page.view.verbose else fitted(place, max(room - len(remark) - 2, 8))
            place = f"{place}  {remark}".lstrip()
        if page.view.verbose and cell_len(place) > room:
            page.line(indent + name)
            page.line(indent + "    " + place)
        else:
            page.line(f"{indent}{name}{gap}{fitted(place, room)}" if place else indent + name)


def fitted(text: str, columns: int) -> str:
    """`shortened`, in columns of the screen: a CJK character takes two."""
    limit = columns
    while cell_len(shown := shortened(text, limit)) > columns:
        limit -= 1
    return shown


def _cut(rows: list[Line | str], frames: Sequence[Frame]) -> list[Line | str]:
    """The innermost lines, and the user's own Python lines from the rest: between them lies library machinery."""
    head = rows[: MOST_FRAMES - 4]
    own = [line_of(frame) for frame in frames if frame.python and not is_library_code(frame.file or "")]
    rest = rows[len(head) :]
    tail = [row for row in rest if isinstance(row, Line) and row in own][:3]
    left_out = len(rest) - len(tail)
    return [*head, f"... {left_out} more; -v shows all" + (", and of your own code:" if tail else ""), *tail]


def _evidence(page: Page, diagnosis: Diagnosis) -> None:
    finding = finding_of_verdict(diagnosis)
    decided = diagnosis.verdict.confidence != "undecided"
    page.blank()
    if finding:
        _cites(page, "For" if decided else "Known", finding.supports)
        if finding.against:
            _cites(page, "Against", finding.against)
        elif decided:
            page.line(f"{'Against':<{LABEL}}nothing found")
    elif decided and diagnosis.verdict.cause:
        page.line(f"{'For':<{LABEL}}no single line says it; see what was seen below")
    others = [other for other in diagnosis.hypotheses if other is not finding]
    noted = [other for other in others if other.confidence is not Confidence.RULED_OUT]
    _hypotheses(page, "Noted" if decided else "Possible", noted)
    if process := root(diagnosis):
        label = "" if noted and decided else "Noted"
        for theft in thefts(process):
            page.hanging(f"{label:<{LABEL}}", theft)
            label = ""
    _hypotheses(page, "Excluded", [other for other in others if other.confidence is Confidence.RULED_OUT])


def _cites(page: Page, label: str, cites: Sequence[Cite]) -> None:
    cites = list(dict.fromkeys(cites))
    most = MOST_LINES if page.view.verbose else MOST_CITES
    for number, cite in enumerate(cites[:most]):
        page.hanging(f"{label if number == 0 else '':<{LABEL}}", excerpt(cite.text), right=place_of(cite))
    if len(cites) > most:
        page.line(f"{'':<{LABEL}}... {len(cites) - most} more; {_rest(page, len(cites))}")


def _rest(page: Page, count: int) -> str:
    """Where those are that had no room."""
    if page.view.verbose:
        return "--json has all"
    return "-v shows all" if count <= MOST_LINES else "-v shows more"


def _hypotheses(page: Page, label: str, findings: Sequence[Finding]) -> None:
    for number, finding in enumerate(findings):
        first = f"{label if number == 0 else '':<{LABEL}}"
        cause = name(finding.cause)
        excluded = finding.confidence is Confidence.RULED_OUT
        cause = f"{cause}: " if excluded else f"{cause} ({finding.confidence.value}): "
        page.hanging(first, cause + excerpt(finding.summary))
        cites = finding.against if excluded else finding.supports
        # One look often excludes several: it stands once, below the last of them.
        following = findings[number + 1] if number + 1 < len(findings) else None
        if excluded and following is not None and following.against == cites:
            continue
        most = len(cites) if page.view.verbose else 2
        for cite in cites[:most]:
            page.hanging(" " * (LABEL + 2), excerpt(cite.text), right=place_of(cite))
        if not excluded:
            # What speaks against a guess is what keeps it one.
            for cite in finding.against[: None if page.view.verbose else 1]:
                page.hanging(" " * (LABEL + 2) + "against: ", excerpt(cite.text), right=place_of(cite))


def _why(page: Page, diagnosis: Diagnosis) -> None:
    for why in diagnosis.verdict.why:
        page.heading(f"Why it came to that: {printable(why.cause)}", why.confidence.value)
        _cites(page, "For", why.supports)


def _last_minute(page: Page, diagnosis: Diagnosis) -> None:
    process = root(diagnosis)
    history = process.memory if process else None
    if process is None or history is None or not (page.view.verbose or _memory_matters(diagnosis)):
        return
    # Without samples the figures are those of the kernel's record: of the limit's group, not of this process.
    page.heading(memory.title(history), printable(history.quantity) if history.points else "")
    if scale := plot.scale_of(history):
        _plot(page, history, scale)
    for sentence in memory.sentences(history, len(history.holders) if page.view.verbose else memory.MOST_HOLDERS):
        page.hanging("  ", sentence)
    if age := memory.last_sample(history):
        page.hanging("  ", age, right=printable((history.ring or "").rpartition("/")[2]))


def _memory_matters(diagnosis: Diagnosis) -> bool:
    """It was killed for memory, or may have been; a fault has its own place to look at."""
    return killed_for_memory(diagnosis) or (diagnosis.verdict.confidence == "undecided" and not has_fault(diagnosis))


def _plot(page: Page, history: MemoryHistory, scale: plot.Scale) -> None:
    """One row beside its words, or several below a line for the limit."""
    left, right = f"-{time_text(scale.span)}", "0"
    top = f"limit {size_text(scale.top)}" if scale.limited else size_text(scale.top)
    view = page.view
    if page.wide < ROOMY and not view.verbose:
        height = 1
    else:
        height = TALL if view.verbose else MIDDLE if (view.height or 0) >= HIGH_WINDOW and view.width >= WIDE else 1
    if height == 1:
        beside = f" {right}  {plot.PLAIN_LINE[-1] if view.ascii else plot.BLOCKS[-1]} = {top}"
        width = page.wide - 2 - len(left) - 1 - len(beside)
        page.line(f"  {left} {plot.rows(history.points, scale, width, 1, ascii=view.ascii)[0]}{beside}")
        return
    margin = max(len(top), len(left)) + 3
    width = page.wide - margin
    mark = (plot.PLAIN_LIMIT_MARK if view.ascii else plot.LIMIT_MARK) * width
    page.line(f"  {top:>{margin - 3}} {mark if scale.limited else ''}")
    for row in plot.rows(history.points, scale, width, height, ascii=view.ascii):
        page.line(" " * margin + row)
    page.line(" " * margin + left + " " * (width - len(left) - len(right)) + right)


def _last_second(page: Page, diagnosis: Diagnosis) -> None:
    process = root(diagnosis)
    last = process.last_second if process else None
    if process is None or last is None:
        return
    unseen = not process.exit.signal and process.exit.code is None and not process.record
    if not (page.view.verbose or unseen or killed_for_memory(diagnosis)):
        return
    page.heading("The last second", "group: usage of the memory group")
    for first, rest in ring.lines(process, last, page.wide):
        if rest:
            page.hanging(first, rest)
        else:
            page.line(first)


def _fates(page: Page, diagnosis: Diagnosis) -> None:
    table = fates.table(diagnosis, MOST_FATES_VERBOSE if page.view.verbose else MOST_FATES)
    if table is None:
        return
    page.heading(table.title, table.of)
    roles = max(len(name(fate.role)) for fate in table.fates)
    for fate in table.fates:
        # The narrow column first: whose it is may take a line and more.
        page.hanging(f"  {name(fate.role):<{roles}}  {'  ' if fate.below else ''}", f"{fate.who}: {fate.how}")
        if page.view.verbose:
            _members(page, fate, fates.first_time(diagnosis))
    if table.left_out:
        more = "" if page.view.verbose else "; -v shows more"
        page.hanging("  ", f"... {table.left_out} more kinds of end, of {table.left_out_members} processes{more}")


def _members(page: Page, fate: fates.Fate, began: float | None) -> None:
    """Each with the reason of its role; a reason that all share stands once."""
    reasons = {member.reason for member in fate.members}
    shared = len(reasons) == 1
    if shared and (reason := fate.members[0].reason):
        page.hanging("      because: ", excerpt(reason.text), right=place_of(reason))
    if shared and len(fate.members) == 1:
        return
    for process in fate.members[:MOST_MEMBERS]:
        page.hanging("      ", who(process) + fates.later([process], began))
        if process.reason and not shared:
            page.hanging("        because: ", excerpt(process.reason.text), right=place_of(process.reason))
    if len(fate.members) > MOST_MEMBERS:
        page.hanging("      ", f"... {len(fate.members) - MOST_MEMBERS} more; --json has all")


def _course(page: Page, diagnosis: Diagnosis) -> None:
    found = course.course(diagnosis, full=page.view.verbose, ascii=page.view.ascii)
    if found is None:
        return
    page.heading("Timeline", f"from the first failure, {found.since}" if found.since else "")
    column = max(cell_len(entry.when) for entry in found.entries) + 4
    for entry in found.entries:
        page.hanging(f"  {entry.when}".ljust(column), entry.text, right=entry.place if page.view.verbose else "")
    if found.left_out:
        page.hanging("  ", f"... {found.left_out} more, farther from the first failure; --json has all")


def _changes(page: Page, diagnosis: Diagnosis) -> None:
    found = diagnosis.changes
    if found is None:
        return
    page.heading(changes.heading(found, ended_at(diagnosis)))
    for line in changes.lines(found, len(found.items) if page.view.verbose else changes.MOST):
        page.hanging("  ", line)


def _attempts(page: Page, diagnosis: Diagnosis) -> None:
    lines = attempts.lines(diagnosis)
    if not lines:
        return
    page.heading("Earlier attempts")
    most = MOST_LINES if page.view.verbose else MOST_ATTEMPTS
    for line in lines[-most:]:
        page.hanging("  - ", line.text)
        # The latest of those alike is enough to look at one of them.
        for path in line.paths[-most:] if page.view.verbose else line.paths[-1:]:
            page.command("    ", analyze_command(path))
    if len(lines) > most:
        more = "" if page.view.verbose else "; -v shows all"
        page.line(f"  ... {len(lines) - most} earlier ones{more}")


def _not_seen(page: Page, diagnosis: Diagnosis) -> None:
    finding = finding_of_verdict(diagnosis)
    gaps = list(dict.fromkeys([*diagnosis.gaps, *(finding.unknown if finding else [])]))
    if not page.view.verbose:
        if diagnosis.verdict.confidence == "proven":
            # An authority has spoken: what the others would have said is for -v.
            gaps = [gap for gap in gaps if gap.source not in WITNESSES]
        # Nothing can be done about a gap without a grant; those that have one come first.
        gaps.sort(key=lambda gap: gap.grant is None)
    most = MOST_LINES if page.view.verbose else 6
    if gaps:
        page.blank()
    for number, gap in enumerate(gaps[:most]):
        _gap(page, "Not seen" if number == 0 else "", gap)
    if len(gaps) > most:
        page.line(f"{'':<{LABEL}}... {len(gaps) - most} more; {_rest(page, len(gaps))}")


def _gap(page: Page, label: str, gap: Gap) -> None:
    page.hanging(f"{label:<{LABEL}}", f"{name(gap.source)}: {excerpt(gap.why)}")
    if gap.grant:
        page.hanging(" " * (LABEL + 2) + "to see it: ", excerpt(gap.grant))


def _last(page: Page, diagnosis: Diagnosis) -> None:
    # The first one stands at the top.
    rest = [remedy for remedy in diagnosis.remedies[1:] if not remedy.settles]
    if rest:
        page.heading("Also worth trying")
        for remedy in rest if page.view.verbose else rest[:4]:
            page.hanging("  - ", excerpt(remedy.text))
            if remedy.command:
                page.command("    ", printable(remedy.command))
    test = next((remedy for remedy in diagnosis.remedies[1:] if remedy.settles), None)
    if test:
        page.blank()
        page.hanging("To settle it: ", excerpt(test.text))
        if test.command:
            page.command("    ", printable(test.command))
    page.blank()
    if diagnosis.verdict.cause:
        page.line(f"More: ftforensics explain {name(diagnosis.verdict.cause)}")
    if page.view.path and not page.view.verbose:
        page.command("All numbers: ", analyze_command(page.view.path, "-v"))


def _numbers(page: Page, diagnosis: Diagnosis, records: Sequence[CrashRecord]) -> None:
    shown_records = with_records(diagnosis, records)
    for number, (record, process) in enumerate(shown_records[:MOST_RECORDS]):
        if len(records) > 1:
            page.heading(f"Record {number + 1} of {len(records)}")
        for heading, lines in details.sections(record, process):
            page.heading(heading)
            for line in lines:
                if cell_len(line) + 2 <= page.wide:
                    page.line("  " + line)  # as it is: columns of registers stay aligned
                else:
                    page.hanging("  ", line)
    if len(shown_records) > MOST_RECORDS:
        page.blank()
        page.hanging(
            "", f"... {len(shown_records) - MOST_RECORDS} more records; ftforensics analyze -v shows one alone"
        )
    left = [process for process in diagnosis.processes if process.threads]
    for shown in left[:MOST_RECORDS]:
        _threads(page, shown, shown.threads, root(diagnosis))


def _threads(page: Page, process: ProcessReport, threads: Iterable[ThreadStack], first: ProcessReport | None) -> None:
    """Threads in the same place are shown once: of 300, 290 wait for the same queue."""
    groups: dict[tuple[Frame, ...], list[ThreadStack]] = {}
    for thread in threads:
        if thread.crashed and thread.frames == process.stack and process is first:
            continue  # it stands at the top
        groups.setdefault(tuple(thread.frames), []).append(thread)
    for frames, members in groups.items():
        names = ", ".join(_thread_name(thread) for thread in members[:12])
        more = f" and {len(members) - 12} more" if len(members) > 12 else ""
        count = "Thread" if len(members) == 1 else f"{len(members)} threads:"
        page.heading(f"{count} {names}{more}, of {who(process)}")
        if frames:
            stack(page, frames)
        else:
            page.line("  no frames")


def _thread_name(thread: ThreadStack) -> str:
    words = [str(thread.tid) if thread.tid is not None else "?", printable(thread.name or "")]
    return " ".join(word for word in words if word) + (" (crashed)" if thread.crashed else "")
