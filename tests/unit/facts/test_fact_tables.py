"""What the reader of the tables refuses, and that the shipped ones hold what it takes."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ftforensics.facts import cuda_errors, driver, gpus, known_bad, torch, xid
from ftforensics.facts.catalogue import CATALOGUE, Listed
from ftforensics.facts.tables import FactsError, Table, parse_table

TOOLKITS = "toolkit\trelease\tdriver\tsource\n"
BRANCHES = "branch\tcuda\tlife\tuntil\tsource\n"
FLOORS = "major\tdriver\tsource\n"
WHEELS = "torch\tvariant\tpypi\tpythons\tmachines\tarchitectures\tcudnn\tnccl\ttriton\tsource\n"
COMPANIONS = "torch\ttorchvision\ttorchaudio\tsource\n"
ARCHITECTURES = "name\tcapability\tfirst_cuda\tlast_cuda\tlast_driver\tsource\n"
GPUS = "model\tcapability\tdata_center\tsource\n"
BAD = "id\tpackage\tversions\tdriver\tmachine\tmodule\tsure\tsymptom\tfix\tcommand\tsource\n"
XIDS = "number\ttitle\tblame\tends\tadvice\tsource\n"
ERRORS = "code\tname\ttext\tcause\tsource\n"

WHEEL = "2.9.1\tcu128\tyes\t3.11\tx86_64\t8.0\t9.10.2.21\t2.27.5\t3.5.1\tMETADATA\n"
WHEEL_126 = "2.9.1\tcu126\tno\t3.11\tx86_64\t8.0\t\t\t\tMETADATA\n"
PAIR = "2.9.1\t0.24.1\t2.9.1\tpage\n"
BAD_ROW = "one\tnumba\t<0.63\t>=580\t\tlibcuda\tyes\tcrash\tupgrade\t\tissue\n"


def toolkits(text: str) -> object:
    return driver.check_toolkit_drivers(parse_table("cuda_drivers", TOOLKITS + text))


def branches(text: str) -> object:
    return driver.check_branches(parse_table("driver_branches", BRANCHES + text))


def floors(text: str) -> object:
    known = driver.check_toolkit_drivers(parse_table("cuda_drivers", TOOLKITS + "12.0\tGA\t525.60.13\tNV\n"))
    return driver.check_floors(parse_table("cuda_floors", FLOORS + text), known)


def wheels(text: str, pairs: str = PAIR) -> object:
    known = driver.check_toolkit_drivers(
        parse_table("cuda_drivers", TOOLKITS + "12.6\tGA\t560.28.03\tNV\n12.8\tGA\t570.26\tNV\n")
    )
    tables = parse_table("torch_wheels", WHEELS + text), parse_table("torch_companions", COMPANIONS + pairs)
    return torch.check_wheels(*tables, known)


def pairs(text: str) -> object:
    return wheels(WHEEL, text)


def architectures(text: str) -> object:
    return gpus.check_architectures(parse_table("architectures", ARCHITECTURES + text), {470, 580})


def models(text: str) -> object:
    known = gpus.check_architectures(parse_table("architectures", ARCHITECTURES + "Ampere\t8.0\t\t\t\tNV\n"), set())
    return gpus.check_models(parse_table("gpus", GPUS + text), known)


def bad(text: str) -> object:
    return known_bad.check_known_bad(parse_table("known_bad", BAD + text))


def xids(text: str) -> object:
    return xid.check_xid_meanings(parse_table("xid", XIDS + text))


def errors(text: str) -> object:
    return cuda_errors.check_cuda_errors(parse_table("cuda_errors", ERRORS + text))


RIGHT: list[tuple[Callable[[str], object], str]] = [
    (toolkits, "12.1\tGA\t530.30.02\tNV\n12.2\tGA\t535.54.03\tNV\n"),
    (branches, "530\t12.1\t\tended\tNV\n535\t12.2\t\t\tNV\n"),
    (floors, "12\t525.60.13\tNV\n"),
    (wheels, WHEEL + WHEEL_126),
    (pairs, PAIR),
    (architectures, "Volta\t7.0\t9.0\t12.9\t580\tNV\n"),
    (models, "A100\t8.0\tyes\tNV\n"),
    (bad, BAD_ROW),
    (xids, "79\tgone\thardware\tyes\tpower-cycle\tNV\n"),
    (errors, "35\tcudaErrorInsufficientDriver\ttoo old\tdriver-too-old\tNV\n"),
]


@pytest.mark.parametrize(("check", "text"), RIGHT)
def test_what_is_right_is_taken(check: Callable[[str], object], text: str) -> None:
    assert check(text)


REFUSED: list[tuple[Callable[[str], object], str, str]] = [
    # Two rows about one thing.
    (toolkits, "12.1\tGA\t530.30.02\tNV\n12.1\tGA\t530.41.03\tNV\n", "line 2 is about it too and says something else"),
    (toolkits, "12.1\tGA\t530.30.02\tNV\n12.1\tGA\t530.30.02\tNV\n", "line 2 is about it too and says the same"),
    (branches, "530\t12.1\t\t\tNV\n530\t12.2\t\t\tNV\n", "line 2 is about it too"),
    (floors, "12\t525.60.13\tNV\n12\t525.85.12\tNV\n", "line 2 is about it too"),
    (wheels, WHEEL + WHEEL.replace("9.10.2.21", "9.9.9.9"), "line 2 is about it too"),
    (pairs, PAIR + PAIR.replace("0.24.1", "0.24.0"), "line 2 is about it too"),
    (architectures, "Volta\t7.0\t\t\t\tNV\nPascal\t7.0\t\t\t\tNV\n", "line 2 is about it too"),
    (models, "A100\t8.0\tyes\tNV\nA100\t8.0\tno\tNV\n", "line 2 is about it too"),
    (bad, BAD_ROW + BAD_ROW.replace("<0.63", "<0.62"), "line 2 is about it too"),
    (xids, "79\tgone\thardware\tyes\ta\tNV\n79\tback\thardware\tyes\ta\tNV\n", "line 2 is about it too"),
    (errors, "35\ta\ttoo old\tx\tNV\n35\tb\ttoo old\ty\tNV\n", "line 2 is about it too"),
    (errors, "35\ta\ttoo old\tx\tNV\n36\ta\ttoo old\ty\tNV\n", "line 2 is about it too"),
    # Levels and drivers rise together.
    (branches, "530\t12.1\t\t\tNV\n535\t12.1\t\t\tNV\n", "CUDA 12.1 is not above 12.1 of branch 530"),
    (branches, "530\t12.2\t\t\tNV\n535\t12.1\t\t\tNV\n", "CUDA 12.1 is not above 12.2"),
    (branches, "535\t12.2\t\t\tNV\n530\t12.3\t\t\tNV\n", "from old to new"),
    (toolkits, "12.2\tGA\t535.54.03\tNV\n12.1\tGA\t535.99\tNV\n", "from old to new"),
    (toolkits, "12.1\tGA\t530.30.02\tNV\n12.2\tGA\t525.60.13\tNV\n", "driver 525.60.13 is older than 530.30.02"),
    (floors, "12\t530.30.02\tNV\n", "of a later branch than 525.60.13, the first driver of CUDA 12"),
    (floors, "14\t700.10\tNV\n", "no driver is known for any CUDA 14"),
    # Wheels.
    (wheels, WHEEL_126, "no variant of torch 2.9.1 is the one on PyPI"),
    (wheels, WHEEL + WHEEL_126.replace("\tno\t", "\tyes\t"), "two variants on PyPI, cu128 and cu126"),
    (wheels, WHEEL.replace("cu128", "cu127"), "no driver is known for CUDA 12.7"),
    (wheels, WHEEL.replace("cu128", "rocm6"), "variant rocm6 does not say its CUDA"),
    (wheels, WHEEL.replace("x86_64", "riscv64"), "machines must be among"),
    (wheels, WHEEL.replace("3.11", ""), "no pythons"),
    (wheels, WHEEL.replace("3.11", "py3"), "'py3' is no version"),
    (wheels, WHEEL.replace("2.9.1\t", "2.9.1+cu128\t"), "without its local part"),
    (wheels, WHEEL.replace("2.9.1\t", "newest\t"), "'newest' is no version of a package"),
    (wheels, WHEEL.replace("9.10.2.21", "nine"), "cudnn 'nine' is no version"),
    (wheels, WHEEL.replace("yes", "maybe"), "neither yes nor no"),
    (pairs, "2.8.0\t0.23.0\t2.8.0\tpage\n", "torch 2.8.0 is not in torch_wheels.tsv"),
    # The others.
    (architectures, "Volta\t7.0\t9.0\t12.9\t999\tNV\n", "branch 999 is not in driver_branches.tsv"),
    (architectures, "Volta\t7.0\t12.9\t9.0\t580\tNV\n", "the last CUDA 9.0 is older than the first 12.9"),
    (models, "H100\t9.0\tyes\tNV\n", "capability 9.0 is not in architectures.tsv"),
    (bad, BAD_ROW.replace("<0.63", "before 0.63"), "versions"),
    (bad, BAD_ROW.replace(">=580", "580"), "driver"),
    (bad, BAD_ROW.replace("numba", "Numba_X"), "numba-x"),
    (bad, BAD_ROW.replace("libcuda", ""), "sure, and yet no module"),
    (bad, BAD_ROW.replace("\t\tlibcuda", "\tvax\tlibcuda"), "machine must be among"),
    (bad, BAD_ROW.replace("<0.63", ""), "no versions"),
    (xids, "79\tgone\tnobody\tyes\tpower-cycle\tNV\n", "blame must be one of"),
    (xids, "79\tgone\thardware\t\tpower-cycle\tNV\n", "no ends"),
    (xids, "seven\tgone\thardware\tyes\tpower-cycle\tNV\n", "'seven' is no number"),
    # Any table.
    (toolkits, "12.1\tGA\t530.30.02\t\n", "no source"),
    (toolkits, "12.1\tGA\t530.30.02\n", "3 cells under 4 columns"),
    (toolkits, "12.1\tGA\t\tNV\n", "no driver"),
    (toolkits, "12.1\tGA\tnew\tNV\n", "driver 'new' is no version"),
    (toolkits, "", "no rows"),
]


@pytest.mark.parametrize(("check", "text", "reason"), REFUSED, ids=[reason for _, _, reason in REFUSED])
def test_a_contradiction_is_refused(check: Callable[[str], object], text: str, reason: str) -> None:
    with pytest.raises(FactsError) as refused:
        check(text)
    assert reason in str(refused.value)


def test_the_refusal_names_table_line_and_row() -> None:
    with pytest.raises(FactsError) as refused:
        branches("# a comment\n\n530\t12.1\t\t\tNV\n535\t12.0\t\t\tNV\n")
    begins = "driver_branches.tsv line 5 (535 | 12.0): CUDA 12.0 is not above 12.1"
    assert str(refused.value).startswith(begins)


def test_a_table_ends_in_its_source() -> None:
    with pytest.raises(FactsError, match="last column must be called source"):
        parse_table("x", "a\tb\n1\t2\n")


@pytest.mark.parametrize("listed", CATALOGUE, ids=lambda listed: listed.name)
def test_every_shipped_table_is_accepted(listed: Listed) -> None:
    table = listed.table()
    assert isinstance(table, Table)
    assert table.about
    assert all(row.text("source") for row in table.rows)


def test_every_shipped_file_is_in_the_catalogue() -> None:
    from importlib import resources

    folder = resources.files("ftforensics.facts").joinpath("data")
    assert {file.name for file in folder.iterdir()} == {f"{listed.file}.tsv" for listed in CATALOGUE}
