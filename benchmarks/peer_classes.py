"""What the classes of two other programs mean in our vocabulary, so that all can be scored by one label.

gpualert 0.1.6 (`parse_errors`) has fifteen classes, in the order in which it tries them; denpex 1.1.28
(`diagnose-local`) has thousands, of which those stand here that it ever answered on a labelled case. The reading is
meant to be generous: a class stands for every cause that a reasonable user would look at after reading its sentence.

weak: the class only repeats that something failed (a traceback, an exit code, a launcher's summary) and sends the user
to look further. It counts as right where that is the label, and as undecided elsewhere, never as wrong.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Claim:
    causes: frozenset[str]
    weak: bool = False


def says(*causes: str) -> Claim:
    return Claim(frozenset(causes))


def hints(*causes: str) -> Claim:
    return Claim(frozenset(causes), weak=True)


OOM_KILL = ("cgroup-oom", "ancestor-cgroup-oom", "host-oom", "numa-oom", "oom-group-kill")
OLD_DRIVER = ("driver-too-old", "driver-minor-window", "driver-half-upgraded", "compat-driver-mismatch", "stub-driver")
LIBRARIES = ("mixed-cuda-libraries", "drifted-cuda-library", "system-cuda-shadows-wheel", "broken-install")

GPUALERT = {
    "": hints(),
    "GPU out-of-memory (CUDA OOM)": says("cuda-out-of-memory"),
    "NCCL communication error": says("nccl-error", "nccl-watchdog-abort", "peer-lost"),
    # "Check nvidia-smi. The GPU may be faulty or drivers out of date."
    "CUDA runtime error": says("cuda-error", "cuda-device-assert", "gpu-xid", "driver-library-missing", *OLD_DRIVER),
    # Looks for MemoryError and bad_alloc; its advice, more RAM, would also meet a kill for want of memory.
    "System out-of-memory (RAM)": says("host-memory-error", *OOM_KILL),
    # As much as the launcher says ("Signal 11").
    "Segmentation fault": hints("native-fault", "thread-stack-overflow"),
    "File not found": says("file-not-found"),
    "Permission denied": says("permission-denied"),
    "Missing Python module": says("missing-module"),
    "Division by zero": says("division-by-zero"),
    "Tensor device mismatch": says("device-mismatch"),
    "NaN detected in loss": says("loss-nan"),
    "Process killed by OS (OOM)": says(*OOM_KILL),
    "Assertion failed": says("assertion-failed"),
    # A class of its own above "traceback": it calls a RuntimeError the error, whosever that is.
    "Python RuntimeError": says("python-exception"),
    # The launcher's own traceback is one, too: no word about what failed.
    "Python exception (traceback)": hints("python-exception"),
    "Process exited with code": hints("exit-code"),
}

DENPEX = {
    "NEEDS_MORE_SIGNAL": hints(),
    "UNKNOWN": hints(),
    # "The parent envelope alone cannot diagnose the underlying cause."
    "TORCHELASTIC_CHILD_FAILED": hints("exit-code"),
    # "Unattributed": it says itself that the peer's error does not tell who failed.
    "GLOO_COMMUNICATION_UNATTRIBUTED": hints("peer-lost"),
    "CUDA_ILLEGAL_ACCESS_NEEDS_DISCRIMINATOR": hints("cuda-error"),
    "CGROUP_MEMORY_LIMIT": says("cgroup-oom", "ancestor-cgroup-oom", "oom-group-kill"),
    # The kernel's OOM killer, whatever limit it was for.
    "HOST_RAM_OOM": says(*OOM_KILL),
    "HOST_RAM_OOM_CASCADE": says(*OOM_KILL),
    "PYTORCH_OOM_WORKER_HANG_1": says(*OOM_KILL),
    "CUDA_OOM": says("cuda-out-of-memory"),
    "CUDA_ERROR": says("cuda-error", "cuda-device-assert", "gpu-xid", "driver-library-missing", *OLD_DRIVER),
    "DEVICE_ASSERT": says("cuda-device-assert"),
    "CUDA_DRIVER_COMPAT": says(*OLD_DRIVER),
    "CUDA_DRIVER_RUNTIME_MISMATCH": says(*OLD_DRIVER),
    "NVML_DRIVER_LIBRARY_VERSION_MISMATCH": says("driver-half-upgraded"),
    "CUDA_KERNEL_ARCHITECTURE_UNSUPPORTED": says("gpu-architecture-unsupported"),
    "EXTENSION_UNDEFINED_SYMBOL": says("abi-mismatch", "stale-extension", *LIBRARIES),
    "PYTORCH_CXX_ABI_MISMATCH": says("abi-mismatch", "stale-extension"),
    "GCC_VERSION_MISMATCH": says("libstdcxx-clash"),
    "OPENMP_LIBOMP_LIBGOMP_DEADLOCK_CLASH": says("openmp-clash"),
    "FORK_AFTER_CUDA_INIT": says("fork-after-cuda"),
    # A data worker went away; of what, it does not say.
    "DATALOADER_BOT": hints(),
    "PYTORCH_DATALOADER_VISION_RESNET_GIL_ERROR_0": hints(),
    "DATALOADER_CUSTOM_CUDA_VOXELIZE_SEGFAULT": hints("native-fault"),
    # torch prints the sentence about shared memory for every bus error.
    "DATALOADER_SHM_SIGBUS": says("shm-exhausted"),
    "GPU_XID": says("gpu-xid"),
    "GPU_XID_ECC": says("gpu-xid"),
    "GPU_XID_94_CONTAINED": says("gpu-xid"),
    "GPU_XID_94_CONTAINED_CASCADE": says("gpu-xid"),
    "GPU_OFF_BUS": says("gpu-xid"),
    "XID_ROUTER": says("gpu-xid"),
    "NCCL_DDP_TIMEOUT_MEMORY_1": says("nccl-error", "nccl-watchdog-abort", "peer-lost"),
    "PYTORCH_DDP_UNUSED_PARAMETERS_HANG": says("rank-missing", "collective-mismatch"),
    "NAN_LOSS": says("loss-nan"),
    "OUTPUT_PATH_ACCESS_DENIED": says("permission-denied"),
    "PT_DEVICE_MISMATCH": says("device-mismatch"),
    "PYTHON_MODULE_NOT_FOUND": says("missing-module"),
    "MATMUL_SHAPE_MISMATCH": says("python-exception"),
    "SLURM_QOS_PREEMPTION": says("scheduler-preempted"),
    "SLURM_TIME_LIMIT": says("scheduler-time-limit"),
    # "A kernel crash on this node": of the kernel itself, which no label accepts.
    "HOST_KERNEL_FAULT": says("kernel-oops"),
    # Which rank failed first, and that an actor is dead; of what, neither says.
    "CASCADE": hints(),
    "ACTOR_LOOP_56": hints(),
    # Classes about an MPI or elastic launcher that gave up: they name no cause of it.
    "OPENMPI_MPI_ISSUE": hints(),
    "TRTLLM_MPI_ORCHESTRATOR_ABORT": hints(),
    "TORCH_ELASTIC_AGENT_TOPOLOGY_CHANGE": hints(),
}
