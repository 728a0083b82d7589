"""Keys and values of a JSON or YAML file, one line each: "zero_optimization.stage" = "3".

Values whose names say that they are secret, and texts that look like one, are redacted before anybody else sees them.
YAML is read by PyYAML's safe loader where that is installed, else by a strict reader of nested `key: value` lines,
which gives up on anything that it does not know.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from ftforensics.capture.redact import is_secret_name, redact, redact_named
from ftforensics.model.ledger import Setting

MOST_SETTINGS = 400
DEEPEST = 16
LONGEST_NAME = 200
LONGEST_VALUE = 120
_MOST_STEPS = 20_000
_YAML_LIMIT = 256 << 10  # bytes; PyYAML's own loader reads 100 KB a second
_LIST_SHOWN = 20

# "key: value" of a plain key; indentation by blanks.
_LINE = re.compile(r"( *)([A-Za-z0-9_.][\w./-]{0,150}|\"[^\"\n]{1,150}\"|'[^'\n]{1,150}'):(?: +(.*))?$")
_NUMBER = re.compile(r"[0-9.eE+]{1,30}")
_ITEM = re.compile(r"( *)- +(.*)$")


def settings(name: str, data: bytes) -> list[Setting]:
    """name: of the file, whose ending tells the format. Raises ValueError: not readable as such a file."""
    if name.endswith(".json"):
        try:
            found: object = msgspec.json.decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise ValueError(f"not JSON: {error}") from error
    else:
        found = _yaml(data)
    kept: list[Setting] = []
    # An alias of YAML repeats what it names without costing a byte: the steps are counted, not only what they find.
    budget = iter(range(_MOST_STEPS))
    for setting in _flat(found, "", 0, budget):
        kept.append(setting)
        if len(kept) == MOST_SETTINGS:
            break
    return kept


def _yaml(data: bytes) -> object:
    if len(data) > _YAML_LIMIT:
        raise ValueError(f"larger than {_YAML_LIMIT} bytes")
    try:
        yaml = importlib.import_module("yaml")
        loader = getattr(yaml, "CSafeLoader", None) or yaml.SafeLoader
    except Exception:  # noqa: BLE001 - an environment's broken PyYAML is like none
        return _plain_yaml(data.decode("utf-8", "backslashreplace"))
    try:
        found: object = yaml.load(data, Loader=loader)
    except (yaml.YAMLError, ValueError, RecursionError, TypeError, AttributeError, OverflowError) as error:
        raise ValueError(f"not YAML: {str(error)[:200]}") from error
    return found


def _flat(value: object, name: str, depth: int, budget: Iterator[int]) -> Iterator[Setting]:
    if next(budget, None) is None:
        return
    if isinstance(value, Mapping):
        if depth >= DEEPEST:
            return
        for key, inner in list(value.items())[:MOST_SETTINGS]:
            yield from _flat(
                inner, f"{name}.{key}"[:LONGEST_NAME] if name else str(key)[:LONGEST_NAME], depth + 1, budget
            )
    elif isinstance(value, Sequence) and not isinstance(value, (str, bytes)):
        if any(isinstance(inner, (Mapping, list)) for inner in value[:_LIST_SHOWN]):
            if depth < DEEPEST:
                for index, inner in enumerate(value[:_LIST_SHOWN]):
                    yield from _flat(inner, f"{name}[{index}]"[:LONGEST_NAME], depth + 1, budget)
        else:
            shown = ", ".join(_text(inner) for inner in value[:_LIST_SHOWN])
            yield Setting(name, _redacted(name, f"[{shown}]"))
    else:
        yield Setting(name, _redacted(name, _text(value)))


def _redacted(name: str, value: str) -> str:
    """By every part of the dotted name: "api_keys.openai" is no less secret than "api_key". A number of "train_tokens"
    says how many."""
    parts = [part for part in re.split(r"[.\[\]]+", name) if part]
    if any(is_secret_name(part) for part in parts):
        return "[redacted]"
    if not _NUMBER.fullmatch(value) and any(is_secret_name(part.removesuffix("s")) for part in parts):
        return "[redacted]"
    return redact_named(name.rpartition(".")[2], redact(value))[:LONGEST_VALUE]


def _text(value: object) -> str:
    """As JSON writes it: a change from `true` to `1` is one."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)[: 2 * LONGEST_VALUE]


def _plain_yaml(text: str) -> object:
    """Nested mappings of plain values and lists of them. Raises ValueError for the rest of YAML: half understood is
    worse than not read."""
    top: dict[str, object] = {}
    levels: list[tuple[int, dict[str, object]]] = [(0, top)]
    opened: tuple[int, dict[str, object], str] | None = None  # a key that waits for what stands below it
    for number, line in enumerate(text.splitlines(), 1):
        bare = _without_comment(line)
        if not bare.strip() or bare.strip() == "---":
            continue
        indent = len(bare) - len(bare.lstrip(" "))
        if opened is not None and (item := _ITEM.fullmatch(bare)) and indent >= opened[0]:
            items = opened[1].setdefault(opened[2], [])
            if not isinstance(items, list) or _LINE.fullmatch(item[2]):
                raise ValueError(f"line {number}: a list of mappings needs PyYAML to be read")
            items.append(_scalar(item[2], number))
            continue
        found = _LINE.fullmatch(bare)
        if found is None:
            raise ValueError(f"line {number} needs PyYAML to be read")
        if opened is not None and opened[2] not in opened[1] and indent > opened[0]:
            below: dict[str, object] = {}
            opened[1][opened[2]] = below
            levels.append((indent, below))
        while levels and indent < levels[-1][0]:
            levels.pop()
        if not levels or indent != levels[-1][0] or len(levels) > DEEPEST:
            raise ValueError(f"line {number}: its indentation fits nothing above")
        key, value = found[2].strip("\"'"), (found[3] or "").strip()
        if opened is not None:
            opened[1].setdefault(opened[2], None)
        opened = None
        if value:
            levels[-1][1][key] = _scalar(value, number)
        else:
            opened = (indent, levels[-1][1], key)
    if opened is not None:
        opened[1].setdefault(opened[2], None)
    return top


def _without_comment(line: str) -> str:
    line = line.rstrip()
    if "\t" in line[: len(line) - len(line.lstrip())]:
        raise ValueError("indented by tabs")
    if line.lstrip().startswith("#"):
        return ""
    if " #" in line and not ('"' in line or "'" in line):
        line = line[: line.index(" #")].rstrip()
    return line


def _scalar(text: str, number: int) -> object:
    text = text.strip()
    if text[:1] in ("&", "*", "!", "|", ">", "{", "%", "@", "`"):
        raise ValueError(f"line {number} needs PyYAML to be read")
    if text.startswith("["):
        if not text.endswith("]") or any(char in text[1:-1] for char in "[]{}"):
            raise ValueError(f"line {number} needs PyYAML to be read")
        return [_scalar(part, number) for part in text[1:-1].split(",") if part.strip()]
    if len(text) > 1 and text[0] == text[-1] and text[0] in "\"'":
        return text[1:-1]
    return {"true": True, "false": False, "null": None, "~": None}.get(text.lower(), text)
