"""The black box for training jobs: `import ftforensics; ftforensics.install()`.

Everything here runs inside the job, so it is the standard library and one C extension, nothing else. The analyser
(`ftforensics analyze`) lives in the other subpackages and is never imported from here. docs/api.md has the details.
"""

from __future__ import annotations

from ftforensics.capture import VERSION as __version__
from ftforensics.capture.marks import note, phase, step
from ftforensics.capture.session import install, uninstall

__all__ = ["__version__", "install", "note", "phase", "step", "uninstall"]
