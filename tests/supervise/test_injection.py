"""What reaches into a job that knows nothing of us: the environment, the start file, the preload."""

from __future__ import annotations

import json
import os
import shutil
import signal
import struct
import subprocess
import sys
import textwrap
from collections.abc import Callable
from multiprocessing import resource_tracker
from pathlib import Path

import pytest

from conditions import PYTHONS, ROOT, Interpreter, needs_aarch64_compiler, needs_cc
from ftforensics.capture import autostart, session
from ftforensics.supervise import injection
from ftforensics.supervise.injection import environment
from supervised import wait_for

SRC = ROOT / "src"
START_FILE = SRC / injection.STARTER
CRASH = "import ctypes; ctypes.string_at(0)"


@pytest.fixture(scope="session")
def environments(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Interpreter], Path]:
    """A virtual environment for each Python, with this source tree and the start file as an editable installation
    leaves them. Gives its interpreter."""
    made: dict[Interpreter, Path] = {}

    def get(python: Interpreter) -> Path:
        if python not in made:
            folder = tmp_path_factory.mktemp("environment")
            subprocess.run([python.path, "-m", "venv", "--without-pip", str(folder)], check=True)
            (packages,) = folder.glob("lib/python3*/site-packages")
            (packages / "__editable__.ftforensics.pth").write_text(f"{SRC}\n")
            shutil.copy(START_FILE, packages)
            made[python] = folder / "bin" / "python"
        return made[python]

    return get


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "records"
    made.mkdir()
    return made


def job(
    python: Path, folder: Path, code: str, *flags: str, asked: bool = True, **variables: str
) -> subprocess.CompletedProcess[str]:
    """A program that does not mention us, run as `run` would run it."""
    program = folder.parent / "program.py"
    program.write_text(textwrap.dedent(code))
    base = {"PATH": os.environ["PATH"], "HOME": str(folder.parent), **variables}
    prepared = environment(base, str(folder), False, [str(python)])[0] if asked else base
    return subprocess.run(
        [str(python), *flags, str(program)],
        cwd=folder.parent,
        env=prepared,
        capture_output=True,
        text=True,
        timeout=100,
    )


def test_a_crash_is_recorded_without_a_line_of_code(
    python: Interpreter, environments: Callable[[Interpreter], Path], folder: Path
) -> None:
    done = job(environments(python), folder, CRASH)
    assert done.returncode == -signal.SIGSEGV
    (path,) = folder.glob("*.crash.json")
    record = json.loads(path.read_text())
    assert record["signal"]["name"] == "SIGSEGV"
    assert "program.py" in record["python"]["text"]


ENDS = {
    "returns": "pass",
    "exits": "import sys; sys.exit(3)",
    "raises": "raise ValueError",
    "leaves": "import os; os._exit(0)",
    "becomes another program": "import os; os.execv('/bin/true', ['true'])",
    "isolated": "import subprocess, sys; subprocess.run([sys.executable, '-I', '-c', ''], check=True)",
    "forks": """
        import os
        if os.fork() == 0:
            os._exit(0)
        os.wait()
        """,
    "starts more": """
        import concurrent.futures, multiprocessing
        if __name__ == "__main__":
            for method in ("spawn", "fork", "forkserver"):
                with concurrent.futures.ProcessPoolExecutor(2, multiprocessing.get_context(method)) as pool:
                    assert list(pool.map(abs, [-1, -2])) == [1, 2]
        """,
}


# What a bad end leaves; `run` takes it away when the run as a whole ended well (test_leftovers.py).
LEFT = {"exits": ["ring"], "raises": ["exception.json", "ring"]}


@pytest.mark.parametrize("end", ENDS)
def test_what_ends_by_itself_is_not_noticed_and_a_good_end_leaves_nothing(
    end: str, environments: Callable[[Interpreter], Path], folder: Path
) -> None:
    python = environments(PYTHONS[-1])
    with_us = job(python, folder, ENDS[end], "-W", "error::DeprecationWarning")
    without = job(python, folder, ENDS[end], "-W", "error::DeprecationWarning", asked=False)
    assert (with_us.returncode, with_us.stdout, with_us.stderr) == (without.returncode, without.stdout, without.stderr)
    left = sorted(path.name.partition(".")[2] for path in folder.iterdir())
    assert left == LEFT.get(end, [])


