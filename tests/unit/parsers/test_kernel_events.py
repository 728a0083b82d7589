"""Faults, memory errors, the NVIDIA driver, storage, and the kernel's own failures."""

from __future__ import annotations

import pytest

from ftforensics.model.kernel import (
    CpuLimit,
    DriverNote,
    Fault,
    KernelEvent,
    LogLine,
    Lost,
    MemoryFailure,
    Oops,
    StorageError,
    Xid,
)
from ftforensics.parsers.kernel_log import read_kernel_log
from synth.kernel_text import OomText, records, stamped


def events(*lines: str) -> list[KernelEvent]:
    """The same from every way a line is found: read one by one, as records, and searched for in a large log."""
    small = read_kernel_log(stamped(list(lines))).events
    padding = ["usb 1-1: reset high-speed USB device number 7 using xhci_hcd"] * 15_000
    large = read_kernel_log(stamped([*padding, *lines, *padding[:500]])).events
    raw = read_kernel_log(records(list(lines))).events
    assert [type(one) for one in small] == [type(one) for one in large] == [type(one) for one in raw]
    for one, two, three in zip(small, large, raw, strict=True):
        for name in one.__struct_fields__:
            values = [getattr(event, name) for event in (one, two, three)]
            said = [value.text if isinstance(value, LogLine) else value for value in values]
            assert said[0] == said[1] == said[2], name
    return small


def only(*lines: str) -> KernelEvent:
    (event,) = events(*lines)
    return event


def fields(event: KernelEvent, *names: str) -> tuple[object, ...]:
    return tuple(getattr(event, name) for name in names)


# x86.


def test_a_segfault_with_a_file_offset() -> None:
    fault = only(
        "pt_nccl_watchdg[812]: segfault at 1c8 ip 00007f99c307b31d sp 00007ffeeb59f030 error 15 in "
        "libnccl.so.2[4b131d,7f99c307b000+1f000] likely on CPU 61 (core 13, socket 1)"
    )
    assert isinstance(fault, Fault)
    assert fields(fault, "tid", "comm", "kind") == (812, "pt_nccl_watchdg", "segfault")
    assert fields(fault, "address", "ip", "sp") == (0x1C8, 0x7F99C307B31D, 0x7FFEEB59F030)
    assert fault.error == 0x15  # hex: user, instruction fetch, protection
    assert fields(fault, "file", "map_offset", "map_base", "map_size", "cpu") == (
        "libnccl.so.2",
        0x4B131D,
        0x7F99C307B000,
        0x1F000,
        61,
    )


def test_a_segfault_of_older_kernels() -> None:
    fault = only(
        "python3[77]: segfault at 0 ip 00007f99c307b31d sp 7ffeeb59f030 error 4 in libc-2.17.so[7f99c3000000+1c3000]"
    )
    assert fields(fault, "file", "map_offset", "map_base", "map_size", "cpu") == (
        "libc-2.17.so",
        None,
        0x7F99C3000000,
        0x1C3000,
        None,
    )
    old = only("python[77]: segfault at 0000000000000008 rip 00000000004005a1 rsp 00007fff6a3b2c10 error 6")
    assert fields(old, "tid", "address", "ip", "file") == (77, 8, 0x4005A1, None)


