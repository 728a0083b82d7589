"""What may run inside a signal handler calls nothing but the allow-list: seen in the object files, not in the sources.

The compiler adds calls that nobody wrote: `__tls_get_addr` for a thread-local counter, `__stack_chk_fail` under a stack
protector, `__memcpy_chk` under _FORTIFY_SOURCE, `strlen` for a loop. Only direct calls are visible here; function
pointers are kept to the chain of handlers and to CPython's dumper.
"""

from __future__ import annotations

import fnmatch
from pathlib import Path

import pytest

from conditions import HAS_AARCH64
from toolchain import CSRC, NATIVE, TOOLCHAINS, Toolchain, allowed_symbols, context, sources


def allowed(symbol: str) -> bool:
    return any(fnmatch.fnmatchcase(symbol, entry) for entry in allowed_symbols())


def foreign_symbols(toolchain: Toolchain, files: list[Path], folder: Path) -> dict[str, set[str]]:
    """For each file the undefined symbols that neither the allow-list nor another of the files provides."""
    undefined: dict[str, set[str]] = {}
    defined: set[str] = set()
    for source in files:
        target = folder / f"{source.stem}.o"
        made = toolchain.compile(source, target)
        assert made.returncode == 0, made.stderr
        undefined[source.name] = toolchain.symbols(target, "u")
        defined |= toolchain.symbols(target, "d")
    foreign = {
        name: {symbol for symbol in symbols - defined if not allowed(symbol)} for name, symbols in undefined.items()
    }
    return {name: symbols for name, symbols in foreign.items() if symbols}


@pytest.mark.parametrize("toolchain", TOOLCHAINS, ids=str)
def test_signal_and_any_files_call_only_what_the_list_allows(toolchain: Toolchain, tmp_path: Path) -> None:
    files = sources("SIGNAL", "ANY")
    assert files, "no file of csrc/ declares CONTEXT: SIGNAL"
    assert foreign_symbols(toolchain, files, tmp_path) == {}


def test_every_allowed_symbol_is_used(tmp_path: Path) -> None:
    """A list that outlives its reasons is where the next unsafe call hides."""
    used: set[str] = set()
    for toolchain in TOOLCHAINS:
        for source in sources("SIGNAL", "ANY"):
            target = tmp_path / f"{toolchain}-{source.stem}.o"
            assert toolchain.compile(source, target).returncode == 0
            used |= toolchain.symbols(target, "u")
    # The compiler may introduce any of these for a plain loop or assignment; the linker makes the table.
    always = {"memcpy", "memset", "memmove", "memcmp", "_GLOBAL_OFFSET_TABLE_"}
    unused = [entry for entry in allowed_symbols() if entry not in always and not fnmatch.filter(used, entry)]
    if not HAS_AARCH64:
        unused = [entry for entry in unused if "aarch64" not in entry]
    assert unused == []


PLANTED = {
    "malloc": "#include <stdlib.h>\nvoid *ftf_planted(void) { return malloc(3); }",
    "snprintf": '#include <stdio.h>\nint ftf_planted(char *to, int n) { return snprintf(to, 9, "%d", n); }',
    "pthread_mutex_lock": "#include <pthread.h>\nint ftf_planted(pthread_mutex_t *m) { return pthread_mutex_lock(m); }",
    "dlsym": '#include <dlfcn.h>\nvoid *ftf_planted(void) { return dlsym(0, "x"); }',
    "syslog": '#include <syslog.h>\nvoid ftf_planted(void) { syslog(1, "dead"); }',
    "PyErr_Occurred": "#include <Python.h>\nint ftf_planted(void) { return PyErr_Occurred() != 0; }",
    "__errno_location": "#include <errno.h>\nint ftf_planted(void) { return errno; }",
}


@pytest.mark.parametrize("symbol", PLANTED)
def test_a_planted_call_is_caught(symbol: str, tmp_path: Path) -> None:
    planted = tmp_path / "planted.c"
    planted.write_text(f"/* CONTEXT: SIGNAL. */\n{PLANTED[symbol]}\n")
    assert symbol in foreign_symbols(NATIVE, [planted], tmp_path)["planted.c"]


def test_a_thread_local_is_caught_without_the_extensions_tls_model(tmp_path: Path) -> None:
    """The flag is what keeps `__tls_get_addr` (which may allocate) out; without it the check sees the call."""
    planted = tmp_path / "planted.c"
    planted.write_text("/* CONTEXT: SIGNAL. */\n__thread int depth;\nint ftf_planted(void) { return ++depth; }\n")
    assert foreign_symbols(NATIVE, [planted], tmp_path) == {}
    lazy = tmp_path / "lazy.o"
    assert NATIVE.compile(planted, lazy, "-ftls-model=global-dynamic").returncode == 0
    assert "__tls_get_addr" in NATIVE.symbols(lazy, "u")


def test_every_file_of_csrc_declares_its_context() -> None:
    files = sorted([*CSRC.glob("*.c"), *CSRC.glob("*.h")])
    assert files
    assert [path.name for path in files if context(path) is None] == []


def test_a_signal_file_includes_no_normal_header() -> None:
    """A header's inline functions are compiled into whoever includes it."""
    contexts = {path.name: context(path) for path in CSRC.glob("*.[ch]")}
    wrong = []
    for path in sorted(CSRC.glob("*.[ch]")):
        if contexts[path.name] == "NORMAL":
            continue
        for line in path.read_text().splitlines():
            name = line.split('"')[1] if line.startswith('#include "') else None
            if name is not None and contexts.get(name) == "NORMAL":
                wrong.append(f"{path.name} includes {name}")
            if line.startswith("#include <Python.h>"):
                wrong.append(f"{path.name} includes Python.h")
    assert wrong == []
