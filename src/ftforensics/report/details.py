"""What `-v` adds: the numbers of a crash record, as headed lines of escaped text."""

from __future__ import annotations

import os.path
from collections.abc import Iterable, Iterator, Sequence

from ftforensics.model.basics import Address
from ftforensics.model.crash import (
    CrashRecord,
    Driver,
    Job,
    Library,
    Limits,
    Module,
    Process,
    Registers,
    SeenSignal,
    Signal,
    Stage,
    ThreadEntry,
    Time,
    Tool,
)
from ftforensics.model.diagnosis import ProcessReport
from ftforensics.model.software import Software
from ftforensics.parsers.exception_text import exception_type
from ftforensics.report.escape import printable
from ftforensics.report.phrases import clock, handler_text

Section = tuple[str, list[str]]


def signal_line(signal: Signal, process: Process | None = None) -> str:
    """As "SIGSEGV SEGV_MAPERR at 0x28", or who sent it. process: the one that got it."""
    name = printable(signal.name or (f"signal {signal.number}" if signal.number is not None else "a signal"))
    if signal.code_name:
        name += f" {printable(signal.code_name)}"
    elif signal.code is not None:
        name += f" code {signal.code}"
    if signal.sender and process and signal.sender.pid == process.pid:
        return f"{name} from itself"
    if signal.sender:
        return f"{name} from pid {signal.sender.pid} (uid {signal.sender.uid})"
    return f"{name} at {signal.address}" if signal.address is not None else name


def last_words(record: CrashRecord) -> Iterator[tuple[str, str]]:
    """What the process itself said about its end: (label, text)."""
    if (message := record.abort_message) and message.text:
        yield "Its last words", printable(message.text.strip())
    if (error := record.cxx_exception) and (error.type or error.what):
        text = printable(exception_type(error.type) if error.type else "an exception of unknown type")
        yield "C++ exception", f"{text}: {printable(error.what.strip())}" if error.what else text
    if record.note:
        yield "Note set by the program", printable(record.note)


def sections(record: CrashRecord, process: ProcessReport | None = None) -> Iterator[Section]:
    """(heading, lines), for what the record holds. Memory bytes and maps are left to `jq`.

    process: what the diagnosis says about the same one.
    """
    candidates: Iterable[tuple[str, Iterable[str]]] = (
        ("Process", _process(record.process, record.job, record.time, record.tool)),
        ("Registers", _registers(record.registers)),
        ("Signals noted before", _seen(record.signals_seen or [])),
        ("Signal handlers", _handlers(process)),
        ("Driver", _driver(record.driver)),
        ("Installed", _software(record.software)),
        ("Libraries of interest", _libraries(record.libraries or [])),
        ("Mapped files", _modules(record.modules or [])),
        ("Threads alive", _threads(record.threads or [], record.other_crashers or [])),
        ("Limits", _limits(record.limits)),
        ("How the record was made", _stages(record.stages or [], record)),
    )
    for heading, lines in candidates:
        if shown := list(lines):
            yield heading, shown


def _process(process: Process | None, job: Job | None, time: Time | None, tool: Tool | None) -> Iterator[str]:
    if process:
        python = f", interpreter {printable(process.python)}" if process.python else ""
        thread = f", thread {process.tid}" if process.tid is not None else ""
        name = f" {printable(process.thread_name)}" if process.thread_name else ""
        main = {True: " (main)", False: " (not main)", None: ""}[process.main_thread]
        yield f"pid {process.pid}, parent {process.ppid}{thread}{name}{main}{python}"
        if len(process.nspid) > 1:
            yield "pid in each namespace, outermost first: " + " ".join(map(str, process.nspid))
        if process.fork_of is not None:
            yield f"forked from pid {process.fork_of}, which called install()"
    if job:
        if job.argv:
            yield "command: " + " ".join(printable(word) for word in job.argv)
        if job.cwd:
            yield f"working directory: {printable(job.cwd)}"
        machine = [word for word in (job.host, job.kernel, job.machine, job.cpu_model) if word]
        if machine:
            yield "machine: " + ", ".join(printable(word) for word in machine)
        for variable in job.environment:
            yield f"{printable(variable.name)}={printable(variable.value)}"
        for line in job.cgroup:
            yield f"cgroup {printable(line)}"
    if time and time.realtime is not None:
        yield f"died {clock(time.realtime)}"
    if time and time.monotonic is not None and time.installed is not None:
        yield f"{time.monotonic - time.installed:.1f} s after install()"
    if tool:
        python = f", Python {printable(tool.python)}" if tool.python else ""
        yield f"recorded by ftforensics {printable(tool.version or '?')}{python}"


def _registers(registers: Registers | None) -> Iterator[str]:
    if not registers:
        return
    named = [(register.name, register.value) for register in registers.values]
    if not named:
        named = [(name, value) for name, value in _pointers(registers) if value is not None]
    cells = [f"{printable(name):<6} {value:#018x}" for name, value in named]
    for index in range(0, len(cells), 3):
        yield " ".join(cells[index : index + 3])


def _pointers(registers: Registers) -> list[tuple[str, Address | None]]:
    return [("pc", registers.pc), ("sp", registers.sp), ("fp", registers.fp)]


def _seen(signals: Sequence[SeenSignal]) -> Iterator[str]:
    for signal in signals:
        sender = f" from pid {signal.sender.pid} (uid {signal.sender.uid})" if signal.sender else ""
        yield f"{printable(signal.name)}{sender} at {signal.at:.3f} s (monotonic)"


