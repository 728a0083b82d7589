"""Fifty addresses in libtorch_cpu.so: our names and CPU time against eu-addr2line and addr2line, in the same run.

    python benchmarks/symbols.py [--library FILE] [--rounds 7]

CPU time is user plus system of the process and its children; medians. The page cache is warm for everybody: each
program runs once before it is measured. "Cold" means an empty symbol cache, "warm" that the same frames were asked for
before. Ours is given twice: the library call alone (an `analyze` has started Python anyway), and a whole Python
process. Two figures decide the exit status, both of the call: cold at most 2x eu-addr2line, warm at least 20x faster
than addr2line. Names are compared as well; where two names stand at one address, either is right and is counted apart.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from ftforensics.host.host import Host
from ftforensics.model.basics import Address
from ftforensics.model.crash import Module, RawFrame
from ftforensics.symbols.cache import SymbolCache
from ftforensics.symbols.elf import Elf, read_elf
from ftforensics.symbols.resolve import Location, Symbolizer

BASE = 0x7F00_0000_0000
COUNT = 50


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--library", type=Path, default=None)
    options.add_argument("--rounds", type=int, default=7)
    options.add_argument("--only-ours", type=Path, metavar="CACHE", help=argparse.SUPPRESS)
    given = options.parse_args()
    library = given.library or find_libtorch()
    with library.open("rb") as file:
        elf = read_elf(file.fileno())
    offsets = choose(elf)
    if given.only_ours is not None:
        symbolize(library, elf, offsets, given.only_ours)
        return 0
    print(
        f"{library.name}, {elf.size >> 20} MiB; {COUNT} addresses; load {os.getloadavg()[0]:.2f}; {given.rounds} rounds"
    )
    with tempfile.TemporaryDirectory() as folder:
        return measure(library, elf, offsets, given.rounds, Path(folder))


def find_libtorch() -> Path:
    found = importlib.util.find_spec("torch")  # finds, does not import
    if found is None or found.origin is None:
        raise SystemExit("benchmarks/symbols.py: torch is not installed here; name a file with --library")
    return Path(found.origin).parent / "lib" / "libtorch_cpu.so"


def choose(elf: Elf) -> list[int]:
    """Places all over .text, the same in every run; offsets from the first mapping."""
    text = elf.section(".text")
    assert text is not None
    places = random.Random(50)
    return [places.randrange(text.address, text.address + text.size) - elf.first_address for _ in range(COUNT)]


def symbolize(library: Path, elf: Elf, offsets: list[int], cache: Path) -> list[Location]:
    module = Module(path=str(library), base=Address(BASE), end=Address(BASE + elf.size * 2), build_id=elf.build_id)
    frames = [RawFrame(Address(BASE + offset), trust="context") for offset in offsets]
    return Symbolizer([module], Host(), SymbolCache(cache)).frames(frames)


def measure(library: Path, elf: Elf, offsets: list[int], rounds: int, folder: Path) -> int:
    addresses = [hex(elf.address_at(offset)) for offset in offsets]
    eu = ["eu-addr2line", "-C", "-f", "-e", str(library), *addresses]
    binutils = ["addr2line", "-C", "-f", "-e", str(library), *addresses]
    process = [sys.executable, __file__, "--library", str(library), "--only-ours"]
    warm = folder / "warm"
    symbolize(library, elf, offsets, warm)
    fresh = iter(range(1_000_000))

    def cold_call() -> None:
        symbolize(library, elf, offsets, folder / str(next(fresh)))

    def warm_call() -> None:
        symbolize(library, elf, offsets, warm)

    figures = {
        "eu-addr2line -C -f -e": of_child(lambda: eu, rounds),
        "addr2line -C -f -e": of_child(lambda: binutils, rounds),
        "ours, call, cold": of_call(cold_call, rounds),
        "ours, call, warm": of_call(warm_call, rounds),
        "ours, process, cold": of_child(lambda: [*process, str(folder / str(next(fresh)))], rounds),
        "ours, process, warm": of_child(lambda: [*process, str(warm)], rounds),
        "python -c pass": of_child(lambda: [sys.executable, "-c", "pass"], rounds),
    }
    for name, milliseconds in figures.items():
        print(f"  {name:24}{milliseconds:9.2f} ms CPU")
    cold_ratio = figures["ours, call, cold"] / figures["eu-addr2line -C -f -e"]
    warm_ratio = figures["addr2line -C -f -e"] / figures["ours, call, warm"]
    process_ratio = figures["ours, process, cold"] / figures["eu-addr2line -C -f -e"]
    print(f"cold call / eu-addr2line     {cold_ratio:6.2f}x   (at most 2)")
    print(f"addr2line / warm call        {warm_ratio:6.1f}x   (at least 20)")
    print(f"cold process / eu-addr2line  {process_ratio:6.2f}x   (for information: Python's start is in it)")
    named = compare(library, symbolize(library, elf, offsets, warm), addresses)
    return 0 if cold_ratio <= 2 and warm_ratio >= 20 and named else 1


def of_child(command: Callable[[], list[str]], rounds: int) -> float:
    """Median CPU milliseconds of a child process."""
    figures = []
    for attempt in range(rounds + 1):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(command(), check=True, stdout=subprocess.DEVNULL)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        if attempt > 0:
            figures.append(1000 * (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime))
    return statistics.median(figures)


def of_call(call: Callable[[], None], rounds: int) -> float:
    """Median CPU milliseconds of a call in this process, all threads."""
    figures = []
    for attempt in range(rounds + 1):
        before = time.process_time()
        call()
        if attempt > 0:
            figures.append(1000 * (time.process_time() - before))
    return statistics.median(figures)


def compare(library: Path, ours: list[Location], addresses: list[str]) -> bool:
    """Mangled names, because demanglers spell types differently. An unequal pair must stand at one address."""
    command = ["eu-addr2line", "-f", "-e", str(library), *addresses]
    theirs = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()[::2]
    pairs = [(location.mangled or "??", name) for location, name in zip(ours, theirs, strict=True)]
    unequal = [pair for pair in pairs if pair[0] != pair[1]]
    aliases = [pair for pair in unequal if same_address(library, *pair)]
    unnamed = sum(pair == ("??", "??") for pair in pairs)
    print(
        f"names: {len(pairs) - len(unequal)} of {len(pairs)} equal eu-addr2line's mangled ones"
        f" ({unnamed} without a name in both), {len(aliases)} are aliases at the same address and of the same size"
    )
    for pair in unequal:
        print(f"  {'alias' if pair in aliases else 'DIFFERENT'}: ours {pair[0]}\n         theirs {pair[1]}")
    return len(unequal) == len(aliases)


def same_address(library: Path, *names: str) -> bool:
    table = subprocess.run(["nm", "-S", str(library)], check=True, capture_output=True, text=True).stdout
    places = {line.split()[3]: line.split()[:2] for line in table.splitlines() if line.endswith(names)}
    return len({tuple(places.get(name, [name])) for name in names}) == 1


if __name__ == "__main__":
    sys.exit(main())
