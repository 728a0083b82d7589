"""Which mechanism ended the process: siginfo, registers, error code, instruction bytes and maps in, one word out.

It stands in `diagnose` and not among the causes, because a cause never decides a mechanism: it gets the finished
`MechanismReading` with its case. All of it is pure, and nothing looks at the machine it runs on.
"""

from __future__ import annotations

from ftforensics.diagnose.mechanism.reading import read_mechanism

__all__ = ["read_mechanism"]