@pytest.mark.parametrize("comm", ["weird na]e(x) 1", "a[7]", "python3.11", "", "cuda0000240000a", "x: y"])
def test_a_thread_may_be_called_anything(comm: str) -> None:
    fault = only(
        f"{comm}[12771]: segfault at 0 ip 7f99c307b31d sp 7ffeeb59f030 error 4 in a b[x].so[0,7f99c307b000+1000]"
    )
    assert fields(fault, "tid", "comm", "file") == (12771, comm, "a b[x].so")
    trap = only(
        f"traps: {comm}[12771] trap invalid opcode ip:7f99c307b31d sp:7ffeeb59f030 error:0 in a.so[7f99c307b000+1000]"
    )
    assert fields(trap, "tid", "comm", "kind") == (12771, comm, "invalid opcode")


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        ("general protection fault", "general protection"),
        ("general protection", "general protection"),
        ("trap invalid opcode", "invalid opcode"),
        ("trap divide error", "divide error"),
        ("trap int3", "int3"),
        ("trap stack segment", "stack segment"),
    ],
)
@pytest.mark.parametrize("prefix", ["traps: ", ""])
def test_traps(words: str, kind: str, prefix: str) -> None:
    fault = only(f"{prefix}python[5] {words} ip:7ff569fbd100 sp:7ffcc736fd70 error:0 in x.so[1100,7ff569fbd000+1000]")
    assert isinstance(fault, Fault)
    assert fields(fault, "tid", "comm", "kind", "ip", "error", "file", "map_offset", "address") == (
        5,
        "python",
        kind,
        0x7FF569FBD100,
        0,
        "x.so",
        0x1100,
        None,
    )


def test_arm_faults() -> None:
    first = only(
        "python3[901]: unhandled level 2 translation fault (11) at 0x00000010, esr 0x92000006, in a.so[ffff8000+9000]"
    )
    assert fields(first, "tid", "kind", "address", "esr", "file", "map_base") == (
        901,
        "level 2 translation fault",
        0x10,
        0x92000006,
        "a.so",
        0xFFFF8000,
    )
    assert fields(
        only("python3[901]: unhandled level 3 permission fault (11) at 0x10, esr 0x9200000f"), "esr", "file"
    ) == (
        0x9200000F,
        None,
    )
    newer = only(
        "python3[901]: unhandled exception: DABT (lower EL), ESR 0x0000000092000006, level 2 translation fault in "
        "a.so[1f00,ffff8000+9000]"
    )
    assert fields(newer, "tid", "kind", "esr", "file", "map_offset") == (
        901,
        "level 2 translation fault",
        0x92000006,
        "a.so",
        0x1F00,
    )
    assert fields(only("python3[901]: undefined instruction: pc=0000ffff91a40010"), "tid", "ip") == (
        901,
        0xFFFF91A40010,
    )


@pytest.mark.parametrize(
    "line",
    [
        "python/4711: potentially unexpected fatal signal 11.",
        "potentially unexpected fatal signal 11.",
        "train: python: potentially unexpected fatal signal 11.",
    ],
)
def test_print_fatal_signals_names_the_thread_one_line_later(line: str) -> None:
    cpu = "CPU: 1 UID: 0 PID: 4711 Comm: python Not tainted 6.18.44 #1"
    assert fields(only(line, "", cpu), "tid", "comm", "kind") == (4711, "python", "fatal signal 11")
    if "/4711" not in line:
        assert events(line) == []  # nobody is named


def test_a_cpu_line_goes_to_the_report_that_waits_for_it() -> None:
    text = OomText()
    warning = [
        "WARNING: CPU: 1 PID: 77 at mm/x.c:9 f+0x1/0x2",
        "CPU: 1 PID: 77 Comm: kworker/1:0 Not tainted 6.18.44 #1",
    ]
    header, *rest = text.lines()
    (kill,) = events(header, *warning, *rest)
    assert fields(kill, "trigger_pid", "kernel") == (4720, "6.18.44")


# Hardware memory errors.


@pytest.mark.parametrize(
    ("line", "pid", "comm", "signal"),
    [
        (
            "MCE: Killing py:thon:4711 due to hardware memory corruption fault at 7f0012345000",
            4711,
            "py:thon",
            "SIGBUS",
        ),
        ("Memory failure: 0x12345: Killing python:4711 due to hardware memory corruption", 4711, "python", "SIGBUS"),
        (
            "Memory failure: 0x12345: Sending SIGBUS to python:4711 due to hardware memory corruption",
            4711,
            "python",
            "SIGBUS",
        ),
        ("MCE 0x12345: Killing python:4711 due to hardware memory corruption", 4711, "python", "SIGBUS"),
        (
            "Memory failure: 0x12345: forcibly killing python:4711 because of failure to unmap corrupted page",
            4711,
            "python",
            "SIGKILL",
        ),
        ("Memory failure: 0x12345: recovery action for dirty LRU page: Failed", None, None, None),
    ],
)
def test_memory_errors(line: str, pid: int | None, comm: str | None, signal: str | None) -> None:
    failure = only(line)
    assert isinstance(failure, MemoryFailure)
    assert fields(failure, "pid", "comm", "signal") == (pid, comm, signal)


