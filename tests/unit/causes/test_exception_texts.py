"""Real texts of exceptions, each with its one answer: by the process's own record, and by its log alone."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from ftforensics.causes.registry import causes
from ftforensics.diagnose.verdict import Weighed, weigh
from ftforensics.model.diagnosis import Confidence
from synth.death import DeathBuilder, ended
from synth.exception_texts import OWN, TEXTS, Text

CAUSES = {cause.id: cause for cause in causes()}


def judge(builder: DeathBuilder) -> Weighed:
    found = [(one, finding) for one in causes() if one.check_death for finding in one.check_death(builder.death)]
    return weigh(builder.death, found)


def recorded(text: Text) -> DeathBuilder:
    about = {"errno": text.errno, "filename": text.filename, "bases": list(text.bases)}
    return ended(code=1, watched=True).raised(text.type, text.message, OWN, text.file, **about)


def logged(text: Text) -> DeathBuilder:
    return ended(code=1).exception(text.type, text.message, file=text.file, file_line=12, function="main")


def short(text: Text) -> str:
    return f"{text.type.rpartition('.')[2]}-{text.message[:30]}"


def test_there_are_enough_of_them() -> None:
    assert len(TEXTS) >= 40
    refined = {
        cause.id for cause in CAUSES.values() if cause.family == "python" and "python-exception" in cause.refines
    }
    assert refined <= {text.cause for text in TEXTS}, "a cause without a real text"


@pytest.mark.parametrize("text", TEXTS, ids=short)
def test_by_the_record_it_is_proven(text: Text) -> None:
    weighed = judge(recorded(text))
    assert (weighed.verdict.cause, weighed.verdict.confidence) == (text.cause, "proven"), weighed.verdict.summary


@pytest.mark.parametrize(
    ("type", "said", "cause"),
    [
        (
            "RuntimeError",
            "CUDA error: no kernel image is available for execution on the device",
            "gpu-architecture-unsupported",
        ),
        (
            "RuntimeError",
            "The NVIDIA driver on your system is too old (found version 11040). Please update your GPU driver",
            "driver-too-old",
        ),
        ("RuntimeError", "Cannot re-initialize CUDA in forked subprocess. To use CUDA with", "fork-after-cuda"),
        ("ImportError", "/x/flash_attn_2_cuda.so: undefined symbol: _ZN3c105ErrorC2ENS_14SourceLocationESs", None),
    ],
    ids=range(4),
)
def test_what_speaks_of_the_installation_is_weighed_by_the_causes_of_that(
    type: str, said: str, cause: str | None
) -> None:
    """They are never proven, and neither is the exception then: it says less."""
    weighed = judge(ended(code=1, watched=True).raised(type, said, OWN))
    assert weighed.verdict.confidence == "likely"
    assert weighed.verdict.cause == cause or (cause is None and weighed.verdict.cause != "exit-code")
    assert weighed.best is not None and weighed.best.supports[0].source == "exception"


@pytest.mark.parametrize("text", TEXTS, ids=short)
def test_by_the_log_it_is_likely(text: Text) -> None:
    weighed = judge(logged(text))
    assert (weighed.verdict.cause, weighed.verdict.confidence) == (text.cause, "likely"), weighed.verdict.summary


@pytest.mark.parametrize("text", TEXTS, ids=short)
def test_no_more_than_one_cause_is_sure_beside_the_plain_exception(text: Text) -> None:
    weighed = judge(recorded(text))
    found = [weighed.best, *weighed.hypotheses]
    sure = [one for one in found if one is not None and one.confidence in (Confidence.PROVEN, Confidence.LIKELY)]
    assert {one.cause for one in sure} <= {text.cause, "python-exception", "exit-code"}


@pytest.mark.parametrize("text", TEXTS, ids=short)
def test_words_without_a_type_or_an_origin_are_never_the_verdict(text: Text) -> None:
    """Somebody else's exception that only quotes the text, and a bare line of which nobody knows who raised it."""
    quoting = judge(ended(code=1).exception("my.JobError", f"worker said: {text.message}", file=OWN))
    assert quoting.verdict.cause == "python-exception"
    bare = judge(ended(code=1).exception("RuntimeError", text.message))
    assert bare.verdict.cause == "python-exception"


@pytest.mark.parametrize("text", TEXTS, ids=short)
@pytest.mark.parametrize("signal", [6, 9, 11, 15])
def test_before_a_signal_it_is_no_cause(text: Text, signal: int) -> None:
    death = logged(text).set(signal=signal, code=None)
    weighed = judge(death)
    named = [weighed.best, *weighed.hypotheses]
    assert text.cause not in {one.cause for one in named if one is not None}


def test_errors_of_this_kernel(tmp_path: Path) -> None:
    """What the kernel and Python say here and now, not what was written down once."""
    for number, cause in (
        (errno.ENOSPC, "disk-full"),
        (errno.ENOENT, "file-not-found"),
        (errno.EACCES, "permission-denied"),
        (errno.ESTALE, "storage-error"),
        (errno.ENOMEM, "host-memory-error"),
    ):
        made = OSError(number, os.strerror(number), str(tmp_path / "x"))
        text = Text(type(made).__name__, str(made), OWN, cause)
        assert judge(logged(text)).verdict.cause == cause
    with pytest.raises(FileNotFoundError) as missing:
        (tmp_path / "none").open()
    told = Text(type(missing.value).__name__, str(missing.value), OWN, "file-not-found")
    assert judge(logged(told)).verdict.cause == "file-not-found"
