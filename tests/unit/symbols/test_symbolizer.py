"""From addresses of this very process to names; the libraries are compiled, loaded, stripped and replaced for real."""

from __future__ import annotations

import ctypes
import lzma
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from conditions import needs_elfutils, needs_torch
from ftforensics.host.host import Host
from ftforensics.model.basics import Address
from ftforensics.model.crash import Module, RawFrame
from ftforensics.symbols.cache import SymbolCache
from ftforensics.symbols.elf import read_elf
from ftforensics.symbols.library import FileState
from ftforensics.symbols.resolve import Answered, Location, Symbolizer

Compile = Callable[..., Path]

SOURCE = """
static __attribute__((noinline)) int hidden(int x) { __asm__ volatile("" ::: "memory"); return x * 3; }
int exported(int x) { return hidden(x) + 1; }
void *address_of_hidden(void) { return (void *)hidden; }
void *address_of_exported(void) { return (void *)exported; }
int data = 7;
"""


def loaded(path: Path) -> tuple[ctypes.CDLL, Module]:
    """Load the library and describe it as the crash handler would: from /proc/self/maps and the mapped build-id."""
    library = ctypes.CDLL(str(path))
    ranges = []
    inode = 0
    for line in Path("/proc/self/maps").read_text().splitlines():
        fields = line.split(maxsplit=5)
        if len(fields) == 6 and fields[5] == str(path):
            ranges += [int(end, 16) for end in fields[0].split("-")]
            inode = int(fields[4])
    return library, Module(
        path=str(path),
        base=Address(min(ranges)),
        end=Address(max(ranges)),
        build_id=build_id(path),
        deleted=False,
        inode=inode,
    )


def build_id(path: Path) -> str | None:
    with path.open("rb") as file:
        return read_elf(file.fileno()).build_id


def address_of(library: ctypes.CDLL, name: str) -> int:
    function = getattr(library, f"address_of_{name}")
    function.restype = ctypes.c_void_p
    return int(function())


def at(module: Module, address: int, host: Host | None = None) -> tuple[Location, Symbolizer]:
    symbolizer = Symbolizer([module], host or Host())
    return symbolizer.addresses([address])[0], symbolizer


def run(*command: object) -> None:
    subprocess.run([str(word) for word in command], check=True, capture_output=True)


def replace(path: Path, new: Path) -> None:
    """As an installer does: the running process keeps the old file."""
    os.replace(new, path)


def test_a_static_function_has_its_name(compile_library: Compile) -> None:
    library, module = loaded(compile_library(SOURCE))
    address = address_of(library, "hidden")

    location, symbolizer = at(module, address + 2)

    assert location == Location(
        address=Address(address + 2),
        library=module.path,
        offset=Address(address + 2 - module.base),
        function="hidden",
        function_offset=Address(2),
        mangled="hidden",
    )
    (file,) = symbolizer.files()
    assert (file.state, file.source, file.gap()) == (FileState.SAME, "symtab", None)


def test_a_library_linked_at_a_fixed_address(compile_library: Compile) -> None:
    library, module = loaded(compile_library(SOURCE, "-Wl,-Ttext-segment=0x400000"))
    location, _ = at(module, address_of(library, "hidden") + 1)
    assert (location.function, location.function_offset) == ("hidden", 1)


def test_cxx_names(compile_library: Compile) -> None:
    source = """
    namespace outer { struct Inner { template <class T> static __attribute__((noinline)) T twice(T x) { return x + x; }
    }; } extern "C" void *address_of_twice() { return (void *)(&outer::Inner::twice<int>); }
    """
    library, module = loaded(compile_library(source, language="c++"))
    location, _ = at(module, address_of(library, "twice"))
    assert location.function == "int outer::Inner::twice<int>(int)"
    assert location.mangled == "_ZN5outer5Inner5twiceIiEET_S2_"


def test_return_addresses_belong_to_the_caller(compile_library: Compile) -> None:
    """A call that never returns is the last instruction of its function: its return address is the next function's."""
    source = """
    __asm__(".text\\n.globl caller\\n.type caller,@function\\ncaller: .skip 8\\n.size caller, 8"
            "\\n.globl next\\n.type next,@function\\nnext: .skip 8\\n.size next, 8");
    extern char next[];
    void *address_of_next(void) { return next; }
    """
    library, module = loaded(compile_library(source, "-Wl,-Bsymbolic"))
    boundary = Address(address_of(library, "next"))
    frames = [RawFrame(boundary, trust=trust) for trust in ("context", "cfi", "fp", "scan", None)]

    names = [(one.function, one.function_offset) for one in Symbolizer([module], Host()).frames(frames)]

    assert names == [("next", 0), *[("caller", 8)] * 4]


