"""atheris target: any bytes as a kernel log. Not run by pytest, which has hypothesis for the same promises.

    pip install atheris
    PYTHONPATH=src python tests/fuzz/kernel_log_fuzz.py -max_len=8192 [CORPUS...]

A finding is an exception, a hang, or one of the statements below that is false.
"""

from __future__ import annotations

import sys

import atheris

with atheris.instrument_imports():
    from ftforensics.parsers.kernel_log import looks_like_kernel_log, parse_record, read_kernel_log


def one_input(data: bytes) -> None:
    choose = atheris.FuzzedDataProvider(data)
    step = choose.ConsumeIntInRange(1, 257)
    cut = choose.ConsumeIntInRange(0, 8192)
    text = choose.ConsumeBytes(choose.remaining_bytes())
    whole = read_kernel_log(text, year=2026)
    if read_kernel_log((text[at : at + step] for at in range(0, len(text), step)), year=2026) != whole:
        raise AssertionError("the cuts between chunks matter")
    started = read_kernel_log(text[:cut], year=2026)
    if len(started.events) > len(text) or len(whole.events) > len(text):
        raise AssertionError("more events than bytes")
    looks_like_kernel_log(text)
    parse_record(text.decode("utf-8", "backslashreplace"))


def main() -> None:
    atheris.Setup(sys.argv, one_input)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
