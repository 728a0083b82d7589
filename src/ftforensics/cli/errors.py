"""Errors that a person sees: what failed, why, and what to try, on one line, with the exit status."""

from __future__ import annotations

from ftforensics.report.escape import printable

# Import name -> what pip calls it. The job's environment may have been installed with --no-deps.
PACKAGES = {
    "msgspec": "msgspec",
    "rich": "rich",
    "jinja2": "jinja2",
    "elftools": "pyelftools",
    "packaging": "packaging",
    "cpp_demangle": "cpp-demangle",
    "pynvml": "nvidia-ml-py",
    "pystack": "pystack",
}


class Failure(Exception):
    """what: the thing and what is wrong with it; hint: what to try, None when nothing helps."""

    status = 1

    def __init__(self, what: str, hint: str | None = None) -> None:
        super().__init__(what)
        self.what = what
        self.hint = hint

    def __str__(self) -> str:
        text = f"{self.what}; {self.hint}" if self.hint else self.what
        return printable(text)


class BadUsage(Failure):
    status = 2


class UnreadableInput(Failure):
    status = 2


class MissingPackage(Failure):
    """A package that this command needs is not installed, or is there and broken."""


def missing_package(error: ImportError) -> Failure:
    name = (error.name or "").partition(".")[0]
    if name in PACKAGES and isinstance(error, ModuleNotFoundError):
        return MissingPackage(
            f"this command needs the package {PACKAGES[name]}, which is not installed here",
            hint=f"pip install {PACKAGES[name]}",
        )
    if name in PACKAGES:
        return MissingPackage(
            f"the package {PACKAGES[name]} does not load: {error}",
            hint=f"pip install --force-reinstall {PACKAGES[name]}",
        )
    return MissingPackage(
        f"ftforensics is not installed completely: {error}", hint="pip install --force-reinstall ftforensics"
    )
