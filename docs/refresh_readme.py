"""Put what the program really prints into README.md:  python docs/refresh_readme.py

Each shown block stands below a comment that names it. The demos are run for real; host name and time are those of
the machine they ran on. As root: the kernel must be able to kill the second one for its memory.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
README = ROOT / "README.md"
STATE = tempfile.mkdtemp(prefix="refresh-readme-")  # no ledger of what else has run on this machine


def printed(*command: str) -> str:
    made = subprocess.run(
        [sys.executable, *command],
        cwd=ROOT,
        env={**os.environ, "COLUMNS": "80", "NO_COLOR": "1", "PYTHONPATH": "src", "XDG_STATE_HOME": STATE},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        check=True,
    )
    return made.stdout.replace(f"{ROOT}/", "")


def replace(text: str, name: str, block: str) -> str:
    shown = re.compile(rf"(<!-- {re.escape(name)} -->\n)(?:\n?```text\n.*?```\n)?", re.DOTALL)
    made, count = shown.subn(lambda found: f"{found[1]}\n```text\n{block.rstrip()}\n```\n", text)
    if count != 1:
        raise SystemExit(f"README.md has no single '<!-- {name} -->'")
    return made


if __name__ == "__main__":
    text = README.read_text()
    text = replace(text, "output of make demo", printed("examples/demo.py", "examples/train.py"))
    text = replace(text, "output of make demo-kill", printed("examples/demo_kill.py", "examples/train_save.py"))
    ranks = "tests/cases/torchrun-oom-last-of-four"
    answer = f"$ ftforensics analyze {ranks}\n" + printed("-m", "ftforensics", "analyze", ranks)
    text = replace(text, "output of a job of four ranks", answer)
    asked = ["--for", "torch==2.9.1+cu128", "--driver", "530.30.02", "--gpu", "8.0", "--python", "3.11"]
    answer = f"$ ftforensics check {shlex.join(asked)}\n" + printed("-m", "ftforensics", "check", *asked)
    text = replace(text, "output of ftforensics check", answer)
    text = replace(
        text, "output of ftforensics --help", "$ ftforensics --help\n" + printed("-m", "ftforensics", "--help")
    )
    README.write_text(text)
