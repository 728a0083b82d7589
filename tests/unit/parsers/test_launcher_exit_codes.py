"""One SIGKILL, as every launcher and authority spells it; and what may be the child's own status."""

from __future__ import annotations

import pytest

from ftforensics.causes.ending import signal_of
from ftforensics.model.death import Death
from ftforensics.model.launcher import ProcessDied
from ftforensics.parsers.launcher import read_launcher_log
from ftforensics.parsers.notices import read_notices

SUMMARY = "Root Cause (first observed failure):\n[0]:\n  rank      : 1 (local_rank: 1)\n  exitcode  : {} (pid: 77)\n"
NOTICED = "mpirun noticed that process rank 1 with PID 77 on node n1 exited"
HYDRA = (
    "=   BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES\n{}=   EXIT CODE: {}\n"
    "=   CLEANING UP REMAINING PROCESSES\n{}"
)
RUNNING = "=   PID 77 RUNNING AT n1\n"
STRING = "YOUR APPLICATION TERMINATED WITH THE EXIT STRING: Killed (signal 9)\n"
HOROVOD = (
    "Horovod detected that one or more processes exited with non-zero status, thus causing the job to be terminated. "
    "The first process to do so was:\nProcess name: [1,1]\nExit code:    {}\n"
)
FAILED = "failed (exitcode: {}) local_rank: 1 (pid: 77) of binary: /usr/bin/python3\n"

# text, (signal, code) as it is said, the signal that it comes to
SPELLINGS: dict[str, tuple[str, tuple[int | None, int | None], int | None]] = {
    "torchrun 1.9": (f"ERROR:torch.distributed.elastic.multiprocessing.api:{FAILED.format(-9)}", (9, None), 9),
    "torchrun 2.1": (f"[2024-10-28 06:14:37,244] torch.distributed.elastic: [ERROR] {FAILED.format(-9)}", (9, None), 9),
    "torchrun 2.3": (f"E0517 08:24:03.805000 12 torch/distributed/x/api.py:826] {FAILED.format(-9)}", (9, None), 9),
    "torchrun of a shell": (FAILED.format(137), (None, 137), 9),
    "torchrun of sys.exit(-9)": (FAILED.format(247), (None, 247), 9),
    "torchrun summary": (SUMMARY.format("-9"), (9, None), 9),
    "torchrun summary, 137": (SUMMARY.format("137"), (None, 137), 9),
    "deepspeed": (
        "[2026-11-29 14:29:37,234] [ERROR] [launch.py:1:sigkill_handler] ['p'] exits with return code = -9\n",
        (9, None),
        9,
    ),
    "deepspeed of a shell": ("['p'] exits with return code = 137\n", (None, 137), 9),
    "accelerate, subprocess": (
        "subprocess.CalledProcessError: Command '['p']' died with <Signals.SIGKILL: 9>.\n",
        (9, None),
        9,
    ),
    "subprocess of a shell": (
        "subprocess.CalledProcessError: Command 'p' returned non-zero exit status 137.\n",
        (None, 137),
        9,
    ),
    "subprocess of sys.exit(-9)": (
        "subprocess.CalledProcessError: Command 'p' returned non-zero exit status 247.\n",
        (None, 247),
        9,
    ),
    "mp.spawn": (
        "torch.multiprocessing.spawn.ProcessExitedException: process 1 terminated with signal SIGKILL\n",
        (9, None),
        9,
    ),
    "mp.spawn 1.4": ("Exception: process 1 terminated with signal SIGKILL\n", (9, None), 9),
    "mp.spawn of a shell": (
        "torch.x.ProcessExitedException: process 1 terminated with exit code 137\n",
        (None, 137),
        9,
    ),
    "dataloader": ("RuntimeError: DataLoader worker (pid 77) is killed by signal: Killed. \n", (9, None), 9),
    "dataloader, chinese": ("RuntimeError: DataLoader worker (pid 77) is killed by signal: 已杀死. \n", (9, None), 9),
    "lightning": (
        "[rank: 1] Child process with PID 77 terminated with code -9. Forcefully terminating\n",
        (9, None),
        9,
    ),
    "lightning of a shell": (
        "Child process with PID 77 terminated with code 137. Forcefully terminating\n",
        (None, 137),
        9,
    ),
    "open mpi": (f"{NOTICED} on signal 9 (Killed).\n", (9, None), 9),
    "open mpi 1, wrapped": (f"{NOTICED} on \nsignal 9 (Killed).\n", (9, None), 9),
    "open mpi 5": (f"{NOTICED} on signal 9 (Killed).\n".replace("mpirun", "prterun"), (9, None), 9),
    "hydra": (HYDRA.format(RUNNING, 9, STRING), (9, None), 9),
    "hydra, old": (HYDRA.format("", 9, STRING), (9, None), 9),
    "intel mpi": ("=   RANK 1 PID 77 RUNNING AT n1\n=   KILLED BY SIGNAL: 9 (Killed)\n", (9, None), 9),
    "horovod": (HOROVOD.format(-9), (9, None), 9),
    "horovod of a shell": (HOROVOD.format(137), (None, 137), 9),
    "srun": ("srun: error: n1: task 1: Killed\n", (9, None), 9),
    "srun of a shell": ("srun: error: n1: task 1: Exited with exit code 137\n", (None, 137), 9),
    "bash": ("train.sh: line 28:    77 Killed                  python3 main.py\n", (9, None), 9),
    "bash, chinese": ("train.sh: 第 28 行: 77 已杀死   python3 main.py\n", (9, None), 9),
    "a shell's word alone": ("Killed\n", (9, None), 9),
    "zsh": ("zsh: killed     python3 main.py\n", (9, None), 9),
    "fish": ("fish: Job 1, 'python3 main.py' terminated by signal SIGKILL (Forced quit)\n", (9, None), 9),
    "time": ("Command terminated by signal 9\n", (9, None), 9),
    "time of a shell": ("Command exited with non-zero status 137\n", (None, 137), 9),
    "multiprocessing": ("<ForkProcess name='w-1' pid=77 parent=70 stopped exitcode=-SIGKILL daemon>\n", (9, None), 9),
    "multiprocessing of a shell": ("<Process name='w-1' pid=77 parent=70 stopped exitcode=137>\n", (None, 137), 9),
    "loky": ("The exit codes of the workers are {SIGKILL(-9)}\n", (9, None), 9),
    # It says a number that may be a signal's, and nothing more: the child's own status.
    "hydra, a number alone": (HYDRA.format(RUNNING, 9, ""), (None, 9), None),
    "exit 9": (FAILED.format(9), (None, 9), None),
    "exit 1": (FAILED.format(1), (None, 1), None),
    "exit 255": (FAILED.format(255), (None, 255), None),
    # other signals
    "a step's time limit": (FAILED.format(152), (None, 152), 24),
    "segmentation fault of a shell": (FAILED.format(139), (None, 139), 11),
    "bus error": (FAILED.format(-7), (7, None), 7),
}


