"""The library that `run` preloads: native threads with alternate stacks, in programs of every kind."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from conditions import JEMALLOC, PYTHONS, ROOT, Interpreter, needs_cc, needs_jemalloc
from toolchain import TOOLCHAINS, Toolchain

HERE = Path(__file__).resolve().parent
SHIM = ROOT / "src" / "ftforensics" / "_preload.abi3.so"
SOURCE = ROOT / "csrc" / "preload" / "ftf_preload.c"

pytestmark = needs_cc

# Prints what sigaltstack(2) says in threads that end in each way, then dies in one if told to.
PROGRAM = """
import ctypes, sys
class Stack(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("flags", ctypes.c_int), ("size", ctypes.c_size_t)]
library = ctypes.CDLL(sys.argv[1])
for how in (0, 1, 2):
    stack = Stack()
    ended = library.alternate_stack(how, ctypes.byref(stack))
    # It is kept for the next thread, so its mapping can be looked at.
    below = [line.split()[1] for line in open("/proc/self/maps") if line.split()[0].endswith(f"-{stack.base or 0:x}")]
    print(ended, stack.flags, stack.size, *below)
library.stack_size_asked_for.restype = ctypes.c_size_t
print(library.stack_size_asked_for(), flush=True)
if sys.argv[2:] == ["crash"]:
    import ftforensics
    ftforensics.install()
    library.crash_in_native_thread()
"""
SS_DISABLE = 2


def compiled(folder: Path, source: Path, *options: str) -> Path:
    target = folder / f"{source.stem}.so"
    subprocess.run(["gcc", "-O1", "-g", "-fPIC", "-shared", *options, str(source), "-o", str(target)], check=True)
    return target


@pytest.fixture(scope="module")
def threads(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled(tmp_path_factory.mktemp("threads"), HERE / "native_thread.c", "-pthread")


def run(
    python: Interpreter, threads: Path, folder: Path, *arguments: str, preload: str = ""
) -> subprocess.CompletedProcess[str]:
    variables = {"PATH": os.environ["PATH"], "HOME": str(folder), "PYTHONPATH": str(ROOT / "src")}
    variables["FTFORENSICS_DIR"] = str(folder / "records")
    if preload:
        variables["LD_PRELOAD"] = preload
    return subprocess.run(
        [python.path, "-c", PROGRAM, str(threads), *arguments],
        cwd=folder,
        env=variables,
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_every_thread_has_a_stack_however_it_ends(threads: Path, tmp_path: Path) -> None:
    done = run(PYTHONS[0], threads, tmp_path, preload=str(SHIM))
    assert done.stderr == ""
    *stacks, asked = [line.split() for line in done.stdout.splitlines()]
    assert [(ended, flags, below) for ended, flags, _, below in stacks] == [("1", "0", "---p")] * 3
    assert all(int(size) >= 64 * 1024 for _, _, size, _ in stacks)
    assert asked == [str(256 * 1024)]  # the attributes went through


def test_without_it_native_threads_have_none(threads: Path, tmp_path: Path) -> None:
    done = run(PYTHONS[0], threads, tmp_path)
    *stacks, _ = [line.split() for line in done.stdout.splitlines()]
    assert [flags for _, flags, *_ in stacks] == [str(SS_DISABLE)] * 3


def test_the_overflow_of_a_native_thread_is_recorded(python: Interpreter, threads: Path, tmp_path: Path) -> None:
    done = run(python, threads, tmp_path, "crash", preload=str(SHIM))
    assert done.returncode == -signal.SIGSEGV
    (path,) = (tmp_path / "records").glob("*.crash.json")
    record = json.loads(path.read_text())
    assert record["signal"]["name"] == "SIGSEGV"
    assert record["native"]["frames"]
    assert record["end"] is not None
    # `analyze` on the same file says what it was.
    shown = subprocess.run(
        [sys.executable, "-m", "ftforensics", "analyze", "--json", str(path)],
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
    )
    assert json.loads(shown.stdout)["verdict"]["mechanism"] == "stack-overflow", shown.stderr


def test_without_it_the_overflow_leaves_no_record(threads: Path, tmp_path: Path) -> None:
    done = run(PYTHONS[0], threads, tmp_path, "crash")
    assert done.returncode == -signal.SIGSEGV
    assert list((tmp_path / "records").glob("*.crash.json")) == []


# As jemalloc does with background threads: a library of the user's that wants to see thread creation too.
OTHER = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <unistd.h>
int pthread_create(pthread_t *t, const pthread_attr_t *a, void *(*r)(void *), void *x)
{
    int (*next)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *) = dlsym(RTLD_NEXT, "pthread_create");
    (void)!write(2, "seen\\n", 5);
    return next(t, a, r, x);
}
"""