SEEN = "import sys; print(sorted(name for name in sys.modules if name.startswith('ftforensics')))"


def test_unasked_nothing_of_us_is_loaded(
    python: Interpreter, environments: Callable[[Interpreter], Path], folder: Path
) -> None:
    done = job(environments(python), folder, SEEN, asked=False)
    assert (done.stdout, done.stderr) == ("[]\n", "")
    assert "ftforensics.capture.autostart" in job(environments(python), folder, SEEN).stdout


@pytest.mark.parametrize("flags", [("-S",), ("-I", "-S")])
def test_an_interpreter_that_skips_site_is_left_alone(
    flags: tuple[str, ...], environments: Callable[[Interpreter], Path], folder: Path
) -> None:
    assert job(environments(PYTHONS[0]), folder, SEEN, *flags).stdout == "[]\n"


def test_unasked_the_line_costs_as_much_as_any_start_file(
    python: Interpreter, environments: Callable[[Interpreter], Path], folder: Path
) -> None:
    """What site does with such a file at every start: read it and execute its line. Beside it a file that says no more
    than `import os`; the best of many, since the machine is shared."""
    least = folder.parent / "least.pth"
    least.write_text("import os\n")
    code = f"""
        import time
        best = dict.fromkeys([{str(START_FILE)!r}, {str(least)!r}], 1.0)
        for _ in range(500):
            for path in best:
                started = time.perf_counter()
                with open(path, encoding="utf-8") as file:
                    for line in file:
                        exec(line)
                best[path] = min(best[path], time.perf_counter() - started)
        print(*best.values())
        """
    ours, least_possible = map(float, job(environments(python), folder, code, asked=False).stdout.split())
    print(f"{ours * 1e6:.1f} us, a file with `import os` {least_possible * 1e6:.1f} us")
    assert ours < 2.5 * least_possible


def test_the_file_is_one_line_that_site_executes() -> None:
    (line,) = START_FILE.read_text().splitlines()
    assert line.startswith("import ")


BROKEN = {
    "package gone": "",
    "package without its parts": "raise RuntimeError('half an upgrade')\n",
    "syntax": "def\n",
}


@pytest.mark.parametrize("state", BROKEN)
def test_a_broken_installation_says_nothing(
    state: str, environments: Callable[[Interpreter], Path], folder: Path
) -> None:
    """pip removed the package and not the file, or stopped half-way: every Python there starts through this line."""
    shadow = folder.parent / "shadow"
    (shadow / "ftforensics").mkdir(parents=True)
    if BROKEN[state]:
        (shadow / "ftforensics" / "__init__.py").write_text(BROKEN[state])
    else:
        (shadow / "ftforensics.py").write_text("")
    done = job(environments(PYTHONS[0]), folder, "print('runs')", PYTHONPATH=str(shadow))
    assert (done.returncode, done.stdout, done.stderr) == (0, "runs\n", "")


@pytest.mark.parametrize("home", ["home", "file"], ids=["elsewhere", "nowhere"])
def test_a_folder_that_cannot_be_written_is_no_reason_to_speak(
    home: str, environments: Callable[[Interpreter], Path], tmp_path: Path
) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    variables = {"PATH": os.environ["PATH"], "HOME": str(tmp_path / home), "TMPDIR": str(blocked)}
    prepared = environment(variables, str(blocked / "records"), False, [])[0]
    command = [str(environments(PYTHONS[0])), "-c", "print('runs')"]
    done = subprocess.run(command, env=prepared, capture_output=True, text=True, cwd="/proc")
    assert (done.returncode, done.stdout, done.stderr) == (0, "runs\n", "")


