"""The layers of pyproject.toml hold, and the check that says so is able to fail."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from conditions import ROOT

PACKAGE = ROOT / "src" / "ftforensics"


def lint_imports(root: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", "from importlinter.cli import lint_imports_command as run; run()", "--no-cache"],
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(root / "src"), "NO_COLOR": "1"},
        capture_output=True,
        text=True,
    )


def test_the_layers_hold() -> None:
    made = lint_imports(ROOT)
    assert made.returncode == 0, made.stdout + made.stderr


BREACHES = {
    "upward": ("model/basics.py", "from ftforensics import report\n", "A layer imports only what stands below it"),
    "unknown-layer": ("planning/__init__.py", "", "A layer imports only what stands below it"),
    "heavy-in-the-job": ("capture/__init__.py", "import msgspec\n", "What runs inside the job"),
    "analyser-in-the-job": ("capture/__init__.py", "from ftforensics import model\n", "What runs inside the job"),
    "heavy-at-the-job": ("supervise/__init__.py", "import msgspec\n", "What watches a job"),
    "late-torch": ("causes/__init__.py", "def late() -> None:\n    import torch\n", "The product never imports torch"),
    "gpu": ("causes/__init__.py", "import pynvml\n", "NVIDIA's bindings"),
    "drawing": ("diagnose/__init__.py", "import rich\n", "Only report and cli draw"),
}


@pytest.mark.parametrize("breach", BREACHES)
def test_a_planted_breach_is_caught(breach: str, tmp_path: Path) -> None:
    file, line, contract = BREACHES[breach]
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    shutil.copytree(PACKAGE, tmp_path / "src" / "ftforensics", ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    target = tmp_path / "src" / "ftforensics" / file
    target.parent.mkdir(exist_ok=True)
    target.write_text((target.read_text() if target.exists() else "") + "\n\n" + line)

    made = lint_imports(tmp_path)

    assert made.returncode == 1, made.stdout + made.stderr
    assert [text for text in made.stdout.splitlines() if text.startswith(contract) and "BROKEN" in text], made.stdout


def imported(path: Path) -> set[str]:
    """Every module a file imports, at the top or inside a function, except for type checkers only."""
    found: set[str] = set()
    tree = ast.parse(path.read_text())
    typing_only = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
        for inner in ast.walk(node)
    }
    for node in ast.walk(tree):
        if id(node) in typing_only:
            continue
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            # `from ftforensics import x`: x is the module meant.
            found |= (
                {f"{node.module}.{alias.name}" for alias in node.names}
                if node.module == "ftforensics"
                else {node.module}
            )
    return found


@pytest.mark.parametrize(
    "path", [PACKAGE / "__init__.py", *sorted((PACKAGE / "capture").rglob("*.py"))], ids=lambda p: p.name
)
def test_the_job_sees_only_the_standard_library_and_the_extension(path: Path) -> None:
    """An allow-list where import-linter has a deny-list: a new dependency cannot slip in under a new name."""
    foreign = {
        name
        for name in imported(path)
        if name.split(".")[0] not in sys.stdlib_module_names
        and not name.startswith(("ftforensics.capture", "ftforensics._native"))
    }
    assert foreign == set()
