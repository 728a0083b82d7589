"""The Python exception that ended a process, whoever told of it: its own record, torchrun's error file, or the log."""

from __future__ import annotations

import msgspec

from ftforensics.model.basics import Cite
from ftforensics.model.death import Death
from ftforensics.model.exception import Raised, RaisedFrame


class OwnException(msgspec.Struct, frozen=True):
    """raised: what ended it; origin: what that came from ("cause" and "context"), nearest first, so that the first
    failure is the last; place: the innermost frame of the program's own code, else the innermost; recorded: by the
    process itself (an authority), not only read in a log; peer_lost: it only says that another process went away."""

    raised: Raised
    origin: list[Raised] = []
    place: RaisedFrame | None = None
    recorded: bool = False
    peer_lost: bool = False
    of_worker: bool = False  # a DataLoader's worker raised it and the rank handed it on
    cites: list[Cite] = []

    @property
    def name(self) -> str:
        """The type without its module."""
        return self.raised.type.rpartition(".")[2]


def own_exception(death: Death) -> OwnException | None:
    """The exception with which this process ended: with status 1, not caught, not only reported (a destructor's), not a
    launcher's about another process."""
    raise NotImplementedError