def test_a_job_that_installs_itself_has_its_way(environments: Callable[[Interpreter], Path], folder: Path) -> None:
    own = folder.parent / "own"
    code = f"import ftforensics; ftforensics.install(dir={str(own)!r}, helper='none')\n{CRASH}"
    done = job(environments(PYTHONS[0]), folder, code)
    assert done.returncode == -signal.SIGSEGV
    assert len(list(own.glob("*.crash.json"))) == 1
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize(
    ("argv", "own"),
    [
        (["/usr/bin/python", "/usr/bin/ftforensics", "analyze", "x"], "analyze"),
        (["python", "-I", "-m", "ftforensics", "crash-reporter"], "crash-reporter"),
        (["python", "-m", "ftforensics", "run", "--", "python", "train.py"], "run"),
        (["python", "-I", "-c", "import sys; from ftforensics.cli import main; main()", "ledger", "7"], "ledger"),
        (["python", "-m", "ftforensics"], ""),
        (["python", "-m", "torch.distributed.run", "ftforensics"], None),
        (["python", "train.py", "--tag", "ftforensics"], None),
        (["python", "-c", "pass", "-m", "ftforensics"], None),
        (["python", "-m"], None),
        (["python"], None),
    ],
)
def test_our_own_command_is_no_part_of_the_job(argv: list[str], own: str | None) -> None:
    assert autostart._own_command(argv) == own


@pytest.mark.parametrize(("command", "kept"), [("analyze", False), ("run", True)])
def test_our_command_inside_a_job_is_not_captured(command: str, kept: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor is what it starts, but for the job of `run`, which has to know of the `run` above it."""
    monkeypatch.setattr(sys, "orig_argv", ["python", "-m", "ftforensics", command])
    monkeypatch.setenv(autostart.ASKED, "1")
    monkeypatch.setattr(session, "install_unasked", lambda: pytest.fail("captured"))
    autostart.start()
    assert (autostart.ASKED in os.environ) is kept


def test_the_resource_tracker_of_multiprocessing_is_not_captured(monkeypatch: pytest.MonkeyPatch) -> None:
    """It runs nothing of the job's and outlives it."""
    resource_tracker.ensure_running()
    told = Path(f"/proc/{resource_tracker._resource_tracker._pid}/cmdline")
    wait_for(told.read_bytes)  # execve(2) lets the parent of a vfork(2) go on before the arguments are in their place
    argv = told.read_bytes().decode().split("\0")[:-1]
    monkeypatch.setattr(sys, "orig_argv", argv)
    monkeypatch.setenv(autostart.ASKED, "1")
    monkeypatch.setattr(session, "install_unasked", lambda: pytest.fail("captured"))
    autostart.start()
    assert os.environ[autostart.ASKED] == "1"


# The environment.


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(injection, "shim", lambda: "/lib/ftf.so")
    return "/lib/ftf.so"


def prepared(*command: str, preload: bool = True, **variables: str) -> tuple[dict[str, str], list[str]]:
    made, refused = environment({"PATH": os.environ["PATH"], **variables}, "/run/folder", preload, command)
    return made, [f"{source}: {why}" for source, why, _ in refused]


def test_the_ask_and_the_folder_are_set_and_nothing_is_lost(library: str) -> None:
    made, refused = prepared("/bin/true", FTFORENSICS_DIR="/old", RANK="3")
    assert made == {
        "PATH": os.environ["PATH"],
        "RANK": "3",
        "FTFORENSICS_RUN": "1",
        "FTFORENSICS_DIR": "/run/folder",
        "LD_PRELOAD": library,
    }
    assert refused == []


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", "/lib/ftf.so"),
        ("/a.so", "/a.so:/lib/ftf.so"),
        ("/a.so:/b.so", "/a.so:/b.so:/lib/ftf.so"),
        ("/a.so /b.so", "/a.so /b.so /lib/ftf.so"),
        ("/a.so:", "/a.so:/lib/ftf.so"),
        ("/a.so:/lib/ftf.so", "/a.so:/lib/ftf.so"),
    ],
)
def test_the_users_preloads_stay_first(before: str, after: str, library: str) -> None:
    assert prepared("/bin/true", LD_PRELOAD=before)[0]["LD_PRELOAD"] == after