def test_aliases_are_named_the_same_way_every_time(compile_library: Compile) -> None:
    source = """
    int zebra(int x) { return x + 1; }
    int apple(int x) __attribute__((alias("zebra")));
    int aardvark(int x) __attribute__((weak, alias("zebra")));
    void *address_of_zebra(void) { return (void *)zebra; }
    """
    library, module = loaded(compile_library(source, "-Wl,-Bsymbolic"))
    location, _ = at(module, address_of(library, "zebra"))
    assert location.function == "apple"


def test_a_stripped_library_keeps_library_and_offset(compile_library: Compile) -> None:
    library, module = loaded(compile_library(SOURCE, "-s", "-Wl,-Bsymbolic"))
    hidden, exported = address_of(library, "hidden"), address_of(library, "exported")

    symbolizer = Symbolizer([module], Host())
    inside, outside = symbolizer.addresses([hidden, exported])

    assert (inside.function, inside.library, inside.offset) == (None, module.path, hidden - module.base)
    assert outside.function == "exported"
    assert symbolizer.files()[0].source == "dynsym"


def test_the_plt_is_not_the_function_before_it(compile_library: Compile) -> None:
    path = compile_library("extern int far(int); int near(int x) { return far(x) + 1; }", "-Wl,-z,lazy")
    with path.open("rb") as file:
        elf = read_elf(file.fileno())
    plt = elf.section(".plt")
    assert plt is not None
    module = Module(path=str(path), base=Address(0x10000), end=Address(0x20000), build_id=elf.build_id)
    location, _ = at(module, 0x10000 + plt.address + 4)
    assert (location.function, location.offset) == (None, plt.address + 4)


@pytest.mark.parametrize("name", ["data", "label"])
def test_an_address_in_data_has_no_function(compile_library: Compile, name: str) -> None:
    source = SOURCE + '__asm__(".data\\n.globl label\\nlabel: .long 1, 2\\n.size label, 8\\n.text");'
    library, module = loaded(compile_library(source))
    location, _ = at(module, ctypes.addressof(ctypes.c_int.in_dll(library, name)))
    assert (location.library, location.function) == (module.path, None)


def test_a_replaced_file_is_a_finding_and_gives_no_names(compile_library: Compile) -> None:
    path = compile_library(SOURCE)
    library, module = loaded(path)
    replace(path, compile_library("int other(void) { return 1; }\n" + SOURCE, name="libnew.so"))

    location, symbolizer = at(module, address_of(library, "hidden"))

    assert (location.function, location.library) == (None, module.path)
    (file,) = symbolizer.files()
    assert (file.state, file.recorded, file.on_disk) == (FileState.REPLACED, module.build_id, build_id(path))
    (gap,) = symbolizer.gaps()
    assert "replaced" in gap.why and module.path in gap.why and gap.grant is not None


def test_a_replaced_file_whose_debug_file_is_still_there(compile_library: Compile, tmp_path: Path) -> None:
    path = compile_library(SOURCE)
    library, module = loaded(path)
    root = machine_with(tmp_path, path)
    install_debug_file(root, path)
    replace(root / path.relative_to("/"), compile_library("int other;\n" + SOURCE, name="libnew.so"))

    location, symbolizer = at(module, address_of(library, "hidden"), Host(root=root))

    assert location.function == "hidden"
    assert symbolizer.files()[0].state is FileState.REPLACED
    assert symbolizer.gaps()


def test_a_missing_file(compile_library: Compile) -> None:
    path = compile_library(SOURCE)
    library, module = loaded(path)
    path.unlink()

    location, symbolizer = at(module, address_of(library, "hidden"))

    assert (location.function, location.offset) == (None, address_of(library, "hidden") - module.base)
    assert symbolizer.files()[0].state is FileState.MISSING
    assert "gone" in symbolizer.gaps()[0].why


def test_a_deleted_file_loses_the_kernels_mark(compile_library: Compile) -> None:
    path = compile_library(SOURCE)
    library, module = loaded(path)
    module = Module(f"{path} (deleted)", module.base, module.end, module.build_id, True, module.inode)

    location, symbolizer = at(module, address_of(library, "hidden"))

    assert location.library == str(path)
    assert location.function == "hidden"  # an equal build-id: the same content was put back
    assert symbolizer.gaps() == []


