"""The handler driven from plain C, on this machine and, cross-compiled, in an emulator.

aarch64 has only been seen in qemu-user, never on hardware: there the kind of access is not told (no ESR record in the
signal frame), clone(CLONE_VM) is refused, so that foreign code runs guarded rather than in the sandbox, and the
emulator has threads of its own that nobody can hold.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from conditions import QEMU_AARCH64, ROOT, needs_qemu_aarch64
from toolchain import CSRC, TOOLCHAINS, Toolchain, flags

# Python's own calls aside: what remains is the whole path from install to death.
PYTHON_SIDE = ("ftf_module", "ftf_symtab", "ftf_wrap", "ftf_frames")
SOURCES = [path for path in sorted(CSRC.glob("*.c")) if path.stem not in PYTHON_SIDE]
FUNCTION_BYTES = 1024  # smoke.c aligns its two functions so


@dataclass(frozen=True)
class Machine:
    name: str
    toolchain: Toolchain
    emulator: tuple[str, ...] = ()

    def __str__(self) -> str:
        return self.name


MACHINES = [pytest.param(Machine("native", TOOLCHAINS[0]), id="native")]
MACHINES.append(
    pytest.param(
        Machine(
            "aarch64",
            Toolchain("aarch64", "aarch64-linux-gnu-"),
            (QEMU_AARCH64 or "qemu-aarch64", "-L", "/usr/aarch64-linux-gnu"),
        ),
        id="aarch64",
        marks=needs_qemu_aarch64,
    )
)


@pytest.fixture(scope="module", params=MACHINES)
def machine(request: pytest.FixtureRequest) -> Machine:
    return request.param


@pytest.fixture(scope="module")
def program(machine: Machine, tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp(f"smoke-{machine}") / "smoke"
    own = [option for option in flags() if not option.startswith("-DPy_")]
    made = subprocess.run(
        [f"{machine.toolchain.prefix}gcc", *own, "-Werror", "-pthread", "-Wl,-z,now", "-o", str(target)]
        + [str(path) for path in [ROOT / "tests" / "csrc" / "smoke.c", *SOURCES]],
        capture_output=True,
        text=True,
    )
    assert made.returncode == 0, made.stderr
    return target


@dataclass(frozen=True)
class Death:
    status: int
    record: dict[str, object]
    innermost: int
    outer: int
    record_text: str

    def member(self, *names: str) -> object:
        found: object = self.record
        for name in names:
            assert isinstance(found, dict)
            found = found[name]
        return found

    def walked(self, walk: str = "native") -> list[int]:
        frames = self.member(walk, "frames")
        assert isinstance(frames, list)
        return [int(frame["pc"], 16) for frame in frames]

    def failed_stages(self) -> dict[str, str]:
        stages = self.member("stages")
        assert isinstance(stages, list)
        return {stage["name"]: stage["error"] for stage in stages if not stage["ok"]}


def die(machine: Machine, program: Path, folder: Path, kind: str) -> Death:
    ended = subprocess.run(
        [*machine.emulator, str(program), str(folder), kind],
        capture_output=True,
        text=True,
        timeout=60,
        env={"PATH": os.environ["PATH"]},
        cwd=folder,
    )
    (path,) = folder.glob("*.crash.json")
    innermost, outer = (int(word, 16) for word in ended.stdout.split())
    text = path.read_text()
    return Death(ended.returncode, json.loads(text), innermost, outer, text)


def inside(pc: int, function: int) -> bool:
    return function <= pc < function + FUNCTION_BYTES


KINDS = {
    "null-read": (signal.SIGSEGV, "SEGV_MAPERR", "refault"),
    "null-call": (signal.SIGSEGV, "SEGV_MAPERR", "refault"),
    "wild-stack": (signal.SIGSEGV, "SEGV_MAPERR", "refault"),
    "overflow": (signal.SIGSEGV, None, "refault"),
    "thread": (signal.SIGSEGV, "SEGV_MAPERR", "refault"),
    "abort": (signal.SIGABRT, "SI_TKILL", "requeue"),
    "sent": (signal.SIGSEGV, "SI_USER", "requeue"),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_death_leaves_a_complete_record(machine: Machine, program: Path, tmp_path: Path, kind: str) -> None:
    number, code, how = KINDS[kind]

    death = die(machine, program, tmp_path, kind)

    assert death.status == -number
    assert death.member("schema") == "ftforensics.crash/1"
    assert death.member("signal", "number") == number
    if code is not None:  # where a stack ends, the kernel says MAPERR or ACCERR by its stack_guard_gap
        assert death.member("signal", "code_name") == code
    assert death.member("job", "host") == "smoke"
    assert death.member("end", "how") == how
    # One member a line, and the whole a JSON object: the reader's promise for a record cut anywhere.
    lines = death.record_text.rstrip("\n").split("\n")
    assert len(lines) == len(death.record)
    # There is no Python here to dump; everything else is there but for what a wild stack pointer takes away.
    allowed = {"python", "python_threads"}
    if kind == "wild-stack":
        allowed.add("native")
    if machine.emulator or kind == "thread":
        # A busy machine may not have let the other thread run to where it says that it is held.
        allowed.add("held")
    assert set(death.failed_stages()) <= allowed


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "wild-stack"])
def test_the_callers_are_on_the_stack(machine: Machine, program: Path, tmp_path: Path, kind: str) -> None:
    death = die(machine, program, tmp_path, kind)
    walked = death.walked()
    positions = [index for index, pc in enumerate(walked) if inside(pc, death.innermost)]
    assert positions, [hex(pc) for pc in walked]
    if kind != "overflow":  # 2,000 frames of it come before the caller
        assert inside(walked[positions[-1] + 1], death.outer)


def test_a_wild_stack_pointer_leaves_registers_and_the_place(machine: Machine, program: Path, tmp_path: Path) -> None:
    death = die(machine, program, tmp_path, "wild-stack")
    assert inside(int(str(death.member("registers", "pc")), 16), death.innermost)
    assert int(str(death.member("registers", "sp")), 16) <= 0x1000
    assert inside(death.walked()[0], death.innermost)


def test_the_first_frame_stands_on_the_crashed_stack(machine: Machine, program: Path, tmp_path: Path) -> None:
    """And not on the handler's own."""
    death = die(machine, program, tmp_path, "null-read")
    frames = death.member("native", "frames")
    assert isinstance(frames, list)
    assert frames[0]["sp"] == death.member("registers", "sp")
