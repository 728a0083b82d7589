"""What a run runs on, as one value that can be compared with another run's: packages, driver, machine, settings.

Read from beside the job: nothing of it is imported, no library of it is asked.
"""

from __future__ import annotations

import os
import platform
import re
import sys
from collections.abc import Mapping

import msgspec

from ftforensics.capture.environment import recorded_variables, world_size
from ftforensics.capture.identity import glibc_version, printable
from ftforensics.capture.redact import redact_arguments
from ftforensics.host.host import Host, Refusal
from ftforensics.model.crash import CrashRecord, Driver
from ftforensics.model.ledger import Fingerprint, Setting
from ftforensics.model.software import Package, Software, TorchBuild
from ftforensics.parsers import dist_info, fingerprint_text, machine_text, nvidia_version
from ftforensics.sources.config_files import read_config_files
from ftforensics.sources.counters import read_counters
from ftforensics.sources.driver import LIBRARY_FOLDERS, module_version
from ftforensics.sources.identity_here import host_name
from ftforensics.sources.interpreter import environment_of, is_environment
from ftforensics.sources.proc_gpus import proc_gpus
from ftforensics.sources.process_environment import started_with
from ftforensics.sources.software import read_software

LONGEST_ARGUMENT = 500  # characters
MOST_ARGUMENTS = 256
_SMALL = 64 << 10
_MOST_PROCESSES = 64
# Names, ids, ports and places that are another's at every start, and what has a member of its own.
_NOT_COMPARED = {
    "RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "ROLE_RANK", "ROLE_WORLD_SIZE",
    "NODE_RANK", "CROSS_RANK", "CROSS_SIZE", "MASTER_ADDR", "MASTER_PORT", "PWD", "TMPDIR", "HOSTNAME",
    "NODE_NAME", "POD_NAME", "POD_UID", "JOB_COMPLETION_INDEX", "FTFORENSICS_DIR", "VIRTUAL_ENV",
    "CONDA_PREFIX", "CONDA_DEFAULT_ENV", "KUBERNETES_SERVICE_HOST", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID",
    "SLURM_JOB_ID", "SLURM_JOBID", "SLURM_STEP_ID", "SLURM_STEPID", "SLURM_ARRAY_JOB_ID", "SLURM_ARRAY_TASK_ID",
    "SLURM_PROCID", "SLURM_LOCALID", "SLURM_NODEID", "SLURM_RESTART_COUNT", "SLURM_JOB_START_TIME",
    "SLURM_JOB_END_TIME", "SLURMD_NODENAME", "PBS_JOBID", "LSB_JOBID", "JOB_ID", "FLUX_JOB_ID", "RAY_JOB_ID",
}  # fmt: skip
_NOT_COMPARED_PREFIXES = ("TORCHELASTIC_", "OMPI_COMM_WORLD_")
# What runtimes and image builders leave in the environment: Apptainer, Singularity, Slurm's pyxis, NVIDIA's images.
_IMAGE_NAMES = ("APPTAINER_CONTAINER", "SINGULARITY_CONTAINER", "SLURM_CONTAINER", "CONTAINER_IMAGE", "DOCKER_IMAGE")
_NVIDIA_IMAGE = (("NVIDIA_PYTORCH_VERSION", "pytorch"), ("NVIDIA_PRODUCT_NAME", ""))
_PODMAN = "/run/.containerenv"
_OUR_PRELOAD = "/ftforensics/_preload"


class Subject(msgspec.Struct, frozen=True):
    """Whose fingerprint is taken. argv, environ: as they are, with their secrets; no word of them gets out unredacted.
    prefix: the Python environment; python: its version; processors: that it may use."""

    argv: list[str] = []
    cwd: str | None = None
    environ: dict[str, str] = {}
    cgroup: list[str] = []
    prefix: str | None = None
    python: str | None = None
    processors: int | None = None


