"""Two small files that name what a job runs on: a GPU's page in /proc, the note that Podman leaves in a container."""

from __future__ import annotations

import re

# /proc/driver/nvidia/gpus/0000:3b:00.0/information, drivers 390 to 595: "Model: \t\t NVIDIA A100-SXM4-80GB"
_MODEL = re.compile(r"^Model:\s*(\S[^\n]*?)\s*$", re.MULTILINE)
# /run/.containerenv of Podman 4, in containers that root started: image="docker.io/nvidia/cuda:12.1.0-base"
_IMAGE = re.compile(r'^image="([^"\n]{1,500})"$', re.MULTILINE)


def gpu_model(text: str) -> str | None:
    found = _MODEL.search(text)
    return found[1] if found and "Unknown" not in found[1] else None


def podman_image(text: str) -> str | None:
    found = _IMAGE.search(text)
    return found[1] if found else None
