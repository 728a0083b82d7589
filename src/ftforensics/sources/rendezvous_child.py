"""Resolves a name and tries a port, in a process of its own: a program of the standard library, not for import.

    python -I -S rendezvous_child.py connect|bind ADDRESS PORT SECONDS

A name server that is away holds getaddrinfo for half a minute and cannot be told to hurry (man 3 getaddrinfo).
Prints one JSON object a line: {"addresses": [...]}, then {"outcome": ...}.
"""

import errno
import json
import os
import socket
import sys
from typing import Any

# An answer of getaddrinfo: family, type, protocol, canonical name, where to connect to.
Found = tuple[int, int, int, str, Any]


def main() -> None:
    how, address, port, seconds = sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4])
    try:
        found = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        tell(error=f"{getattr(error, 'strerror', None) or error}")
        return
    tell(addresses=list(dict.fromkeys(str(entry[4][0]) for entry in found)))
    if how == "bind":
        tell(outcome=bound(port))
    else:
        tell(outcome=connected(list(found[:4]), seconds))


def bound(port: int) -> str:
    """Could a store listen on this port here, on any address?"""
    family = socket.AF_INET6 if socket.has_dualstack_ipv6() else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as listener:
        # As torch's store does it (TCPStoreLibUvBackend.cpp): connections that linger must not keep it out.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(("", port))
            listener.listen(1)
        except OSError as error:
            return "in use" if error.errno == errno.EADDRINUSE else os.strerror(error.errno or 0)
    return "free"


def connected(found: list[Found], seconds: float) -> str:
    outcome = "no address"
    for family, kind, protocol, _, target in found:
        try:  # the socket too: a kernel without IPv6 has none for an address that the name server gave
            with socket.socket(family, kind, protocol) as one:
                one.settimeout(seconds / len(found))
                one.connect(target)
        except TimeoutError:
            outcome = "no answer"
        except ConnectionRefusedError:
            outcome = "refused"
        except OSError as error:
            outcome = os.strerror(error.errno or 0)
        else:
            return "connected"
    return outcome


def tell(**said: object) -> None:
    print(json.dumps(said), flush=True)


if __name__ == "__main__":
    main()
