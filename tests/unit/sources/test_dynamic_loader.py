"""Which file is taken for a name: the same as the real dynamic loader takes, asked with LD_TRACE_LOADED_OBJECTS."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from conditions import needs_cc, needs_x86_64
from ftforensics.host.host import Host
from ftforensics.sources.dynamic_loader import DynamicLoader, SearchEnvironment

pytestmark = [needs_cc, needs_x86_64]

RPATH, RUNPATH = "-Wl,--disable-new-dtags", "-Wl,--enable-new-dtags"
TRACED = re.compile(r"^\t(\S+)(?: => (.*?))?(?: \(0x[0-9a-f]+\))?$")


class Place:
    """Programs and libraries that need one another, in folders."""

    def __init__(self, base: Path) -> None:
        self.base = base
        (base / "link").mkdir()

    def library(self, path: str, *options: str, needs: Sequence[str] = (), soname: str | None = None) -> Path:
        return self._compile(path, "", ["-shared", "-fPIC", f"-Wl,-soname,{soname or Path(path).name}"], needs, options)

    def program(self, path: str, *options: str, needs: Sequence[str] = ()) -> Path:
        return self._compile(path, "int main(void) { return 0; }", [], needs, options)

    def _compile(self, path: str, code: str, kind: list[str], needs: Sequence[str], options: Sequence[str]) -> Path:
        target = self.base / path
        target.parent.mkdir(parents=True, exist_ok=True)
        for name in needs:
            stand_in = self.base / "link" / name
            if not stand_in.exists():
                command = ["gcc", "-shared", "-fPIC", "-x", "c", "-", "-o", str(stand_in), f"-Wl,-soname,{name}"]
                subprocess.run(command, input="", text=True, check=True)
        wanted = ["-Wl,--no-as-needed", f"-L{self.base / 'link'}", *(f"-l:{name}" for name in needs)]
        command = ["gcc", "-x", "c", "-", "-o", str(target), *kind, *wanted, "-Wl,--allow-shlib-undefined", *options]
        subprocess.run(command, input=f'const char here[] = "{path}"; {code}', text=True, check=True)
        return target

    def real(self, program: Path, environment: SearchEnvironment) -> tuple[list[str], list[str]]:
        """What the loader itself says: paths in load order, names not found."""
        said = subprocess.run(
            [program],
            env={
                "LD_TRACE_LOADED_OBJECTS": "1",
                **({"LD_LIBRARY_PATH": environment.library_path} if environment.library_path is not None else {}),
                **({"LD_PRELOAD": environment.preload} if environment.preload else {}),
            },
            cwd=environment.cwd,
            capture_output=True,
            text=True,
            check=True,
        )
        found, absent = [], []
        for line in said.stdout.splitlines():
            match = TRACED.match(line)
            if match is None or "linux-vdso" in line:
                continue
            if match[2] == "not found":
                absent.append(match[1])
            else:
                found.append(os.path.realpath(os.path.join(environment.cwd or "/", match[2] or match[1])))
        return found, absent

    def check(self, program: Path, library_path: str | None = None, preload: str | None = None) -> list[str]:
        """Both agree; the names and folders of what is loaded below the base, in order."""
        environment = SearchEnvironment(library_path, preload, str(self.base))
        loader = pretend(program, environment)
        found, absent = self.real(program, environment)
        # The loader itself stands where it is first needed in its own list, at once in ours.
        interpreter = os.path.realpath("/lib64/ld-linux-x86-64.so.2")
        mine = [file.real for file in loader.loaded[1:] if file.real != interpreter]
        assert mine == [path for path in found if path != interpreter]
        assert {one.name for one in loader.not_found if not one.optional} == set(absent)
        return [str(Path(path).relative_to(self.base)) for path in mine if path.startswith(f"{self.base}/")]


def pretend(program: Path, environment: SearchEnvironment) -> DynamicLoader:
    loader = DynamicLoader(Host(), environment, 62)
    loader.start(str(program))
    return loader


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_rpath_goes_before_ld_library_path(place: Place) -> None:
    place.library("own/libcudart.so.12")
    place.library("system/libcudart.so.12")
    program = place.program("bin/a", RPATH, "-Wl,-rpath,$ORIGIN/../own", needs=["libcudart.so.12"])
    assert place.check(program, f"{place.base}/system") == ["own/libcudart.so.12"]


def test_runpath_goes_behind_ld_library_path(place: Place) -> None:
    place.library("own/libcudart.so.12")
    place.library("system/libcudart.so.12")
    program = place.program("bin/a", RUNPATH, "-Wl,-rpath,$ORIGIN/../own", needs=["libcudart.so.12"])
    assert place.check(program, f"{place.base}/system") == ["system/libcudart.so.12"]
    assert place.check(program) == ["own/libcudart.so.12"]


def test_rpath_reaches_what_the_libraries_need_runpath_does_not(place: Place) -> None:
    """Of cusparse, which needs nvJitLink and says nothing about where."""
    place.library("own/libcusparse.so.12", needs=["libnvJitLink.so.12"])
    place.library("own/libnvJitLink.so.12")
    with_rpath = place.program("bin/a", RPATH, "-Wl,-rpath,$ORIGIN/../own", needs=["libcusparse.so.12"])
    with_runpath = place.program("bin/b", RUNPATH, "-Wl,-rpath,$ORIGIN/../own", needs=["libcusparse.so.12"])
    assert place.check(with_rpath) == ["own/libcusparse.so.12", "own/libnvJitLink.so.12"]
    assert place.check(with_runpath) == ["own/libcusparse.so.12"]


def test_a_library_with_a_runpath_does_not_look_in_its_loaders_rpath(place: Place) -> None:
    """The mix of a wheel's cuSPARSE with the system's nvJitLink, under LD_LIBRARY_PATH."""
    place.library("own/libcusparse.so.12", RUNPATH, "-Wl,-rpath,$ORIGIN", needs=["libnvJitLink.so.12"])
    place.library("own/libnvJitLink.so.12")
    place.library("system/libnvJitLink.so.12")
    program = place.program("bin/a", RPATH, "-Wl,-rpath,$ORIGIN/../own", needs=["libcusparse.so.12"])
    assert place.check(program, f"{place.base}/system") == ["own/libcusparse.so.12", "system/libnvJitLink.so.12"]


def test_an_empty_runpath_shuts_out_the_loaders_rpath(place: Place) -> None:
    """patchelf --set-rpath '' leaves such a tag."""
    place.library("own/libfirst.so", RUNPATH, "-Wl,-rpath,", needs=["libsecond.so"])
    place.library("own/libsecond.so")
    program = place.program("bin/a", RPATH, "-Wl,-rpath,$ORIGIN/../own", needs=["libfirst.so"])
    assert place.check(program) == ["own/libfirst.so"]


def test_what_is_loaded_under_that_soname_is_taken(place: Place) -> None:
    place.library("own/libx.so", soname="libstdc++.so.6")
    program = place.program("bin/a", RPATH, f"-Wl,-rpath,{place.base}/own", needs=["libx.so", "libstdc++.so.6"])
    place.library("link/libx.so", soname="libx.so")  # what the program was linked with
    assert place.check(program) == ["own/libx.so"]


def test_one_file_under_two_names_is_loaded_once(place: Place) -> None:
    place.library("own/libone.so.1.2", soname="libother.so")
    (place.base / "own/libone.so.1").symlink_to("libone.so.1.2")
    (place.base / "own/libtwo.so").hardlink_to(place.base / "own/libone.so.1.2")
    program = place.program("bin/a", RPATH, "-Wl,-rpath,$ORIGIN/../own", needs=["libone.so.1", "libtwo.so"])
    assert place.check(program) == ["own/libone.so.1.2"]


def test_origin_is_where_a_link_to_a_library_lies_but_where_the_program_is(place: Place) -> None:
    place.library("store/libfirst.so", RUNPATH, "-Wl,-rpath,$ORIGIN", needs=["libsecond.so"])
    place.library("store/libsecond.so")
    place.library("view/libsecond.so")
    (place.base / "view/libfirst.so").symlink_to("../store/libfirst.so")
    program = place.program("real/bin/a", RPATH, "-Wl,-rpath,$ORIGIN/../../view", needs=["libfirst.so"])
    (place.base / "bin").mkdir()
    (place.base / "bin/a").symlink_to(program)
    assert place.check(place.base / "bin/a") == ["store/libfirst.so", "view/libsecond.so"]


def test_another_machines_file_is_passed_over(place: Place) -> None:
    wrong = place.library("a/libx.so")
    content = bytearray(wrong.read_bytes())
    content[18] = 183  # e_machine: aarch64
    wrong.write_bytes(content)
    place.library("b/libx.so")
    program = place.program("bin/a", needs=["libx.so"])
    assert place.check(program, f"{place.base}/a:{place.base}/b") == ["b/libx.so"]


@pytest.mark.parametrize("content", [b"", b"version https://git-lfs.github.com/spec/v1\n"])
def test_what_is_no_library_ends_the_search(place: Place, content: bytes) -> None:
    (place.base / "a").mkdir()
    (place.base / "a/libx.so").write_bytes(content)
    place.library("b/libx.so")
    program = place.program("bin/a", needs=["libx.so"])
    environment = SearchEnvironment(f"{place.base}/a:{place.base}/b")
    refused = subprocess.run([program], env={"LD_LIBRARY_PATH": environment.library_path or ""}, capture_output=True)
    assert refused.returncode == 127  # it does not go on to b, either
    (absent,) = pretend(program, environment).not_found
    assert (absent.name, absent.needed_by) == ("libx.so", str(program))
    assert absent.why == f"{place.base}/a/libx.so is {'not an ELF file' if content else 'empty'}"


def test_a_library_that_is_cut_short(place: Place) -> None:
    whole = place.library("a/libx.so")
    size = whole.stat().st_size
    os.truncate(whole, 5000)
    program = place.program("bin/a", needs=["libx.so"])
    environment = SearchEnvironment(f"{place.base}/a")
    killed = subprocess.run([program], env={"LD_LIBRARY_PATH": environment.library_path or ""}, capture_output=True)
    assert killed.returncode != 0
    (absent,) = pretend(program, environment).not_found
    assert re.fullmatch(r".*/a/libx.so is cut short: 5000 bytes of \d+", absent.why) and size > 5000


def test_preloaded_libraries_come_first(place: Place) -> None:
    place.library("a/libx.so")
    place.library("b/libx.so")
    place.library("b/libjemalloc.so.2", needs=["libx.so"])
    program = place.program("bin/a", needs=["libx.so"])
    preload = f"{place.base}/b/libjemalloc.so.2:libabsent.so {place.base}/b/libx.so"
    assert place.check(program, f"{place.base}/a", preload) == ["b/libjemalloc.so.2", "b/libx.so"]


def test_empty_and_relative_entries_are_the_working_directory(place: Place) -> None:
    place.library("libx.so")
    place.library("sub/liby.so")
    program = place.program("bin/a", needs=["libx.so", "liby.so"])
    assert place.check(program, "/nowhere::sub") == ["libx.so", "sub/liby.so"]
    loader = pretend(program, SearchEnvironment("sub"))
    assert [one.name for one in loader.not_found] == ["libx.so", "liby.so"]
    assert "'sub' is looked up in the process's working directory" in loader.gaps[0].why


def test_default_folders_may_be_switched_off(place: Place) -> None:
    program = place.program("bin/a", "-Wl,-z,nodefaultlib", needs=["libx.so"])
    assert place.check(program) == []
    assert "libc.so.6" in {one.name for one in pretend(program, SearchEnvironment(cwd="/")).not_found}


def test_a_library_for_better_processors(place: Place) -> None:
    if "sse4_2" not in Path("/proc/cpuinfo").read_text():
        pytest.skip("this processor is an x86-64-v1 one")
    place.library("a/glibc-hwcaps/x86-64-v2/libx.so")
    place.library("a/glibc-hwcaps/x86-64-v9/libx.so")
    place.library("a/libx.so")
    program = place.program("bin/a", needs=["libx.so"])
    assert place.check(program, f"{place.base}/a") == ["a/glibc-hwcaps/x86-64-v2/libx.so"]


def test_what_dlopen_brings_in(place: Place) -> None:
    """As `import torch` does: a path, and what it needs; a name that is nowhere is said, and whether it matters."""
    place.library("torch/lib/libtorch.so", RUNPATH, "-Wl,-rpath,$ORIGIN", needs=["libc10.so", "libgone.so"])
    place.library("torch/lib/libc10.so")
    loader = pretend(place.program("bin/a"), SearchEnvironment())
    known = len(loader.loaded)
    loader.load(f"{place.base}/torch/lib/libtorch.so")
    loader.load("libcuda.so.77", loader.loaded[-1], optional=True)
    assert [Path(file.real).name for file in loader.loaded[known:]] == ["libtorch.so", "libc10.so"]
    gone, cuda = loader.not_found
    assert (gone.name, gone.needed_by, gone.optional) == ("libgone.so", f"{place.base}/torch/lib/libtorch.so", False)
    assert (cuda.name, cuda.needed_by, cuda.optional) == ("libcuda.so.77", f"{place.base}/torch/lib/libc10.so", True)
    assert loader.load(f"{place.base}/torch/lib/libc10.so") is loader.known("libc10.so")
    loader.take_back(known, 0)
    assert loader.known("libc10.so") is None and loader.not_found == []


def test_a_copied_root_is_searched_inside(tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.library("usr/lib/x86_64-linux-gnu/libx.so.1.0", soname="libx.so.1")
    (tmp_path / "usr/lib/x86_64-linux-gnu/libx.so.1").symlink_to("libx.so.1.0")
    (tmp_path / "lib").symlink_to("usr/lib")
    place.program("usr/bin/a", needs=["libx.so.1"])
    loader = DynamicLoader(Host(root=tmp_path), SearchEnvironment("/elsewhere"), 62)
    loader.start("/usr/bin/a")
    assert [file.real for file in loader.loaded] == ["/usr/bin/a", "/usr/lib/x86_64-linux-gnu/libx.so.1.0"]
    assert {one.name for one in loader.not_found} == {"libc.so.6"}
    assert [gap.source for gap in loader.gaps] == ["loader", "loader"]  # no ld.so, no cache