def test_no_preload_means_none(library: str) -> None:
    made, refused = prepared("/bin/true", preload=False, LD_PRELOAD="/a.so")
    assert made["LD_PRELOAD"] == "/a.so"
    assert refused == []


RUNNERS = [
    ["docker", "run", "image"],
    ["/usr/bin/podman", "run"],
    ["sudo", "-E", "docker", "run"],
    ["env", "A=b", "nice", "-n", "5", "singularity", "exec", "x.sif", "python"],
    ["apptainer", "run"],
    ["srun", "-n", "2", "--container-image=x", "python"],
    ["srun", "enroot", "start"],
    ["unshare", "--root=/other", "sh"],
    ["unshare", "-R", "/other", "sh"],
    ["chroot", "/other", "python"],
    ["kubectl", "exec"],
    ["bwrap", "--bind", "/", "/", "sh"],
]


@pytest.mark.parametrize("command", RUNNERS, ids=" ".join)
def test_a_container_runner_gets_no_preload(command: list[str], library: str) -> None:
    made, refused = prepared(*command)
    assert "LD_PRELOAD" not in made
    assert [line.split(":")[0] for line in refused if "sudo" not in line] == ["injection", "preload"]


NOT_RUNNERS = [
    ["python", "train.py", "docker"],
    ["env", "A=b", "python", "podman"],
    ["srun", "-n", "2", "python", "x"],
    ["unshare", "-p", "-f", "python"],
    ["numactl", "-m", "0", "--cpunodebind=0", "python"],
    ["timeout", "-k", "5s", "1h", "python"],
]


@pytest.mark.parametrize("command", NOT_RUNNERS, ids=" ".join)
def test_other_commands_get_it(command: list[str], library: str) -> None:
    made, refused = prepared(*command)
    assert made["LD_PRELOAD"] == library
    assert [line for line in refused if line.startswith("preload")] == []


def refusal(*command: str) -> str:
    made, refused = prepared(*command)
    assert "LD_PRELOAD" not in made
    return next(line for line in refused if line.startswith("preload"))


@needs_aarch64_compiler
def test_another_architecture_gets_none(library: str, tmp_path: Path) -> None:
    (tmp_path / "x.c").write_text("int main(void) { return 0; }")
    subprocess.run(["aarch64-linux-gnu-gcc", "x.c", "-o", "x"], cwd=tmp_path, check=True)
    assert "another architecture" in refusal(str(tmp_path / "x"))
    # Also behind a script, and behind a wrapper.
    script = tmp_path / "script"
    script.write_text(f"#!{tmp_path / 'x'}\n")
    script.chmod(0o755)
    assert refusal("nice", "-n", "1", str(tmp_path / "x"))


@needs_cc
def test_musl_gets_none_and_static_does(library: str, tmp_path: Path) -> None:
    (tmp_path / "x.c").write_text("int main(void) { return 0; }")
    musl = "-Wl,--dynamic-linker=/lib/ld-musl-x86_64.so.1"
    subprocess.run(["gcc", "x.c", "-o", "musl", musl], cwd=tmp_path, check=True)
    subprocess.run(["gcc", "x.c", "-o", "static", "-static"], cwd=tmp_path, check=True)
    assert "musl" in refusal(str(tmp_path / "musl"))
    assert prepared(str(tmp_path / "static"))[0]["LD_PRELOAD"] == library


@needs_cc
def test_setuid_gets_none(library: str, tmp_path: Path) -> None:
    (tmp_path / "x.c").write_text("int main(void) { return 0; }")
    subprocess.run(["gcc", "x.c", "-o", "x"], cwd=tmp_path, check=True)
    (tmp_path / "x").chmod(0o4755)
    assert "setuid" in refusal(str(tmp_path / "x"))


