"""The note that Podman leaves in a container, which names its image."""

from __future__ import annotations

import re

# /run/.containerenv of Podman 4, in containers that root started: image="docker.io/nvidia/cuda:12.1.0-base"
_IMAGE = re.compile(r'^image="([^"\n]{1,500})"$', re.MULTILINE)


def podman_image(text: str) -> str | None:
    found = _IMAGE.search(text)
    return found[1] if found else None