def test_corrected_errors_are_no_event() -> None:
    assert events("mce: [Hardware Error]: Machine check events logged", "EDAC MC0: 1 CE memory read error") == []


# NVIDIA.


@pytest.mark.parametrize(
    ("line", "number", "device", "pid", "comm", "text"),
    [
        ("NVRM: Xid (0000:03:00): 31, Ch 00000010, engmask", 31, "0000:03:00", None, None, "Ch 00000010, engmask"),
        ("NVRM: Xid (PCI:0000:03:00): 79, GPU has fallen", 79, "0000:03:00", None, None, "GPU has fallen"),
        ("NVRM: Xid (PCI:0000:03:00): 31, pid=4711, Ch 0x10", 31, "0000:03:00", 4711, None, "Ch 0x10"),
        (
            "NVRM: Xid (PCI:0000:03:00): 13, pid=4711, name=py thon, Graphics",
            13,
            "0000:03:00",
            4711,
            "py thon",
            "Graphics",
        ),
        ("NVRM: Xid (PCI:0000:03:00): 45, pid='<unknown>', name=<unknown>, Ch 1", 45, "0000:03:00", None, None, "Ch 1"),
        ("NVRM: Xid (PCI:0000:03:00 GPU-I:05 GPU-CI:02): 31, pid=7, name=p, MMU", 31, "0000:03:00", 7, "p", "MMU"),
        (
            "NVRM: Xid (PCI:0018:01:00): 149, NETIR_LINK_EVT Fatal XC0 i0 Link 08 (0x004505c6 0x00000000)",
            149,
            "0018:01:00",
            None,
            None,
            "NETIR_LINK_EVT Fatal XC0 i0 Link 08 (0x004505c6 0x00000000)",
        ),
        ("NVRM: Xid (PCI:0000:03:00): 63", 63, "0000:03:00", None, None, ""),
    ],
)
def test_xids(line: str, number: int, device: str, pid: int | None, comm: str | None, text: str) -> None:
    xid = only(line)
    assert isinstance(xid, Xid)
    assert fields(xid, "number", "device", "pid", "comm", "text", "switch") == (number, device, pid, comm, text, False)


def test_a_switch_error() -> None:
    xid = only("nvidia-nvswitch3: SXid (PCI:0000:85:00.0): 20034, Fatal, Link 30 LTSSM Fault Up")
    assert fields(xid, "number", "device", "switch", "text") == (
        20034,
        "0000:85:00.0",
        True,
        "Fatal, Link 30 LTSSM Fault Up",
    )


def test_fallen_off_the_bus_without_a_number() -> None:
    one = only("NVRM: GPU 0000:03:00.0: GPU has fallen off the bus.")
    assert fields(one, "kind", "device") == ("fallen-off-bus", "0000:03:00.0")
    three = only(
        "NVRM: The NVIDIA GPU 0000:0b:00.0",
        "NVRM: (PCI ID: 10de:2330) installed in this system has",
        "NVRM: fallen off the bus and is not responding to commands.",
    )
    assert isinstance(three, DriverNote)
    assert fields(three, "kind", "device") == ("fallen-off-bus", "0000:0b:00.0")


