"""The documentation page of a cause, made from its docstring."""

from __future__ import annotations

from pathlib import Path

from ftforensics.causes.registry import Cause, causes


def page(cause: Cause) -> str:
    """Markdown. The id is the title, since that is what a report names and what people search for."""
    title, _, body = cause.text.partition("\n")
    return f"# {cause.id}\n\n{title.strip()}\n\n{body.strip()}\n"


def index() -> str:
    lines = ["# Causes", "", "`ftforensics explain ID` prints the same text.", ""]
    for cause in causes():
        lines.append(f"- [{cause.id}]({cause.id}.md): {cause.title}")
    return "\n".join(lines) + "\n"


def write_pages(folder: Path) -> list[Path]:
    """Write one page a cause and the index into `folder`; pages of causes that are gone are removed."""
    folder.mkdir(parents=True, exist_ok=True)
    wanted = {folder / f"{cause.id}.md": page(cause) for cause in causes()} | {folder / "index.md": index()}
    for stale in set(folder.glob("*.md")) - set(wanted):
        stale.unlink()
    for path, text in wanted.items():
        path.write_text(text, encoding="utf-8")
    return sorted(wanted)