@pytest.mark.parametrize("size", [0, 3, 20, 63, 64, 100, 200])
def test_a_cut_program_is_no_trouble(size: int, library: str, tmp_path: Path) -> None:
    cut = tmp_path / "cut"
    cut.write_bytes(Path(os.path.realpath(sys.executable)).read_bytes()[:size])
    cut.chmod(0o755)
    assert prepared(str(cut))[0]["FTFORENSICS_RUN"] == "1"
    wild = tmp_path / "wild"
    head = bytearray(Path(os.path.realpath(sys.executable)).read_bytes()[:64])
    struct.pack_into("<QHH", head, 32, 2**63, 0, 0)
    struct.pack_into("<HH", head, 54, 0, 65535)
    wild.write_bytes(bytes(head) * 2)
    wild.chmod(0o755)
    assert prepared(str(wild))[0]["FTFORENSICS_RUN"] == "1"


def test_a_path_that_ld_preload_cannot_name_is_a_gap(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(injection, "shim", lambda: "/a folder/ftf.so")
    assert "a blank or a colon" in refusal("/bin/true")


def test_an_installation_without_the_library_is_a_gap(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(injection, "shim", lambda: None)
    assert "no library to preload" in refusal("/bin/true")


def test_a_command_that_is_not_there_is_not_our_trouble(library: str) -> None:
    assert prepared("no-such-command-anywhere")[1] == []
    assert prepared()[1] == []


def test_the_shim_of_this_tree_is_found() -> None:
    found = injection.shim()
    assert found is not None and Path(found).parent == SRC / "ftforensics"


def test_sudo_inside_is_a_gap(library: str) -> None:
    (line,) = prepared("nice", "-n", "1", "sudo", "-u", "somebody", "/bin/true")[1]
    assert line.startswith("injection: sudo starts the job")
    assert prepared("/bin/true", "sudo")[1] == []


# Whether the job's Python has us.


def test_a_python_without_us_is_a_gap_with_its_remedy(library: str, tmp_path: Path) -> None:
    subprocess.run([PYTHONS[0].path, "-m", "venv", "--without-pip", str(tmp_path / "bare")], check=True)
    python = str(tmp_path / "bare" / "bin" / "python")
    torchrun = tmp_path / "torchrun"
    torchrun.write_text(f"#!{python}\n")
    torchrun.chmod(0o755)
    for command in ([python, "train.py"], [str(torchrun), "train.py"], ["nice", "-n", "1", python]):
        _, refused = environment({"PATH": os.environ["PATH"]}, "/run/folder", True, command)
        ((source, why, grant),) = refused
        assert source == "injection"
        assert "not installed in the job's environment" in why
        assert grant is not None and grant.startswith(f"{python} -m pip install --no-deps ")


def test_a_python_with_us_is_none(
    library: str, python: Interpreter, environments: Callable[[Interpreter], Path]
) -> None:
    assert prepared(str(environments(python)), "train.py")[1] == []


def test_a_shell_script_may_start_any_python(library: str) -> None:
    assert prepared("bash", "-c", "python train.py")[1] == []


# All of it.


@needs_cc
def test_the_whole_way(environments: Callable[[Interpreter], Path], folder: Path, tmp_path: Path) -> None:
    """A shell script starts a Python that loads a library that overflows the stack of a thread of its own."""
    source = Path(__file__).with_name("native_thread.c")
    library = tmp_path / "native_thread.so"
    subprocess.run(["gcc", "-O1", "-fPIC", "-shared", "-pthread", str(source), "-o", str(library)], check=True)
    program = f"import ctypes; ctypes.CDLL({str(library)!r}).crash_in_native_thread()"
    command = ["sh", "-c", f'{environments(PYTHONS[-1])} -c "{program}"; exit 7']
    variables, refused = environment({"PATH": os.environ["PATH"], "HOME": str(tmp_path)}, str(folder), True, command)
    assert refused == []
    done = subprocess.run(command, env=variables, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 7
    (path,) = folder.glob("*.crash.json")
    assert json.loads(path.read_text())["signal"]["name"] == "SIGSEGV"
