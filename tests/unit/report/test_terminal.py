"""The report in a terminal: what comes first, what is escaped, what fits."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from rich.cells import cell_len

from ftforensics.model.basics import Address, Cite
from ftforensics.model.crash import AbortMessage, CrashRecord, CxxException, Job, Process, Stage, ThreadEntry
from ftforensics.model.diagnosis import Confidence, Diagnosis, Finding, Frame, ThreadStack, Verdict
from ftforensics.report.frames import line_of
from ftforensics.report.terminal import View, render
from ftforensics.wire.record import ReadRecord, read_record

Make = Callable[..., Diagnosis]


def words(text: str) -> str:
    """Normalised: layout may change without a test knowing."""
    return re.sub(r"\s+", " ", text)


@pytest.fixture
def record(root: Path) -> CrashRecord:
    reading = read_record((root / "docs" / "example.crash.json").read_bytes())
    assert isinstance(reading, ReadRecord)
    return reading.record


def test_the_first_lines_say_what_how_sure_and_what_now(diagnosis: Diagnosis) -> None:
    lines = render(diagnosis, View()).splitlines()
    assert lines[0].startswith("Read through a null pointer in libtorch_cuda.so")
    assert lines[0].endswith("LIKELY")
    assert "rank 0 (pid 4242)" in lines[1]
    assert any(line.startswith("  Fix: Unset LD_LIBRARY_PATH") for line in lines[2:4])


def test_evidence_is_ordered_and_complete(diagnosis: Diagnosis) -> None:
    text = words(render(diagnosis, View()))
    order = [
        "Where it died",
        "mechanism: null-read",
        "cudnn_convolution",
        "train_step train.py:88",
        "For address 0x28 lies in no mapping",
        "crash signal.address",
        "Against nothing found",
        "Noted heap-corruption (possible)",
        "Excluded thread-stack-overflow",
        "Why it came to that: memory-leak",
        "Ranks 2 on 2 hosts",
        "root rank 0 (pid 4242) on gpu-07plain: died of SIGSEGV",
        "collateral rank 1 (pid 4243) on gpu-07: ended by SIGTERM, 1.9 s later",
        "Not seen ptrace",
        "to see it: --cap-add SYS_PTRACE",
        "kmsg: not readable",
        "To settle it:",
        "ftforensics explain native-fault",
    ]
    positions = [text.find(piece) for piece in order]
    assert -1 not in positions, order[positions.index(-1)]
    assert positions == sorted(positions)


def test_undecided_says_so_and_gives_a_next_step(undecided: Diagnosis) -> None:
    lines = render(undecided, View()).splitlines()
    assert lines[0].endswith("UNDECIDED")
    assert any("Cheapest next step: --cap-add SYS_PTRACE" in line for line in lines[1:4])
    assert "Possible" in "\n".join(lines)
    assert not any(line.startswith("Noted") and "cgroup-oom" in line for line in lines)


def test_an_empty_diagnosis_is_still_a_report() -> None:
    text = render(Diagnosis(Verdict("unknown", None, None, "undecided", "")), View())
    assert "not known" in text
    assert "UNDECIDED" in text


@pytest.mark.parametrize("width", [20, 40, 80, 118, 200, 5000])
@pytest.mark.parametrize("verbose", [False, True])
def test_no_line_is_wider_than_the_window(make_any: Make, record: CrashRecord, width: int, verbose: bool) -> None:
    text = render(make_any(""), View(width=width, verbose=verbose, height=60), [record])
    for line in text.splitlines():
        # A command to copy and a whole path with -v stay in one piece.
        if (
            "ftforensics " in line
            or "/" in line
            or "unset" in line
            or "journalctl" in line
            or (verbose and "::" in line)
        ):
            continue
        assert cell_len(line) <= max(width, 40), line
        assert cell_len(line) <= 118, line


def test_wide_characters_count_as_two_columns(make_any: Make) -> None:
    text = render(make_any("训练" * 30), View(width=80))
    for line in text.splitlines():
        if "/" not in line and "journalctl" not in line:
            assert cell_len(line) <= 80, line


@pytest.mark.parametrize("verbose", [False, True])
def test_hostile_text_does_nothing(
    make_any: Make, hostile: str, dangerous: list[str], verbose: bool, record: CrashRecord
) -> None:
    poisoned = CrashRecord(
        process=Process(pid=1, thread_name=hostile),
        job=Job(host=hostile, argv=["python", hostile], cwd=hostile),
        abort_message=AbortMessage(text=hostile),
        cxx_exception=CxxException(type=hostile, what=hostile),
        note=hostile,
        threads=[ThreadEntry(tid=1, name=hostile)],
        stages=[Stage(name=hostile, ok=False, error=hostile)],
    )
    for view in (View(verbose=verbose), View(width=200, verbose=verbose, path=f"/x/{hostile}")):
        text = render(make_any(hostile), view, [poisoned])
        found = [character for character in dangerous if character in text]
        assert not found, [hex(ord(character)) for character in found]
        assert not any(line.startswith("Verdict: nothing happened") for line in text.splitlines())


def test_markup_is_text(make_diagnosis: Make) -> None:
    text = render(make_diagnosis("[red]x[/red] [link=http://y]z[/link] :bomb:"), View(width=200, colour=True))
    assert "[red]x[/red] [link=http://y]z[/link] :bomb:" in text
    assert "\x1b]8" not in text


def test_only_the_confidence_word_is_coloured(make_diagnosis: Make) -> None:
    for confidence in ("proven", "likely", "undecided"):
        verdict = Verdict("failed", "native-fault", None, confidence, "A sentence with 0x28 and 'quotes'.", "null-read")
        text = render(make_diagnosis(verdict=verdict), View(colour=True))
        assert re.findall(r"\x1b\[[\d;]*m([^\x1b]*)\x1b\[0m", text) == [confidence.upper()]
        assert "\x1b" not in render(make_diagnosis(verdict=verdict), View(colour=False))


def test_colour_does_not_move_anything(diagnosis: Diagnosis) -> None:
    coloured = render(diagnosis, View(colour=True))
    assert re.sub(r"\x1b\[[\d;]*m", "", coloured) == render(diagnosis, View(colour=False))


def test_numbers_only_when_asked(diagnosis: Diagnosis, record: CrashRecord) -> None:
    short = render(diagnosis, View(), [record])
    long = render(diagnosis, View(verbose=True), [record])
    for heading in ("Registers", "Signal handlers", "How the record was made", "Thread 7 worker", "Timeline", "Limits"):
        assert heading in long
        assert heading not in short
    assert "rax 0x0000000000000028" in words(long)
    assert "SIGSEGV: ours, then stealplain() (libtheftplain.so) (had replaced ours" in words(long)
    assert "--token=[redacted]" in long


def test_long_evidence_is_cut_unless_asked_for(make_diagnosis: Make) -> None:
    cites = [
        Cite("crash", f"registers.r{number}", f"r{number} holds what number {number} says") for number in range(20)
    ]
    diagnosis = make_diagnosis(
        hypotheses=[Finding("native-fault", Confidence.LIKELY, "x", cites)],
        verdict=Verdict("failed", "native-fault", "native-fault", "likely", "x"),
    )
    short, long = render(diagnosis, View()), render(diagnosis, View(verbose=True))
    assert "number 7 " in short and "number 8 " not in short and "12 more; -v shows all" in short
    assert "number 19 " in long and "more; -v" not in long


def test_what_the_process_said_last_is_always_shown(diagnosis: Diagnosis) -> None:
    record = CrashRecord(
        abort_message=AbortMessage(text="free(): invalid pointer\n"),
        cxx_exception=CxxException(type="std::runtime_error", what="no space"),
    )
    text = words(render(diagnosis, View(), [record]))
    assert "free(): invalid pointer" in text
    assert "std::runtime_error: no space" in text


def test_threads_in_the_same_place_are_shown_once(make_diagnosis: Make) -> None:
    process = make_diagnosis().processes[0]
    waiting = [Frame(function="wait_for_batch", file="/work/queue.py", line=5, python=True)]
    threads = [ThreadStack(tid=number, name="w", crashed=False, frames=waiting) for number in range(300)]
    other = ThreadStack(tid=999, name=None, crashed=False, frames=[])
    changed = msgspec.structs.replace(process, threads=[*threads, other])
    text = words(render(make_diagnosis(processes=[changed]), View(verbose=True)))
    assert text.count("wait_for_batch") == 1
    assert "300 threads: 0 w, 1 w" in text
    assert "and 288 more" in text
    assert "Thread 999, of rank 0 (pid 4242) on gpu-07plain no frames" in text


def test_a_runaway_recursion_is_a_few_lines(make_diagnosis: Make) -> None:
    deep = [Frame(function="f", library="/l.so", offset=Address(3))] * 20_000
    user = Frame(function="train", file="/work/train.py", line=9, python=True)
    diagnosis = make_diagnosis()
    process = diagnosis.processes[0]
    changed = msgspec.structs.replace(process, stack=[*deep, user])
    text = render(make_diagnosis(processes=[changed]), View())
    assert "20000 times in all" in text
    assert "train.py:9" in text
    assert len(text.splitlines()) < 60


def test_a_long_stack_keeps_the_users_own_lines(make_diagnosis: Make) -> None:
    machinery = [Frame(function=f"f{number}", library="/l.so", offset=Address(number)) for number in range(200)]
    user = Frame(function="train", file="/work/train.py", line=9, python=True)
    diagnosis = make_diagnosis()
    process = diagnosis.processes[0]
    changed = msgspec.structs.replace(process, stack=[*machinery, user])
    short = render(make_diagnosis(processes=[changed]), View())
    assert re.search(r"\n  train +train.py:9\n", short)
    assert "more; -v shows all" in short
    assert "f199" not in short
    assert "f199" in render(make_diagnosis(processes=[changed]), View(verbose=True))


def test_a_stolen_handler_is_one_line_of_the_normal_report(diagnosis: Diagnosis) -> None:
    text = words(render(diagnosis, View()))
    assert text.count("libtheftplain.so had taken SIGSEGV from us (stealplain); its handler was put behind ours") == 1


def test_nothing_is_said_twice(diagnosis: Diagnosis, undecided: Diagnosis) -> None:
    for shown in (diagnosis, undecided):
        text = words(render(shown, View()))
        for remedy in shown.remedies:
            assert text.count(remedy.text) == 1
        for gap in shown.gaps:
            assert text.count(gap.why) == 1


def test_function_offsets_only_with_verbose() -> None:
    frame = Frame(function="f(int)", library="/x/libx.so", offset=Address(0x1136), function_offset=Address(0x16))
    assert line_of(frame).name == "f(…)"
    assert (line_of(frame, full=True).name, line_of(frame, full=True).place) == ("f(int) +0x16", "/x/libx.so+0x1136")