@pytest.mark.parametrize("what", ["text", "folder", "fifo"])
def test_a_path_that_holds_something_else_now(compile_library: Compile, what: str) -> None:
    path = compile_library(SOURCE)
    library, module = loaded(path)
    path.unlink()
    if what == "text":
        path.write_text("gone")
    elif what == "folder":
        path.mkdir()
    else:
        os.mkfifo(path)
    location, symbolizer = at(module, address_of(library, "hidden"))
    assert location.function is None
    assert symbolizer.files()[0].state is FileState.UNREADABLE
    assert len(symbolizer.gaps()) == 1


class TestWithoutBuildId:
    """Nothing proves that the file is the mapped one: the inode speaks for it or against it, and the reader is told."""

    @pytest.fixture
    def path(self, compile_library: Compile) -> Path:
        return compile_library(SOURCE, "-Wl,--build-id=none")

    def test_the_same_inode(self, path: Path) -> None:
        library, module = loaded(path)
        assert module.build_id is None
        location, symbolizer = at(module, address_of(library, "hidden"))
        assert location.function == "hidden"
        assert symbolizer.files()[0].state is FileState.UNCHECKED
        assert "build-id" in symbolizer.gaps()[0].why

    def test_another_inode(self, path: Path, compile_library: Compile) -> None:
        library, module = loaded(path)
        replace(path, compile_library("int other;\n" + SOURCE, "-Wl,--build-id=none", name="libnew.so"))
        location, symbolizer = at(module, address_of(library, "hidden"))
        assert location.function is None
        assert symbolizer.files()[0].state is FileState.DOUBTFUL

    def test_deleted(self, path: Path) -> None:
        library, module = loaded(path)
        module = Module(str(path), module.base, module.end, None, True)
        location, symbolizer = at(module, address_of(library, "hidden"))
        assert location.function is None
        assert symbolizer.files()[0].state is FileState.DOUBTFUL

    def test_the_file_has_one_now(self, path: Path, compile_library: Compile) -> None:
        library, module = loaded(path)
        replace(path, compile_library(SOURCE, name="libnew.so"))
        module = Module(str(path), module.base, module.end)
        location, symbolizer = at(module, address_of(library, "hidden"))
        assert location.function is None
        assert symbolizer.files()[0].state is FileState.DOUBTFUL

    def test_the_file_has_none_any_more(self, path: Path) -> None:
        library, module = loaded(path)
        module = Module(str(path), module.base, module.end, "00" * 20)
        location, symbolizer = at(module, address_of(library, "hidden"))
        assert location.function is None
        assert symbolizer.files()[0].state is FileState.REPLACED


def machine_with(folder: Path, library: Path) -> Path:
    """The root of another machine that has this library at the same path."""
    root = folder / "machine"
    copy = root / library.relative_to("/")
    copy.parent.mkdir(parents=True)
    shutil.copy(library, copy)
    return root


def install_debug_file(root: Path, library: Path, at_path: str | None = None) -> None:
    known = build_id(library)
    assert known is not None
    place = root / (at_path or f"usr/lib/debug/.build-id/{known[:2]}/{known[2:]}.debug").lstrip("/")
    place.parent.mkdir(parents=True, exist_ok=True)
    run("objcopy", "--only-keep-debug", library, place)


def test_a_debug_file_found_by_build_id(compile_library: Compile, tmp_path: Path) -> None:
    path = compile_library(SOURCE)
    library, module = loaded(path)
    root = machine_with(tmp_path, path)
    install_debug_file(root, path)
    run("strip", root / path.relative_to("/"))

    location, symbolizer = at(module, address_of(library, "hidden"), Host(root=root))

    assert location.function == "hidden"
    assert symbolizer.files()[0].source == "debug"


@pytest.mark.parametrize(
    "place", ["{folder}/tiny.debug", "{folder}/.debug/tiny.debug", "/usr/lib/debug{folder}/tiny.debug"]
)
def test_a_debug_file_found_by_its_link(compile_library: Compile, tmp_path: Path, place: str) -> None:
    path = compile_library(SOURCE)
    library, module = loaded(path)
    root = machine_with(tmp_path, path)
    copy = root / path.relative_to("/")
    (tmp_path / "tiny.debug").write_text("objcopy takes a checksum of it")
    run("objcopy", "--strip-all", f"--add-gnu-debuglink={tmp_path / 'tiny.debug'}", copy)
    assert at(module, address_of(library, "hidden"), Host(root=root))[0].function is None
    install_debug_file(root, path, place.format(folder=path.parent))

    location, symbolizer = at(module, address_of(library, "hidden"), Host(root=root))

    assert location.function == "hidden"
    assert symbolizer.files()[0].source == "debug"


