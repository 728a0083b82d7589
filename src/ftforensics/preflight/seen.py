"""Reads what the checks look at: the environment's packages, what would be loaded, driver, machine, paths, network."""

from __future__ import annotations

import importlib
import os
import shutil
import sys
import sysconfig

import msgspec

from ftforensics.capture.folder import NAME as RUN_FOLDER
from ftforensics.host.host import Host, Refusal
from ftforensics.model.basics import Gap
from ftforensics.model.crash import Driver
from ftforensics.model.software import Software
from ftforensics.preflight.capture import Recording
from ftforensics.preflight.distributed import listens, meeting_place
from ftforensics.preflight.options import Options
from ftforensics.sources.driver import installed_driver
from ftforensics.sources.dynamic_loader import SearchEnvironment
from ftforensics.sources.identity_here import read_identity
from ftforensics.sources.integrity import verify
from ftforensics.sources.libraries import loaded_libcuda
from ftforensics.sources.machine import Machine, read_machine
from ftforensics.sources.missing_symbols import complete_software
from ftforensics.sources.places import Place, look_at
from ftforensics.sources.proc_gpus import proc_gpus
from ftforensics.sources.rendezvous import Rendezvous, ask_rendezvous
from ftforensics.sources.software import read_software
from ftforensics.sources.witnesses import Witness, read_witnesses
from ftforensics.sources.would_load import WouldLoad, would_load

DEVICES = ("/dev/nvidiactl", "/dev/nvidia0", "/dev/dxg")
NETWORK = "/sys/class/net"
_PYTHON_TIMEOUT = 5.0  # seconds


class Seen(msgspec.Struct, frozen=True):
    """devices: signs of a GPU; data, writes: places that are read from and written to; network: names of interfaces;
    met: what the ranks' meeting place answered; start_method: multiprocessing's default of the job's Python."""

    software: Software
    would: WouldLoad
    driver: Driver | Gap
    devices: bool
    machine: Machine
    recording: Recording
    witnesses: list[Witness]
    data: list[Place]
    writes: list[Place]
    network: list[str]
    met: Rendezvous | None
    start_method: str | None


def look(host: Host, options: Options) -> Seen:
    software = environment_software(host, options)
    would = would_load(
        host,
        software,
        SearchEnvironment(options.variable("LD_LIBRARY_PATH"), options.variable("LD_PRELOAD"), options.cwd),
    )
    software = complete_software(host, software, would.libraries)
    software = verify(host, software, hash_files=options.verify)
    machine = read_machine(host)
    folder = options.run_folder or f"{options.cwd.rstrip('/')}/{RUN_FOLDER}"
    wanted = [*options.data, *options.checkpoints, folder]
    places = look_at(host, wanted)
    data = places[: len(options.data)]
    writes = places[len(options.data) : -1]
    meeting = meeting_place(options) if options.distributed else None
    met = ask_rendezvous(host, *meeting, listen=listens(options)) if meeting else None
    return Seen(
        software=software,
        would=would,
        driver=driver_here(host, loaded_libcuda(would.libraries)),
        devices=_devices(host, options),
        machine=machine,
        recording=Recording(
            extension=_extension(host, options),
            folder=places[-1],
            passing=options.passing,
            faulthandler=_faulthandler(options),
            tools=_tools(options),
        ),
        witnesses=read_witnesses(host, read_identity(host), machine.memory),
        data=data,
        writes=writes,
        network=host.listed(NETWORK) if options.distributed else [],
        met=met,
        start_method=_start_method(software.python),
    )


def environment_software(host: Host, options: Options) -> Software:
    """Of the named environment; else of this interpreter's own folders, in the order of its search."""
    if options.prefix is not None:
        return read_software(host, prefix=options.prefix)
    folders = [path for path in sys.path if path.endswith(("/site-packages", "/dist-packages"))]
    folders = _once(host, [*folders, sysconfig.get_path("purelib"), sysconfig.get_path("platlib")])
    version = ".".join(str(part) for part in sys.version_info[:3])
    return read_software(host, prefix=sys.prefix, site_packages=folders, python=version)


def _once(host: Host, folders: list[str]) -> list[str]:
    """One folder under two names would hold every package twice."""
    found: dict[str, str] = {}
    for folder in folders:
        try:
            found.setdefault(host.real_path(folder), folder)
        except Refusal:
            continue
    return list(found.values())


def driver_here(host: Host, libcuda: str | None) -> Driver | Gap:
    """libcuda: the one that the loader would take. No process is looked at, so nothing is said of one."""
    found = installed_driver(host, libcuda, of_process=False)
    if isinstance(found, Gap):
        return found
    return msgspec.structs.replace(found, gpus=found.gpus or proc_gpus(host))


def _devices(host: Host, options: Options) -> bool:
    """A container that was promised GPUs (NVIDIA_VISIBLE_DEVICES; "void" and "none" promise none) counts too."""
    promised = options.variable("NVIDIA_VISIBLE_DEVICES") or ""
    return promised not in ("", "void", "none") or any(host.exists(path) for path in DEVICES)


def _extension(host: Host, options: Options) -> str | None:
    """Why the crash handler does not load in the job's Python, None where it does."""
    if options.prefix is None or os.path.realpath(options.prefix) == os.path.realpath(sys.prefix):
        try:
            importlib.import_module("ftforensics._native")
        except ImportError as error:
            return f"the extension does not load: {error}"
        return None
    python = f"{options.prefix}/bin/python"
    if not host.runs_commands or not os.path.exists(python):
        return f"there is no {python} to ask" if host.runs_commands else "a copy of files cannot be asked"
    try:
        done = host.run([python, "-I", "-c", "import ftforensics._native"], _PYTHON_TIMEOUT, 4096)
    except Refusal as refusal:
        return str(refusal)
    if done.status == 0:
        return None
    said = done.stderr.decode("utf-8", "backslashreplace").strip().splitlines()
    return f"{python}: {said[-1][:200] if said else done.complaint(_PYTHON_TIMEOUT)}"


def _faulthandler(options: Options) -> str | None:
    for name in ("PYTHONFAULTHANDLER", "PYTHONDEVMODE"):
        if options.variable(name):
            return name
    return None


def _tools(options: Options) -> list[str]:
    beside = os.path.dirname(sys.executable)
    path = options.variable("PATH") or os.defpath
    return [tool for tool in ("py-spy", "pystack") if shutil.which(tool, path=f"{beside}{os.pathsep}{path}")]


def _start_method(python: str | None) -> str | None:
    """multiprocessing's default on Linux: fork before Python 3.14, forkserver since (its documentation)."""
    major, _, rest = (python or "").partition(".")
    minor = rest.partition(".")[0]
    if not (major.isdigit() and minor.isdigit()):
        return None
    return "forkserver" if (int(major), int(minor)) >= (3, 14) else "fork"
