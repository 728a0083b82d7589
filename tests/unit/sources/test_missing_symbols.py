"""Extensions built against another libc10 than the one beside them: compiled by g++, both with either std::string."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from conditions import needs_cxx, needs_torch
from ftforensics.host.host import Host
from ftforensics.model.crash import Library
from ftforensics.model.software import Software
from ftforensics.parsers.library_name import kind_of
from ftforensics.sources.libraries import Mapped, loaded_libraries
from ftforensics.sources.missing_symbols import complete_software, missing_symbols
from wheels import Unpacked

pytestmark = needs_cxx

SITE = "/v/lib/python3.11/site-packages"
C10 = """
#include <string>
namespace c10 {
struct SourceLocation { const char* function; int line; };
struct Error { Error(SourceLocation, std::string); virtual ~Error(); virtual const char* what(); };
Error::Error(SourceLocation, std::string) {}
Error::~Error() {}
const char* Error::what() { return ""; }
}
"""
EXTENSION = """
#include <string>
namespace c10 {
struct SourceLocation { const char* function; int line; };
struct Error { Error(SourceLocation, std::string); virtual ~Error(); virtual const char* what(); };
}
namespace at { int gone(long); int perhaps(long) __attribute__((weak)); }
void raise(const char* text) { c10::Error error({"f", 1}, text); if (at::perhaps) at::perhaps(1); }
"""
OLD, NEW = "-D_GLIBCXX_USE_CXX11_ABI=0", "-D_GLIBCXX_USE_CXX11_ABI=1"
OLD_ERROR = "_ZN3c105ErrorC1ENS_14SourceLocationESs"
NEW_ERROR = "_ZN3c105ErrorC1ENS_14SourceLocationENSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE"


class Environment:
    def __init__(self, root: Path) -> None:
        self.root = root
        self.host = Host(root=root)

    def library(self, path: str, code: str, *flags: str, soname: str | None = None) -> str:
        target = self.root / path.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        named = [f"-Wl,-soname,{soname or Path(path).name}"]
        command = [
            "g++",
            "-shared",
            "-fPIC",
            "-x",
            "c++",
            "-",
            "-o",
            str(target),
            "-Wl,--build-id=sha1",
            *named,
            *flags,
        ]
        subprocess.run(command, input=code, text=True, check=True)
        return path

    def torch(self, abi: str = NEW) -> list[str]:
        return [
            self.library(f"{SITE}/torch/lib/libc10.so", C10, abi),
            self.library(f"{SITE}/torch/lib/libtorch_cpu.so", "namespace at { int add(long) { return 1; } }"),
        ]

    def read(self, *paths: str) -> list[Library]:
        return loaded_libraries([Mapped(path) for path in paths], self.host)

    def missing(self, *paths: str) -> Software:
        return complete_software(self.host, Software(), self.read(*paths))


@pytest.fixture
def environment(tmp_path: Path) -> Environment:
    return Environment(tmp_path)


def extension(environment: Environment, abi: str, code: str = EXTENSION) -> str:
    return environment.library(f"{SITE}/flash_attn_2_cuda.cpython-311-x86_64-linux-gnu.so", code, abi)


@pytest.mark.parametrize(
    ("built", "torch", "name", "said"),
    [(OLD, NEW, OLD_ERROR, "pre-cxx11"), (NEW, OLD, NEW_ERROR, "cxx11")],
)
def test_the_other_string(environment: Environment, built: str, torch: str, name: str, said: str) -> None:
    path = extension(environment, built)
    (found,) = environment.missing(*environment.torch(torch), path).missing
    assert (found.path, found.names, found.count, found.abi) == (path, [name], 1, said)


@pytest.mark.parametrize("abi", [OLD, NEW])
def test_a_fitting_extension(environment: Environment, abi: str) -> None:
    assert environment.missing(*environment.torch(abi), extension(environment, abi)).missing == []


def test_a_name_that_this_torch_no_longer_has(environment: Environment) -> None:
    code = EXTENSION + "int more(std::string s) { return at::gone(s.size()); }"
    (found,) = environment.missing(*environment.torch(), extension(environment, NEW, code)).missing
    assert (found.names, found.count, found.abi) == (["_ZN2at4goneEl"], 1, None)


def test_names_that_show_the_string_come_first_and_twenty_are_told(environment: Environment) -> None:
    many = "".join(f"namespace at {{ int n{n}(long); }} int u{n}() {{ return at::n{n}(1); }}\n" for n in range(40))
    (found,) = environment.missing(*environment.torch(), extension(environment, OLD, EXTENSION + many)).missing
    assert found.count == 41 and len(found.names) == 20 and found.names[0] == OLD_ERROR


def test_whose_extension_it_is(environment: Environment) -> None:
    path = extension(environment, OLD)
    known = [
        msgspec.structs.replace(one, package="flash-attn", version="2.7.4") if one.kind == "extension" else one
        for one in environment.read(*environment.torch(), path)
    ]
    (found,) = missing_symbols(environment.host, [known[-1]], known)
    assert (found.package, found.version) == ("flash-attn", "2.7.4")


def test_another_project_in_torchs_namespace(environment: Environment) -> None:
    """Loaded by somebody else, or brought in by the extension itself."""
    code = "namespace torch { namespace executor { int run(); } } int u() { return torch::executor::run(); }"
    gives = "namespace torch { namespace executor { int run() { return 1; } } }"
    runtime = environment.library(f"{SITE}/executor/lib/libexecutor.so", gives)
    alone = extension(environment, NEW, code)
    assert len(environment.missing(*environment.torch(), alone).missing) == 1
    folder = environment.root / f"{SITE}/executor/lib".lstrip("/")
    linked = environment.library(
        f"{SITE}/executor/_C.abi3.so", code, f"-L{folder}", "-lexecutor", "-Wl,-rpath,$ORIGIN/lib"
    )
    assert environment.missing(*environment.torch(), linked).missing == []
    (environment.root / runtime.lstrip("/")).rename(folder / "elsewhere.so")
    runtime = f"{SITE}/executor/lib/elsewhere.so"
    loaded = [*environment.read(*environment.torch(), alone), Library(path=runtime, kind="other")]
    assert complete_software(environment.host, Software(), loaded).missing == []


def test_a_library_that_is_not_found_might_have_given_it(environment: Environment) -> None:
    code = "namespace torch { namespace executor { int run(); } } int u() { return torch::executor::run(); }"
    runtime = environment.library(f"{SITE}/executor/lib/libexecutor.so", "int x;")
    folder = environment.root / f"{SITE}/executor/lib".lstrip("/")
    flags = (f"-L{folder}", "-Wl,--no-as-needed", "-lexecutor")
    path = environment.library(f"{SITE}/executor/_C.abi3.so", code, *flags)
    loaded = [*environment.read(*environment.torch(), path), Library(path=runtime, kind="other")]
    assert len(complete_software(environment.host, Software(), loaded).missing) == 1
    (folder / "libexecutor.so").unlink()
    assert environment.missing(*environment.torch(), path).missing == []


def test_a_file_that_was_replaced_since_says_nothing(environment: Environment) -> None:
    libraries = environment.read(*environment.torch(), extension(environment, OLD))
    assert len(complete_software(environment.host, Software(), libraries).missing) == 1
    for changed in ("libc10", "libtorch_cpu", "extension"):
        mapped = [msgspec.structs.replace(one, build_id="ab" * 20) if one.kind == changed else one for one in libraries]
        assert complete_software(environment.host, Software(), mapped).missing == []


def test_without_a_whole_torch_nothing_can_be_said(environment: Environment) -> None:
    path = extension(environment, OLD)
    assert environment.missing(path).missing == []
    c10, cpu = environment.torch()
    assert environment.missing(cpu, path).missing == environment.missing(c10, path).missing == []


def test_extensions_that_could_not_be_loaded_and_are_named_by_an_error(environment: Environment) -> None:
    torch = environment.read(*environment.torch())
    (also,) = environment.read(extension(environment, OLD))
    assert complete_software(environment.host, Software(), torch).missing == []
    (found,) = missing_symbols(environment.host, [also], torch)
    assert found.path == also.path


def test_damaged_extensions_are_passed_over(environment: Environment) -> None:
    torch = environment.torch()
    path = extension(environment, OLD)
    place = environment.root / path.lstrip("/")
    whole = place.read_bytes()
    libraries = environment.read(*torch, path)
    for content in (b"", b"\x7fELF", whole[:1000], whole[: len(whole) // 2]):
        place.write_bytes(content)
        assert complete_software(environment.host, Software(), libraries).missing == []
    place.unlink()
    assert complete_software(environment.host, Software(), libraries).missing == []


@needs_torch
def test_the_real_torch_misses_nothing(tmp_path: Path) -> None:
    """And an extension for it, with one name too many."""
    spec = importlib.util.find_spec("torch")
    assert spec and spec.origin
    folder = Path(spec.origin).parent
    paths: Sequence[str] = [
        str(path) for path in [*folder.glob("lib/*.so"), *folder.glob("_C*.so")] if kind_of(str(path))
    ]
    libraries = loaded_libraries([Mapped(path) for path in paths], Host())
    python = next(one for one in libraries if one.kind == "libtorch_python")
    assert missing_symbols(Host(), [one for one in libraries if one.kind == "extension"], libraries) == []
    assert missing_symbols(Host(), [python], [one for one in libraries if one is not python]) == []
    code = (
        "namespace c10 { void ExitException(); struct GradMode { static bool is_enabled(); }; }"
        "namespace at { void no_such_function(); }"
        'extern "C" bool u() { at::no_such_function(); return c10::GradMode::is_enabled(); }'
    )
    path = tmp_path / "mine.cpython-311-x86_64-linux-gnu.so"
    command = ["g++", "-shared", "-fPIC", "-x", "c++", "-", "-o", str(path)]
    subprocess.run(command, input=code, text=True, check=True)
    mine = loaded_libraries([Mapped(str(path))], Host())
    assert [found.names for found in missing_symbols(Host(), mine, libraries)] == [["_ZN2at16no_such_functionEv"]]


@needs_torch
def test_a_real_torchvision_of_another_torch(nvidia_wheel: Unpacked, tmp_path: Path) -> None:
    """0.20.1 goes with torch 2.5, whose wheels took the old string."""
    site = Path(shutil.copytree(nvidia_wheel("torchvision", "0.20.1"), tmp_path / "site-packages"))
    spec = importlib.util.find_spec("torch")
    assert spec and spec.origin
    torch = [str(path) for path in Path(spec.origin).parent.glob("lib/*.so")]
    libraries = loaded_libraries([Mapped(path) for path in torch], Host())
    extensions = loaded_libraries([Mapped(str(site / "torchvision" / name)) for name in ("_C.so", "image.so")], Host())
    for found in missing_symbols(Host(), extensions, libraries):
        assert (found.package, found.version, found.abi) == ("torchvision", "0.20.1", "pre-cxx11")
        assert "_ZN5torch3jit17parseSchemaOrNameERKSsb" in found.names and found.count > 5
    assert len(missing_symbols(Host(), extensions, libraries)) == 2