@pytest.mark.parametrize("order", ["before", "behind"])
def test_another_library_that_takes_pthread_create_works_too(order: str, threads: Path, tmp_path: Path) -> None:
    source = tmp_path / "other.c"
    source.write_text(OTHER)
    other = compiled(tmp_path, source)
    preload = [str(other), str(SHIM)] if order == "before" else [str(SHIM), str(other)]
    done = run(PYTHONS[0], threads, tmp_path, preload=":".join(preload))
    assert done.stderr == "seen\n" * 4
    assert [line.split()[:2] for line in done.stdout.splitlines()[:3]] == [["1", "0"]] * 3


@needs_jemalloc
def test_behind_a_real_allocator(threads: Path, tmp_path: Path) -> None:
    done = run(PYTHONS[0], threads, tmp_path, "crash", preload=f"{JEMALLOC}:{SHIM}")
    assert done.returncode == -signal.SIGSEGV
    assert [line.split()[:2] for line in done.stdout.splitlines()[:3]] == [["1", "0"]] * 3
    (path,) = (tmp_path / "records").glob("*.crash.json")
    assert json.loads(path.read_text())["end"] is not None


MANY = """
#include <pthread.h>
#include <stdio.h>
#include <string.h>
static void *nothing(void *x) { return x; }
static void *leave(void *x) { pthread_exit(x); }
static int maps(void)
{
    char line[512]; int n = 0; FILE *f = fopen("/proc/self/maps", "r");
    while (fgets(line, sizeof line, f)) n++;
    fclose(f);
    return n;
}
static int together(int count)
{
    pthread_t threads[200]; int bad = 0;
    for (int i = 0; i < count; i++) bad |= pthread_create(&threads[i], 0, i % 2 ? nothing : leave, &threads[i]);
    for (int i = 0; i < count; i++) { void *r; pthread_join(threads[i], &r); bad |= r != &threads[i]; }
    return bad;
}
int main(void)
{
    int bad = together(200), before = maps();
    for (int i = 0; i < 20; i++) bad |= together(200);
    printf("%d %d\\n", bad, maps() - before);
    return 0;
}
"""


def program(folder: Path, text: str, *options: str) -> Path:
    source = folder / "program.c"
    source.write_text(text)
    target = folder / "program"
    subprocess.run(["gcc", "-O1", str(source), "-o", str(target), *options], check=True)
    return target


def test_stacks_are_given_back(tmp_path: Path) -> None:
    made = program(tmp_path, MANY, "-pthread")
    done = subprocess.run([made], env={"LD_PRELOAD": str(SHIM)}, capture_output=True, text=True, check=True)
    bad, grown = map(int, done.stdout.split())
    # 16 are kept for the next threads, in two mappings each; glibc keeps some thread stacks of its own.
    assert (bad, done.stderr) == (0, "")
    assert grown < 80


def test_a_program_that_knows_nothing_of_threads_runs_as_before(tmp_path: Path) -> None:
    for command in (["/bin/true"], ["/bin/echo", "one"], ["/bin/sh", "-c", "echo one | cat; exit 3"]):
        with_it = subprocess.run(command, env={"LD_PRELOAD": str(SHIM)}, capture_output=True)
        without = subprocess.run(command, env={}, capture_output=True)
        assert (with_it.returncode, with_it.stdout, with_it.stderr) == (without.returncode, without.stdout, b"")