@pytest.mark.parametrize(
    "lines",
    [
        (
            "NVRM: API mismatch: the client has the version 535.54.03, but",
            "NVRM: this kernel module has the version 525.125.06.  Please",
            "NVRM: make sure that this kernel module and all NVIDIA driver",
            "NVRM: components have the same version.",
        ),
        (
            "NVRM: API mismatch: the client 'nvidia-smi' (pid 812)",
            "NVRM: has the version 535.54.03, but this kernel module has",
            "NVRM: the version 525.125.06.  Please make sure that this",
        ),
        ("NVRM: API mismatch: the client has version 535.54.03, but this kernel module has version 525.125.06.",),
    ],
)
def test_two_halves_of_a_driver(lines: tuple[str, ...]) -> None:
    note = only(*lines)
    assert isinstance(note, DriverNote)
    assert fields(note, "kind", "client", "module") == ("api-mismatch", "535.54.03", "525.125.06")


# Storage.


@pytest.mark.parametrize(
    ("line", "kind", "device"),
    [
        ("Buffer I/O error on dev nvme0n1p2, logical block 0, async page read", "io", "nvme0n1p2"),
        ("Buffer I/O error on device sda1, logical block 8", "io", "sda1"),
        ("blk_update_request: I/O error, dev sda, sector 2048 op 0x0:(READ) flags 0x0", "io", "sda"),
        ("I/O error, dev nvme1n1, sector 2048 op 0x0:(READ)", "io", "nvme1n1"),
        ("critical medium error, dev sdb, sector 77 op 0x0:(READ)", "io", "sdb"),
        ("EXT4-fs error (device dm-0): ext4_find_entry:1455: inode #2: comm python: reading", "filesystem", "dm-0"),
        ("EXT4-fs (dm-0): Remounting filesystem read-only", "readonly", "dm-0"),
        ("XFS (nvme0n1): Corruption of in-memory data detected.  Shutting down filesystem", "shutdown", "nvme0n1"),
        ("nfs: server filer.lan not responding, still trying", "nfs-timeout", "filer.lan"),
        ("nfs: server filer.lan not responding, timed out", "nfs-timeout", "filer.lan"),
        ("nfs: server filer.lan OK", "nfs-ok", "filer.lan"),
        ("nvme nvme0: I/O 22 QID 3 timeout, aborting", "device-timeout", "nvme0"),
        (
            "nvme nvme0: I/O tag 22 (5016) opcode 0x2 (I/O Cmd) QID 3 timeout, reset controller",
            "device-timeout",
            "nvme0",
        ),
    ],
)
def test_storage(line: str, kind: str, device: str) -> None:
    error = only(line)
    assert isinstance(error, StorageError)
    assert fields(error, "kind", "device") == (kind, device)


def test_mounting_is_no_error() -> None:
    assert (
        events("EXT4-fs (sda1): mounted filesystem with ordered data mode", "XFS (dm-0): Mounting V5 Filesystem") == []
    )


# The kernel's own failures.

OOPS = [
    "BUG: kernel NULL pointer dereference, address: 0000000000000008",
    "#PF: supervisor read access in kernel mode",
    "#PF: error_code(0x0000) - not-present page",
    "PGD 0 P4D 0 ",
    "Oops: Oops: 0000 [#1] SMP NOPTI",
    "CPU: 5 UID: 1000 PID: 4711 Comm: python Tainted: P           OE       6.18.44 #1 PREEMPT(none) ",
    "Tainted: [P]=PROPRIETARY_MODULE, [O]=OOT_MODULE, [E]=UNSIGNED_MODULE",
    "RIP: 0010:_nv012345rm+0x8a/0x1c0 [nvidia]",
    "Code: 48 8b 47 08 c3",
    "RSP: 0018:ffffb0a0c0a37d28 EFLAGS: 00010246",
    "Call Trace:",
    " nvidia_ioctl+0x11/0x20 [nvidia]",
    "---[ end trace 0000000000000000 ]---",
    "RIP: 0010:_nv012345rm+0x8a/0x1c0 [nvidia]",
]


def test_an_oops_is_joined_with_its_process_and_function() -> None:
    oops = only(*OOPS)
    assert isinstance(oops, Oops)
    assert oops.line.text == OOPS[0]
    assert fields(oops, "kind", "pid", "comm", "function", "module") == (
        "oops",
        4711,
        "python",
        "_nv012345rm",
        "nvidia",
    )