@pytest.mark.parametrize("name", SPELLINGS)
def test_spelling(name: str) -> None:
    text, said, number = SPELLINGS[name]
    died = [one for one in read_launcher_log(text.encode()).events if isinstance(one, ProcessDied)]
    assert [(one.signal, one.code) for one in died] == [said]
    assert signal_of(Death(signal=died[0].signal, code=died[0].code)) == number


SACCT = "JobID|State|ExitCode\n191.0|{}\n"
POD = '{{"kind": "Pod", "status": {{"containerStatuses": [{{"name": "c", "state": {{"terminated": {}}}}}]}}}}'
# text, (kind, state, exit code, signal)
NOTICES: dict[str, tuple[str, tuple[str, str | None, int | None, int | None]]] = {
    "sacct, killed task": (SACCT.format("FAILED|0:9"), ("state", "FAILED", 0, 9)),
    "sacct, out of memory": (SACCT.format("OUT_OF_MEMORY|0:125"), ("oom", "OUT_OF_MEMORY", 0, None)),
    "sacct, time limit": (SACCT.format("TIMEOUT|0:0"), ("time-limit", "TIMEOUT", 0, None)),
    "sacct, of a shell": (SACCT.format("FAILED|137:0"), ("state", "FAILED", 137, None)),
    "kubernetes, OOMKilled": (POD.format('{"exitCode": 137, "reason": "OOMKilled"}'), ("oom", "OOMKilled", 137, None)),
    "kubernetes, 137": (POD.format('{"exitCode": 137, "reason": "Error"}'), ("state", "Error", 137, None)),
    "docker": (
        "2026-11-29T14:29:31.500000000Z container die 0123456789ab (exitCode=137, image=x)\n",
        ("state", "die", 137, None),
    ),
}


@pytest.mark.parametrize("name", NOTICES)
def test_notice(name: str) -> None:
    text, said = NOTICES[name]
    found = read_notices(text.encode())
    assert [(one.kind, one.state, one.exit_code, one.signal) for one in found] == [said]


GUESSES = [
    "Worker exit type: SYSTEM_ERROR Worker exit detail: Worker unexpectedly exits with a connection error code 2. End"
    " of file. There are some potential root causes. (1) The process is killed by SIGKILL by OOM killer due to high"
    " memory usage. (2) ray stop --force is called. (3) The worker is crashed unexpectedly due to SIGSEGV",
    "Worker exits with an exit code None. The worker may have exceeded K8s pod memory limits.",
    "It is possible that dataloader's workers are out of shared memory. Please try to raise your shared memory limit.",
    "[2026-11-29 14:12:39,047] [INFO] [launch.py:253:sigkill_handler] handling",
    "Process finished with exit code 137 (interrupted by signal 9: SIGKILL)",
    "This could be caused by a segmentation fault while calling the function or by an excessive memory usage causing"
    " the Operating System to kill the worker.",
    "This typically refers to a problem with your application.",
]


@pytest.mark.parametrize("text", GUESSES)
def test_guesses_are_nothing(text: str) -> None:
    assert read_launcher_log(f"{text}\n".encode()).events == []
    assert read_notices(f"{text}\n".encode()) == []
