"""What runs inside the job. Imports the standard library and `ftforensics._native` only.

Every module here is loaded by every rank, so modules that drag others in (re, json, typing, threading, signal,
pathlib, functools) stay out: `re` alone costs more than the whole of `install()`.
"""

from __future__ import annotations

VERSION = "0.1.0"
