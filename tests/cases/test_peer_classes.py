"""Every class that another program answered with has a meaning, in causes that exist (benchmarks/peers.py)."""

from __future__ import annotations

import importlib.util
import json
import re
import sys
from types import ModuleType

from conditions import ROOT
from ftforensics.causes.registry import find_cause

ANSWERS = json.loads((ROOT / "benchmarks" / "results" / "peers.json").read_text())["answers"]


def classes() -> ModuleType:
    spec = importlib.util.spec_from_file_location("peer_classes", ROOT / "benchmarks" / "peer_classes.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["peer_classes"] = module
    spec.loader.exec_module(module)
    return module


def test_every_answer_has_a_meaning() -> None:
    module = classes()
    for said in ANSWERS.values():
        for answer in said.values():
            assert re.sub(r"(exited with code) .*", r"\1", answer["gpualert"]) in module.GPUALERT
            assert answer["denpex"] in module.DENPEX


def test_what_they_mean_are_causes() -> None:
    module = classes()
    planned = {"rank-missing", "collective-mismatch"}  # of hangs, in the vocabulary already
    for claim in (*module.GPUALERT.values(), *module.DENPEX.values()):
        assert all(find_cause(cause) for cause in claim.causes - planned)
