"""Nothing inside is dict-typed: values are Structs with named fields, and `Any` stays at the edges."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from conditions import ROOT

PACKAGE = ROOT / "src" / "ftforensics"
FILES = sorted(PACKAGE.rglob("*.py"))

# msgspec's hooks are declared with Any; wire reads and publishes JSON, which has no type before it is decoded.
EDGES = ("model/basics.py", "wire/")


def annotations(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Each annotation of a class field: (line, source text)."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            for statement in node.body:
                if isinstance(statement, ast.AnnAssign):
                    yield statement.lineno, ast.unparse(statement.annotation)


def every_annotation(tree: ast.AST) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.AnnAssign | ast.arg) and node.annotation is not None:
            yield node.lineno, ast.unparse(node.annotation)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.returns is not None:
            yield node.lineno, ast.unparse(node.returns)


def untyped_fields(text: str) -> list[tuple[int, str]]:
    names = ("Any", "object", "dict", "Dict")
    return [
        (line, annotation)
        for line, annotation in annotations(ast.parse(text))
        if "Callable" not in annotation
        and not annotation.startswith("ClassVar")
        and any(
            isinstance(node, ast.Name) and node.id in names and (node.id != "dict" or bare_dict(annotation))
            for node in ast.walk(ast.parse(annotation, mode="eval"))
        )
    ]


def bare_dict(annotation: str) -> bool:
    """A mapping from a named key type to one value type is an index, not a record in disguise."""
    return "dict[str, Any]" in annotation or "dict[str, object]" in annotation or "dict[" not in annotation


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_no_field_is_a_bare_dict_or_any(path: Path) -> None:
    assert untyped_fields(path.read_text()) == []


INSIDE = [path for path in FILES if not path.relative_to(PACKAGE).as_posix().startswith(EDGES)]


@pytest.mark.parametrize("path", INSIDE, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_no_dict_of_any_crosses_a_function(path: Path) -> None:
    found = [(line, text) for line, text in every_annotation(ast.parse(path.read_text())) if "dict[str, Any]" in text]
    assert found == []


def test_the_check_sees_what_it_is_for() -> None:
    planted = "class Process:\n    info: dict[str, Any]\n    more: Any = None\n    index: dict[int, str] = {}\n"
    assert [line for line, _ in untyped_fields(planted)] == [2, 3]
