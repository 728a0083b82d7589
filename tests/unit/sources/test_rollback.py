"""The commands back: what a shell reads is what is meant, whatever the names are."""

from __future__ import annotations

import shlex

import msgspec

from ftforensics.model.ledger import Fingerprint, Setting
from ftforensics.model.software import Package
from ftforensics.sources.differences import differences
from ftforensics.sources.rollback import rollback


def back(before: Fingerprint, after: Fingerprint) -> list[str]:
    return rollback(before, after, differences(before, after))


def environment(*packages: str, **values: object) -> Fingerprint:
    pairs = [Package(*package.split("==")) for package in packages]
    return Fingerprint(prefix="/v", packages=pairs, kernel="6", **values)  # type: ignore[arg-type]


def test_each_index_gets_one_command_and_torch_its_own() -> None:
    before = environment("pip==24", "torch==2.4.1+cu121", "torchvision==0.19.1+cu121", "numpy==1.26.4", "six==1.16.0")
    after = environment("pip==24", "torch==2.9.1+cu128", "torchvision==0.24.1+cu128", "numpy==2.1.0", "new==1")
    assert back(before, after) == [
        "# packages of /v",
        "/v/bin/python -m pip uninstall -y new",
        "/v/bin/python -m pip install --no-deps torch==2.4.1+cu121 torchvision==0.19.1+cu121"
        " --index-url https://download.pytorch.org/whl/cu121",
        "/v/bin/python -m pip install --no-deps numpy==1.26.4 six==1.16.0",
    ]


def test_the_default_wheel_of_torch_comes_from_the_default_index() -> None:
    before = environment("pip==24", "torch==2.9.1", torch="2.9.1+cu128")
    after = environment("pip==24", "torch==2.11.0", torch="2.11.0+cu130")
    assert back(before, after)[1:] == ["/v/bin/python -m pip install --no-deps torch==2.9.1"]


def test_an_environment_without_pip_is_uvs() -> None:
    lines = back(environment("six==1.16.0"), environment("six==1.17.0", "x==1"))
    assert lines[1:] == [
        "uv pip uninstall --python /v/bin/python x",
        "uv pip install --python /v/bin/python --no-deps six==1.16.0",
    ]


def test_variables_are_set_and_unset_and_the_rest_is_told() -> None:
    before = environment(variables=[Setting("NCCL_DEBUG", "a b'c")], driver="530.30.02")
    after = environment(variables=[Setting("LD_LIBRARY_PATH", "/x")], driver="535.54.03")
    lines = back(before, after)
    assert lines == [
        "# driver driver: 535.54.03, was 530.30.02",
        "unset LD_LIBRARY_PATH",
        "export NCCL_DEBUG='a b'\"'\"'c'",
    ]
    assert shlex.split(lines[2]) == ["export", "NCCL_DEBUG=a b'c"]


def test_what_came_from_no_index_is_not_asked_of_one() -> None:
    before = environment("pip==24", "ours==0.1", "six==1.16.0", elsewhere=["ours"])
    lines = back(before, environment("pip==24", "six==1.17.0"))
    assert lines[1:] == [
        "# ours 0.1: came from a folder, repository or URL, which has to give it again",
        "/v/bin/python -m pip install --no-deps six==1.16.0",
    ]


def test_another_environment_is_not_made_like_the_good_one_unasked() -> None:
    """The good run used a venv that is not active: its packages are not to be put into the one that is."""
    good, now = environment("pip==24", "six==1.16.0"), environment("pip==24", "pytest==8")
    now = msgspec.structs.replace(now, prefix="/my tools")
    lines = back(good, now)
    assert all(line.startswith("# ") for line in lines) and "used /v" in lines[0]
    assert "env diff last-good '/my tools' --rollback" in lines[1]
    folder = msgspec.structs.replace(now, kernel=None)  # named by its folder: asked for
    assert any("six==1.16.0" in line for line in back(good, folder))


def test_a_build_of_ones_own_and_a_redacted_value_are_no_commands() -> None:
    before = environment("pip==24", "fast==1.0+mine", variables=[Setting("CUDA_TOKEN", "[redacted]")])
    after = environment("pip==24", "fast==2.0")
    assert [line for line in back(before, after) if not line.startswith("#")] == []


def test_hostile_names_stay_words() -> None:
    names = ["$(reboot)==1", "a;b==1", "-r/etc/passwd==1", "a\nrm==1", "ok==1;reboot"]
    after = environment("pip==24", *names[:-1])
    before = environment("pip==24", names[-1], variables=[Setting("A=`x`", "1")])
    for line in back(before, after):
        assert line.startswith("# ")
        assert "\n" not in line
