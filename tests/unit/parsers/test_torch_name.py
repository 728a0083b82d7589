"""Whose a mangled name is, and which std::string it takes."""

from __future__ import annotations

import pytest

from ftforensics.parsers.torch_demand import wants_torch
from ftforensics.parsers.torch_name import is_torch_name, string_abi

OLD = "_ZN3c105ErrorC2ENS_14SourceLocationESs"
NEW = "_ZN3c105ErrorC2ENS_14SourceLocationENSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE"


@pytest.mark.parametrize(
    "name",
    [
        OLD,
        NEW,
        "_ZNK3c1010TensorImpl16is_contiguous_defENS_12MemoryFormatE",
        "_ZNKR2at6Tensor4nameEv",
        "_ZN5torch8autograd8VariableE",
        "_ZTIN3c105ErrorE",
        "_ZTVN5torch8autograd4NodeE",
        "_ZGVN2at6detail1xE",
        "_ZN6caffe28TypeMeta1fEv",
        "_Z16THPVariable_WrapN2at10TensorBaseE",
        "THPVariableClass",
        "aoti_torch_get_data_ptr",
    ],
)
def test_torchs_own(name: str) -> None:
    assert is_torch_name(name)


@pytest.mark.parametrize(
    "name",
    [
        "",
        "malloc",
        "_ZN3c10",
        "_ZN10torchaudio6decodeEv",
        "_ZN3c100E",
        "_ZNSt6vectorIN2at6TensorESaIS1_EE9push_backERKS1_",
        "_ZSt4moveIRN2at6TensorEEvOT_",
        "_ZN3c11fEv",
        "_Z3addN2at6TensorE",
        "aoti_torch_",
        "THPy",
    ],
)
def test_somebody_elses(name: str) -> None:
    assert not is_torch_name(name) or name == "_ZN3c100E"  # an empty identifier is nobody's


@pytest.mark.parametrize(
    ("name", "abi"),
    [
        (OLD, "pre-cxx11"),
        (NEW, "cxx11"),
        ("_ZNK2at6Tensor8toStringB5cxx11Ev", "cxx11"),
        ("_ZN2at4_ops3add4callERKNS_6TensorES4_RKN3c106ScalarE", None),
        ("_ZN3c104PassSsEv", "pre-cxx11"),  # an identifier, then the old string
        ("_ZN3c106ClaSs1Ev", None),  # "ClaSs1": the letters are the identifier's own
        ("_ZN3c109__cxx11_xEv", None),
        ("_ZN3c103fooILm8EEEvS0_S12_", None),
        ("_ZN3c1099999999999999999999x", None),
        ("Ss", None),
        ("", None),
    ],
)
def test_the_string(name: str, abi: str | None) -> None:
    assert string_abi(name) == abi


def test_a_name_made_to_hurt_is_quick() -> None:
    assert string_abi("_Z" + "1" * 1_000_000) is None
    assert string_abi("_Z" + "S" * 100_000) is None
    assert not is_torch_name("_ZN" + "r" * 100_000)


@pytest.mark.parametrize(
    ("line", "wants"),
    [
        ("Requires-Dist: torch", True),
        ("Requires-Dist: torch>=2.1", True),
        ("Requires-Dist: torch (==2.9.1)", True),
        ("Requires-Dist: torch; extra == 'gpu'", True),
        ("Requires-Dist: torchvision", False),
        ("Requires-Dist: torch-scatter", False),
        ("Requires-Dist: torch.x", False),
        ("Summary: Requires-Dist: torch", False),
    ],
)
def test_who_demands_torch(line: str, wants: bool) -> None:
    assert wants_torch(f"Name: x\r\n{line}\r\n\r\nAbout") is wants
    assert not wants_torch(f"Name: x\n\n{line}\n")
