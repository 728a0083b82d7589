"""Import discipline: what a command does not need, it does not load."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

HEAVY = {"msgspec", "rich", "jinja2", "elftools", "packaging", "tempfile", "json", "logging", "subprocess", "asyncio"}


def loaded(environment: Mapping[str, str], *arguments: str) -> set[str]:
    code = (
        "import sys, os, contextlib; from ftforensics.cli import main\n"
        "with open(os.devnull, 'w') as null, contextlib.redirect_stdout(null):\n"
        "    main(sys.argv[1:])\n"
        "sys.stderr.write(' '.join(sys.modules))"
    )
    ended = subprocess.run([sys.executable, "-c", code, *arguments], env=environment, capture_output=True, text=True)
    return set(ended.stderr.split())


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["explain"], ["analyze", "--help"], ["nonsense"]])
def test_help_and_explain_load_nothing_heavy(environment: Mapping[str, str], arguments: list[str]) -> None:
    assert loaded(environment, *arguments) & HEAVY == set()


def test_json_needs_no_rich(environment: Mapping[str, str], record: Path) -> None:
    modules = loaded(environment, "analyze", "--json", str(record))
    assert "msgspec" in modules
    assert "rich" not in modules


def test_the_whole_of_analyze_is_under_a_second_of_cpu(environment: Mapping[str, str], record: Path) -> None:
    before = os.times()
    subprocess.run([sys.executable, "-m", "ftforensics", "analyze", str(record)], env=environment, capture_output=True)
    after = os.times()
    spent = after.children_user + after.children_system - before.children_user - before.children_system
    assert spent < 1.0
