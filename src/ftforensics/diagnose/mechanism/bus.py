"""SIGBUS: a page that a mapping promises cannot be supplied (man sigaction, BUS_*)."""

from __future__ import annotations

import shlex

from ftforensics.diagnose.mechanism.fault import TRAP_STACK_SEGMENT, read_general_protection
from ftforensics.diagnose.mechanism.machine import Machine, mapping_cite
from ftforensics.diagnose.mechanism.origin import SI_KERNEL
from ftforensics.model.basics import Cite, Gap
from ftforensics.model.crash import CrashRecord
from ftforensics.model.mechanism import Mechanism, MechanismReading, Uncovered
from ftforensics.parsers.proc_maps import Mapping

ADRALN, ADRERR, OBJERR, MCEERR_AR, MCEERR_AO = 1, 2, 3, 4, 5
_TMPFS_MAGIC = 0x01021994  # linux/magic.h
_ROOM = 1 << 20  # bytes; more than this free and tmpfs did not refuse a page for lack of it


def read_bus(record: CrashRecord, machine: Machine) -> MechanismReading:
    signal = record.signal
    assert signal is not None
    if machine.is_x86 and (signal.trap == TRAP_STACK_SEGMENT or signal.code == SI_KERNEL):
        return read_general_protection(signal, machine)
    cite = Cite(
        "crash", "signal.code", f"SIGBUS, {signal.code_name or f'si_code {signal.code}'}, address {signal.address}"
    )
    if signal.code in (MCEERR_AR, MCEERR_AO):
        supports = [cite]
        if signal.address_lsb:
            supports.append(Cite("crash", "signal.address_lsb", f"{1 << signal.address_lsb} bytes are lost"))
        return MechanismReading(Mechanism.BUS_HARDWARE, signal.address, signal.access, supports=tuple(supports))
    if signal.code == ADRALN:
        return MechanismReading(
            None,
            signal.address,
            signal.access,
            plain=f"a misaligned access to {signal.address}",
            uncovered=Uncovered.MISALIGNED,
            supports=(cite,),
        )
    if signal.address is None:
        return MechanismReading(supports=(cite,), unknown=(Gap("crash", "the record holds no fault address"),))
    if not machine.maps:
        return MechanismReading(
            None,
            signal.address,
            signal.access,
            supports=(cite,),
            unknown=(Gap("maps", "the mappings were not recorded, so which file it was is not known"),),
        )
    mapping = machine.maps.at(signal.address)
    if mapping is None or not mapping.is_file:
        return MechanismReading(
            None,
            signal.address,
            signal.access,
            supports=(cite,),
            unknown=(Gap("maps", "no file is mapped at the address (huge pages, or a device?)"),),
        )
    return _file(record, mapping, cite)


def _file(record: CrashRecord, mapping: Mapping, cite: Cite) -> MechanismReading:
    signal = record.signal
    assert signal is not None and signal.address is not None
    offset = int(signal.address) - mapping.start + mapping.offset
    supports = [cite, mapping_cite(mapping, f"byte {offset:#x} of")]
    unknown: list[Gap] = []
    against: list[Cite] = []
    memory_file = is_shared_memory(mapping)
    # memfd_create's files lie on a mount of the kernel's own, which has no limit to reach (mm/shmem.c,
    # shmem_fill_super, SB_KERNMOUNT): what is missing there was cut off, or never there.
    limited = memory_file and not mapping.path.startswith("/memfd:")
    word: Mechanism | None = Mechanism.BUS_SHM_FULL if limited else Mechanism.BUS_TRUNCATED_FILE
    file = record.fault_file
    if mapping.path.startswith("/dev/hugepages") or mapping.path.startswith("/anon_hugepage"):
        return MechanismReading(
            None,
            signal.address,
            signal.access,
            mapping=mapping.text,
            plain="no huge page was left to supply",
            uncovered=Uncovered.NO_HUGE_PAGE,
            supports=tuple(supports),
        )
    if file is not None and file.size is not None:
        beyond = offset >= -(-file.size // 4096) * 4096
        text = f"the file is {file.size} bytes long: the access is {'beyond its end' if beyond else 'inside it'}"
        supports.append(Cite("crash", "fault_file.size", text))
        if beyond:
            word = Mechanism.BUS_TRUNCATED_FILE
        elif memory_file or file.filesystem == _TMPFS_MAGIC:
            word = Mechanism.BUS_SHM_FULL
        else:
            word = None
            unknown.append(
                Gap("kmsg", "the page lies inside the file: a disk that is full or fails, see the kernel log", "dmesg")
            )
        if file.free is not None and word is Mechanism.BUS_SHM_FULL:
            supports.append(Cite("crash", "fault_file.free", f"{file.free} bytes are free in its file system"))
    else:
        if limited and file is not None and file.free is not None:
            # How long it was is not known, but a page of tmpfs is refused for one of two reasons.
            supports.append(Cite("crash", "fault_file.free", f"{file.free} bytes are free in its file system"))
            if file.free >= _ROOM:
                word = Mechanism.BUS_TRUNCATED_FILE
        look = None if mapping.deleted else f"stat {shlex.quote(mapping.path)}"
        unknown.append(Gap("file", f"how long {mapping.path} was when it happened", look))
    return MechanismReading(
        word,
        signal.address,
        signal.access,
        mapping=mapping.text,
        supports=tuple(supports),
        against=tuple(against),
        unknown=tuple(unknown),
    )


def is_shared_memory(mapping: Mapping) -> bool:
    """A file without a disk: POSIX shared memory, memfd_create, System V, or MAP_SHARED|MAP_ANONYMOUS ("/dev/zero")."""
    path = mapping.path
    return path.startswith(("/dev/shm/", "/memfd:", "/SYSV", "/run/shm/")) or path == "/dev/zero"
