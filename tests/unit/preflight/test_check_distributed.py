"""Ranks, their meeting place, their GPUs, backend and variables, from one rank's environment."""

from __future__ import annotations

import msgspec
import pytest

from ftforensics.model.crash import Driver, Gpu
from ftforensics.model.preflight import Check, Status
from ftforensics.model.software import Software, TorchBuild
from ftforensics.preflight.distributed import distributed_checks, listens, meeting_place, ranks
from ftforensics.preflight.options import Options, Variable
from ftforensics.sources.rendezvous import Rendezvous

TORCHRUN = {
    "RANK": "1", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "4", "MASTER_ADDR": "node-1",
    "MASTER_PORT": "29500", "TORCHELASTIC_RUN_ID": "none",
}  # fmt: skip
CUDA = Software(python="3.11.7", torch=TorchBuild("2.9.1", "12.8", origin="wheel"))
CPU = Software(python="3.11.7", torch=TorchBuild("2.13.0+cpu"))
MET = Rendezvous(["10.0.0.1"], "connected")


def driver(gpus: int) -> Driver:
    return Driver("570.124.06", gpus=[Gpu(index, "NVIDIA A100-SXM4-80GB") for index in range(gpus)])


def options(**variables: str | None) -> Options:
    merged = {**TORCHRUN, **variables}
    return Options(environment=[Variable(name, value) for name, value in merged.items() if value is not None])


def checks(
    wanted: Options,
    *,
    software: Software = CUDA,
    gpus: int | None = 4,
    network: tuple[str, ...] = ("lo", "eth0"),
    met: Rendezvous | None = MET,
    start_method: str | None = "spawn",
) -> list[Check]:
    found = driver(gpus) if gpus is not None else None
    return list(distributed_checks(wanted, software, found, network=list(network), met=met, start_method=start_method))


def one(name: str, listed: list[Check]) -> Check:
    (check,) = [check for check in listed if check.name == name]
    return check


def test_a_rank_of_torchrun_is_ok() -> None:
    listed = checks(options())
    assert {check.status for check in listed} == {Status.OK}, listed
    assert "rank 1 of 4" in one("ranks", listed).said


def test_no_rank_at_all_says_how_to_ask() -> None:
    bare = Options()
    check = one("ranks", checks(bare, met=None))
    assert check.status is Status.WARN
    assert "torchrun" in (check.remedies[0].command or "")
    assert one("meeting-place", checks(bare, met=None)).status is Status.WARN


@pytest.mark.parametrize(
    "variables",
    [
        {"RANK": "4"},
        {"LOCAL_RANK": "4"},
        {"WORLD_SIZE": "0", "RANK": "0"},
        {"LOCAL_WORLD_SIZE": "8"},
        {"RANK": "one"},
        {"RANK": "-1"},
        {"WORLD_SIZE": "9" * 40},
        {"RANK": "²"},
    ],
    ids=str,
)
def test_impossible_numbers_fail(variables: dict[str, str]) -> None:
    assert one("ranks", checks(options(**variables))).status is Status.FAIL


@pytest.mark.parametrize(
    "variables",
    [
        {"OMPI_COMM_WORLD_RANK": "2", "OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_LOCAL_RANK": "2"},
        {"PMI_RANK": "2", "PMI_SIZE": "4", "MPI_LOCALRANKID": "2"},
        {"SLURM_PROCID": "2", "SLURM_NTASKS": "4", "SLURM_LOCALID": "2"},
    ],
    ids=["Open MPI", "MPICH", "srun"],
)
def test_other_launchers_are_understood(variables: dict[str, str]) -> None:
    found = ranks(Options(environment=[Variable(name, value) for name, value in variables.items()]))
    assert (found.rank, found.world, found.local) == (2, 4, 2)


def test_who_listens() -> None:
    assert not listens(options())
    assert listens(options(RANK="0", LOCAL_RANK="0"))
    # Below torchrun the agent holds the port already, before any rank starts.
    assert not listens(options(RANK="0", LOCAL_RANK="0", TORCHELASTIC_USE_AGENT_STORE="True"))


@pytest.mark.parametrize("port", ["0", "65536", "http", ""])
def test_a_port_that_is_none_is_not_tried(port: str) -> None:
    assert meeting_place(options(MASTER_PORT=port)) is None
    assert one("meeting-place", checks(options(MASTER_PORT=port), met=None)).status is Status.FAIL


@pytest.mark.parametrize(
    ("met", "status", "word"),
    [
        (Rendezvous(error="Name or service not known"), Status.FAIL, "does not resolve"),
        (Rendezvous(silent=True), Status.FAIL, "does not resolve"),
        (Rendezvous(["10.0.0.1"], "no answer"), Status.FAIL, "firewall"),
        (Rendezvous(["10.0.0.1"], "No route to host"), Status.FAIL, "No route"),
        (Rendezvous(["10.0.0.1"], "in use"), Status.FAIL, "in use"),
        (Rendezvous(["10.0.0.1"], "refused"), Status.OK, "nobody listens there yet"),
        (Rendezvous(["10.0.0.1"], "free"), Status.OK, "free"),
        (None, Status.UNKNOWN, "not tried"),
    ],
)
def test_the_meeting_place(met: Rendezvous | None, status: Status, word: str) -> None:
    check = one("meeting-place", checks(options(), met=met))
    assert check.status is status and word in check.said


def test_a_hostile_address_is_quoted() -> None:
    check = one("meeting-place", checks(options(MASTER_ADDR="$(reboot)"), met=Rendezvous(error="no")))
    assert check.remedies[0].command == "getent ahosts '$(reboot)'"


