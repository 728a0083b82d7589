"""From a case to a diagnosis: decide the mechanism, merge the stacks, ask every cause, weigh what they say.

diagnose(case)                                # library and offset only
diagnose(case, DiskSymbols(host, cache))      # with function names from the files on disk
"""

from __future__ import annotations

from ftforensics.diagnose.engine import diagnose
from ftforensics.diagnose.names import DiskSymbols, Resolution, Resolver

__all__ = ["DiskSymbols", "Resolution", "Resolver", "diagnose"]
