"""Software stacks written by hand, one piece at a time: libraries, packages, torch, driver, and a crash among them.

    cu128().frame("cudnnConvolutionForward", CUDNN).environment("LD_LIBRARY_PATH", "/usr/local/cuda/lib64").crash

A process of /venv (Python 3.11) that died by reading 0x28. Nothing is known but what is said; `cu128()` is the stack of
`pip install torch==2.9.1` where everything fits.
"""

from __future__ import annotations

from typing import Any

import msgspec

from ftforensics.causes.registry import find_cause
from ftforensics.model.basics import Address, Cite, Gap
from ftforensics.model.case import Crash, PythonFrame
from ftforensics.model.crash import (
    AbortMessage,
    CrashRecord,
    Driver,
    EnvironmentVariable,
    Gpu,
    Job,
    Library,
    Module,
    Process,
    Signal,
)
from ftforensics.model.diagnosis import Finding, Frame
from ftforensics.model.launcher import StackText, TextLine
from ftforensics.model.mechanism import Mechanism, MechanismReading
from ftforensics.model.software import BrokenFile, MissingSymbols, Package, Pin, Software, TorchBuild
from synth.death import DeathBuilder, ended

SITE = "/venv/lib/python3.11/site-packages"
TORCH = f"{SITE}/torch/lib"
CUDNN = f"{SITE}/nvidia/cudnn/lib/libcudnn.so.9"
CUDNN_CNN = f"{SITE}/nvidia/cudnn/lib/libcudnn_cnn.so.9"
CUDART = f"{SITE}/nvidia/cuda_runtime/lib/libcudart.so.12"
CUBLAS = f"{SITE}/nvidia/cublas/lib/libcublas.so.12"
NCCL = f"{SITE}/nvidia/nccl/lib/libnccl.so.2"
NVJITLINK = f"{SITE}/nvidia/nvjitlink/lib/libnvJitLink.so.12"
TORCH_CUDA = f"{TORCH}/libtorch_cuda.so"
LIBCUDA = "/usr/lib/x86_64-linux-gnu/libcuda.so.530.30.02"