def test_all_ranks_on_one_gpu_fail() -> None:
    first = options(RANK="0", LOCAL_RANK="0", CUDA_VISIBLE_DEVICES="0")
    check = one("rank-to-gpu", checks(first))
    assert check.status is Status.FAIL and "all of them would take GPU 0" in check.said
    assert check.remedies[0].command == "unset CUDA_VISIBLE_DEVICES"


@pytest.mark.parametrize(
    ("variables", "gpus"),
    [
        ({"CUDA_VISIBLE_DEVICES": "0"}, 4),
        ({"LOCAL_RANK": "3", "RANK": "3", "CUDA_VISIBLE_DEVICES": "0,1"}, 4),
        ({"LOCAL_RANK": "3", "RANK": "3"}, 2),
        ({"CUDA_VISIBLE_DEVICES": "-1"}, 4),
        ({"CUDA_VISIBLE_DEVICES": "0,0,1,1"}, 4),
    ],
    ids=["one shown", "two shown", "two there", "none shown", "named twice"],
)
def test_a_rank_without_a_gpu_fails(variables: dict[str, str], gpus: int) -> None:
    assert one("rank-to-gpu", checks(options(**variables), gpus=gpus)).status is Status.FAIL


def test_one_gpu_for_each_rank_by_the_launcher_is_ok() -> None:
    bound = options(CUDA_VISIBLE_DEVICES="0", SLURM_GPUS_PER_TASK="1")
    assert one("rank-to-gpu", checks(bound, gpus=1)).status is Status.OK


def test_one_gpu_for_each_rank_by_a_wrapper_script_is_ok() -> None:
    check = one("rank-to-gpu", checks(options(RANK="3", LOCAL_RANK="3", CUDA_VISIBLE_DEVICES="3"), gpus=4))
    assert check.status is Status.OK and "take device 0" in check.said


def test_more_ranks_than_gpus_warn() -> None:
    shared = options(RANK="0", LOCAL_RANK="0")
    assert one("rank-to-gpu", checks(shared, gpus=2)).status is Status.WARN


@pytest.mark.parametrize(
    ("backend", "software", "gpus", "status"),
    [
        ("nccl", CUDA, 4, Status.OK),
        ("nccl", CPU, 4, Status.FAIL),
        ("nccl", CUDA, None, Status.FAIL),
        ("gloo", CPU, None, Status.OK),
        ("gloo", CUDA, 4, Status.WARN),
    ],
)
def test_the_backend_and_the_hardware(backend: str, software: Software, gpus: int | None, status: Status) -> None:
    wanted = msgspec.structs.replace(options(), backend=backend)
    assert one("backend", checks(wanted, software=software, gpus=gpus)).status is status


def test_nccl_with_every_gpu_hidden_fails() -> None:
    wanted = msgspec.structs.replace(options(CUDA_VISIBLE_DEVICES=""), backend="nccl")
    assert "hides every GPU" in one("backend", checks(wanted)).said


@pytest.mark.parametrize(
    ("given", "default", "status"),
    [(None, "fork", Status.WARN), ("spawn", "fork", Status.OK), ("fork", "forkserver", Status.WARN)],
)
def test_the_start_method(given: str | None, default: str, status: Status) -> None:
    wanted = msgspec.structs.replace(options(), start_method=given)
    check = one("start-method", checks(wanted, start_method=default))
    assert check.status is status
    assert check.cause == ("fork-after-cuda" if status is Status.WARN else None)


def test_without_cuda_fork_is_no_matter() -> None:
    assert all(check.name != "start-method" for check in checks(options(), software=CPU, start_method="fork"))


@pytest.mark.parametrize(
    ("value", "status"),
    [
        ("eth0", Status.OK),
        ("eth", Status.OK),
        ("=eth", Status.FAIL),
        ("^lo", Status.OK),
        ("^lo,eth", Status.FAIL),
        ("ib0", Status.FAIL),
        ("eth0:1,ib", Status.OK),
    ],
)
def test_the_interface(value: str, status: Status) -> None:
    assert one("network-interface", checks(options(NCCL_SOCKET_IFNAME=value))).status is status


def test_gloo_wants_the_whole_name() -> None:
    assert one("network-interface", checks(options(GLOO_SOCKET_IFNAME="eth"))).status is Status.FAIL


def test_the_loopback_does_not_reach_other_nodes() -> None:
    several = options(WORLD_SIZE="8", NCCL_SOCKET_IFNAME="lo")
    assert one("network-interface", checks(several)).status is Status.FAIL
    assert one("network-interface", checks(options(NCCL_SOCKET_IFNAME="lo"))).status is Status.OK


@pytest.mark.parametrize(
    ("name", "value", "status"),
    [
        ("TORCH_NCCL_ASYNC_ERROR_HANDLING", "0", Status.WARN),
        ("TORCH_NCCL_ASYNC_ERROR_HANDLING", "1", Status.OK),
        ("NCCL_P2P_DISABLE", "1", Status.WARN),
        ("NCCL_PROTO", "LL128", Status.WARN),
        ("NCCL_DEBUG", "INFO", Status.OK),
        ("NCCL_DEBUG", "trace", Status.WARN),
    ],
)
def test_variables_that_bite(name: str, value: str, status: Status) -> None:
    check = one("nccl-variables", checks(options(**{name: value})))
    assert check.status is status
    assert status is Status.OK or check.remedies[0].command == f"unset {name}"


def test_a_loopback_address_meets_nobody_from_another_node() -> None:
    met = Rendezvous(["127.0.1.1"], "connected")
    assert one("meeting-place", checks(options(), met=met)).status is Status.OK
    check = one("meeting-place", checks(options(WORLD_SIZE="8"), met=met))
    assert check.status is Status.FAIL and "127.0.1.1" in check.said