def test_a_debug_file_of_another_build_is_passed_over(compile_library: Compile, tmp_path: Path) -> None:
    path = compile_library(SOURCE)
    library, module = loaded(path)
    root = machine_with(tmp_path, path)
    other = compile_library("int other(void) { return 2; }" + SOURCE, name="libother.so")
    assert module.build_id is not None
    install_debug_file(root, other, f"usr/lib/debug/.build-id/{module.build_id[:2]}/{module.build_id[2:]}.debug")
    run("strip", root / path.relative_to("/"))
    location, symbolizer = at(module, address_of(library, "hidden"), Host(root=root))
    assert location.function is None
    assert symbolizer.files()[0].source == "dynsym"


def test_names_packed_inside_the_library(compile_library: Compile, tmp_path: Path) -> None:
    """.gnu_debugdata, made as Fedora's find-debuginfo makes it: debug file, symbols only, xz."""
    path = compile_library(SOURCE, "-Wl,-Bsymbolic")
    library, module = loaded(path)
    root = machine_with(tmp_path, path)
    copy = root / path.relative_to("/")
    inner = tmp_path / "inner"
    run("objcopy", "--only-keep-debug", path, inner)
    run("objcopy", "--strip-debug", "--remove-section=.comment", "--keep-symbol=hidden", inner)
    (tmp_path / "packed").write_bytes(lzma.compress(inner.read_bytes()))
    run("strip", copy)
    run("objcopy", "--add-section", f".gnu_debugdata={tmp_path / 'packed'}", copy)

    symbolizer = Symbolizer([module], Host(root=root))
    names = symbolizer.addresses([address_of(library, "hidden"), address_of(library, "exported")])

    assert [one.function for one in names] == ["hidden", "exported"]


def test_packed_names_do_not_hide_nearer_exported_ones(compile_library: Compile, tmp_path: Path) -> None:
    source = """
    __asm__(".text\\nbefore: nop\\n"
            ".globl exported\\n.type exported,@function\\nexported: nop\\n nop\\n.size exported,2");
    extern char exported[];
    void *address_of_exported(void) { return exported; }
    """
    path = compile_library(source, "-Wl,-Bsymbolic")
    inner = tmp_path / "inner"
    run("objcopy", "--only-keep-debug", path, inner)
    run("objcopy", "--strip-symbol=exported", inner)
    (tmp_path / "packed").write_bytes(lzma.compress(inner.read_bytes()))
    run("strip", path)
    run("objcopy", "--add-section", f".gnu_debugdata={tmp_path / 'packed'}", path)
    library, module = loaded(path)
    address = address_of(library, "exported")

    names = Symbolizer([module], Host()).addresses([address + 1, address - 1])

    assert [one.function for one in names] == ["exported", "before"]


@pytest.mark.parametrize("packed", [b"no xz", b"", lzma.compress(b"no ELF"), lzma.compress(bytes(100_000))[:40]])
def test_damaged_packed_names(compile_library: Compile, tmp_path: Path, packed: bytes) -> None:
    path = compile_library(SOURCE, "-s", "-Wl,-Bsymbolic")
    (tmp_path / "packed").write_bytes(packed)
    run("objcopy", "--add-section", f".gnu_debugdata={tmp_path / 'packed'}", path)
    library, module = loaded(path)
    location, _ = at(module, address_of(library, "exported"))
    assert location.function == "exported"


@pytest.mark.parametrize(
    "name",
    [
        "[vdso]",
        "[heap]",
        "[stack]",
        "/memfd:torch_shm (deleted)",
        "/dev/zero",
        "/SYSV0000",
        "anon_inode:x",
        "",
        "/proc/kmsg",
        "/sys/kernel/notes",
    ],
)
def test_what_is_no_library_is_named_and_left_alone(name: str) -> None:
    module = Module(path=name, base=Address(0x1000), end=Address(0x3000))
    location, symbolizer = at(module, 0x1234)
    assert (location.library, location.offset, location.function) == (name, 0x234, None)
    assert symbolizer.files()[0].state is FileState.NOT_A_FILE
    assert symbolizer.gaps() == []


