"""One word for what the hardware or the kernel did, and why that word and no other."""

from __future__ import annotations

import base64

import pytest

from ftforensics.diagnose.mechanism import read_mechanism
from ftforensics.model.diagnosis import Frame
from ftforensics.model.mechanism import Mechanism, MechanismReading, Uncovered
from ftforensics.wire.record import ReadRecord, read_record
from synth.crash_record import PC, STACK, TEXT, THREAD_GUARD, THREAD_STACK, CrashText

LOAD = b"\x48\x8b\x40\x28"  # mov rax,[rax+0x28]
STORE = b"\x89\x03"  # mov [rbx],eax
PUSH = b"\x55"  # push rbp
GUARD_LOW, STACK_LOW = 0x7F10007FF000, 0x7F1000800000
MAIN_LOW = 0x7FFD00000000


def read(text: CrashText, *functions: str) -> MechanismReading:
    reading = read_record(text.data())
    assert isinstance(reading, ReadRecord) and not reading.losses, reading
    return read_mechanism(reading.record, [Frame(function=name, library="/lib/libc.so.6") for name in functions])


def texts(reading: MechanismReading) -> str:
    return "\n".join(cite.text for cite in reading.supports)


@pytest.mark.parametrize(
    ("address", "access", "word"),
    [
        (0x0, "read", Mechanism.NULL_READ),
        (0x28, "read", Mechanism.NULL_READ),
        (0xFFFF, "write", Mechanism.NULL_WRITE),
        (0x10000, "read", Mechanism.WILD_READ),
        (0x123456789000, "write", Mechanism.WILD_WRITE),
        (0xFFFFFFFFFFFFFFF8, "read", Mechanism.WILD_READ),
        (0x0, "exec", Mechanism.NULL_CALL),
        (0x123456789000, "exec", Mechanism.WILD_CALL),
        (0x7F2000000000, "exec", Mechanism.EXECUTE_DATA),
        (0x7F0000002010, "write", Mechanism.WRITE_TO_READONLY),
        (0x7F0000001010, "write", Mechanism.WRITE_TO_READONLY),  # code pages are not writable either
        (0x7F10007FF800, "write", Mechanism.WILD_WRITE),  # a guard page, but the stack pointer is elsewhere
    ],
)
def test_page_faults(address: int, access: str, word: Mechanism) -> None:
    reading = read(CrashText().segv(address, access))
    assert reading.mechanism is word
    assert (reading.address, reading.access) == (address, access)
    assert reading.supports[0].locator == "signal.address"


def test_the_null_register_is_named() -> None:
    reading = read(CrashText().segv(0x28, "read").registers(rax=0, rbx=5).code(LOAD))
    assert "rax = 0x0" in texts(reading) and "rbx" not in texts(reading)
    assert reading.operand is not None and reading.operand.text == "[rax+0x28]"


def test_a_stack_pointer_that_points_nowhere_is_told() -> None:
    reading = read(CrashText().segv(0x12345677FFF8, "write").registers(sp=0x123456780000).code(PUSH))
    assert reading.mechanism is Mechanism.WILD_WRITE and "the stack pointer, 0x123456780000" in texts(reading)
    assert "the stack pointer" not in texts(read(CrashText().segv(0x12345677FFF8, "write")))


def test_an_access_that_the_error_code_knows() -> None:
    text = CrashText().segv(0x28, "read")
    text.members["signal"].update(access=None, error_code="0x6")
    assert read(text).mechanism is Mechanism.NULL_WRITE
    text.members["signal"].update(error_code="0x14")
    assert read(text).mechanism is Mechanism.NULL_CALL


def test_an_access_that_only_the_instruction_knows() -> None:
    text = CrashText().segv(0x28, "read").registers(rbx=0x28).code(STORE)
    text.members["signal"]["access"] = None
    assert read(text).mechanism is Mechanism.NULL_WRITE


def test_an_access_that_nothing_knows_has_no_word() -> None:
    text = CrashText().segv(0x28, "read")
    text.members["signal"]["access"] = None
    reading = read(text)
    assert reading.mechanism is None and reading.unknown


def test_a_mapping_that_allows_the_access_speaks_against() -> None:
    reading = read(CrashText().segv(0x7F0000002010, "read"))
    assert reading.mechanism is Mechanism.WILD_READ and reading.against


# --- general protection ---------------------------------------------------------------------------------------------


