"""`ftforensics check` as a person meets it: one answer, one exit status, one clear line for what is wrong."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from conditions import ROOT
from ftforensics.cli.explain import cause_files
from ftforensics.wire.schema import PUBLISHED, json_schema

Run = Callable[..., Any]
SEED = ("--for", "torch==2.9.1+cu128", "--driver", "530.30.02")


def test_this_machine(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    shown = run("check")
    assert shown.status in (0, 1) and shown.err == ""
    assert shown.out.splitlines()[0].endswith("NOT READY" if shown.status else "READY")
    assert list(tmp_path.iterdir()) == []  # looking leaves nothing behind


def test_the_json_fits_its_schema(run: Run) -> None:
    struct, name = PUBLISHED["check.schema.json"]
    for arguments in ((), SEED, ("--distributed",)):
        answer = json.loads(run("check", "--json", *arguments).out)
        jsonschema.validate(answer, json_schema(struct, name))
    published = json.loads((ROOT / "docs" / "check.schema.json").read_text())
    assert published == json_schema(struct, name), "python -m ftforensics.wire.schema"


def test_every_cause_that_is_named_can_be_explained() -> None:
    known = set(cause_files())
    named = set()
    for path in (ROOT / "src/ftforensics/preflight").glob("*.py"):
        named |= {word for word in path.read_text().split('"') if word in known or word.endswith(("-oom", "-full"))}
    assert {"driver-minor-window", "driver-too-old", "mixed-cuda-libraries", "shm-exhausted"} <= named
    assert named <= known


def test_data_that_is_not_there_fails(run: Run, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data/x").write_text("x")
    assert run("check", "--data-path", tmp_path / "data").status == run("check").status
    shown = run("check", "--json", "--data-path", tmp_path / "data", "--data-path", tmp_path / "none")
    assert shown.status == 1
    paths = [check for check in json.loads(shown.out)["checks"] if check["name"] == "data-path"]
    assert [check["status"] for check in paths] == ["ok", "fail"]


def test_a_torch_and_a_driver_that_are_not_here(run: Run) -> None:
    shown = run("check", *SEED, "--gpu", "8.0", "--python", "3.11", "--json")
    assert shown.status == 0
    answer = json.loads(shown.out)
    assert [(one["cause"], one["confidence"]) for one in answer["causes"]] == [("driver-minor-window", "possible")]
    installs = [(one["torch"], one["index"], one["tier"]) for one in answer["remedies"] if one["torch"]]
    assert installs[0] == ("2.5.1", "cu121", "exact")
    assert run("check", "--for", "torch==2.15.0", "--driver", "530.30.02").status == 1


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--for", "bogus", "--driver", "530.30.02"), "no torch with a version"),
        (("--for", "torch==2.9.1+cu128", "--driver", "new"), "no driver version"),
        ((*SEED, "--gpu", "Voodoo"), "no GPU model"),
        ((*SEED, "--python", "two"), "no Python version"),
        (("--driver", "530.30.02"), "goes with --for or --install"),
        (("--install", "numpy"), "knows torch only"),
        ((*SEED, "--data-path", "/"), "--data-path is about this machine"),
        (("--install", "torch", "--prefix", "/usr"), "--prefix is about this machine"),
        (("--backend", "nccl"), "goes with --distributed"),
        (("--start-method", "fork"), "--start-method goes with --distributed"),
        (("--install", "torch", *SEED), "two questions"),
        (("--backend", "tcp"), "invalid choice"),
        (("--start-method", "thread"), "invalid choice"),
        (("--prefix", "/no/such/env"), "no such folder"),
        (("--prefix", "/etc"), "not a Python environment"),
        (("--data-path", ""), "is no path"),
        (("--for",), "expected one argument"),
        (("--for", "torch\x1b[31m==2", "--driver", "1"), "no torch"),
    ],
)
def test_bad_usage_is_one_clear_line(run: Run, arguments: tuple[str, ...], says: str) -> None:
    shown = run("check", *arguments)
    assert (shown.status, shown.out) == (2, "")
    assert says in shown.complaint
    assert "\x1b" not in shown.err


def test_the_pip_line_stands_alone(run: Run) -> None:
    shown = run("check", "--install", "torch", "--driver", "530.30.02", "--python", "3.11")
    assert (shown.status, shown.err) == (0, "")
    words = shlex.split(shown.out)
    assert shown.out.count("\n") == 1
    assert words[:3] == ["pip", "install", "torch==2.5.1"]
    assert words[-1] == "https://download.pytorch.org/whl/cu121"


def test_no_line_to_install_is_status_1_and_says_why(run: Run) -> None:
    shown = run("check", "--install", "torch", "--driver", "450.80.02", "--python", "3.14")
    assert (shown.status, shown.out) == (1, "")
    assert "450.80.02" in shown.complaint


@pytest.mark.parametrize(
    "name", ["MASTER_ADDR", "NCCL_SOCKET_IFNAME", "CUDA_VISIBLE_DEVICES", "LD_LIBRARY_PATH", "RANK"]
)
def test_a_hostile_environment_is_shown_harmlessly(run: Run, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv("MASTER_PORT", "1")
    monkeypatch.setenv(name, "a\x1b[31m\nFAKE\u202e\udcff" * 50)
    for arguments in (("--distributed",), ("--distributed", "-v"), ("--distributed", "--json")):
        shown = run("check", *arguments)
        assert shown.status in (0, 1), shown.err
        assert "\x1b" not in shown.out and not any(line.startswith("FAKE") for line in shown.out.splitlines())


def test_secrets_of_the_environment_stay_there(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_abcdefghijklmnopqrstuvwxyz")
    for arguments in (("-v",), ("--json",), ("--distributed", "--json")):
        assert "hf_abcdef" not in run("check", *arguments).out