def test_addresses_in_no_module() -> None:
    modules = [Module("/a", Address(0x1000), Address(0x2000)), Module("/b", Address(0x8000), Address(0x9000))]
    symbolizer = Symbolizer(modules, Host(root="/nonexistent"))
    locations = symbolizer.addresses([0, 0xFFF, 0x1000, 0x2000, 0x8FFF, 0x9000, 2**64 - 1])
    assert [one.library for one in locations] == [None, None, "/a", None, "/b", None, None]
    assert symbolizer.frames([RawFrame(Address(0), trust="cfi")]) == [Location(Address(0))]
    assert Symbolizer([], Host()).addresses([1]) == [Location(Address(1))]


def test_a_library_mapped_around_another() -> None:
    modules = [Module("/outer", Address(0x1000), Address(0x9000)), Module("/inner", Address(0x4000), Address(0x5000))]
    symbolizer = Symbolizer(modules, Host(root="/nonexistent"))
    assert [one.library for one in symbolizer.addresses([0x4800, 0x5000])] == ["/inner", "/outer"]


def test_the_second_analysis_reads_no_symbols(compile_library: Compile, monkeypatch: pytest.MonkeyPatch) -> None:
    library, module = loaded(compile_library(SOURCE, "-Wl,-Bsymbolic"))
    addresses = [address_of(library, "hidden"), address_of(library, "exported") + 3, module.base + 1]
    first = Symbolizer([module], Host(), SymbolCache.of_user()).addresses(addresses)
    assert [one.function for one in first] == ["hidden", "exported", None]
    monkeypatch.setattr("ftforensics._native.nearest_symbols", None)

    assert Symbolizer([module], Host(), SymbolCache.of_user()).addresses(addresses) == first


def test_earlier_answers_hold_when_the_file_is_gone(compile_library: Compile) -> None:
    path = compile_library(SOURCE)
    library, module = loaded(path)
    address = address_of(library, "hidden")
    first = Symbolizer([module], Host(), SymbolCache.of_user()).addresses([address])
    replace(path, compile_library("int other;\n" + SOURCE, name="libnew.so"))
    again = Symbolizer([module], Host(), SymbolCache.of_user())
    assert again.addresses([address]) == first
    assert again.files()[0].state is FileState.REPLACED
    path.unlink()
    assert Symbolizer([module], Host(), SymbolCache.of_user()).addresses([address]) == first


def test_a_debug_file_installed_later_is_used_in_spite_of_the_cache(compile_library: Compile, tmp_path: Path) -> None:
    path = compile_library(SOURCE)
    library, module = loaded(path)
    root = machine_with(tmp_path, path)
    run("strip", root / path.relative_to("/"))
    address = address_of(library, "hidden")
    assert Symbolizer([module], Host(root=root), SymbolCache.of_user()).addresses([address])[0].function is None
    install_debug_file(root, path)
    assert Symbolizer([module], Host(root=root), SymbolCache.of_user()).addresses([address])[0].function == "hidden"


@needs_torch
@needs_elfutils
def test_libtorch_names_are_those_of_elfutils() -> None:
    """The benchmark's comparison: a wrong name fails it; its time limits are not asked here, a loaded machine runs
    tests."""
    import importlib.util

    spec = importlib.util.spec_from_file_location("bench", Path(__file__).parents[3] / "benchmarks" / "symbols.py")
    assert spec is not None and spec.loader is not None
    bench = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(bench)
    library = bench.find_libtorch()
    with library.open("rb") as file:
        elf = read_elf(file.fileno())
    offsets = bench.choose(elf)[:12]
    locations = bench.symbolize(library, elf, offsets, Path(os.environ["XDG_CACHE_HOME"]))
    assert bench.compare(library, locations, [hex(elf.address_at(offset)) for offset in offsets])


def test_the_next_process_does_not_ask_again_what_one_before_has_asked(compile_library: Compile) -> None:
    """It is mapped elsewhere there; another build of the same path is another question."""
    library, module = loaded(compile_library(SOURCE))
    offset = address_of(library, "hidden") - module.base
    answered: Answered = {}
    first = Symbolizer([module], Host(), None, answered)
    assert first.addresses([module.base + offset])[0].function == "hidden"
    moved = msgspec.structs.replace(module, base=Address(0x1000), end=Address(0x900000))
    nowhere = Host(root="/nonexistent")
    again = Symbolizer([moved], nowhere, None, answered)
    assert again.addresses([0x1000 + offset])[0].function == "hidden"
    assert again.files() == first.files()
    other = msgspec.structs.replace(moved, build_id="00" * 20)
    assert Symbolizer([other], nowhere, None, answered).addresses([0x1000 + offset])[0].function is None
