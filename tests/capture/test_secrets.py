"""A secret planted where a job really has it is found nowhere in the record."""

from __future__ import annotations

import base64
import signal
import subprocess

from conditions import Interpreter, needs_cxx
from jobs import Jobs

# Halves, joined at run time: the program's own text must not be what is found.
SECRETS = {
    "environ": ("hf_QmFzZTY0", "SecretInEnviron1"),
    "allowed variable": ("Tr0ub4dor", "InProxyUrl"),
    "variable with a plain name": ("anordinary", "looking value"),
    "argv": ("C0rrectH0rse", "BatteryStaple"),
    "note": ("N0teSecret", "ForNobody99"),
    "buffer": ("Buff3rSecret", "OnTheStack42"),
    "phase": ("Ph4seSecret", "ForNobody77"),
}


def test_a_planted_secret_is_nowhere_in_the_record(python: Interpreter, jobs: Jobs) -> None:
    planted = {name: "".join(halves) for name, halves in SECRETS.items()}
    buffer, note, phase = SECRETS["buffer"], SECRETS["note"], SECRETS["phase"]
    code = f"""
        import ctypes
        libc = ctypes.CDLL(None)
        ftforensics.note("token=" + {note[0]!r} + {note[1]!r})
        # qsort's comparison runs on top of C frames; its callback's arguments and our copies lie on this stack
        secret = ({buffer[0]!r} + {buffer[1]!r}).encode()
        array = (ctypes.c_char * 4096)(*(secret * 100))
        Callback = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
        class Large(ctypes.Structure):
            _fields_ = [("text", ctypes.c_char * 1024)]
        By_value = ctypes.CFUNCTYPE(ctypes.c_int, Large)
        def inside(large):
            with ftforensics.phase("password: " + {phase[0]!r} + {phase[1]!r}):
                ctypes.string_at(0)
            return 0
        By_value(inside)(Large(secret * 30))  # passed by value: 1 KiB of it on the native stack
        """
    done = jobs.run(
        python,
        code,
        "--password",
        planted["argv"],
        f"--api-key={planted['argv']}",
        HF_TOKEN=planted["environ"],
        NCCL_PROXY=f"http://user:{planted['allowed variable']}@proxy:3128",
        PYTHON_API_KEY=planted["environ"],
        MY_SETTING=planted["variable with a plain name"],
    )
    assert done.status == -signal.SIGSEGV, done.err
    raw = done.paths[0].read_bytes()
    assert done.record["phase"]["names"] and done.record["note"] == "token=[redacted]"
    memory = b"".join(base64.b64decode((done.record.get(name) or {}).get("data") or "") for name in ("stack", "code"))
    assert len(memory) > 1000
    for where, secret in planted.items():
        for piece in (secret, *SECRETS[where]):
            assert piece.encode() not in raw, where
            assert piece.encode() not in memory, where
        # an unaligned copy would show at least one whole word of it
        for at in range(len(secret) - 8 + 1):
            assert secret[at : at + 8].encode() not in memory, where


def test_a_raw_stack_holds_what_was_asked_for(python: Interpreter, jobs: Jobs) -> None:
    code = """
        import ctypes
        class Large(ctypes.Structure):
            _fields_ = [("text", ctypes.c_char * 1024)]
        def inside(large):
            ctypes.string_at(0)
            return 0
        ctypes.CFUNCTYPE(ctypes.c_int, Large)(inside)(Large(b"NotSecret" * 100))
        """
    done = jobs.run(python, code, install='ftforensics.install(helper="none", raw_stack=True)')
    assert b"NotSecret" in base64.b64decode(done.record["stack"]["data"])
    assert done.record["stack"]["redacted"] is False


def test_records_are_private(python: Interpreter, jobs: Jobs) -> None:
    done = jobs.run(python, "import ctypes, os; os.umask(0); ctypes.string_at(0)")
    assert done.paths[0].stat().st_mode & 0o777 == 0o600


@needs_cxx
def test_an_exceptions_text_loses_its_secrets(python: Interpreter, jobs: Jobs) -> None:
    """what() is made at run time: nothing but the handler sees it."""
    library = subprocess.run(["g++", "-print-file-name=libstdc++.so.6"], capture_output=True, text=True, check=True)
    secrets = ["hunter2" + "pass", "abcdEFGH" + "1234", "hf_" + "AbCdEfGh12345678", "s3cr" + "et/Val+ue"]
    text = (
        f"GET https://bob:{secrets[0]}@host/x?token={secrets[1]}&n=1 failed: "
        f"key {secrets[2]}, secret_access_key: '{secrets[3]}'"
    )
    cwd = jobs.fresh()
    source = f'#include <stdexcept>\nextern "C" void boom() {{ throw std::runtime_error("{text}"); }}\n'
    (cwd / "boom.cc").write_text(source)
    subprocess.run(["g++", "-shared", "-fPIC", "-o", cwd / "boom.so", cwd / "boom.cc"], check=True)
    code = "import ctypes; ctypes.CDLL('./boom.so').boom()"
    done = jobs.run(python, code, cwd=cwd, LD_PRELOAD=library.stdout.strip())
    assert done.status == -signal.SIGABRT
    what = done.record["cxx_exception"]["what"]
    assert "@host/x?token=" in what and "&n=1 failed" in what
    for secret in secrets:
        assert secret not in done.paths[0].read_text()