def protection(code: bytes, **registers: int) -> CrashText:
    text = CrashText().signal(11, "SIGSEGV", 0x80, "SI_KERNEL", address=0, trap=13)
    return text.registers(**registers).code(code)


def test_a_non_canonical_pointer_is_no_null_pointer() -> None:
    reading = read(protection(LOAD, rax=0xDEADBEEFDEADBEEF))
    assert reading.mechanism is Mechanism.NON_CANONICAL
    assert reading.address == 0xDEADBEEFDEADBEEF + 0x28 and reading.access == "read"


def test_the_kernels_zero_is_not_shown_as_an_address() -> None:
    reading = read(protection(b"\xff\xff\xff", rax=0x1000))
    assert reading.mechanism is None and reading.address is None and reading.unknown


def test_a_call_through_a_non_canonical_register() -> None:
    reading = read(protection(b"\xff\xd0", rax=0x6D6F632E656C7078))
    assert reading.mechanism is Mechanism.NON_CANONICAL and reading.access == "exec"


def test_without_the_instruction_a_suspect_register_is_only_suspect() -> None:
    text = protection(b"", rbx=0x6D6F632E656C7078).set(code=None)
    reading = read(text)
    assert reading.mechanism is Mechanism.NON_CANONICAL and reading.address is None and reading.unknown


def test_a_privileged_instruction() -> None:
    assert read(protection(b"\xf4")).mechanism is Mechanism.ILLEGAL_INSTRUCTION  # hlt


def test_a_misaligned_vector_access_is_no_bad_address() -> None:
    reading = read(protection(b"\x0f\x29\x40\x10", rax=0x7F1000800008))  # movaps [rax+0x10],xmm0
    assert reading.mechanism is None and "16 divides" in texts(reading)
    assert reading.uncovered is Uncovered.MISALIGNED and "not aligned to 16" in str(reading.plain)


STACK_WORD = base64.b64encode(bytes.fromhex("4141414141414141") + bytes(8)).decode()


def test_a_return_to_what_is_no_address() -> None:
    """What a smashed stack looks like: `ret` itself is refused, at the address of the return."""
    stack = {"start": "0x7ffd00010000", "data": STACK_WORD, "redacted": True}
    reading = read(protection(b"\xc3").set(stack=stack))
    assert (reading.mechanism, reading.address, reading.access) == (Mechanism.NON_CANONICAL, 0x4141414141414141, "exec")
    assert "return" in str(reading.plain) and "stack was overwritten" in str(reading.plain)
    # redaction writes zeros where the value was: then it is not known
    zeroed = {**stack, "data": base64.b64encode(bytes(16)).decode()}
    reading = read(protection(b"\xc3").set(stack=zeroed))
    assert (reading.mechanism, reading.address) == (Mechanism.NON_CANONICAL, None)


@pytest.mark.parametrize("code", [b"\xff\x50\x10", b"\xff\x60\x10"])  # call, jmp [rax+0x10]
def test_a_call_through_memory_that_holds_no_address(code: bytes) -> None:
    reading = read(protection(code, rax=0x7F1000800000))
    assert (reading.mechanism, reading.access) == (Mechanism.NON_CANONICAL, "exec")
    assert "[rax+0x10] = 0x7f1000800010" in texts(reading)


def test_a_software_interrupt_is_the_kernels() -> None:
    """Also with a register that no pointer can have: it has nothing to do with this."""
    reading = read(protection(b"\xcd\x81", rbx=0x6D6F632E656C7078))
    assert reading.mechanism is Mechanism.ILLEGAL_INSTRUCTION


def test_an_instruction_without_memory_blames_no_register() -> None:
    reading = read(protection(b"\x90", rbx=0x6D6F632E656C7078))
    assert reading.mechanism is None and reading.unknown


def test_a_stack_segment_fault_comes_as_sigbus() -> None:
    text = CrashText().signal(7, "SIGBUS", 0x80, "SI_KERNEL", address=0, trap=12)
    text.registers(rbp=0xDEADBEEFDEADBEEF).code(b"\x48\x8b\x45\xf8")  # mov rax,[rbp-8]
    assert read(text).mechanism is Mechanism.NON_CANONICAL


# --- stack overflow -------------------------------------------------------------------------------------------------


def thread_overflow() -> CrashText:
    sp = STACK_LOW
    return CrashText().segv(sp - 8, "write", 2).registers(sp=sp).code(PUSH)


