"""`make demo` dies for real, and README.md shows what it prints."""

from __future__ import annotations

import os
import re
import subprocess
import sys

from conditions import ROOT


def test_the_readme_shows_what_the_demo_prints() -> None:
    """The verdict, its confidence, where and what to do; numbers, host and stack are this machine's."""
    demo = subprocess.run(
        [sys.executable, "examples/demo.py", "examples/train.py"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src"), "COLUMNS": "80", "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    readme = (ROOT / "README.md").read_text()
    assert head_of_report(readme) == head_of_report(demo), "make readme"


def head_of_report(text: str) -> str:
    (head,) = re.findall(r"^\$ ftforensics analyze \S+demo-train\n(.*?)\n\n", text, re.DOTALL | re.MULTILINE)
    without_host = re.sub(r" on \S+, in train", " on HOST, in train", " ".join(head.split()))
    return re.sub(r"\d[\da-f]*", "0", re.sub("0x[0-9a-f]+", "0x0", without_host))


def test_the_demo_of_a_kill_reaches_the_verdict_that_it_can() -> None:
    """Proven where a control group can be made; undecided, and right so, where nobody can see who it was."""
    demo = subprocess.run(
        [sys.executable, "examples/demo_kill.py", "examples/train_save.py"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src"), "COLUMNS": "80", "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert demo.returncode == 0, demo.stderr
    assert "in save_checkpoint, step 9" in demo.stdout
    assert ("PROVEN" in demo.stdout) is ("in a control group with 256 MiB" in demo.stdout)
