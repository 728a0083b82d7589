"""Looks at files and folders, in a process of its own: a program of the standard library, not for import.

    python -I -S places_child.py PATH...

Prints one JSON object a line, each as soon as it is known. Paths are written byte for byte, as Latin-1: they may be no
UTF-8, and who started us may read them by another locale. A network file system whose server went away holds whoever
asks for ever: each path has a thread of its own, and who started us has a deadline.
"""

import json
import os
import stat
import sys
import threading


def look(path: str) -> dict[str, object]:
    said: dict[str, object] = {"path": as_bytes(path)}
    existing = path
    try:
        status = os.stat(path)
    except OSError as error:
        said["error"], said["code"] = os.strerror(error.errno or 0), error.errno
        existing = nearest(path)
    else:
        folder = stat.S_ISDIR(status.st_mode)
        said["kind"] = "folder" if folder else "file" if stat.S_ISREG(status.st_mode) else "other"
        said["readable"] = os.access(path, os.R_OK | (os.X_OK if folder else 0))
        try:
            said["empty"] = is_empty(path) if folder else status.st_size == 0 and said["kind"] == "file"
        except OSError as error:
            said["error"], said["code"] = os.strerror(error.errno or 0), error.errno
    said["existing"] = as_bytes(existing)
    try:
        said["writable"] = os.access(existing, os.W_OK | os.X_OK)
        room = os.statvfs(existing)
        said["size"] = room.f_blocks * room.f_frsize
        said["free"] = room.f_bavail * room.f_frsize
        said["files"], said["files_free"] = room.f_files, room.f_favail
    except OSError as error:
        said.setdefault("error", os.strerror(error.errno or 0))
        said.setdefault("code", error.errno)
    return said


def nearest(path: str) -> str:
    """The folder above that is there."""
    while path not in ("", "/") and not os.path.isdir(path):
        path = os.path.dirname(path)
    return path or "/"


def as_bytes(path: str) -> str:
    return os.fsencode(path).decode("latin-1")


def is_empty(folder: str) -> bool:
    with os.scandir(folder) as entries:
        return next(entries, None) is None


def tell(path: str) -> None:
    # One write a line: threads must not mix theirs.
    os.write(1, json.dumps(look(path)).encode() + b"\n")


if __name__ == "__main__":
    threads = [threading.Thread(target=tell, args=(path,), daemon=True) for path in sys.argv[1:]]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
