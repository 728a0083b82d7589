"""`python -m ftforensics.causes [FOLDER]`: write the causes' pages, docs/causes by default."""

from __future__ import annotations

import sys
from pathlib import Path

from ftforensics.causes.pages import write_pages

for written in write_pages(Path(sys.argv[1] if len(sys.argv) > 1 else "docs/causes")):
    print(written)
