"""Jobs under `ftforensics run`, with pipes and with a real terminal."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from supervised import PATIENCE, RUN, Ended, Terminal, environment

Job = Callable[..., Ended]


@pytest.fixture
def job(tmp_path: Path) -> Job:
    """Run a command under `ftforensics run` and wait for its end. The run folder is tmp_path/"folder"."""

    def run(
        *command: str,
        options: Sequence[str] = (),
        env: Mapping[str, str] | None = None,
        wrapper: Sequence[str] = (),
        data: bytes = b"",
        timeout: float = PATIENCE,
    ) -> Ended:
        folder = tmp_path / "folder"
        made = subprocess.run(
            [*wrapper, *RUN, "--dir", str(folder), *options, "--", *command],
            cwd=tmp_path,
            env=environment(**(env or {})),
            input=data,
            capture_output=True,
            timeout=timeout,
        )
        return Ended(made.returncode, made.stdout, made.stderr, folder)

    return run


@pytest.fixture
def shell(tmp_path: Path) -> Callable[..., Ended]:
    """Run a bash script in which `$RUN` is `ftforensics run --dir folder`."""

    def run(script: str, timeout: float = PATIENCE) -> Ended:
        folder = tmp_path / "folder"
        variables = environment(RUN=" ".join([*RUN, "--dir", str(folder)]))
        made = subprocess.run(["bash", "-c", script], cwd=tmp_path, env=variables, capture_output=True, timeout=timeout)
        return Ended(made.returncode, made.stdout, made.stderr, folder)

    return run


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """Start one that the test talks to. What is still there at the end is killed."""
    started: list[subprocess.Popen[bytes]] = []

    def begin(*command: str, options: Sequence[str] = (), **more: object) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            [*RUN, "--dir", str(tmp_path / "folder"), *options, "--", *command],
            **{"cwd": tmp_path, "env": environment(), "stdin": subprocess.DEVNULL, **more},  # type: ignore[call-overload]
        )
        started.append(process)
        return process

    yield begin
    for process in started:
        if process.poll() is None:
            process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout, process.stderr):
            if stream is not None:
                stream.close()


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Callable[..., Terminal]]:
    opened: list[Terminal] = []

    def begin(*command: str, env: Mapping[str, str] | None = None, size: tuple[int, int] = (24, 80)) -> Terminal:
        opened.append(Terminal(command, tmp_path, env or environment(), size))
        return opened[-1]

    yield begin
    for one in opened:
        one.close()
