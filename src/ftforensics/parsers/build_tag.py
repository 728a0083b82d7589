"""The local part of a package's version: which torch and CUDA a wheel was built for.

2.9.1+cu128                        an index of PyTorch's: variant "cu128"
2.8.3+cu12torch2.8cxx11abiTRUE     flash-attn, mamba-ssm, causal-conv1d
2.1.2+pt24cu121, 0.6.3+pt113cu117  torch-scatter and its family: "24" is 2.4, "113" is 1.13, "210" is 2.10
2.6.0a0+ecf3bae40a.nv25.01         built from source: nothing
"""

from __future__ import annotations

import re

import msgspec

_VARIANT = re.compile(r"cu(\d{2,3})|rocm[\d.]*|cpu")
_TORCH = re.compile(r"torch(\d)\.(\d{1,2})(?!\d)|pt(\d)(\d{1,2})(?!\d)")
_CUDA = re.compile(r"(?<![a-z])cu(\d{2})\d?(?!\d)|(?<=\d)cu(\d{2})\d?(?!\d)")


class BuiltFor(msgspec.Struct, frozen=True):
    """torch: "2.8"; cuda_major: "12"; variant: "cu128", "cpu" or "rocm", only where the local part is nothing else;
    None: it does not say."""

    torch: str | None = None
    cuda_major: str | None = None
    variant: str | None = None


def built_for(version: str) -> BuiltFor:
    local = version.partition("+")[2][:100]
    if not local:
        return BuiltFor()
    torch = _TORCH.search(local)
    cuda = _CUDA.search(local)
    variant = local if _VARIANT.fullmatch(local) else None
    return BuiltFor(
        f"{torch[1] or torch[3]}.{torch[2] or torch[4]}" if torch else None,
        (cuda[1] or cuda[2]) if cuda else None,
        "rocm" if variant and variant.startswith("rocm") else variant,
    )