def test_without_memory_a_thread_starts_without_a_stack(tmp_path: Path) -> None:
    text = """
    #include <pthread.h>
    #include <signal.h>
    #include <stdio.h>
    #include <stdlib.h>
    #include <sys/mman.h>
    static void *look(void *x) { return sigaltstack(0, x) == 0 ? x : 0; }
    int main(void)
    {
        /* Single pages until the count of mappings is used up: then mprotect cannot split one any more. */
        static char stack[1 << 16] __attribute__((aligned(4096)));
        pthread_attr_t a; pthread_t t; stack_t s; void *r;
        pthread_attr_init(&a);
        pthread_attr_setstack(&a, stack, sizeof stack);
        void *volatile heap = malloc(1 << 16);  /* glibc itself needs a little of it for a thread */
        free(heap);
        for (int i = 0;; i++)
            if (mmap(0, 4096, i % 2 ? PROT_READ : PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED) break;
        int error = pthread_create(&t, &a, look, &s);
        if (error) { printf("error %d\\n", error); return 1; }
        pthread_join(t, &r);
        printf("%d %d\\n", r == &s, s.ss_flags);
        return 0;
    }
    """
    made = program(tmp_path, text, "-pthread")
    done = subprocess.run([made], env={"LD_PRELOAD": str(SHIM)}, capture_output=True, text=True)
    assert done.stdout == f"1 {SS_DISABLE}\n"


def test_it_costs_little_beside_a_thread(tmp_path: Path) -> None:
    """CPU time of a thread that is started and joined; the limit is generous, the machine is shared."""
    text = """
    #include <pthread.h>
    static void *nothing(void *x) { return x; }
    int main(void)
    {
        for (int i = 0; i < 5000; i++) { pthread_t t; pthread_create(&t, 0, nothing, 0); pthread_join(t, 0); }
        return 0;
    }
    """
    made = program(tmp_path, text, "-pthread")

    def cpu(**variables: str) -> float:
        best = 1e9
        for _ in range(5):
            before = os.times()
            subprocess.run([made], env=variables, check=True)
            after = os.times()
            spent = after.children_user + after.children_system - before.children_user - before.children_system
            best = min(best, spent)
        return best

    without, with_it = cpu(), cpu(LD_PRELOAD=str(SHIM))
    print(f"{without / 5000 * 1e6:.1f} us without, {with_it / 5000 * 1e6:.1f} us with, per thread")
    assert with_it < 3 * without + 0.05


ALLOWED = {"dl_iterate_phdr", "getauxval", "mmap", "mprotect", "munmap", "sigaltstack"}
# Weak ones of the compiler's start files: absent is fine.
START_FILES = {"_ITM_deregisterTMCloneTable", "_ITM_registerTMCloneTable", "__gmon_start__", "__cxa_finalize"}


def test_it_loads_into_any_program_of_glibc_2_17() -> None:
    table = subprocess.run(["objdump", "-T", str(SHIM)], capture_output=True, text=True, check=True).stdout
    imported, exported = set(), set()
    for line in table.splitlines():
        if "*UND*" in line:
            imported.add(line.split()[-1])
            version = re.search(r"\(?GLIBC_(\d+)\.(\d+)", line)
            assert version is None or (int(version[1]), int(version[2])) <= (2, 17), line
        elif re.match(r"[0-9a-f]{8,} ", line):
            exported.add(line.split()[-1])
    assert imported - START_FILES <= ALLOWED
    assert exported == {"pthread_create"}
    dynamic = subprocess.run(["readelf", "-d", str(SHIM)], capture_output=True, text=True, check=True).stdout
    assert re.findall(r"Shared library: \[(.*)\]", dynamic) == ["libc.so.6"]


@pytest.mark.parametrize("toolchain", TOOLCHAINS, ids=str)
def test_it_compiles_without_a_warning(toolchain: Toolchain, tmp_path: Path) -> None:
    made = toolchain.compile(SOURCE, tmp_path / "out.o", "-Wall", "-Wextra", "-Werror")
    assert made.returncode == 0, made.stderr


def test_torch_like_work_in_many_threads_at_once(tmp_path: Path) -> None:
    """The first two threads of a process that are started at the same time, by two threads of the loader's choosing."""
    code = """
import concurrent.futures, threading
barrier = threading.Barrier(8)
def work(n):
    barrier.wait()
    inner = threading.Thread(target=lambda: None)
    inner.start(); inner.join()
    return n
with concurrent.futures.ThreadPoolExecutor(8) as pool:
    print(sum(pool.map(work, range(8))))
"""
    started = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", code], env={"LD_PRELOAD": str(SHIM)}, capture_output=True, text=True, timeout=60
    )
    assert (done.stdout, done.stderr, done.returncode) == ("28\n", "", 0)
    assert time.monotonic() - started < 60