def main_overflow(limit: int | None = 8 << 20) -> CrashText:
    size = (limit or 8 << 20) - (1 << 20)
    maps = [f"{MAIN_LOW:x}-{MAIN_LOW + size:x} rw-p 00000000 00:00 0   [stack]"]
    text = CrashText().segv(MAIN_LOW - 8, "write").registers(sp=MAIN_LOW).code(PUSH)
    return text.set(maps=maps, limits={"stack": limit})


@pytest.mark.parametrize("text", [thread_overflow(), main_overflow()])
def test_a_push_into_the_guard(text: CrashText) -> None:
    reading = read(text)
    assert reading.mechanism is Mechanism.STACK_OVERFLOW and reading.sp_at_guard


def test_a_large_frame_whose_stack_pointer_is_already_below() -> None:
    text = (
        CrashText()
        .segv(GUARD_LOW + 0x100, "write", 2)
        .registers(sp=GUARD_LOW)
        .code(b"\x48\x89\x84\x24\x00\x01\x00\x00")
    )
    reading = read(text)
    assert reading.mechanism is Mechanism.STACK_OVERFLOW and reading.sp_at_guard


def test_without_the_instruction_it_is_less_sure() -> None:
    reading = read(thread_overflow().set(code=None))
    assert reading.mechanism is Mechanism.STACK_OVERFLOW and not reading.sp_at_guard


def large_frame(sp: int = MAIN_LOW - (9 << 20), address: int | None = None, limit: int | None = 8 << 20) -> CrashText:
    text = CrashText().segv(sp + 64 if address is None else address, "write").registers(sp=sp).code(b"\xc6\x03\x01")
    return text.set(maps=[TEXT, STACK], limits={"stack": limit})


def test_one_frame_larger_than_the_stack() -> None:
    reading = read(large_frame())
    assert reading.mechanism is Mechanism.STACK_OVERFLOW and not reading.sp_at_guard
    assert reading.plain == "one call wanted 9.0 MiB of it"


@pytest.mark.parametrize(
    "text",
    [
        large_frame(limit=None),
        large_frame(limit=64 << 20),  # it could still have grown
        large_frame(sp=0x7F1000000000),  # garbage: terabytes away
        large_frame(address=MAIN_LOW - (10 << 20)),  # below the stack pointer
        large_frame(sp=MAIN_LOW + 0x10000, address=MAIN_LOW - (9 << 20)),  # a stray pointer, the stack is healthy
    ],
)
def test_a_stray_pointer_below_the_stack_is_no_large_frame(text: CrashText) -> None:
    assert read(text).mechanism is Mechanism.WILD_WRITE


@pytest.mark.parametrize(
    "text",
    [
        # a stray pointer into the guard: the stack pointer is far up in the stack
        thread_overflow().registers(sp=STACK_LOW + (4 << 20)),
        # the same pointer, another thread's stack
        thread_overflow().registers(sp=0x7FFD00010000),
        # no guard below a thread's stack: nothing to run into
        thread_overflow().set(maps=[THREAD_STACK, STACK]),
        # the main stack had 7 MiB left to grow
        main_overflow(limit=16 << 20).set(maps=[STACK]),
        # no maps, no statement
        thread_overflow().set(maps=None),
        # what is above the guard is no stack (not writable)
        thread_overflow().set(maps=[THREAD_GUARD, THREAD_STACK.replace("rw-p", "r--p")]),
    ],
)
def test_a_near_miss_is_a_wild_write(text: CrashText) -> None:
    assert read(text).mechanism is Mechanism.WILD_WRITE


def test_an_unlimited_main_stack_is_never_sure() -> None:
    reading = read(main_overflow(limit=None))
    assert not reading.sp_at_guard


# --- SIGBUS, SIGILL, SIGFPE -----------------------------------------------------------------------------------------


def bus(address: int, code: int = 2, name: str = "BUS_ADRERR", **more: object) -> CrashText:
    return CrashText().signal(7, "SIGBUS", code, name, address=address, **more)  # type: ignore[arg-type]


def test_a_file_on_disk_and_a_file_in_memory() -> None:
    assert read(bus(0x7F2000002000)).mechanism is Mechanism.BUS_TRUNCATED_FILE
    assert read(bus(0x7F3000002000)).mechanism is Mechanism.BUS_SHM_FULL


