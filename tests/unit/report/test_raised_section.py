"""Where an exception was raised: the traceback's own lines, those of libraries folded, and what it came from."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from ftforensics.model.diagnosis import Diagnosis, Exit, Frame
from ftforensics.model.exception import Raised, RaisedFrame
from ftforensics.report.html import render as page
from ftforensics.report.raised import Piece, is_raised, origins, packages, pieces
from ftforensics.report.terminal import View, render

Make = Callable[..., Diagnosis]


def section(diagnosis: Diagnosis, **view: object) -> str:
    text = render(diagnosis, View(**view)).partition("\nWhere it was raised")[2]  # type: ignore[arg-type]
    return text.partition("\n\n")[0]


def with_first(diagnosis: Diagnosis, **changed: object) -> Diagnosis:
    first = msgspec.structs.replace(diagnosis.processes[0], **changed)
    return msgspec.structs.replace(diagnosis, processes=[first, *diagnosis.processes[1:]])


def test_lines_of_libraries_are_folded_but_the_innermost_is_the_place(make_raised: Make) -> None:
    lines = section(make_raised()).splitlines()
    assert lines[0].split() == ["torch.OutOfMemoryError"]
    assert [line.strip() for line in lines[1:]] == [
        "CUDA out of memory. Tried to allocate 20.00 MiB",
        "cross_entropy  functional.py:3029",
        "forward        model.py:41",
        "... 3 lines of torch; -v shows all",
        "main           train.py:120",
        "raised while handling KeyError: 'lr'                        config.py:5 load()",
    ]


def test_verbose_shows_every_line_and_the_origins_traceback(make_raised: Make) -> None:
    text = section(make_raised(), verbose=True)
    assert "/torch/nn/modules/module.py:1747" in text
    assert "load  /work/config.py:5" in text
    assert "-v shows" not in text


def test_the_message_stands_once(make_raised: Make) -> None:
    diagnosis = make_raised()
    verdict = msgspec.structs.replace(
        diagnosis.verdict, summary="OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB, at model.py:41."
    )
    text = render(msgspec.structs.replace(diagnosis, verdict=verdict), View())
    assert " ".join(text.split()).count("Tried to allocate 20.00 MiB") == 1


def test_frames_alone_are_enough(make_raised: Make) -> None:
    stack = [Frame(function="step", file="/work/train.py", line=3, python=True)]
    diagnosis = with_first(make_raised(), raised=[], stack=stack)
    assert "step  train.py:3" in section(diagnosis)
    assert "Where it was raised" in page(diagnosis)


def test_no_traceback_is_said(make_raised: Make) -> None:
    assert "no traceback was kept" in section(with_first(make_raised(), raised=[Raised("KeyError", "x")]))


def test_a_signal_a_record_and_a_native_stack_are_no_raise(make_raised: Make, make_diagnosis: Make) -> None:
    assert is_raised(make_raised())
    assert not is_raised(with_first(make_raised(), exit=Exit(signal="SIGABRT")))
    assert not is_raised(with_first(make_raised(), record="x.crash.json"))
    assert not is_raised(with_first(make_raised(), raised=[], stack=[Frame(function="f", library="/l.so")]))
    assert not is_raised(make_diagnosis())
    assert not is_raised(make_diagnosis(processes=[]))


def test_where_the_innocent_heard_of_it_is_shown_only_when_asked(make_peer_lost: Make) -> None:
    assert "Where it was raised" not in render(make_peer_lost(), View())
    assert "Where it was raised" in render(make_peer_lost(), View(verbose=True))
    assert "Where it was raised" not in page(make_peer_lost())


def test_how_one_came_from_another(make_raised: Make) -> None:
    chain = [Raised("A"), Raised("B", "b", link="cause"), Raised("C", link="context"), Raised("D", "d")]
    process = with_first(make_raised(), raised=chain).processes[0]
    assert [origin.words for origin in origins(process)] == [
        "raised from B: b",
        "raised while handling C",
        "raised after D: d",
    ]


def test_a_long_chain_is_cut(make_raised: Make) -> None:
    chain = [Raised(f"E{number}", "x", link="cause") for number in range(100)]
    diagnosis = with_first(make_raised(), raised=chain)
    assert "... 95 more; -v shows all" in section(diagnosis)
    assert "raised from E99" in section(diagnosis, verbose=True)


def frame(file: str, line: int = 1) -> Frame:
    return Frame(function="f", file=file, line=line, python=True)


def test_two_lines_of_a_library_are_not_worth_folding() -> None:
    library, own = frame("/v/lib/python3.11/site-packages/torch/x.py"), frame("/work/train.py")
    assert pieces([own, library, library, own]) == [Piece([own, library, library, own])]
    assert pieces([own, own, *[library] * 3, own]) == [
        Piece([own, own]),
        Piece([library] * 3, libraries=True),
        Piece([own]),
    ]
    assert pieces([library] * 4) == [Piece([library]), Piece([library] * 3, libraries=True)]
    assert pieces([]) == []


def test_whose_lines_were_folded_is_said() -> None:
    files = ("/v/site-packages/torch/a.py", "/v/site-packages/six.py", "/usr/lib/python3.11/threading.py", "<frozen x>")
    assert packages([frame(file) for file in files]) == "torch, six, the standard library"
    many = [frame(f"/v/site-packages/p{number}/a.py") for number in range(9)]
    assert packages(many) == "p0, p1, p2, ..."


def test_a_runaway_recursion_is_a_few_lines(make_raised: Make) -> None:
    deep = [RaisedFrame("/work/train.py", 9, "main"), *[RaisedFrame("/work/train.py", 5, "down")] * 20_000]
    diagnosis = with_first(make_raised(), raised=[Raised("RecursionError", "maximum recursion depth exceeded", deep)])
    for text in (section(diagnosis), section(diagnosis, verbose=True)):
        assert "20000 times in all" in text
        assert len(text.splitlines()) < 12
    assert len(page(diagnosis)) < 20_000
