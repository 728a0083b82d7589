"""A report quotes the job's output, and is shown around: what it quotes has no secrets."""

from __future__ import annotations

import msgspec
import pytest

from ftforensics.parsers.launcher import read_launcher_log

TOKEN = "hf_AbCdEfGhIjKlMnOpQrStUvWx12345678"
PASSWORD = "hunter2secret"


@pytest.mark.parametrize(
    "text",
    [
        f'Traceback (most recent call last):\n  File "/w/{TOKEN}/train.py", line 8, in main\n    go(1)\n'
        f"RuntimeError: cannot reach https://bob:{PASSWORD}@h.example/ Authorization: Bearer {TOKEN}\n",
        f"bash: line 1: 4242 Killed                  python train.py --token={TOKEN} --db postgres://u:{PASSWORD}@db/x\n",
        "E1129 14:29:35.350000 100 torch/distributed/elastic/multiprocessing/api.py:882] failed (exitcode: 1) "
        f"local_rank: 1 (pid: 102) of binary: /usr/bin/python --token={TOKEN}\n",
        f"terminate called after throwing an instance of 'std::runtime_error'\n  what():  bad token={TOKEN}\n",
    ],
)
def test_secrets_of_the_output_are_not_in_what_is_read_from_it(text: str) -> None:
    log = read_launcher_log(text.encode())
    assert log.events
    read = msgspec.json.encode(log).decode()
    assert TOKEN not in read
    assert PASSWORD not in read
    assert "[redacted]" in read