@pytest.mark.parametrize(
    ("path", "word"),
    [
        ("/dev/zero (deleted)", Mechanism.BUS_SHM_FULL),
        ("/SYSV00000000 (deleted)", Mechanism.BUS_SHM_FULL),
        ("/dev/shm/x (deleted)", Mechanism.BUS_SHM_FULL),
        ("/memfd:torch (deleted)", Mechanism.BUS_TRUNCATED_FILE),  # no limit that could be reached
    ],
)
def test_memory_files_by_their_names(path: str, word: Mechanism) -> None:
    maps = [f"7f3000000000-7f3000010000 rw-s 00000000 00:01 9   {path}"]
    assert read(bus(0x7F3000002000).set(maps=maps)).mechanism is word


@pytest.mark.parametrize("path", ["/data/a b; rm -rf x.bin", "/data/$(reboot)"])
def test_a_command_quotes_the_path_that_it_names(path: str) -> None:
    maps = [f"7f3000000000-7f3000010000 rw-s 00000000 08:01 9   {path}"]
    (gap,) = read(bus(0x7F3000002000).set(maps=maps)).unknown
    assert gap.grant == f"stat '{path}'"


def test_of_shared_memory_without_a_name_the_free_space_tells() -> None:
    """Its length is not known then; a tmpfs that had room did not refuse the page for lack of it."""
    nameless = {"path": "/dev/shm/torch_1 (deleted)", "size": None, "filesystem": 0x01021994, "free": 0}
    assert read(bus(0x7F3000002000).set(fault_file=nameless)).mechanism is Mechanism.BUS_SHM_FULL
    roomy = {**nameless, "free": 1 << 30}
    assert read(bus(0x7F3000002000).set(fault_file=roomy)).mechanism is Mechanism.BUS_TRUNCATED_FILE


def test_the_files_length_decides_where_it_is_known() -> None:
    cut = {"path": "/dev/shm/torch_1_2", "size": 0x1000, "filesystem": 0x01021994, "free": 0}
    reading = read(bus(0x7F3000002000).set(fault_file=cut))
    assert reading.mechanism is Mechanism.BUS_TRUNCATED_FILE
    full = {**cut, "size": 0x10000}
    assert read(bus(0x7F3000002000).set(fault_file=full)).mechanism is Mechanism.BUS_SHM_FULL
    # tmpfs mounted anywhere
    assert (
        read(bus(0x7F2000002000).set(fault_file={**full, "path": "/data/shard.bin"})).mechanism
        is Mechanism.BUS_SHM_FULL
    )
    # a disk file that is long enough: neither
    disk = {"path": "/data/shard.bin", "size": 0x10000, "filesystem": 0xEF53, "free": 0}
    reading = read(bus(0x7F2000002000).set(fault_file=disk))
    assert reading.mechanism is None and reading.unknown


def test_the_last_page_of_a_file_is_whole() -> None:
    """Bytes behind the end but in the last page can be read: an access there never faults, so the file was longer."""
    file = {"path": "/data/shard.bin", "size": 0x2001, "filesystem": 0xEF53}
    assert read(bus(0x7F2000002FFF).set(fault_file=file)).mechanism is None
    assert read(bus(0x7F2000003000).set(fault_file=file)).mechanism is Mechanism.BUS_TRUNCATED_FILE


def test_lost_memory() -> None:
    reading = read(bus(0x7F2000002000, 4, "BUS_MCEERR_AR", address_lsb=12))
    assert reading.mechanism is Mechanism.BUS_HARDWARE and "4096 bytes" in texts(reading)


@pytest.mark.parametrize("text", [bus(0x7F1000900000), bus(0x10), bus(0x7F2000002000).set(maps=None)])
def test_a_bus_error_that_no_file_explains_has_no_word(text: CrashText) -> None:
    reading = read(text)
    assert reading.mechanism is None and reading.unknown


@pytest.mark.parametrize(
    ("text", "what"),
    [
        (bus(0x7F2000002001, 1, "BUS_ADRALN"), Uncovered.MISALIGNED),
        (
            bus(0x7F3000002000).set(
                maps=["7f3000000000-7f3000200000 rw-p 00000000 00:0f 9   /anon_hugepage (deleted)"]
            ),
            Uncovered.NO_HUGE_PAGE,
        ),
        (CrashText().signal(8, "SIGFPE", 3, "FPE_FLTDIV", address=PC, trap=19), Uncovered.FLOATING_POINT),
    ],
)
def test_what_no_word_covers_is_told_all_the_same(text: CrashText, what: Uncovered) -> None:
    reading = read(text)
    assert reading.mechanism is None and reading.uncovered is what and reading.plain


