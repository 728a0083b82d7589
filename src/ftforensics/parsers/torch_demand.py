"""Does a distribution say that it needs torch? (`Requires-Dist` of METADATA; see `parsers.core_metadata`)"""

from __future__ import annotations

import re

_TORCH = re.compile(r"^Requires-Dist:[ \t]*(?:torch|pytorch)[ \t]*(?:$|[^\w.-])", re.MULTILINE | re.IGNORECASE)


def wants_torch(metadata: str) -> bool:
    """ "Requires-Dist: torch>=2" but not "torchvision"; a demand for an extra ("torch; extra == 'gpu'") counts too."""
    headers, _, _ = metadata.replace("\r\n", "\n").partition("\n\n")
    return _TORCH.search(headers) is not None