class SoftwareBuilder(msgspec.Struct, frozen=True):
    crash: Crash

    @property
    def record(self) -> CrashRecord:
        return self.crash.record

    @property
    def libraries(self) -> list[Library]:
        return self.record.libraries or []

    @property
    def software(self) -> Software:
        return self.record.software or Software()

    @property
    def driver(self) -> Driver | None:
        return self.record.driver

    def set(self, **fields: Any) -> SoftwareBuilder:
        """Members of the record: `libraries=None` takes the list away."""
        return SoftwareBuilder(
            msgspec.structs.replace(self.crash, record=msgspec.structs.replace(self.record, **fields))
        )

    def without(self, *paths: str) -> SoftwareBuilder:
        """Libraries whose path begins so are not there."""
        kept = [one for one in self.libraries if not one.path.startswith(paths)]
        modules = [one for one in self.record.modules or [] if not one.path.startswith(paths)]
        return self.set(libraries=kept, modules=modules)

    # -- what is installed ---------------------------------------------------------------------------------------------

    def _software(self, **fields: Any) -> SoftwareBuilder:
        return self.set(software=msgspec.structs.replace(self.software, **fields))

    def installed(self, **fields: Any) -> SoftwareBuilder:
        """Fields of `Software`: `python="3.12.1"`, `verified=True`."""
        return self._software(**fields)

    def package(self, name: str, version: str) -> SoftwareBuilder:
        others = [one for one in self.software.packages if one.name != name]
        return self._software(packages=[*others, Package(name, version)])

    def torch(
        self, version: str = "2.9.1", cuda: str | None = "12.8", origin: str = "wheel", **fields: Any
    ) -> SoftwareBuilder:
        """Its package and its build; no library is mapped by it."""
        build = TorchBuild(version, cuda, folder=f"{SITE}/torch", how="version.py", origin=origin)
        built = msgspec.structs.replace(build, **fields)
        return self.package("torch", version)._software(torch=built)

    def pin(self, package: str, version: str, installed: str | None) -> SoftwareBuilder:
        """torch demands `package` in `version`; `installed` is there."""
        torch = self.software.torch
        pin = Pin(package, version, f"torch {torch.version if torch else '2.9.1'}", installed)
        builder = self._software(pins=[*(one for one in self.software.pins if one.package != package), pin])
        return builder.package(package, installed) if installed else builder

    def broken(self, package: str, version: str, path: str, how: str) -> SoftwareBuilder:
        return self._software(broken=[*self.software.broken, BrokenFile(package, version, path, how)])

    def missing(self, path: str, *names: str, **fields: Any) -> SoftwareBuilder:
        """An extension that needs names which torch does not export."""
        found = MissingSymbols(path, names=list(names), count=len(names))
        return self._software(missing=[*self.software.missing, msgspec.structs.replace(found, **fields)])

    # -- what is mapped ------------------------------------------------------------------------------------------------

    def library(self, path: str, kind: str, origin: str | None = None, **fields: Any) -> SoftwareBuilder:
        made = msgspec.structs.replace(Library(path, kind, origin=origin), **fields)
        listed = [*self.libraries, made]
        copies = sum(one.kind == kind for one in listed)
        if kind != "extension":
            listed = [msgspec.structs.replace(one, copies=copies) if one.kind == kind else one for one in listed]
        return self.module(path).set(libraries=listed)

    def wheel(self, path: str, kind: str, package: str, version: str, **fields: Any) -> SoftwareBuilder:
        return self.library(path, kind, "wheel", package=package, version=version, how="record", **fields)

    def system(self, path: str, kind: str, version: str | None = None, **fields: Any) -> SoftwareBuilder:
        return self.library(path, kind, "system", version=version, how="file-name" if version else None, **fields)

    def conda(self, path: str, kind: str, package: str | None, version: str | None, **fields: Any) -> SoftwareBuilder:
        return self.library(path, kind, "conda", package=package, version=version, how="conda", **fields)

    def vendored(self, path: str, kind: str, by: str, **fields: Any) -> SoftwareBuilder:
        """A package's own copy of somebody else's library."""
        return self.library(path, kind, "wheel", vendored_by=by, **fields)

    def module(self, path: str) -> SoftwareBuilder:
        """A mapped file, whatever it is. Each further one lies below the one before, as Linux places them."""
        modules = self.record.modules or []
        base = 0x7F7000000000 - len(modules) * 0x10000000
        made = Module(path, Address(base), Address(base + 0x1000000))
        return self.set(modules=[made, *modules])

    # -- the driver ----------------------------------------------------------------------------------------------------

    def on_driver(
        self,
        module: str | None = "530.30.02",
        api: int | None = 12010,
        path: str | None = LIBCUDA,
        version: str | None = None,
        **fields: Any,
    ) -> SoftwareBuilder:
        """version: of libcuda, by default the module's."""
        made = Driver(module, path, version if version else module, api)
        return self.set(driver=msgspec.structs.replace(made, **fields))

    def gpu(
        self, name: str | None = "NVIDIA A100-SXM4-80GB", capability: str | None = "8.0", **fields: Any
    ) -> SoftwareBuilder:
        driver = self.driver or Driver()
        made = msgspec.structs.replace(Gpu(len(driver.gpus), name, capability=capability), **fields)
        return self.set(driver=msgspec.structs.replace(driver, gpus=[*driver.gpus, made]))

    # -- the crash -----------------------------------------------------------------------------------------------------

    def frame(
        self, function: str | None, library: str | None, *, trust: str = "cfi", offset: int = 0x1B2F2
    ) -> SoftwareBuilder:
        """One native frame further out than those before."""
        frame = Frame(
            function, library, Address(offset), trust="context" if not self.crash.native and trust == "cfi" else trust
        )
        return SoftwareBuilder(msgspec.structs.replace(self.crash, native=[*self.crash.native, frame]))

    def python(self, file: str, line: int, function: str) -> SoftwareBuilder:
        listed = [*self.crash.python, PythonFrame(file, line, function)]
        return SoftwareBuilder(msgspec.structs.replace(self.crash, python=listed))

    def died(
        self, signal: str = "SIGSEGV", mechanism: Mechanism | None = Mechanism.NULL_READ, address: int | None = 0x28
    ) -> SoftwareBuilder:
        number = {"SIGSEGV": 11, "SIGABRT": 6, "SIGBUS": 7, "SIGILL": 4, "SIGFPE": 8}[signal]
        at = None if address is None else Address(address)
        sent = number == 6
        made = Signal(number, signal, -6 if sent else 1, "SI_TKILL" if sent else "SEGV_MAPERR", None if sent else at)
        cite = Cite("crash", "signal", signal if sent or at is None else f"{signal} at {at}")
        reading = MechanismReading(mechanism, None if sent else at, supports=(cite,))
        return SoftwareBuilder(msgspec.structs.replace(self.set(signal=made).crash, reading=reading))

    def process(self, **fields: Any) -> SoftwareBuilder:
        return self.set(process=msgspec.structs.replace(self.record.process or Process(), **fields))

    def aborted(self, message: str | None = None) -> SoftwareBuilder:
        builder = self.died("SIGABRT", Mechanism.ABORT_OTHER, None)
        return builder.set(abort_message=AbortMessage(message, "glibc")) if message else builder

    def environment(self, name: str, value: str) -> SoftwareBuilder:
        job = self.record.job or Job()
        variables = [*job.environment, EnvironmentVariable(name, value)]
        return self.set(job=msgspec.structs.replace(job, environment=variables))

    def gap(self, source: str, why: str) -> SoftwareBuilder:
        return SoftwareBuilder(msgspec.structs.replace(self.crash, gaps=[*self.crash.gaps, Gap(source, why)]))