def test_illegal_instructions() -> None:
    text = CrashText().signal(4, "SIGILL", 2, "ILL_ILLOPN", address=PC)
    assert read(text.code(b"\x0f\x0b")).feature is None
    reading = read(text.code(bytes.fromhex("62f17c4858c1")))
    assert (reading.mechanism, reading.feature) == (Mechanism.ILLEGAL_INSTRUCTION, "avx512f")
    # the missing one of several is named
    text.members["job"]["cpu_flags"] = "fpu avx512f avx512vl"
    assert read(text.code(bytes.fromhex("62f17d48fcc1"))).feature == "avx512bw"


def test_divisions() -> None:
    text = CrashText().signal(8, "SIGFPE", 1, "FPE_INTDIV", address=PC, trap=0).code(b"\xf7\xf9")
    assert read(text).mechanism is Mechanism.INTEGER_DIVISION
    assert read(CrashText().signal(8, "SIGFPE", 3, "FPE_FLTDIV", address=PC, trap=19)).mechanism is None


# --- raised and sent ------------------------------------------------------------------------------------------------


def abort(message: str | None = None) -> CrashText:
    text = CrashText().signal(6, "SIGABRT", -6, "SI_TKILL", sender=4242)
    return text.set(abort_message={"text": message, "source": "glibc"} if message else None)


CAUGHT = {"type": "St9bad_alloc", "what": "std::bad_alloc"}


@pytest.mark.parametrize(
    ("text", "functions", "word"),
    [
        (abort("free(): invalid pointer\n"), (), Mechanism.ABORT_HEAP),
        (abort("python: a.c:1: f: Assertion `x' failed.\n"), (), Mechanism.ABORT_ASSERT),
        (abort(), ("raise", "abort", "__assert_fail"), Mechanism.ABORT_ASSERT),
        (abort(), ("raise", "abort", "__libc_message", "malloc_printerr"), Mechanism.ABORT_HEAP),
        (abort(), ("raise", "abort", "std::terminate()", "__cxa_throw", "f"), Mechanism.ABORT_CXX_EXCEPTION),
        # a std::thread that nobody joined: no exception anywhere
        (abort(), ("raise", "abort", "std::terminate()", "std::thread::~thread()", "f"), Mechanism.ABORT_OTHER),
        (abort().set(cxx_exception=CAUGHT), ("raise", "abort", "std::terminate()"), Mechanism.ABORT_CXX_EXCEPTION),
        # abort() in a handler that has caught an exception
        (abort().set(cxx_exception=CAUGHT), ("raise", "abort", "f"), Mechanism.ABORT_OTHER),
        (abort(), ("raise", "abort", "std::__glibcxx_assert_fail(char const*)", "f"), Mechanism.ABORT_ASSERT),
        (
            abort().set(cxx_exception={"type": "St9bad_alloc", "what": "std::bad_alloc"}),
            (),
            Mechanism.ABORT_CXX_EXCEPTION,
        ),
        # an exception under way while the allocator gives up: the allocator's message is the reason
        (
            abort("free(): invalid pointer\n").set(cxx_exception={"type": "St9bad_alloc", "what": None}),
            (),
            Mechanism.ABORT_HEAP,
        ),
        (abort("*** stack smashing detected ***: terminated\n"), (), Mechanism.ABORT_OTHER),
        (
            abort("*** stack smashing detected ***: terminated\n").set(cxx_exception={"type": "St9bad_alloc"}),
            (),
            Mechanism.ABORT_OTHER,
        ),
        (abort(), ("raise", "abort", "my_panic"), Mechanism.ABORT_OTHER),
        (abort(), (), Mechanism.ABORT_OTHER),
    ],
)
def test_aborts(text: CrashText, functions: tuple[str, ...], word: Mechanism) -> None:
    assert read(text, *functions).mechanism is word


