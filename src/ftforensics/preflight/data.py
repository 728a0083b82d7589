"""The paths that the run reads from and writes to."""

from __future__ import annotations

import errno
import shlex
from collections.abc import Iterator, Sequence

from ftforensics.model.basics import Cite
from ftforensics.model.diagnosis import Remedy
from ftforensics.model.preflight import Check, Status
from ftforensics.sources.places import TIMEOUT, Place

TOPIC = "data"
# What a network file system says when its server forgot the mount or went away (man 2 open; NFS, FUSE, Lustre).
_STALE = (errno.ESTALE, errno.ENOTCONN, errno.EIO, errno.EHOSTDOWN, errno.ETIMEDOUT)


def data_checks(places: Sequence[Place]) -> Iterator[Check]:
    """Of the paths that must hold data."""
    for place in places:
        yield _readable(place)


def _readable(place: Place) -> Check:
    cite = [Cite("data", place.path, place.error or ("no answer" if place.silent else place.kind or "not there"))]

    def bad(said: str, *remedies: Remedy) -> Check:
        return Check("data-path", TOPIC, Status.FAIL, f"{place.path} {said}", supports=cite, remedies=list(remedies))

    if place.silent:
        return bad(f"did not answer within {TIMEOUT:g} s: a dead network mount?", _mount(place))
    if place.code in _STALE:
        return bad(f"is a mount that no longer works: {place.error}", _mount(place))
    if place.kind is None:
        if place.code == errno.EACCES:
            return bad("may not be looked at by this user", Remedy("See its rights", _ls(place)))
        return bad(f"is not there: {place.error or 'not found'}")
    if not place.readable:
        return bad("may not be read by this user", Remedy("See its rights", _ls(place)))
    if place.error:
        return bad(f"cannot be read: {place.error}")
    if place.empty:
        return bad(f"is an empty {place.kind}: is what should be there mounted?", _mount(place))
    if place.kind == "other":
        said = f"{place.path} is a device, pipe or socket: what it holds was not looked at"
        return Check("data-path", TOPIC, Status.UNKNOWN, said, supports=cite)
    return Check("data-path", TOPIC, Status.OK, f"{place.path} is there, readable and not empty", supports=cite)


def writable_checks(places: Sequence[Place]) -> Iterator[Check]:
    """Of the paths that the job will write to; one that is not there yet is made by the job."""
    for place in places:
        where = place.path if place.kind else f"{place.path} (to be made in {place.existing})"
        if place.silent or place.code in _STALE:
            why = place.error or f"no answer within {TIMEOUT:g} s"
            said = f"{place.path} does not answer: {why}"
            yield Check("checkpoint-path", TOPIC, Status.FAIL, said, remedies=[_mount(place)])
        elif place.kind in ("file", "other"):
            what = "file" if place.kind == "file" else "device, pipe or socket"
            yield Check("checkpoint-path", TOPIC, Status.FAIL, f"{place.path} is a {what}, not a folder")
        elif not place.writable:
            yield Check(
                "checkpoint-path",
                TOPIC,
                Status.FAIL,
                f"{where} may not be written by this user",
                supports=[Cite("data", place.existing or place.path, "not writable")],
                remedies=[Remedy("See its rights", _ls(place))],
            )
        else:
            yield Check("checkpoint-path", TOPIC, Status.OK, f"{where} can be written")


def _mount(place: Place) -> Remedy:
    return Remedy("See what is mounted there", f"findmnt -T {shlex.quote(place.path)}")


def _ls(place: Place) -> str:
    return f"namei -l {shlex.quote(place.path)}"