def subject_here(environ: Mapping[str, str], like: Fingerprint | None = None) -> Subject:
    """What a Python that is started here would be. like: a run whose command line and files count."""
    prefix = next((environ[name] for name in ("VIRTUAL_ENV", "CONDA_PREFIX") if environ.get(name)), None)
    own = sys.prefix
    return Subject(
        argv=like.argv if like else [],
        cwd=like.cwd if like else None,
        environ=dict(environ),
        cgroup=_lines(Host(), "/proc/self/cgroup"),
        prefix=prefix or own,
        python=platform.python_version() if prefix in (None, own) else None,
        processors=len(os.sched_getaffinity(0)),
    )


def subject_of_process(host: Host, pid: int) -> Subject:
    """A live process: its own command line, and the environment of the first Python at or below it. Raises Refusal when
    it is gone or another user's."""
    environ = _environ(host, pid)
    argv = _arguments(host, pid)
    prefix = next((found for one in _family(host, pid) if (found := environment_of(host, one)) is not None), None)
    return Subject(
        argv=argv,
        cwd=host.real_path(f"/proc/{pid}/cwd"),
        environ=environ,
        cgroup=_lines(host, f"/proc/{pid}/cgroup"),
        prefix=prefix,
        python=platform.python_version() if prefix == sys.prefix else None,
        processors=_processors(host, pid),
    )


def subject_of_record(record: CrashRecord) -> Subject | None:
    """A process that has crashed, by what its record says."""
    job = record.job
    if job is None:
        return None
    return Subject(
        argv=job.argv,
        cwd=job.cwd,
        environ={variable.name: variable.value for variable in job.environment},
        cgroup=job.cgroup,
        prefix=job.sys_prefix,
        python=record.tool.python if record.tool else None,
    )


def read_fingerprint(
    host: Host, subject: Subject, *, software: Software | None = None, driver: Driver | None = None
) -> Fingerprint:
    """software, driver: where they have been read already. Never raises: what is not seen is None."""
    software = software or read_software(host, prefix=subject.prefix, python=subject.python)
    reading, _ = read_counters(host, subject.cgroup, host.moment())
    limits = [group.limit for group in reading.groups if group.limit is not None]
    processor = machine_text.processor(_text(host, "/proc/cpuinfo", start=True) or "")
    libcuda = driver.libcuda_version if driver else None
    return Fingerprint(
        host=host_name(host),
        python=subject.python or software.python,
        prefix=_told(subject.prefix or software.prefix),
        packages=_packages(software),
        elsewhere=_elsewhere(host, software),
        torch=_torch(software.torch),
        driver=(driver.module_version if driver else None) or module_version(host),
        libcuda=libcuda or _libcuda(host),
        kernel=_line(host, "/proc/sys/kernel/osrelease"),
        glibc=glibc_version() if host.live else None,
        gpus=[gpu.name for gpu in (driver and driver.gpus) or proc_gpus(host) if gpu.name],
        cpu=processor.model,
        cores=subject.processors,
        memory=reading.mem_total,
        memory_limit=min(limits, default=None),
        shm=reading.shm_size,
        world_size=world_size(subject.environ),
        variables=compared_variables(subject.environ),
        image=_image(host, subject.environ),
        argv=[printable(text)[:LONGEST_ARGUMENT] for text in redact_arguments(subject.argv[:MOST_ARGUMENTS])],
        cwd=_told(subject.cwd),
        files=[
            msgspec.structs.replace(file, path=printable(file.path))
            for file in read_config_files(host, subject.argv, subject.cwd)
        ],
    )


def environment_folder(host: Host, prefix: str) -> Fingerprint:
    """The packages of a Python environment, and nothing of any machine. Raises Refusal when it is none."""
    if not is_environment(host, prefix):
        raise Refusal(prefix, "not a Python environment: it has no pyvenv.cfg, conda-meta or bin/python")
    software = read_software(host, prefix=prefix)
    return Fingerprint(
        python=software.python,
        prefix=printable(prefix),
        packages=_packages(software),
        elsewhere=_elsewhere(host, software),
        torch=_torch(software.torch),
    )