@pytest.mark.parametrize("terminate", [None, "std::terminate()"])
def test_a_throw_below_a_runtime_without_names(terminate: str | None) -> None:
    """A stripped libstdc++, as distributions ship it: an exception that left a noexcept function."""
    runtime = ("libstdc++.so.6.0.30", "libgcc_s.so.1")
    frames = [Frame(function="abort", library="/lib/libc.so.6"), Frame(library=f"/lib/{runtime[0]}")]
    frames += [Frame(function=terminate, library=f"/lib/{runtime[0]}"), Frame(library=f"/lib/{runtime[1]}")]
    frames += [Frame(function="_Unwind_RaiseException", library=f"/lib/{runtime[1]}"), Frame(function="f")]
    reading = read_record(abort().data())
    assert isinstance(reading, ReadRecord)
    assert read_mechanism(reading.record, frames).mechanism is Mechanism.ABORT_CXX_EXCEPTION
    # somebody's own code in between: he called abort(), whatever stands further out
    frames.insert(1, Frame(function="give_up", library="/usr/lib/libx.so"))
    if terminate is None:
        assert read_mechanism(reading.record, frames).mechanism is Mechanism.ABORT_OTHER


@pytest.mark.parametrize("code", [(0, "SI_USER"), (-1, "SI_QUEUE"), (-6, "SI_TKILL")])
@pytest.mark.parametrize("number", [(11, "SIGSEGV"), (6, "SIGABRT"), (7, "SIGBUS")])
def test_another_process_sent_it(number: tuple[int, str], code: tuple[int, str]) -> None:
    assert read(CrashText().signal(*number, *code, sender=999)).mechanism is Mechanism.SENT_BY_PROCESS


@pytest.mark.parametrize("code", [(-2, "SI_TIMER"), (-3, "SI_MESGQ"), (-4, "SI_ASYNCIO")])
@pytest.mark.parametrize("number", [(11, "SIGSEGV"), (6, "SIGABRT")])
def test_a_signal_that_the_program_arranged_is_neither_abort_nor_foreign(
    number: tuple[int, str], code: tuple[int, str]
) -> None:
    for sender in (None, 999):  # these codes carry no pid: what stands in its place is another field
        reading = read(CrashText().signal(*number, *code, sender=sender), "pause", "watch")
        assert reading.mechanism is None and reading.uncovered is Uncovered.ARRANGED


def test_pid_0_is_another_process() -> None:
    assert read(CrashText().signal(11, "SIGSEGV", 0, "SI_USER", sender=0)).mechanism is Mechanism.SENT_BY_PROCESS


def test_sigkill_is_its_own_word() -> None:
    assert read(CrashText().signal(9, "SIGKILL", 0, "SI_USER", sender=1)).mechanism is Mechanism.KILLED


@pytest.mark.parametrize(
    "text",
    [
        CrashText().signal(11, "SIGSEGV", 0, "SI_USER", sender=4242),  # kill(getpid())
        CrashText().signal(11, "SIGSEGV", -6, "SI_TKILL", sender=4242),  # raise()
        CrashText().signal(11, "SIGSEGV", -6, "SI_TKILL", sender=4242, via="0x7f0000001500"),
        CrashText().signal(11, "SIGSEGV", -6, "SI_TKILL", sender=999, via="0x7f0000001500"),
        CrashText().signal(11, "SIGSEGV", 0, "SI_USER", sender=999).set(process=None),  # whose pid is that?
        CrashText().signal(11, "SIGSEGV", 0, "SI_USER"),  # sender lost
    ],
)
def test_never_sent_by_process_without_a_foreign_pid(text: CrashText) -> None:
    assert read(text).mechanism is None


def test_a_pid_of_an_outer_namespace_is_not_ours() -> None:
    text = CrashText().signal(11, "SIGSEGV", 0, "SI_USER", sender=77)
    text.members["process"].update(pid=5, nspid=[77, 5])
    assert read(text).mechanism is Mechanism.SENT_BY_PROCESS


def test_a_record_without_a_signal() -> None:
    assert read(CrashText().set(signal=None)).mechanism is None


# --- aarch64 --------------------------------------------------------------------------------------------------------


def test_aarch64_uses_its_syndrome_and_its_registers() -> None:
    text = CrashText().segv(0x28, "read").registers(arch="aarch64", x0=0).code((0xF9401401).to_bytes(4, "little"))
    text.members["signal"].update(access=None, esr=hex(0x24 << 26 | 1 << 6 | 4))
    reading = read(text)
    assert reading.mechanism is Mechanism.NULL_WRITE  # the hardware's word counts, not the instruction's
    text.members["signal"]["esr"] = hex(0x24 << 26 | 4)
    reading = read(text)
    assert reading.mechanism is Mechanism.NULL_READ and "x0 = 0x0" in texts(reading)
    text.members["signal"]["esr"] = hex(0x20 << 26 | 4)
    assert read(text).mechanism is Mechanism.NULL_CALL
