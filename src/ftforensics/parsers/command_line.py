"""What a command line of a training job says: which program it runs, with which options, naming which files.

Python's own grammar (`python [options] FILE | -m MODULE | -c TEXT`) and the launchers that take a program among their
arguments (torchrun, accelerate, deepspeed, srun, mpirun, ...).
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence

import msgspec

# Options of CPython that take a value in the next word (Modules/main.c, 3.10 to 3.14).
_PYTHON_TAKES = ("-W", "-X", "--check-hash-based-pycs")
_PYTHON = re.compile(r"python(\d+(\.\d+)?)?")
_LAUNCHER_MODULES = (
    "torch.distributed.run",
    "torch.distributed.launch",
    "torch.distributed.launcher",
    "accelerate.commands.launch",
    "deepspeed.launcher.launch",
    "deepspeed.launcher.runner",
    "ftforensics",
)
_LAUNCHERS = ("torchrun", "accelerate", "accelerate-launch", "deepspeed", "ftforensics", "colossalai", "horovodrun")
_CONFIG = (".json", ".yaml", ".yml")
_MOST_WORDS = 1000


class Program(msgspec.Struct, frozen=True):
    """name: "/home/u/train.py", "-m llm.train", or a command's own name; rest: the arguments behind it."""

    name: str
    rest: list[str]


class Option(msgspec.Struct, frozen=True):
    """value: "" for a flag."""

    name: str
    value: str


def program(argv: Sequence[str], cwd: str | None = None) -> Program:
    """The training program that a command line ends up in. Where none is recognised, the first word is it."""
    words = list(argv[:_MOST_WORDS])
    index = 0
    while index < len(words):
        word = words[index]
        if word == "-m" and index + 1 < len(words):
            module = words[index + 1]
            if module not in _LAUNCHER_MODULES:
                return Program(f"-m {module}", words[index + 2 :])
            index += 2
        elif word.endswith((".py", ".pyc")) and os.path.basename(word) not in ("run.py", "launch.py"):
            return Program(_absolute(word, cwd), words[index + 1 :])
        elif word in _PYTHON_TAKES:
            index += 2
        elif word == "-c" and index and _PYTHON.fullmatch(os.path.basename(words[0])):
            return Program("-c", words[index + 2 :])
        else:
            index += 1
    # No file named *.py: a script without that ending, a shell script, a program.
    for index, word in enumerate(words):
        name = os.path.basename(word)
        if index == 0 and _PYTHON.fullmatch(name):
            continue
        if index and word.startswith("-"):
            continue
        if name in _LAUNCHERS and len(words) > index + 1:
            continue
        return Program(_absolute(word, cwd) if "/" in word else word, words[index + 1 :])
    return Program(words[0] if words else "", words[1:])


def job(argv: Sequence[str], cwd: str | None) -> str:
    """What makes two runs comparable: the program's file; its name and the working directory for anything else."""
    found = program(argv, cwd).name
    return found if found.startswith("/") else f"{found} in {cwd or '?'}"


def options(arguments: Sequence[str]) -> list[Option]:
    """`--lr 0.1`, `--lr=0.1`, `lr=0.1` (Hydra), flags; what stands alone is named by its position: "argument 1"."""
    found: list[Option] = []
    alone = 0
    index = 0
    words = list(arguments[:_MOST_WORDS])
    while index < len(words):
        word = words[index]
        index += 1
        name, equals, value = word.partition("=")
        if word.startswith("-") and word.strip("-"):
            following = words[index] if index < len(words) else "-"
            if equals:
                found.append(Option(_plain(name), value))
            elif not following.startswith("-") or re.fullmatch(r"-\d[\d.eE+-]*", following):
                found.append(Option(_plain(name), following))
                index += 1
            else:
                found.append(Option(_plain(name), ""))
        elif equals and re.fullmatch(r"\+{0,2}[\w.@/]+", name):
            found.append(Option(name, value))
        elif word.strip("-"):
            alone += 1
            found.append(Option(f"argument {alone}", word))
    return found


def config_files(argv: Sequence[str], cwd: str | None, most: int = 8) -> list[str]:
    """Paths of JSON and YAML files that are named, absolute, each once."""
    found: dict[str, None] = {}
    for word in argv[:_MOST_WORDS]:
        path = word if word.endswith(_CONFIG) and not word.startswith("-") else word.partition("=")[2]
        if "=" in path and not word.startswith("-"):
            path = path.rpartition("=")[2]
        if path.endswith(_CONFIG) and "\0" not in path and "://" not in path and len(path) < 4096:
            found.setdefault(_absolute(path, cwd))
    return list(found)[:most]


def _plain(name: str) -> str:
    """argparse takes --learning_rate and --learning-rate for two names, people do not."""
    return name[: len(name) - len(name.lstrip("-"))] + name.lstrip("-").replace("-", "_")


def _absolute(path: str, cwd: str | None) -> str:
    return os.path.normpath(path if path.startswith("/") or cwd is None else f"{cwd}/{path}")
