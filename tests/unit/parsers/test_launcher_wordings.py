"""What each launcher says, in the forms of its versions; and what is said about a death without being evidence."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import pytest

from ftforensics.model.launcher import (
    AttemptBegan,
    ExceptionSeen,
    LauncherEvent,
    ProcessDied,
    ProcessStarted,
    SignalledBy,
)
from ftforensics.parsers.launcher import read_launcher_log
from ftforensics.parsers.launcher_deepspeed import DeepspeedReader
from ftforensics.parsers.launcher_line import job_lines


def events(text: str | bytes) -> list[LauncherEvent]:
    return read_launcher_log(text.encode() if isinstance(text, str) else text).events


def died(text: str | bytes) -> ProcessDied:
    (event,) = events(text)
    assert isinstance(event, ProcessDied)
    return event


# --- torchrun ---------------------------------------------------------------------------------------------------------

GENERATIONS = [
    "ERROR:torch.distributed.elastic.multiprocessing.api:",
    "[2024-10-28 06:14:37,244] torch.distributed.elastic.multiprocessing.api: [ERROR] ",
    "E0517 08:24:03.805000 140123 torch/distributed/elastic/multiprocessing/api.py:826] ",
    "E0517 08:24:03.805000 140123 site-packages/torch/distributed/elastic/multiprocessing/api.py:869] [1/4] ",
    "0: E0517 08:24:03.805000 140123 torch/distributed/elastic/multiprocessing/api.py:826] ",
]


@pytest.mark.parametrize("prefix", GENERATIONS)
def test_torchrun_log_line(prefix: str) -> None:
    event = died(f"{prefix}failed (exitcode: -9) local_rank: 3 (pid: 438) of binary: /opt/conda/bin/python3.11\n")
    assert (event.launcher, event.pid, event.local_rank, event.signal, event.code) == ("torchrun", 438, 3, 9, None)
    assert event.program == "/opt/conda/bin/python3.11"
    assert event.first


def test_torchrun_function() -> None:
    event = died("failed (exitcode: 1) local_rank: 0 (pid: 12) of fn: train (start_method: spawn)\n")
    assert (event.pid, event.code, event.signal, event.command, event.program) == (12, 1, None, "train", None)


def test_137_of_torchrun_stays_a_code() -> None:
    """It may be the shell's word for a signal or the program's own."""
    event = died("failed (exitcode: 137) local_rank: 0 (pid: 12) of binary: /bin/bash\n")
    assert (event.code, event.signal) == (137, None)


@pytest.mark.parametrize(
    ("line", "pid", "signal"),
    [
        ("Sending process 41 closing signal SIGTERM", 41, 15),
        ("Sending process 41 closing signal SIGINT", 41, 2),
        ("Closing process 41 via signal SIGTERM", 41, 15),
        ("Unable to shutdown process 41 via Signals.SIGTERM, forcefully exiting via Signals.SIGKILL", 41, 9),
        ("Unable to shutdown process 41 via 15, forcefully exiting via 9", 41, 9),
    ],
)
def test_torchrun_ends_the_others(line: str, pid: int, signal: int) -> None:
    (event,) = events(f"W1129 14:29:01.474000 10744 torch/distributed/elastic/multiprocessing/api.py:1028] {line}\n")
    assert isinstance(event, SignalledBy)
    assert (event.launcher, event.pid, event.signal, event.also_dead) == ("torchrun", pid, signal, False)


SUMMARY_1_9 = """\
***************************************
         train.py FAILED
=======================================
Root Cause:
[0]:
  time: 2021-07-15_12:14:21
  rank: 5 (local_rank: 1)
  exitcode: -9 (pid: 1085)
  error_file: <N/A>
  msg: "Signal 9 (SIGKILL) received by PID 1085"
=======================================
Other Failures:
[1]:
  time: 2021-07-15_12:14:22
  rank: 4 (local_rank: 0)
  exitcode: 1 (pid: 1084)
  error_file: <N/A>
  msg: "Process failed with exitcode 1"
