"""What must not stand in a public repository: places of one machine, hosts it installs from."""

from __future__ import annotations

import re
import subprocess

from conditions import ROOT

# In pieces, so that this file does not find itself.
PLACES = [
    ("work", "main"),
    ("work", "shared"),
    ("work", ".library"),
    ("root", ".pyenv"),
    ("root", ".cargo"),
    ("tmp", "venv"),
]
HOSTS = [("pypi", "org"), ("pythonhosted", "org"), ("npmjs", "org"), ("debian", "org"), ("anaconda", "com")]

FORBIDDEN = re.compile(
    "|".join(
        [rf"(?<![\w.])/{re.escape('/'.join(place))}\b" for place in PLACES]
        + [rf"\b(?:[\w-]+\.)*{re.escape('.'.join(host))}\b" for host in HOSTS]
    )
)
# Recorded output of real jobs is evidence and stays as it was.
RECORDED = ("tests/cases/", "benchmarks/results/")


def text_files() -> list[str]:
    made = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=True,
    )
    return [name for name in made.stdout.decode().split("\0") if name and not name.startswith(RECORDED)]


def forbidden_words(text: str) -> list[str]:
    return [match[0] for match in FORBIDDEN.finditer(text)]


def test_no_file_names_this_machine_or_a_registry() -> None:
    found = {}
    for name in text_files():
        path = ROOT / name
        if not path.is_file():
            continue
        try:
            words = forbidden_words(path.read_text())
        except UnicodeDecodeError:
            continue
        if words:
            found[name] = words
    assert found == {}


def test_the_check_sees_what_it_is_for() -> None:
    planted = ["at /" + "/".join(place) + "/x" for place in PLACES]
    planted += [f"https://files.{'.'.join(host)}/simple" for host in HOSTS]
    assert [line for line in planted if not forbidden_words(line)] == []
    assert forbidden_words("/home/work/main.py deb.debian.example") == []