def _handlers(process: ProcessReport | None) -> Iterator[str]:
    """Signals with the same owners together."""
    chains: dict[str, list[str]] = {}
    for owners in process.handlers if process else []:
        chain = ", then ".join(
            handler_text(handler) + (" (had replaced ours and was put behind it)" if handler.taken_back else "")
            for handler in owners.handlers
        )
        chains.setdefault(chain or "not recorded", []).append(printable(owners.signal))
    for chain, names in chains.items():
        yield f"{', '.join(names)}: {chain}"


def _driver(driver: Driver | None) -> Iterator[str]:
    if not driver:
        return
    facts = (
        ("kernel module", driver.module_version),
        ("libcuda", driver.libcuda_path),
        ("libcuda version", driver.libcuda_version),
        ("CUDA API level", None if driver.api_level is None else str(driver.api_level)),
        ("NVML", driver.nvml_version),
        ("note", driver.note),
    )
    for name, value in facts:
        if value:
            yield f"{name}: {printable(value)}"
    for gpu in driver.gpus:
        memory = ""
        if gpu.memory_total is not None and gpu.memory_used is not None:
            memory = f", {gpu.memory_used >> 20} of {gpu.memory_total >> 20} MiB in use"
        capability = f", compute capability {printable(gpu.capability)}" if gpu.capability else ""
        split = ", split into instances (MIG)" if gpu.mig else ""
        yield f"GPU {gpu.index}: {printable(gpu.name or '?')}{capability}{split}{memory}"


def _software(software: Software | None) -> Iterator[str]:
    if not software:
        return
    if software.torch:
        built = f", built for CUDA {printable(software.torch.cuda)}" if software.torch.cuda else ""
        built = f", built for ROCm {printable(software.torch.hip)}" if software.torch.hip else built
        python = f", Python {printable(software.python)}" if software.python else ""
        yield f"torch {printable(software.torch.version)}{built}{python}"
    if software.packages:
        yield f"{len(software.packages)} packages in {printable(', '.join(software.site_packages) or '?')}"
    for pin in software.pins:
        if pin.installed != pin.version:
            there = f"{printable(pin.installed)} is installed" if pin.installed else "it is not installed"
            yield f"{printable(pin.by)} wants {printable(pin.package)} {printable(pin.version)}; {there}"
    for file in software.broken:
        yield f"{printable(file.path)} of {printable(file.package)}: {printable(file.how)}"
    for lack in software.missing:
        names = "1 name" if lack.count == 1 else f"{lack.count} names"
        yield f"{printable(lack.path)} needs {names} that torch does not export"


def _libraries(libraries: Sequence[Library]) -> Iterator[str]:
    for library in libraries:
        package = " ".join(printable(word) for word in (library.package, library.version) if word) or "version unknown"
        how = f" (by {printable(library.how)})" if library.how else ""
        copies = f", one of {library.copies} copies" if library.copies and library.copies > 1 else ""
        pinned = library.pin is not None and library.pin != library.version
        wanted = f", {printable(library.pinned_by or 'torch')} wants {printable(library.pin or '')}" if pinned else ""
        drifted = f", {printable(library.drifted)}" if library.drifted else ""
        yield f"{printable(library.kind)}: {package}{how}{copies}{wanted}{drifted}, {printable(library.path)}"


def _modules(modules: Sequence[Module]) -> Iterator[str]:
    gone = [module for module in modules if module.deleted]
    yield from (f"{printable(module.path)}: deleted or replaced on disk while in use" for module in gone)
    if modules:
        names = ", ".join(os.path.basename(printable(module.path)) for module in modules[:8])
        more = f" and {len(modules) - 8} more" if len(modules) > 8 else ""
        yield f"{len(modules)}: {names}{more}"


def _threads(threads: Sequence[ThreadEntry], crashers: Sequence[int]) -> Iterator[str]:
    if threads:
        running = [thread for thread in threads if thread.held is False]
        yield f"{len(threads)}, of which {len(running)} could not be held while the record was written"
        counts: dict[str, int] = {}
        for thread in threads:
            name = printable(thread.name or "?")
            counts[name] = counts.get(name, 0) + 1
        yield ", ".join(name if count == 1 else f"{name} x{count}" for name, count in counts.items())
    if crashers:
        yield "crashed too, a moment later: " + ", ".join(f"thread {tid}" for tid in crashers)


def _limits(limits: Limits | None) -> Iterator[str]:
    if limits:
        values = (
            ("core file", limits.core),
            ("open files", limits.nofile),
            ("processes", limits.nproc),
            ("stack", limits.stack),
            ("address space", limits.address_space),
        )
        yield ", ".join(f"{name} {'unlimited' if value is None else value}" for name, value in values)


def _timed(stage: Stage) -> str:
    """Its name, with the time when that is worth telling."""
    name = printable(stage.name)
    return f"{name} ({stage.ms:.1f} ms)" if stage.ms is not None and stage.ms >= 0.05 else name


def _stages(stages: Sequence[Stage], record: CrashRecord) -> Iterator[str]:
    fine = [stage for stage in stages if stage.ok and not stage.error]
    if fine:
        yield "done: " + ", ".join(_timed(stage) for stage in fine)
    for stage in stages:
        if stage not in fine:
            outcome = {True: "done", False: "failed", None: "not known how it ended"}[stage.ok]
            error = f", {printable(stage.error)}" if stage.error else ""
            yield f"{_timed(stage)}: {outcome}{error}"
    if record.end:
        total = f" after {record.end.total_ms:.1f} ms" if record.end.total_ms is not None else ""
        yield f"handed on by {printable(record.end.how or '?')}{total}"
    if record.core and record.core.pattern:
        yield f"core pattern: {printable(record.core.pattern)}"
