"""Is an exception only the news that another process went away? Such a process is never the first to fail.

The words are in capture.peer_lost: a process that writes its own record judges by the same ones.
"""

from __future__ import annotations

from ftforensics.capture.peer_lost import says_peer_lost

__all__ = ["says_peer_lost"]
