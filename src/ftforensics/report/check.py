"""What `ftforensics check` found, as a table in the terminal.

First whether a run can start and what to do about it, then every check by topic, each with its place. As in the other
reports every foreign string passes `escape.printable`, and a command is never wrapped.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.cells import cell_len
from rich.text import Text

from ftforensics.model.basics import Cite
from ftforensics.model.diagnosis import Remedy
from ftforensics.model.preflight import Check, Preflight, Status, Subject
from ftforensics.report.escape import printable
from ftforensics.report.terminal import Page, View

TOPICS = ("driver", "wheel", "libraries", "machine", "data", "capture", "distributed")
WORDS = {Status.OK: "ok", Status.WARN: "WARN", Status.FAIL: "FAIL", Status.UNKNOWN: "?"}
COLOURS = {Status.WARN: "bold yellow", Status.FAIL: "bold red", Status.UNKNOWN: "bold"}
MARK = 6  # columns of the status
MOST_REMEDIES = 3  # of a check, without verbose
LEAST_TEXT = 34  # columns; with fewer, the text stands below the name


def render(preflight: Preflight, view: View) -> str:
    """The whole table, with a final line feed."""
    page = Page(view)
    _head(page, preflight)
    for topic in (*TOPICS, *_others(preflight.checks)):
        _topic(page, topic, [check for check in preflight.checks if check.topic == topic])
    _advice(page, preflight)
    _last(page, preflight)
    return page.text()


def _head(page: Page, preflight: Preflight) -> None:
    counts = {status: sum(check.status is status for check in preflight.checks) for status in Status}
    fails, warns, unknown = counts[Status.FAIL], counts[Status.WARN], counts[Status.UNKNOWN]
    parts = (
        [f"{fails} of {_plural(len(preflight.checks), 'check')} {'fails' if fails == 1 else 'fail'}"] if fails else []
    )
    if warns:
        parts.append(f"{_plural(warns, 'warning')}")
    if unknown:
        parts.append(f"{unknown} could not be seen")
    text = ", ".join(parts) or f"{_plural(len(preflight.checks), 'check')}, nothing found"
    word, style = ("NOT READY", "bold red") if fails else ("READY", "bold green")
    pieces = page.wrapped(f"{text[:1].upper()}{text[1:]}.", page.wide - len(word) - 3)
    first = Text(page.edge(pieces[0], word))
    first.stylize(style, len(first) - len(word))
    page.line(first)
    for piece in pieces[1:]:
        page.line("  " + piece)
    if subject := _subject(preflight.subject):
        page.hanging("  ", subject)


def _plural(number: int, word: str) -> str:
    return f"{number} {word}{'' if number == 1 else 's'}"


def _subject(subject: Subject) -> str:
    parts = []
    if subject.torch:
        parts.append(f"torch {subject.torch}" + (f" (CUDA {subject.cuda})" if subject.cuda else ""))
    if subject.driver:
        parts.append(f"driver {subject.driver}" + (f" (CUDA {subject.level})" if subject.level else ""))
    parts += list(dict.fromkeys(subject.gpus))[:2]
    if subject.python:
        parts.append(f"Python {subject.python}")
    if subject.prefix:
        parts.append(f"in {subject.prefix}")
    return printable(", ".join(parts))


def _others(checks: Iterable[Check]) -> list[str]:
    return [topic for topic in dict.fromkeys(check.topic for check in checks) if topic not in TOPICS]


def _topic(page: Page, topic: str, checks: Sequence[Check]) -> None:
    if not checks:
        return
    page.heading(printable(topic))
    # The worst first; within one status, the order in which they were looked at.
    order = (Status.FAIL, Status.WARN, Status.UNKNOWN, Status.OK)
    for check in sorted(checks, key=lambda check: order.index(check.status)):
        _row(page, check, max(cell_len(check.name) for check in checks))


def _row(page: Page, check: Check, names: int) -> None:
    word = WORDS[check.status]
    indent = 2 + MARK + names + 2
    beside = page.wide - indent >= LEAST_TEXT
    text = printable(check.said)
    if check.confidence is not None and check.cause is not None and check.status is not Status.OK:
        text = f"{text} ({printable(check.cause)}, {check.confidence.value})"
    if not beside:
        indent = 2 + MARK
    pieces = page.wrapped(text, page.wide - indent)
    head = f"  {word:<{MARK}}{printable(check.name)}"
    first = Text(f"{head:<{indent}}{pieces[0]}" if beside else head)
    if style := COLOURS.get(check.status):
        first.stylize(style, 2, 2 + len(word))
    page.line(first)
    for piece in pieces[1:] if beside else pieces:
        page.line(" " * indent + piece)
    if check.status is not Status.OK:
        _remedies(page, check)
    if page.view.verbose:
        _cites(page, check.supports)


def _remedies(page: Page, check: Check) -> None:
    shown = list(check.remedies) if page.view.verbose else _most_useful(check.remedies)
    for number, remedy in enumerate(shown):
        beside = f"{'':<{2 + MARK}}{printable(remedy.text)}: {printable(remedy.command or '')}"
        if check.status is Status.UNKNOWN and remedy.command and cell_len(beside) <= page.wide:
            page.line(beside)
            continue
        label = _label(check, remedy, number)
        page.hanging(f"{'':<{2 + MARK}}{label}", printable(remedy.text))
        if remedy.command:
            page.line(f"{'':<{2 + MARK + 2}}{printable(remedy.command)}")
    if len(shown) < len(check.remedies):
        page.line(f"{'':<{2 + MARK}}... {len(check.remedies) - len(shown)} more; -v shows all")


def _most_useful(remedies: Sequence[Remedy]) -> list[Remedy]:
    """The first ones, and the test that tells whether the suspicion holds."""
    cures = [remedy for remedy in remedies if not remedy.settles][:MOST_REMEDIES]
    return [*cures, *[remedy for remedy in remedies if remedy.settles][:1]]


def _label(check: Check, remedy: Remedy, number: int) -> str:
    if remedy.settles:
        return "To settle it: "
    if check.status is Status.UNKNOWN:
        return ""
    return "Fix: " if number == 0 else ""


def _cites(page: Page, cites: Sequence[Cite]) -> None:
    for cite in cites:
        place = " ".join(part for part in (printable(cite.source), printable(cite.locator)) if part)
        page.hanging(f"{'':<{2 + MARK}}", printable(cite.text), right=place)


def _advice(page: Page, preflight: Preflight) -> None:
    """With verbose: every torch that fits, one pip line each."""
    if not preflight.advice or not page.view.verbose:
        return
    page.heading("Torch for this driver, GPU and Python")
    for one in preflight.advice:
        page.hanging(
            f"  {one.tier:<{MARK + 1}}", f"torch {one.torch}+{one.index}" + (f": {one.note}" if one.note else "")
        )
        page.line(f"{'':<{2 + MARK + 2}}{printable(one.command)}")


def _last(page: Page, preflight: Preflight) -> None:
    causes = [one.cause for one in preflight.causes]
    if causes:
        page.blank()
        page.line(f"ftforensics explain {printable(causes[0])}")