def compared_variables(environ: Mapping[str, str]) -> list[Setting]:
    """Variables that decide how a job behaves, redacted; without those that differ between any two starts."""
    own = environ.get("LD_PRELOAD", "")
    if _OUR_PRELOAD in own:  # `run` has put it there
        kept = [word for word in re.split(r"[: ]+", own) if _OUR_PRELOAD not in word]
        environ = {**environ, "LD_PRELOAD": ":".join(kept)}
    return [
        Setting(name, printable(value)[:LONGEST_ARGUMENT])
        for name, value in recorded_variables(environ)
        if name not in _NOT_COMPARED and not name.startswith(_NOT_COMPARED_PREFIXES) and (value or name != "LD_PRELOAD")
    ]


def _told(path: str | None) -> str | None:
    """As text: a folder's name may be no UTF-8, and then no line of the ledger could hold it."""
    return None if path is None else printable(path)


def _packages(software: Software) -> list[Package]:
    """Each once: lib64 of a venv is a link to lib. Of two versions of one name, as an interrupted upgrade leaves them,
    both are kept."""
    found = {(package.name, package.version): package for package in software.packages}
    return [found[key] for key in sorted(found)]


def _elsewhere(host: Host, software: Software) -> list[str]:
    """Their dist-info tells where from (direct_url.json, PEP 610)."""
    found = set()
    for folder in software.site_packages:
        for name in host.listed(folder):
            parsed = dist_info.name_and_version(name)
            if parsed is not None and host.exists(f"{folder}/{name}/direct_url.json"):
                found.add(parsed[0])
    return sorted(found)


def _torch(build: TorchBuild | None) -> str | None:
    """ "2.9.1+cu128": the wheel of the index has no local part, and its CUDA is what one wants to see."""
    if build is None or "+" in build.version:
        return build.version if build else None
    if build.cuda:
        return f"{build.version}+cu{build.cuda.replace('.', '')}"
    return f"{build.version}+rocm{build.hip}" if build.hip else build.version


def _libcuda(host: Host) -> str | None:
    for folder in LIBRARY_FOLDERS:
        try:
            found = nvidia_version.file_version(host.real_path(f"{folder}/libcuda.so.1"))
        except Refusal:
            continue
        if found:
            return found
    return None


def _image(host: Host, environ: Mapping[str, str]) -> str | None:
    for name in _IMAGE_NAMES:
        if environ.get(name):
            return printable(environ[name])[:LONGEST_ARGUMENT]
    named = fingerprint_text.podman_image(_text(host, _PODMAN) or "")
    if named:
        return named
    parts = [f"{word} {printable(environ[name])}".strip() for name, word in _NVIDIA_IMAGE if environ.get(name)]
    return "nvidia " + ", ".join(parts)[:LONGEST_ARGUMENT] if parts else None


def _family(host: Host, pid: int) -> list[int]:
    """The process and what it has started, level by level, at most 64 of them."""
    found = [pid]
    for one in found:
        for thread in host.listed(f"/proc/{one}/task")[:8]:
            found += [int(word) for word in (_text(host, f"/proc/{one}/task/{thread}/children") or "").split()]
        if len(found) >= _MOST_PROCESSES:
            break
    return found[:_MOST_PROCESSES]


def _arguments(host: Host, pid: int) -> list[str]:
    raw = host.read_start(f"/proc/{pid}/cmdline", 1 << 20)
    return [os.fsdecode(word) for word in raw.removesuffix(b"\0").split(b"\0")] if raw else []


def _environ(host: Host, pid: int) -> dict[str, str]:
    return {os.fsdecode(name): os.fsdecode(value) for name, value in started_with(host, pid)}


def _processors(host: Host, pid: int) -> int | None:
    try:
        return len(os.sched_getaffinity(pid)) if host.live else None
    except OSError:
        return None


def _lines(host: Host, path: str) -> list[str]:
    return (_text(host, path) or "").splitlines()


def _line(host: Host, path: str) -> str | None:
    text = _text(host, path)
    return text.strip() or None if text else None


def _text(host: Host, path: str, *, start: bool = False) -> str | None:
    """start: the file may be longer, and its beginning is enough."""
    try:
        if start:
            return host.read_start(path, _SMALL).decode("utf-8", "backslashreplace")
        return host.read_text(path, _SMALL)
    except Refusal:
        return None
