"""Keys and values of configuration files: JSON, YAML with and without PyYAML, secrets, and files that bite."""

from __future__ import annotations

import builtins
import sys
import types

import pytest

from ftforensics.parsers.config_file import LONGEST_VALUE, MOST_SETTINGS, settings


def read(name: str, text: str) -> dict[str, str]:
    return {setting.name: setting.value for setting in settings(name, text.encode())}


@pytest.fixture
def without_pyyaml(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "yaml", None)


def test_json_becomes_dotted_keys() -> None:
    text = '{"zero_optimization": {"stage": 3, "offload": null}, "bf16": {"enabled": true}, "betas": [0.9, 0.95]}'
    assert read("ds.json", text) == {
        "zero_optimization.stage": "3",
        "zero_optimization.offload": "null",
        "bf16.enabled": "true",
        "betas": "[0.9, 0.95]",
    }


def test_secrets_are_redacted_by_name_at_any_depth() -> None:
    text = '{"wandb": {"api_key": "abc123"}, "tokens": {"hf_token": "x"}, "password": ["a", "b"], "max_tokens": 5}'
    found = read("c.json", text)
    assert found["wandb.api_key"] == found["tokens.hf_token"] == found["password"] == "[redacted]"
    assert found["max_tokens"] == "5"
    assert "abc123" not in str(found)


def test_a_number_of_tokens_is_how_many() -> None:
    found = read("c.json", '{"train_tokens": 300e9, "vocab_tokens": [1, 2], "access_tokens": "abc", "token": 12345}')
    assert float(found["train_tokens"]) == 300e9
    assert found["access_tokens"] == found["token"] == "[redacted]"


def test_secrets_are_redacted_by_shape_and_under_a_secret_parent() -> None:
    text = '{"note": "use hf_abcdefghijklmnopqrstuvwxyz012345", "api_keys": {"openai": "plain"}}'
    found = read("c.json", text)
    assert "abcdefghij" not in found["note"]
    assert found["api_keys.openai"] == "[redacted]"


YAML = """\
# a comment
---
trainer:
  devices: 8        # all of them
  precision: "bf16"
  callbacks:
    - early_stopping
    - lr_monitor
data:
    path: /d/x
    empty:
betas: [0.9, 0.95]
flag: true
"""
EXPECTED = {
    "trainer.devices": "8",
    "trainer.precision": "bf16",
    "trainer.callbacks": "[early_stopping, lr_monitor]",
    "data.path": "/d/x",
    "data.empty": "null",
    "betas": "[0.9, 0.95]",
    "flag": "true",
}


def test_yaml_without_pyyaml(without_pyyaml: None) -> None:
    assert read("c.yaml", YAML) == EXPECTED


@pytest.mark.parametrize(
    "text",
    [
        "a: &x 1\n",
        "a: !!python/object:os.system\n",
        "a:\n  - b: 1\n",
        "a: |\n  text\n",
        "a: 1\n   b: 2\n",
        "\ta: 1\n",
        "x\n",
    ],
)
def test_yaml_that_is_not_understood_is_not_half_read(text: str, without_pyyaml: None) -> None:
    with pytest.raises(ValueError, match=r"PyYAML|indent"):
        settings("c.yaml", text.encode())


def test_with_pyyaml_its_safe_loader_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    """PyYAML need not be here: what matters is that the safe loader is asked, and that its errors are ours."""
    asked = []

    class Broken(Exception):
        pass

    def load(data: bytes, Loader: object) -> object:
        asked.append(Loader)
        if data == b"bad":
            raise Broken("line 1")
        return {"a": {1: None}, "b": [{"c": "x"}]}

    module = types.ModuleType("yaml")
    module.__dict__.update(load=load, SafeLoader="safe", YAMLError=Broken)
    monkeypatch.setitem(sys.modules, "yaml", module)
    assert read("c.yaml", "anything") == {"a.1": "null", "b[0].c": "x"}
    assert asked == ["safe"]
    with pytest.raises(ValueError, match="line 1"):
        settings("c.yaml", b"bad")


def test_a_broken_pyyaml_is_like_none(monkeypatch: pytest.MonkeyPatch) -> None:
    original = builtins.__import__
    monkeypatch.delitem(sys.modules, "yaml", raising=False)
    monkeypatch.setattr(sys, "meta_path", [_Breaks(), *sys.meta_path])
    assert read("c.yaml", "a: 1\n") == {"a": "1"}
    assert builtins.__import__ is original


class _Breaks:
    def find_spec(self, name: str, *_: object) -> None:
        if name == "yaml":
            raise OSError("libyaml.so.2: cannot open shared object file")


def test_large_and_deep_files_are_bounded() -> None:
    wide = "{" + ", ".join(f'"k{n}": 1' for n in range(10_000)) + "}"
    assert len(settings("c.json", wide.encode())) == MOST_SETTINGS
    deep = '{"a": ' * 60 + "1" + "}" * 60
    assert settings("c.json", deep.encode()) == []
    assert len(read("c.json", '{"a": "%s"}' % ("x " * 4000))["a"]) == LONGEST_VALUE
    with pytest.raises(ValueError, match="not JSON"):
        settings("c.json", b"[" * 100_000)
    with pytest.raises(ValueError, match="larger"):
        settings("c.yaml", b"a: 1\n" * 100_000)


def test_an_alias_that_names_itself_a_billion_times_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """A loader shares what an alias names, so that a few bytes of YAML are a billion keys when they are walked."""
    laugh: object = "ha"
    for _ in range(30):
        laugh = {str(n): laugh for n in range(30)}
    module = types.ModuleType("yaml")
    module.__dict__.update(load=lambda *_, **__: laugh, SafeLoader="safe", YAMLError=ValueError)
    monkeypatch.setitem(sys.modules, "yaml", module)
    assert len(settings("c.yaml", b"x")) <= MOST_SETTINGS