***************************************
"""


def test_summary_of_torch_1_9() -> None:
    found = [(one.pid, one.rank, one.signal, one.code, one.first) for one in events(SUMMARY_1_9)]  # type: ignore[union-attr]
    assert found == [(1085, 5, 9, None, True), (1084, 4, None, 1, False)]


def test_summary_cut_at_its_start() -> None:
    event = died("  rank      : 3 (local_rank: 1)\n  exitcode  : -9 (pid: 77)  (SIGKILL)\n")
    assert (event.rank, event.pid, event.signal, event.first, event.host) == (3, 77, 9, False, None)


def test_a_hostile_program_name() -> None:
    event = died(
        b"failed (exitcode: -9) local_rank: 0 (pid: 5) of binary: /tmp/\x1b[31mevil\x1b]0;t\x07\xff (pid: 6)\n"
    )
    assert event.pid == 5
    assert event.program is not None
    assert "\x1b" not in event.program


# --- DeepSpeed --------------------------------------------------------------------------------------------------------


def spawned(pid: int, arguments: str, node: str = "") -> str:
    tag = "[2026-11-29 14:29:37,235] [INFO] [launch.py:245:main]"
    return f"{node}{tag} process {pid} spawned with command: ['python', '-u', 'train.py'{arguments}]\n"


def exits(code: int, arguments: str, node: str = "") -> str:
    tag = "[2026-11-29 14:29:42,288] [ERROR] [launch.py:259:sigkill_handler]"
    return f"{node}{tag} ['python', '-u', 'train.py'{arguments}] exits with return code = {code}\n"


WORLD = "[2026-11-29 14:29:37,234] [INFO] [launch.py:152:main] WORLD INFO DICT: {'localhost': [0, 1]}\n"
ONE_NODE = "[2026-11-29 14:29:37,234] [INFO] [launch.py:158:main] nnodes=1, num_local_procs=2, node_rank=0\n"
TWO_NODES = "[2026-11-29 14:29:37,234] [INFO] [launch.py:158:main] nnodes=2, num_local_procs=1, node_rank=0\n"


def last_died(text: str) -> ProcessDied:
    return [one for one in events(text) if isinstance(one, ProcessDied)][-1]


def done(pid: int, node: str = "") -> str:
    return f"{node}[2026-11-29 14:29:41,288] [INFO] [launch.py:351:main] Process {pid} exits successfully.\n"


@pytest.mark.parametrize("rank", ["", ", '--local_rank=0'", ", '--local_rank=1'"])
def test_deepspeed_names_the_last_that_it_started_whoever_died(rank: str) -> None:
    ranks = [", '--local_rank=0'", ", '--local_rank=1'"] if rank else ["", ""]
    event = last_died(WORLD + ONE_NODE + spawned(10, ranks[0]) + spawned(11, ranks[1]) + exits(-9, rank))
    assert (event.pid, event.rank, event.local_rank, event.signal, event.one_of) == (None, None, None, 9, [10, 11])


def test_deepspeed_with_one_process_left_means_that_one() -> None:
    text = WORLD + ONE_NODE + spawned(10, ", '--local_rank=0'") + spawned(11, ", '--local_rank=1'")
    event = last_died(text + done(11) + exits(-9, ", '--local_rank=1'"))
    assert (event.pid, event.rank, event.one_of) == (10, 0, [])
    single = ONE_NODE.replace("num_local_procs=2", "num_local_procs=1")
    event = last_died(WORLD + single + spawned(10, ", '--local_rank=0'") + exits(-9, ", '--local_rank=0'"))
    assert (event.pid, event.rank, event.one_of) == (10, 0, [])


@pytest.mark.parametrize("head", ["", ONE_NODE], ids=["no size", "one is missing"])
def test_deepspeed_in_a_log_without_its_beginning_names_nobody(head: str) -> None:
    event = last_died(head + spawned(11, ", '--local_rank=1'") + exits(-9, ", '--local_rank=1'"))
    assert (event.pid, event.rank, event.local_rank, event.signal, event.one_of) == (None, None, None, 9, [])


def test_deepspeed_of_an_earlier_launch_is_not_meant() -> None:
    single = ONE_NODE.replace("num_local_procs=2", "num_local_procs=1")
    first = WORLD + single + spawned(10, ", '--local_rank=0'") + exits(-9, ", '--local_rank=0'")
    second = WORLD + single + spawned(20, ", '--local_rank=0'") + exits(-11, ", '--local_rank=0'")
    pids = [(one.pid, one.signal) for one in events(first + second) if isinstance(one, ProcessDied)]
    assert pids == [(10, 9), (20, 11)]


def test_deepspeed_on_two_nodes_through_pdsh() -> None:
    rank = ", '--local_rank=0'"
    text = "".join(f"{node}: {line}" for node in ("worker-1", "worker-2") for line in (WORLD, TWO_NODES))
    text += spawned(10, rank, "worker-1: ") + spawned(10, rank, "worker-2: ")
    event = last_died(text + exits(-9, rank, "worker-2: "))
    assert (event.pid, event.rank, event.local_rank) == (10, None, 0)  # a local rank is no rank on two nodes


def test_deepspeed_of_a_node_too_many_or_with_too_many_processes_names_nobody() -> None:
    """A made-up log, of which no more is remembered than of a real one."""
    reader = DeepspeedReader()
    for node in range(5000):
        for line in (WORLD, ONE_NODE.replace("procs=2", "procs=1"), spawned(10, "")):
            list(reader.read(next(iter(job_lines(f"node-{node}: {line}".encode(), 1)))))
    assert len(reader._launches) <= 4096
    many = ONE_NODE.replace("procs=2", "procs=1000") + "".join(spawned(pid, "") for pid in range(1000, 2000))
    event = last_died(WORLD + many + "".join(done(pid) for pid in range(1001, 2000)) + exits(-9, ""))
    assert (event.pid, event.one_of, event.signal) == (None, [], 9)


def test_deepspeed_other_form_of_the_rank() -> None:
    text = WORLD + ONE_NODE + spawned(10, ", '--local-rank', '1', '--out', 'a]b'")
    began, started = events(text)[:2]
    assert isinstance(began, AttemptBegan)
    assert isinstance(started, ProcessStarted)
    assert (started.pid, started.local_rank, started.rank) == (10, 1, 1)


def test_deepspeed_long_command_keeps_its_end() -> None:
    long = ", '--x'" * 500
    event = last_died(WORLD + ONE_NODE.replace("procs=2", "procs=1") + spawned(10, long) + exits(-9, long))
    assert event.pid == 10
    assert event.line.text.endswith("exits with return code = -9")
    assert len(event.line.text) <= 300


def test_torch_distributed_launch_of_old() -> None:
    (event,) = events("Killing subprocess 4711\n")
    assert isinstance(event, SignalledBy)
    assert (event.launcher, event.pid, event.also_dead) == ("torch.distributed.launch", 4711, True)


# --- DataLoader -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("word", "signal"),
    [
        ("Killed", 9), ("Getötet", 9), ("Processus arrêté", 9), ("Terminado (killed)", 9), ("已杀死", 9),
        ("強制終了", 9), ("Убито", 9), ("Bus error", 7), ("Bus-Zugriffsfehler", 7), ("总线错误", 7),
        ("Segmentation fault", 11), ("段错误", 11), ("Terminated", 15), ("Aborted", 6), ("Unknown signal 40", 40),
        ("Tuezh", None), ("", None),
    ],
)  # fmt: skip
def test_dataloader_signal_in_any_language(word: str, signal: int | None) -> None:
    found = [
        one for one in events(f"RuntimeError: DataLoader worker (pid 91) is killed by signal: {word}. \n")
        if isinstance(one, ProcessDied)
    ]  # fmt: skip
    assert [(one.pid, one.signal, one.worker) for one in found] == ([(91, signal, True)] if word else [])


def test_dataloader_several() -> None:
    found = events("RuntimeError: DataLoader worker (pid(s) 91, 92) exited unexpectedly\n")
    assert [(one.pid, one.signal, one.code) for one in found] == [(91, None, None), (92, None, None)]  # type: ignore[union-attr]


# --- the rest ---------------------------------------------------------------------------------------------------------


def test_spawn() -> None:
    old = died("Exception: process 0 terminated with signal SIGKILL\n")
    assert (old.launcher, old.local_rank, old.signal) == ("mp.spawn", 0, 9)
    assert died("-- Process 2 terminated with the following error:\n").code == 1
    (killed,) = events("Unable to shutdown process 31 via SIGTERM , forcefully exiting via SIGKILL\n")
    assert isinstance(killed, SignalledBy)
    assert (killed.launcher, killed.pid, killed.signal) == ("mp.spawn", 31, 9)


@pytest.mark.parametrize("signal", ["KILL", "SEGV", "ABRT", "BUS", "FPE", "ILL", "TERM"])
def test_bash_itself(signal: str) -> None:
    bash = shutil.which("bash")
    assert bash is not None
    code = f'import os; print("pid", os.getpid(), flush=True); os.kill(os.getpid(), {signal_number(signal)})'
    done = subprocess.run(
        [bash, "-c", f"\"{sys.executable}\" -c '{code}'\ntrue\n"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={"LC_ALL": "C", "PATH": os.defpath},
        check=False,
    )
    event = died(done.stdout)
    assert event.launcher == "shell"
    assert event.signal == signal_number(signal)
    if signal != "TERM":  # of which bash says the word alone
        assert event.pid == int(done.stdout.split()[1])
        assert event.command is not None
        assert event.command.startswith(f'"{sys.executable}"')


def signal_number(name: str) -> int:
    import signal

    return int(getattr(signal, f"SIG{name}"))


@pytest.mark.parametrize(
    ("line", "pid", "signal"),
    [
        ("train.sh: line 28:  8156 Killed                  python3 main.py", 8156, 9),
        ("/a b/train.sh: line 3: 71 Segmentation fault      (core dumped) python3 main.py --x", 71, 11),
        ("train.sh: Zeile 28:  8156 Getötet                python3 main.py", 8156, 9),
        ("train.sh: ligne 28 :  8156 Processus arrêté      python3 main.py", 8156, 9),
        ("train.sh: 第 28 行:  8156 已杀死               python3 main.py", 8156, 9),
        ("train.sh: 28 行:  8156 強制終了            python3 main.py", 8156, 9),
        ("train.sh: línea 28:  8156 Matado              python3 main.py", 8156, 9),
        ("line 30: 7 Killed", None, None),  # no script's name: not the shell's whole line
        ("[1]+  Killed                  python3 main.py", None, 9),
        ("[1]  + 8156 killed     python3 main.py", 8156, 9),
        ("zsh: segmentation fault  python3 main.py", None, 11),
        ("fish: Job 1, 'python3 main.py' terminated by signal SIGKILL (Forced quit)", None, 9),
        ("Killed", None, 9),
        ("已杀死", None, 9),
        ("Segmentation fault (core dumped)", None, 11),
        ("Aborted (core dumped)", None, 6),
        ("Terminated", None, 15),
        ("Terminado", None, None),  # a job may say so at its good end
        ("Killed 3 stale actors", None, None),
        ("I was Killed", None, None),
        ("step 3: 12 Killed", None, None),
    ],
)
def test_shells(line: str, pid: int | None, signal: int | None) -> None:
    found = events(line + "\n")
    if signal is None:
        assert found == []
        return
    (event,) = found
    assert isinstance(event, ProcessDied)
    assert (event.launcher, event.pid, event.signal) == ("shell", pid, signal)


def test_gnu_time() -> None:
    assert died("Command terminated by signal 9\n").signal == 9
    assert died("Command exited with non-zero status 3\n").code == 3


def test_subprocess_itself() -> None:
    code = (
        "import subprocess, sys\n"
        "subprocess.run([sys.executable, '-c', 'import os; os.kill(os.getpid(), 9)'], check=True)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    found = events(done.stderr)
    event = next(one for one in found if isinstance(one, ProcessDied))
    assert (event.launcher, event.signal, event.code) == ("subprocess", 9, None)
    assert event.command is not None
    assert "os.getpid()" in event.command
    raised = next(one for one in found if isinstance(one, ExceptionSeen))
    assert (raised.type, raised.peer_lost) == ("subprocess.CalledProcessError", True)


def test_subprocess_with_a_shells_status() -> None:
    event = died("subprocess.CalledProcessError: Command '['bash', 'x']' returned non-zero exit status 137.\n")
    assert (event.signal, event.code, event.command) == (None, 137, "['bash', 'x']")


@pytest.mark.parametrize(("code", "signal", "exit_code"), [(-9, 9, None), (1, None, 1), (-11, 11, None)])
def test_lightning(code: int, signal: int | None, exit_code: int | None) -> None:
    event = died(
        f"[rank: 1] Child process with PID 1234 terminated with code {code}. Forcefully terminating all other processes"
        " to"
        " avoid zombies 🧟\n"
    )
    assert (event.launcher, event.pid, event.rank) == ("lightning", 1234, 1)
    assert (event.signal, event.code) == (signal, exit_code)


def test_open_mpi() -> None:
    event = died("mpirun noticed that process rank 1 with PID 0 on node gpu7 exited on signal 9 (Killed).\n")
    assert (event.launcher, event.rank, event.pid, event.host, event.signal) == ("mpi", 1, None, "gpu7", 9)
    assert died("prterun noticed that process rank 0 with PID 99 on node a exited on signal 11.\n").pid == 99


@pytest.mark.parametrize("program", ["mpirun", "mpirun.openmpi", "orterun", "prterun", "mpiexec.openmpi", "mpirun-5.0"])
def test_open_mpi_names_itself_as_it_was_called(program: str) -> None:
    noticed = f"{program} noticed that process rank 1 with PID 0 on node localhost exited on signal 9 (Killed).\n"
    event = died(noticed)
    assert (event.launcher, event.rank, event.pid, event.host, event.signal) == ("mpi", 1, None, "localhost", 9)
    event = died(
        f"{program} detected that one or more processes exited with non-zero status, thus causing\n"
        "the job to be terminated. The first process to do so was:\n\n"
        "  Process name: [[21855,1],1]\n  Exit code:    3\n"
    )
    assert (event.launcher, event.rank, event.signal, event.code, event.first) == ("mpi", 1, None, 3, True)


def test_a_job_that_notices_something_is_no_launcher() -> None:
    assert events("trainer noticed that process rank 1 with PID 7 on node n1 exited on signal 9 (Killed).\n") == []
    assert events("mpirunner noticed that process rank 1 with PID 7 on node n1 exited on signal 9.\n") == []
    assert events("The run exited with non-zero status.\n  Process name: [[1,1],1]\n  Exit code:    3\n") == []


def test_open_mpi_and_horovod_summary() -> None:
    text = (
        "mpirun detected that one or more processes exited with non-zero status, thus causing\n"
        "the job to be terminated. The first process to do so was:\n\n"
        "  Process name: [[51239,1],3]\n  Exit code:    5\n"
    )
    event = died(text.replace("causing\nthe job", "causing the job"))
    assert (event.rank, event.code) == (3, 5)
    gloo = "Horovod detected that one or more processes exited with non-zero status"
    event = died(
        f"{gloo}, thus causing the job to be terminated. The first process to do so was:\n"
        "Process name: 1\nExit code: -9\n"
    )
    assert (event.rank, event.signal) == (1, 9)
    assert events("  Process name: [[51239,1],3]\n  Exit code:    5\n") == []


HYDRA = """\
===================================================================================
=   BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES
=   PID 4242 RUNNING AT gpu7
=   EXIT CODE: 9
=   CLEANING UP REMAINING PROCESSES
=   YOU CAN IGNORE THE BELOW CLEANUP MESSAGES
===================================================================================
"""


def test_hydra() -> None:
    killed = died(HYDRA + "YOUR APPLICATION TERMINATED WITH THE EXIT STRING: Killed (signal 9)\n")
    assert (killed.launcher, killed.pid, killed.host, killed.signal, killed.code) == ("hydra", 4242, "gpu7", 9, None)
    code = died(HYDRA)
    assert (code.signal, code.code) == (None, 9)
    intel = died("=   RANK 1 PID 88 RUNNING AT n2\n=   KILLED BY SIGNAL: 11 (Segmentation fault)\n")
    assert (intel.rank, intel.pid, intel.signal) == (1, 88, 11)


def test_srun() -> None:
    event = died("srun: error: c002: task 0: Killed\n")
    assert (event.launcher, event.host, event.rank, event.signal) == ("slurm", "c002", 0, 9)
    several = events("srun: error: n07: tasks 0-2,5: Exited with exit code 1\n")
    assert [(one.rank, one.code) for one in several] == [(0, 1), (1, 1), (2, 1), (5, 1)]  # type: ignore[union-attr]
    assert died("srun: error: n07: task 3: Out Of Memory\n").signal is None
    assert died("srun: error: n07: task 3: Segmentation fault (core dumped)\n").signal == 11


def test_tasks_that_are_agents_have_no_rank() -> None:
    agent = "W1129 14:29:01.4 10744 torch/distributed/elastic/multiprocessing/api.py:1028] x\n"
    assert died(agent + "srun: error: n07: task 3: Exited with exit code 1\n").rank is None


GUESSES = [
    "It is possible that dataloader's workers are out of shared memory. Please try to raise your shared memory limit.",
    "Worker exit type: SYSTEM_ERROR Worker exit detail: Worker unexpectedly exits with a connection error code 2."
    " End of file. There are some potential root causes. (1) The process is killed by SIGKILL by OOM killer due to high"
    " memory"
    " usage. (2) ray stop --force is called. (3) The worker is crashed unexpectedly due to SIGSEGV or other errors.",
    "A worker died or was killed while executing a task by an unexpected system error.",
    "The actor is dead because its worker process has died. exit code None. The worker may have exceeded K8s pod memory"
    " limits.",
    "Process finished with exit code 137 (interrupted by signal 9: SIGKILL)",
    "command terminated with exit code 137",
    "exited with code 247, which usually means out of memory",
    "[2026-11-29 14:29:42,246] [INFO] [launch.py:316:sigkill_handler] Main process received SIGINT, exiting",
    "Root Cause (first observed failure): the OOM killer, says a wiki",
    "slurmstepd: error: Detected 1 oom_kill event in StepId=191.0. Some of the step tasks have been OOM Killed.",
    "my notes: torchrun prints failed (exitcode: -9) when killed",
    "exitcode  : -9",
    "killed by signal: Killed.",
    "The job was Killed. Sorry.",
]


@pytest.mark.parametrize("guess", GUESSES)
def test_guesses_are_no_events(guess: str) -> None:
    assert events(guess + "\n") == []


# --- Ray --------------------------------------------------------------------------------------------------------------

ACTOR = """\
ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task.
\tclass_name: Trainer
\tactor_id: 38ba59b0f66c9bbbefd895f201000000
\tpid: 26013
\tnamespace: 955a4830-ea86-4676-9705-6b99cafe0fde
\tip: 192.0.2.2
The actor is dead because its worker process has died. Worker exit type: SYSTEM_ERROR Worker exit detail: Worker \
unexpectedly exits with a connection error code 2. End of file. Some common causes include: (1) the process was killed \
by the OOM killer due to high memory usage, (2) ray stop --force was called, or (3) the worker crashed unexpectedly \
due to SIGSEGV or another unexpected error.
"""


@pytest.mark.parametrize("label", ["", "(Driver pid=7, ip=10.0.0.1) "])
def test_an_actor_that_died(label: str) -> None:
    text = "".join(f"{label}{line}\n" for line in ACTOR.splitlines())
    event = died(text)
    assert (event.launcher, event.pid, event.host) == ("ray", 26013, "192.0.2.2")
    assert (event.signal, event.code, event.rank, event.first) == (None, None, None, False)
    assert "The actor died unexpectedly" in event.line.text


@pytest.mark.parametrize(
    "text",
    [
        ACTOR.replace("SYSTEM_ERROR", "INTENDED_USER_EXIT"),
        ACTOR.replace("its worker process has died", "it was killed by `ray.kill`"),
        ACTOR.replace("\tpid: 26013\n", ""),
        ACTOR.replace("pid: 26013", "pid: 0"),
        ACTOR.replace("pid: 26013", "pid: many"),
        ACTOR.partition("The actor is dead")[0],
        ACTOR.replace("\tip", "step 3\n\tip"),
        ACTOR.replace("ray.exceptions.ActorDiedError: ", ""),
        ACTOR.replace("\tip", "\n" * 20 + "\tip"),
    ],
)
def test_an_actor_of_which_nothing_is_stated(text: str) -> None:
    assert events(text) == []


def test_an_actor_whose_pid_another_process_prints() -> None:
    lines = ACTOR.splitlines()
    mixed = [*lines[:3], "(Other pid=9, ip=10.0.0.3) \tpid: 4", *lines[3:]]
    assert died("\n".join(mixed) + "\n").pid == 26013
