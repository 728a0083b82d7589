"""Will the ranks find one another, each its own GPU, and can their backend work? From the environment of one of them.

Meant to be run as the job is: `torchrun --nproc-per-node 8 --no-python ftforensics check --distributed`, or below srun
or mpirun."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

import msgspec

from ftforensics.model.basics import Cite
from ftforensics.model.crash import Driver
from ftforensics.model.diagnosis import Confidence, Remedy
from ftforensics.model.preflight import Check, Status
from ftforensics.model.software import Software
from ftforensics.parsers.gpu_variables import Interfaces, interfaces, visible_devices, whole_number
from ftforensics.preflight.options import Options
from ftforensics.sources.rendezvous import Rendezvous

TOPIC = "distributed"
# Each launcher's own names: torchrun (also accelerate, lightning, deepspeed), Open MPI, MPICH and Intel MPI, srun.
RANK = ("RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID")
WORLD_SIZE = ("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_NTASKS")
LOCAL_RANK = ("LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID")
LOCAL_WORLD_SIZE = ("LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS", "SLURM_NTASKS_PER_NODE")
# Where the launcher gives each rank a GPU of its own, device 0 of every rank is another one.
_BINDS = ("SLURM_GPUS_PER_TASK", "SLURM_GPU_BIND", "SLURM_TASKS_PER_GPU", "SLURM_NTASKS_PER_GPU")

_AS_THE_JOB = Remedy(
    "Run this check as the job is run, so that it sees a rank's environment",
    "torchrun --nproc-per-node 8 --no-python ftforensics check --distributed",
)


class Ranks(msgspec.Struct, frozen=True):
    """As the environment has them; None where it says nothing. trouble: values that are no numbers."""

    rank: int | None = None
    world: int | None = None
    local: int | None = None
    local_world: int | None = None
    trouble: list[str] = []

    @property
    def several_nodes(self) -> bool:
        return self.world is not None and self.local_world is not None and self.world > self.local_world

    @property
    def told(self) -> bool:
        return self.rank is not None or self.world is not None or self.local is not None


def ranks(options: Options) -> Ranks:
    trouble: list[str] = []

    def number(names: tuple[str, ...]) -> int | None:
        for name in names:
            value = options.variable(name)
            if value is None or value == "":
                continue
            found = whole_number(value)
            if found is None:
                trouble.append(f"{name}={value[:40]}")
            return found
        return None

    return Ranks(number(RANK), number(WORLD_SIZE), number(LOCAL_RANK), number(LOCAL_WORLD_SIZE), trouble)


def meeting_place(options: Options) -> tuple[str, int] | None:
    """(MASTER_ADDR, MASTER_PORT) where both are usable."""
    address = options.variable("MASTER_ADDR")
    port = whole_number(options.variable("MASTER_PORT"))
    return (address, port) if address and "\0" not in address and port and port < 65536 else None


def listens(options: Options) -> bool:
    """Will this process be the one that the others connect to? Below torchrun its agent is, before any rank starts."""
    return ranks(options).rank == 0 and not _agent_listens(options)


def _agent_listens(options: Options) -> bool:
    # torch/distributed/elastic/agent: workers of an agent that keeps the store for them.
    return options.variable("TORCHELASTIC_USE_AGENT_STORE") == "True"


def distributed_checks(
    options: Options,
    software: Software | None,
    driver: Driver | None,
    *,
    network: list[str],
    met: Rendezvous | None,
    devices: bool = False,
    start_method: str | None = None,
) -> Iterator[Check]:
    """network: names of this machine's interfaces; met: what the meeting place answered; devices: there are signs of a
    GPU that NVML does not count; start_method: multiprocessing's default of the job's Python."""
    seen = ranks(options)
    yield from _ranks(seen)
    yield from _meeting(options, seen, met)
    yield from _mapping(options, seen, driver)
    yield from _backend(options, software, driver, devices)
    yield from _start_method(options, software, start_method)
    yield from _interfaces(options, seen, network)
    yield from _variables(options)


def _ranks(seen: Ranks) -> Iterator[Check]:
    name = "ranks"
    if seen.trouble:
        yield Check(name, TOPIC, Status.FAIL, f"not a number: {', '.join(seen.trouble)}", remedies=[_AS_THE_JOB])
        return
    if not seen.told:
        said = "no rank is set here (RANK, WORLD_SIZE, LOCAL_RANK): this is not the environment of a rank"
        yield Check(name, TOPIC, Status.WARN, said, remedies=[_AS_THE_JOB])
        return
    wrong = []
    if seen.rank is not None and seen.world is not None and seen.rank >= seen.world:
        wrong.append(f"rank {seen.rank} of {seen.world} (they count from 0)")
    if seen.world == 0:
        wrong.append("a world of 0 ranks")
    if seen.local is not None and seen.local_world is not None and seen.local >= seen.local_world:
        wrong.append(f"local rank {seen.local} of {seen.local_world}")
    if seen.local_world is not None and seen.world is not None and seen.local_world > seen.world:
        wrong.append(f"{seen.local_world} ranks on this node, {seen.world} in the whole job")
    if wrong:
        yield Check(name, TOPIC, Status.FAIL, f"impossible: {'; '.join(wrong)}", remedies=[_AS_THE_JOB])
        return
    missing = [
        what
        for what, value in (("RANK", seen.rank), ("WORLD_SIZE", seen.world), ("LOCAL_RANK", seen.local))
        if value is None
    ]
    said = f"rank {_text(seen.rank)} of {_text(seen.world)}, local rank {_text(seen.local)}"
    if seen.local_world is not None:
        said += f" of {seen.local_world}"
    if missing:
        yield Check(name, TOPIC, Status.WARN, f"{said}: {', '.join(missing)} not set", remedies=[_AS_THE_JOB])
    else:
        yield Check(name, TOPIC, Status.OK, said)


def _text(number: int | None) -> str:
    return "?" if number is None else str(number)


def _meeting(options: Options, seen: Ranks, met: Rendezvous | None) -> Iterator[Check]:
    address, port = options.variable("MASTER_ADDR"), options.variable("MASTER_PORT")
    name = "meeting-place"
    if not address or not port:
        missing = " and ".join(one for one, value in (("MASTER_ADDR", address), ("MASTER_PORT", port)) if not value)
        status = Status.WARN if not seen.told else Status.FAIL
        said = f"{missing} not set: the ranks would not find one another by env://"
        remedy = Remedy("Set them for every rank, or start the ranks by torchrun", _AS_THE_JOB.command)
        yield Check(name, TOPIC, status, said, remedies=[remedy])
        return
    where = f"{address}:{port}"
    if meeting_place(options) is None:
        yield Check(name, TOPIC, Status.FAIL, f"{where} is no address with a port from 1 to 65535")
        return
    if met is None:
        yield Check(name, TOPIC, Status.UNKNOWN, f"{where} was not tried")
        return
    cite = [Cite("network", where, ", ".join(met.addresses) or met.error or "no answer")]
    if met.error or (met.silent and not met.addresses):
        why = met.error or "the look-up got no answer in time"
        said = f"MASTER_ADDR={address} does not resolve: {why}"
        remedies = [Remedy("Ask as the job would", f"getent ahosts {shlex.quote(address)}")]
        yield Check(name, TOPIC, Status.FAIL, said, supports=cite, remedies=remedies)
        return
    if seen.several_nodes and met.addresses and all(one.startswith(("127.", "::1")) for one in met.addresses):
        # Debian's /etc/hosts gives the machine's own name 127.0.1.1.
        said = f"MASTER_ADDR={address} is {met.addresses[0]} here: the job's other nodes would meet themselves"
        remedies = [Remedy("Name an address of rank 0's node that the others reach", "ip -brief address")]
        yield Check(name, TOPIC, Status.FAIL, said, supports=cite, remedies=remedies)
        return
    if met.outcome == "free":
        yield Check(name, TOPIC, Status.OK, f"port {port} is free here for rank 0 to listen on", supports=cite)
    elif met.outcome == "in use":
        said = f"port {port} is in use here, and rank 0 has to listen on it"
        remedies = [
            Remedy("See who holds it: often a rank that a job before left behind", f"ss -ltnp 'sport = :{port}'"),
            Remedy("Or take another port", "export MASTER_PORT=29501"),
        ]
        yield Check(name, TOPIC, Status.FAIL, said, supports=cite, remedies=remedies)
    elif met.outcome == "connected":
        yield Check(name, TOPIC, Status.OK, f"{where} answers", supports=cite)
    elif met.outcome == "refused":
        said = f"{where}: the machine answers, nobody listens there yet"
        yield Check(name, TOPIC, Status.OK, said, supports=cite)
    else:
        how = "no answer (a firewall, or a wrong interface)" if met.outcome in (None, "no answer") else met.outcome
        remedies = [Remedy("Try by hand from this node", f"nc -vz {shlex.quote(address)} {port}")]
        yield Check(name, TOPIC, Status.FAIL, f"{where} cannot be reached: {how}", supports=cite, remedies=remedies)


def _mapping(options: Options, seen: Ranks, driver: Driver | None) -> Iterator[Check]:
    """Which GPU will this rank take? By habit the one of its local rank, among those that it sees."""
    value = options.variable("CUDA_VISIBLE_DEVICES")
    chosen = visible_devices(value)
    there = len(driver.gpus) if driver and driver.gpus else None
    count = len(chosen) if chosen is not None else there
    if chosen is not None and there is not None:
        count = min(count or 0, there)
    name = "rank-to-gpu"
    if count is None:
        if driver is not None:
            yield Check(name, TOPIC, Status.UNKNOWN, "how many GPUs a rank sees is not known")
        return
    shown = f"CUDA_VISIBLE_DEVICES={value}" if value is not None else f"{count} GPUs"
    if chosen is not None and len(set(chosen)) < len(chosen):
        yield Check(name, TOPIC, Status.FAIL, f"{shown} names a GPU twice: CUDA then shows none")
        return
    own = [variable for variable in _BINDS if options.variable(variable)]
    if chosen == [str(seen.local)] and seen.local:  # a wrapper script: CUDA_VISIBLE_DEVICES=$LOCAL_RANK python ...
        own.append("CUDA_VISIBLE_DEVICES")
    crowd = seen.local_world
    cite = [Cite("environment", "CUDA_VISIBLE_DEVICES", value if value is not None else "not set")]
    remedies = [
        Remedy("Let every rank of a node see all its GPUs", "unset CUDA_VISIBLE_DEVICES"),
        Remedy("And take one each in the script", 'torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))'),
    ]
    if seen.local is not None and seen.local >= count and not (own and count == 1):
        said = f"local rank {seen.local}, and {shown} leaves {count} visible: it has no GPU of its own"
        yield Check(name, TOPIC, Status.FAIL, said, supports=cite, remedies=remedies)
    elif count == 1 and crowd is not None and crowd > 1 and not own:
        said = f"{crowd} ranks on this node, and {shown} shows one GPU: all of them would take GPU 0"
        yield Check(name, TOPIC, Status.FAIL, said, supports=cite, remedies=remedies)
    elif crowd is not None and crowd > count and not own:
        said = f"{crowd} ranks on this node for {count} visible GPUs: some would share one"
        yield Check(name, TOPIC, Status.WARN, said, supports=cite, remedies=remedies)
    elif own and count == 1:
        said = f"one GPU is visible, and {own[0]} says that each rank gets its own: take device 0, not LOCAL_RANK"
        yield Check(name, TOPIC, Status.OK, said, supports=cite)
    else:
        which = f"local rank {seen.local} can take GPU {seen.local} of {count}" if seen.local is not None else shown
        yield Check(name, TOPIC, Status.OK, which, supports=cite)


def _backend(options: Options, software: Software | None, driver: Driver | None, devices: bool) -> Iterator[Check]:
    torch = software.torch if software else None
    wanted = options.backend
    name = "backend"
    cpu_only = torch is not None and torch.cuda is None and torch.hip is None
    chosen = visible_devices(options.variable("CUDA_VISIBLE_DEVICES"))
    gpu = (driver is not None or devices) and chosen != []
    if wanted == "nccl" and (cpu_only or not gpu):
        if torch is not None and cpu_only:
            why = f"torch {torch.version} is built without it"
        else:
            why = "no GPU is seen here" if chosen != [] else "CUDA_VISIBLE_DEVICES hides every GPU"
        remedy = Remedy("On a CPU use gloo", 'torch.distributed.init_process_group("gloo")')
        yield Check(name, TOPIC, Status.FAIL, f"the backend nccl needs GPUs, and {why}", remedies=[remedy])
    elif wanted == "gloo" and gpu and not cpu_only:
        said = "the backend gloo works on GPU tensors only by copies through the CPU: nccl is the one for GPUs"
        yield Check(name, TOPIC, Status.WARN, said)
    elif wanted is not None:
        yield Check(name, TOPIC, Status.OK, f"the backend {wanted} fits {'GPUs' if gpu and not cpu_only else 'a CPU'}")
    else:
        fitting = "nccl" if gpu and not cpu_only else "gloo"
        said = f"which backend the job names is not known; {fitting} fits what is here (--backend NAME checks one)"
        yield Check(name, TOPIC, Status.UNKNOWN if fitting == "gloo" else Status.OK, said)


def _start_method(options: Options, software: Software | None, default: str | None) -> Iterator[Check]:
    torch = software.torch if software else None
    method = options.start_method or default
    if method is None or torch is None or (torch.cuda is None and torch.hip is None):
        return
    name = "start-method"
    if method != "fork":
        yield Check(name, TOPIC, Status.OK, f"workers are started by {method}")
        return
    python = software.python if software and software.python else "this Python"
    of = "the job's start method" if options.start_method else f"the default of Python {python}"
    yield Check(
        name,
        TOPIC,
        Status.WARN,
        f"{of} is fork: a worker that is forked after CUDA was initialised cannot use it, and may die",
        "fork-after-cuda",
        Confidence.POSSIBLE,
        remedies=[
            Remedy(
                "Where workers touch CUDA, start them anew",
                'DataLoader(..., multiprocessing_context="spawn", persistent_workers=True)',
            )
        ],
    )


def _interfaces(options: Options, seen: Ranks, network: list[str]) -> Iterator[Check]:
    for name in ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME"):
        value = options.variable(name)
        if not value:
            continue
        # Only NCCL knows exclusions and beginnings of names; the others want the name itself.
        wanted = interfaces(value) if name.startswith("NCCL") else Interfaces(value.split(","), exact=True)
        meant = wanted.fitting(network)
        cite = [Cite("network", "/sys/class/net", ", ".join(network))]
        remedies = [Remedy("See their names", "ip -brief address"), Remedy("Or let it choose", f"unset {name}")]
        if not network:
            yield Check("network-interface", TOPIC, Status.UNKNOWN, f"{name}={value}: this machine's were not read")
        elif not meant:
            said = f"{name}={value} names no interface of this machine ({', '.join(network[:8])})"
            yield Check("network-interface", TOPIC, Status.FAIL, said, supports=cite, remedies=remedies)
        elif seen.several_nodes and meant == ["lo"]:
            said = f"{name}={value} is the loopback, which does not reach the job's other nodes"
            yield Check("network-interface", TOPIC, Status.FAIL, said, supports=cite, remedies=remedies)
        else:
            said = f"{name}={value} means {', '.join(meant[:4])}"
            yield Check("network-interface", TOPIC, Status.OK, said, supports=cite)


class _Known(msgspec.Struct, frozen=True):
    """A setting that bites. values: those that do, () for any."""

    name: str
    values: tuple[str, ...]
    bite: str


# NCCL user guide, "Environment Variables"; torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp.
_BITES = (
    _Known("TORCH_NCCL_ASYNC_ERROR_HANDLING", ("0",), "a rank that is missing then hangs the others for ever"),
    _Known("NCCL_ASYNC_ERROR_HANDLING", ("0",), "a rank that is missing then hangs the others for ever"),
    _Known("TORCH_NCCL_BLOCKING_WAIT", ("1",), "every collective then blocks the CPU; for debugging"),
    _Known("NCCL_BLOCKING_WAIT", ("1",), "the old name of TORCH_NCCL_BLOCKING_WAIT; every collective blocks the CPU"),
    _Known("CUDA_LAUNCH_BLOCKING", ("1",), "every kernel is waited for; for debugging, and it can hang NCCL"),
    _Known("NCCL_P2P_DISABLE", ("1",), "GPUs of a node then talk through host memory, many times slower"),
    _Known("NCCL_SHM_DISABLE", ("1",), "ranks of a node then talk through the network"),
    _Known("NCCL_IB_DISABLE", ("1",), "InfiniBand and RoCE are not used"),
    _Known("NCCL_DEBUG", ("TRACE",), "slow, and prints very much"),
    _Known("NCCL_LAUNCH_MODE", ("GROUP",), "known to hang with several communicators"),
    _Known("NCCL_PROTO", (), "forces one protocol; LL128 on hardware that cannot do it corrupts data"),
    _Known("NCCL_ALGO", (), "forces one algorithm; collectives that lack it fail"),
)


def _variables(options: Options) -> Iterator[Check]:
    found = 0
    for known in _BITES:
        value = options.variable(known.name)
        if value is None or (known.values and value.upper() not in known.values):
            continue
        found += 1
        yield Check(
            "nccl-variables",
            TOPIC,
            Status.WARN,
            f"{known.name}={value}: {known.bite}",
            supports=[Cite("environment", known.name, value)],
            remedies=[Remedy("Unless it is there for a reason", f"unset {known.name}")],
        )
    if not found:
        yield Check("nccl-variables", TOPIC, Status.OK, "none of the variables that are known to bite is set")
