"""A Python module, or a name in one, was not there.

## What it means

An `import` found nothing of that name, or an installed version that does not have what was asked of it. Either the
package is not installed in this environment, another environment is in use than one believes, or its version is older
or newer than the program expects.

## How it is told apart

`ModuleNotFoundError` by its type; `ImportError` where Python's own text says which name is missing. It is as sure as it
is that the exception ended the process. An extension that could not be loaded ("undefined symbol", "cannot open shared
object file") is another matter and has causes of its own. The module's name is not always the package's: `cv2` comes
with opencv-python. Install nothing by a name that was only guessed.

## What to do

1. See which Python ran, and whether the module is there: `python -c "import NAME"` with that one.
2. Install the package that brings the module, in the version that the program's own documentation names.
3. On several nodes: the same environment on each, or one on a shared file system.

## Seen in the field

- "No module named 'flash_attn'" on one node of several, whose image was older.
- "cannot import name 'X' from 'transformers'": the program wants a newer version than is installed.

## References

- Python documentation, "Built-in Exceptions" (ModuleNotFoundError), "The import system"
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ftforensics.causes.registry import Kind
from ftforensics.causes.uncaught import REFINED, finding, refinement
from ftforensics.model.death import Death
from ftforensics.model.diagnosis import Finding, Remedy
from ftforensics.parsers.exception_subject import About

KIND = Kind.OWN_FAULT
REFINES = (REFINED,)
_NAME = re.compile(r"[A-Za-z_][\w.]{0,100}", re.ASCII)
# Packages whose name is known: the module's own, or another one. A guessed name may be somebody's trap.
_SAME = frozenset({
    "torch", "torchvision", "torchaudio", "numpy", "scipy", "pandas", "transformers", "datasets", "accelerate", "peft",
    "trl", "deepspeed", "tokenizers", "safetensors", "sentencepiece", "einops", "wandb", "tensorboard", "tqdm",
    "matplotlib", "bitsandbytes", "triton", "lightning", "omegaconf", "evaluate", "diffusers", "timm", "ray",
})  # fmt: skip
_OTHER = {
    "PIL": "pillow", "cv2": "opencv-python", "yaml": "pyyaml", "sklearn": "scikit-learn", "skimage": "scikit-image",
    "flash_attn": "flash-attn", "pytorch_lightning": "pytorch-lightning", "hydra": "hydra-core", "google.protobuf":
    "protobuf", "dateutil": "python-dateutil", "mpi4py": "mpi4py", "sentence_transformers": "sentence-transformers",
}  # fmt: skip


def check_death(death: Death) -> Iterator[Finding]:
    found = refinement(death, About.MODULE)
    if found is not None:
        what = "A Python module was not there" if found.subject.by_type else "What was imported is not there"
        yield finding(found, "missing-module", what, remedies=_remedies(found.subject.what, found.subject.by_type))


def _remedies(name: str | None, module: bool) -> Iterator[Remedy]:
    if name is None or not _NAME.fullmatch(name):
        yield Remedy("Install what the text names, in the environment that ran the job")
        return
    top = name.partition(".")[0]
    wanted = name if module else name.rpartition(".")[0]
    yield Remedy(
        "See with the Python that ran the job whether it is there, and which version",
        f"python -c 'import sys, {wanted}; print(sys.executable, getattr({wanted}, \"__version__\", None))'",
        settles=True,
    )
    package = _OTHER.get(name) or _OTHER.get(top) or (top if top in _SAME else None)
    if not module:
        yield Remedy(f"Install the version of {top} that the program was written for")
    elif package is not None:
        yield Remedy(f"Install the package that brings the module {top}", f"pip install {package}")
    else:
        yield Remedy(
            f"Install the package that brings the module {top} (its name may be another: see the program's own "
            "requirements), or start the job from the folder where the module lies"
        )
