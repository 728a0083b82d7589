"""Which program a training job's command line runs, with which options and files."""

from __future__ import annotations

import pytest

from ftforensics.parsers.command_line import config_files, job, options, program


@pytest.mark.parametrize(
    ("line", "name", "rest"),
    [
        ("python train.py --lr 1", "/w/train.py", ["--lr", "1"]),
        ("/v/bin/python3.11 -u -X faulthandler /w/train.py", "/w/train.py", []),
        ("python -W ignore sub/../train.py x", "/w/train.py", ["x"]),
        ("python -m llm.train --lr 1", "-m llm.train", ["--lr", "1"]),
        ("torchrun --nproc_per_node 8 --master-port 29501 train.py --lr 1", "/w/train.py", ["--lr", "1"]),
        ("/v/bin/python /v/bin/torchrun --nnodes=2 train.py", "/w/train.py", []),
        ("python -m torch.distributed.run --nproc-per-node 2 -m llm.train", "-m llm.train", []),
        ("accelerate launch --config_file a.yaml train.py", "/w/train.py", []),
        ("deepspeed --num_gpus 8 train.py --deepspeed ds.json", "/w/train.py", ["--deepspeed", "ds.json"]),
        ("ftforensics run -- python train.py", "/w/train.py", []),
        ("srun -n 8 python train.py", "/w/train.py", []),
        ("bash launch.sh 8", "bash", ["launch.sh", "8"]),
        ("./a.out -x", "/w/a.out", ["-x"]),
        ("python", "python", []),
        ("", "", []),
    ],
)
def test_the_program(line: str, name: str, rest: list[str]) -> None:
    found = program(line.split(), "/w")
    assert (found.name, found.rest) == (name, rest)


def test_the_text_of_minus_c_is_not_a_program() -> None:
    assert program(["python", "-c", "import train", "x"]).rest == ["x"]


def test_a_rank_and_its_launcher_are_one_job() -> None:
    launched = ["torchrun", "--nproc_per_node", "8", "train.py", "--lr", "1"]
    rank = ["/v/bin/python", "-u", "train.py", "--lr", "1"]
    assert job(launched, "/w") == job(rank, "/w") == "/w/train.py"
    assert job(["bash", "x.sh"], "/w") == "bash in /w"


def test_options_of_every_kind() -> None:
    line = "--learning-rate 1e-4 --bf16 --wd=-0.1 --shift -1 model.hidden=4096 +trainer.x=1 data -v --name=a=b"
    assert [(option.name, option.value) for option in options(line.split())] == [
        ("--learning_rate", "1e-4"),
        ("--bf16", ""),
        ("--wd", "-0.1"),
        ("--shift", "-1"),
        ("model.hidden", "4096"),
        ("+trainer.x", "1"),
        ("argument 1", "data"),
        ("-v", ""),
        ("--name", "a=b"),
    ]


def test_the_files_that_are_named() -> None:
    line = "python t.py --deepspeed ds.json --config=/c/a.yaml cfg=b.yml ds.json https://h/x.json --flag.json"
    assert config_files(line.split(), "/w") == ["/w/ds.json", "/c/a.yaml", "/w/b.yml"]
    assert config_files([f"{n}.json" for n in range(99)], "/w", 8) == [f"/w/{n}.json" for n in range(8)]
    assert config_files(["a\0b.json"], "/w") == []
