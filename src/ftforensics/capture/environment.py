"""The job's environment: which variables may be written, which rank this is, what a child of ours may inherit."""

from __future__ import annotations

from ftforensics.capture.redact import redact_named

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

# Only these names are ever written: what launchers, CUDA, NCCL, the loader, the allocators and torch read to decide how
# a job behaves. A variable that is not here does not exist for us, so an unknown secret cannot slip through.
_NAMES = frozenset(
    """
    RANK LOCAL_RANK WORLD_SIZE LOCAL_WORLD_SIZE GROUP_RANK GROUP_WORLD_SIZE ROLE_RANK ROLE_WORLD_SIZE ROLE_NAME
    NODE_RANK NNODES MASTER_ADDR MASTER_PORT LD_LIBRARY_PATH LD_PRELOAD LD_AUDIT LD_BIND_NOW GLIBC_TUNABLES
    TMPDIR PWD LANG TZ CONDA_PREFIX CONDA_DEFAULT_ENV VIRTUAL_ENV CROSS_RANK CROSS_SIZE
    ACCELERATE_MIXED_PRECISION DS_ACCELERATOR TRITON_CACHE_DIR TOKENIZERS_PARALLELISM HF_HOME HF_HUB_OFFLINE
    TRANSFORMERS_OFFLINE XLA_FLAGS JAX_PLATFORMS TF_CPP_MIN_LOG_LEVEL FTFORENSICS_DIR SLURM_JOB_ID SLURM_JOBID
    SLURM_STEP_ID SLURM_STEPID SLURM_ARRAY_JOB_ID SLURM_ARRAY_TASK_ID SLURM_PROCID SLURM_LOCALID SLURM_NODEID
    SLURM_NTASKS SLURM_NNODES SLURM_STEP_NUM_NODES SLURM_STEP_NUM_TASKS SLURM_RESTART_COUNT SLURM_JOB_NUM_NODES
    SLURM_JOB_PARTITION SLURM_JOB_START_TIME SLURM_JOB_END_TIME SLURM_MEM_PER_NODE SLURM_MEM_PER_CPU
    SLURM_MEM_PER_GPU SLURM_CPUS_PER_TASK SLURM_CPUS_ON_NODE SLURM_GPUS SLURM_GPUS_ON_NODE SLURM_CLUSTER_NAME
    SLURMD_NODENAME PBS_JOBID LSB_JOBID JOB_ID FLUX_JOB_ID KUBERNETES_SERVICE_HOST HOSTNAME NODE_NAME POD_NAME
    POD_NAMESPACE POD_UID JOB_COMPLETION_INDEX RAY_JOB_ID PMI_RANK PMI_SIZE MPI_LOCALRANKID UCX_TLS
    UCX_ERROR_SIGNALS UCX_NET_DEVICES
    """.split()
)
_PREFIXES = (
    "TORCHELASTIC_",
    "CUDA_",
    "NVIDIA_",
    "NCCL_",
    "CUBLAS_",
    "CUDNN_",
    "PYTHON",
    "OMP_",
    "GOMP_",
    "KMP_",
    "MKL_",
    "OPENBLAS_",
    "PYTORCH_",
    "TORCH_",
    "MALLOC_",
    "OMPI_COMM_WORLD_",
    "GLOO_",
    "FI_",
)

# Each launcher's own names, the most telling first: torchrun (also accelerate, lightning, deepspeed), Open MPI,
# MPICH and Intel MPI, srun. srun comes last because sbatch sets SLURM_PROCID=0 for whatever the batch script starts.
_RANK = ("RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID")
_LOCAL_RANK = ("LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID")
_WORLD_SIZE = ("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_NTASKS")

# What the crash reporter needs to find its home, a terminal and the user's language. LD_PRELOAD, LD_LIBRARY_PATH and
# PYTHON* may be what killed the job, so they are not passed on.
_REPORTER_NAMES = ("PATH", "HOME", "LANG", "TERM", "NO_COLOR", "TZ", "USER", "LOGNAME", "COLUMNS")
_REPORTER_PREFIXES = ("LC_", "XDG_")

MAX_VALUE = 4096


def recorded_variables(environ: Mapping[str, str]) -> list[tuple[str, str]]:
    """(name, redacted value) of the variables that a record may hold, by name; values are cut at 4096 characters."""
    return [
        (name, redact_named(name, value[: 2 * MAX_VALUE])[:MAX_VALUE])
        for name, value in sorted(environ.items())
        if name in _NAMES or name.startswith(_PREFIXES)
    ]


def rank(environ: Mapping[str, str]) -> int | None:
    """This process's rank in the whole job, by whichever launcher started it."""
    return _first_number(environ, _RANK)


def local_rank(environ: Mapping[str, str]) -> int | None:
    """This process's rank on its node."""
    return _first_number(environ, _LOCAL_RANK)


def world_size(environ: Mapping[str, str]) -> int | None:
    """How many ranks the job has."""
    return _first_number(environ, _WORLD_SIZE)


def attempt(environ: Mapping[str, str]) -> int | None:
    """How often torchrun had started the job before: 0 at the first time."""
    return _first_number(environ, ("TORCHELASTIC_RESTART_COUNT",))


def reporter_environment(environ: Mapping[str, str]) -> list[bytes]:
    """`NAME=value` for the processes that we start ourselves."""
    return [
        f"{name}={value}".encode("utf-8", "surrogateescape")
        for name, value in environ.items()
        if name in _REPORTER_NAMES or name.startswith(_REPORTER_PREFIXES)
    ]


def _first_number(environ: Mapping[str, str], names: tuple[str, ...]) -> int | None:
    for name in names:
        value = environ.get(name, "")
        if value.isascii() and value.isdigit():
            return int(value)
    return None