def crashed() -> SoftwareBuilder:
    """A process that died by reading 0x28; nothing is known about its software."""
    record = CrashRecord(
        schema="ftforensics.crash/1",
        process=Process(pid=4242, tid=4242, ppid=4200, nspid=[4242], main_thread=True, python="running"),
        job=Job(host="gpu-07", rank=0, machine="x86_64", glibc="2.36", sys_prefix="/venv"),
        libraries=[],
        modules=[],
    )
    return SoftwareBuilder(Crash(record, path="x.crash.json")).died()


def cu128() -> SoftwareBuilder:
    """`pip install torch==2.9.1` from PyPI on driver 570: everything fits."""
    builder = (
        crashed()
        .installed(python="3.11.7", machine="x86_64", prefix="/venv", site_packages=[SITE])
        .torch("2.9.1", "12.8")
        .package("torchvision", "0.24.1")
        .package("torchaudio", "2.9.1")
    )
    for package, version in (
        ("nvidia-cudnn-cu12", "9.10.2.21"),
        ("nvidia-cublas-cu12", "12.8.4.1"),
        ("nvidia-cuda-runtime-cu12", "12.8.90"),
        ("nvidia-nccl-cu12", "2.27.5"),
        ("nvidia-nvjitlink-cu12", "12.8.93"),
    ):
        builder = builder.pin(package, version, version)
    for name in ("libc10", "libtorch_cpu", "libc10_cuda", "libtorch_cuda", "libtorch_python"):
        builder = builder.wheel(f"{TORCH}/{name}.so", name, "torch", "2.9.1", cuda="12.8")
    by = "torch 2.9.1"
    for path, kind, package, version in (
        (CUDART, "libcudart", "nvidia-cuda-runtime-cu12", "12.8.90"),
        (CUBLAS, "libcublas", "nvidia-cublas-cu12", "12.8.4.1"),
        (CUDNN, "libcudnn", "nvidia-cudnn-cu12", "9.10.2.21"),
        (CUDNN_CNN, "libcudnn_cnn", "nvidia-cudnn-cu12", "9.10.2.21"),
        (NCCL, "libnccl", "nvidia-nccl-cu12", "2.27.5"),
        (NVJITLINK, "libnvJitLink", "nvidia-nvjitlink-cu12", "12.8.93"),
    ):
        builder = builder.wheel(path, kind, package, version, pin=version, pinned_by=by)
    builder = builder.library(
        "/usr/lib/x86_64-linux-gnu/libcuda.so.570.124.06", "libcuda", "system", version="570.124.06", how="file-name"
    )
    driver = "/usr/lib/x86_64-linux-gnu/libcuda.so.570.124.06"
    return builder.on_driver("570.124.06", 12080, driver).gpu()


def stack_text(kind: str, text: str | None = None, *, number: int = 30, **fields: Any) -> StackText:
    """What a log said about the software; the line's text is the kind where none is given."""
    return msgspec.structs.replace(StackText(TextLine(text or kind, number, path="train.log"), kind), **fields)


def ask_record(cause: str, builder: SoftwareBuilder) -> list[Finding]:
    """What a cause says about the record alone."""
    found = find_cause(cause)
    assert found is not None and found.check is not None
    return list(found.check(builder.crash))


def ask_text(cause: str, *texts: StackText, death: DeathBuilder | None = None) -> list[Finding]:
    """What it says about an end, by default one with status 1, and what the log said."""
    found = find_cause(cause)
    assert found is not None and found.check_death is not None
    return list(found.check_death((death or ended(code=1)).set(stack_texts=list(texts)).death))