@pytest.mark.parametrize(
    ("lines", "kind", "function", "module"),
    [
        (
            (
                "BUG: unable to handle kernel paging request at ffffc90000000000",
                "IP: [<ffffffffa0123456>] uvm_fault+0x10/0x20 [nvidia_uvm]",
                "Oops: 0002 [#1] SMP",
                "CPU: 2 PID: 9 Comm: python Tainted: P OE 3.10.0-957.el7.x86_64 #1",
                "RIP: 0010:[<ffffffffa0123456>]  [<ffffffffa0123456>] uvm_fault+0x10/0x20 [nvidia_uvm]",
            ),
            "oops",
            "uvm_fault",
            "nvidia_uvm",
        ),
        (
            (
                "general protection fault, probably for non-canonical address 0xdead000000000100: 0000 [#1] SMP",
                "CPU: 2 PID: 9 Comm: python Not tainted 5.15.0 #1",
                "RIP: 0010:list_del+0x5/0x40",
            ),
            "oops",
            "list_del",
            None,
        ),
        (
            (
                "kernel BUG at mm/slub.c:305!",
                "invalid opcode: 0000 [#1] PREEMPT SMP",
                "CPU: 2 PID: 9 Comm: python Not tainted 5.15.0 #1",
                "RIP: 0010:kfree+0x5/0x40",
            ),
            "bug",
            "kfree",
            None,
        ),
        (
            (
                "Unable to handle kernel NULL pointer dereference at virtual address 0000000000000008",
                "Internal error: Oops: 0000000096000004 [#1] SMP",
                "CPU: 2 PID: 9 Comm: python Not tainted 6.8.0 #1",
                "pc : nv_open+0x1c/0x30 [nvidia]",
            ),
            "oops",
            "nv_open",
            "nvidia",
        ),
    ],
)
def test_oops_of_other_kernels(lines: tuple[str, ...], kind: str, function: str, module: str | None) -> None:
    small = read_kernel_log(stamped(list(lines))).events
    (oops,) = small
    assert fields(oops, "kind", "pid", "comm", "function", "module") == (kind, 9, "python", function, module)


def test_two_failures_are_two() -> None:
    one, two = events(*OOPS, *[line.replace("4711", "4712").replace("[#1]", "[#2]") for line in OOPS])
    assert (fields(one, "pid"), fields(two, "pid")) == ((4711,), (4712,))


def test_stuck_and_stopped() -> None:
    assert fields(
        only("watchdog: BUG: soft lockup - CPU#3 stuck for 22s! [pt_data_pin:812]"), "kind", "pid", "comm"
    ) == (
        "soft-lockup",
        812,
        "pt_data_pin",
    )
    assert fields(only("INFO: task a:b:812 blocked for more than 120 seconds."), "kind", "pid", "comm") == (
        "hung-task",
        812,
        "a:b",
    )
    assert fields(only("INFO: task python:812 blocked in I/O wait for more than 120 seconds."), "pid") == (812,)
    assert fields(only("Kernel panic - not syncing: System is deadlocked on memory"), "kind", "pid") == ("panic", None)


# Limits and losses.


def test_the_hard_cpu_limit() -> None:
    limit = only("CPU Watchdog Timeout (hard): python[4711]")
    assert isinstance(limit, CpuLimit)
    assert fields(limit, "pid", "comm") == (4711, "python")
    assert fields(only("RT Watchdog Timeout (hard): py[x]: y[4711]"), "pid", "comm") == (4711, "py[x]: y")
    assert events("CPU Watchdog Timeout (soft): python[4711]") == []


@pytest.mark.parametrize("name", ["show_signal", "show_signal_msg", "oom_kill_process", "dump_header"])
def test_suppressed_lines_are_counted(name: str) -> None:
    lost = only(f"{name}: 12 callbacks suppressed")
    assert isinstance(lost, Lost)
    assert fields(lost, "kind", "count", "what") == ("suppressed", 12, name)


def test_what_hides_nothing_of_ours_is_no_loss() -> None:
    assert events("net_ratelimit: 12 callbacks suppressed") == []
