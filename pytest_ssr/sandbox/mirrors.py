"""Where images and repositories are fetched from, if not from their own place.

The mirrors are those of the variable `SSR_MIRROR`, which also reaches the processes of workers.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from pytest_ssr.errors import SettingsError

VARIABLE = "SSR_MIRROR"
"""The variable with mirrors, separated by commas: `FROM=TO`, or only `TO` for a prefix of all images."""
_PREFIX = "SSR_IMAGE_PREFIX"
"""The variable with the prefix of images that no mirror replaces."""
_HUB = "docker.io/"


def use_mirrors(mirrors: Sequence[str]) -> None:
    """Use these mirrors in this process and in those that it starts; without any, those of the variable remain.

    Raises SettingsError for one without a target.
    """
    for mirror in mirrors:
        if not mirror.rpartition("=")[2] or "," in mirror:
            raise SettingsError(f"--mirror {mirror!r} must be FROM=TO or PREFIX, without commas", option="mirror")
    if mirrors:
        os.environ[VARIABLE] = ",".join(mirrors)


def image_source(image: str) -> str:
    """Return the name to pull an image by; names without a registry also count as those of `docker.io/`."""
    for start, target in _mirrors():
        if not start:
            return target + image
        for name in (image, _in_full(image)):
            if name.startswith(start):
                return target + name[len(start) :]
    return os.environ.get(_PREFIX, "") + image


def repository_source(url: str) -> str:
    """Return the URL to clone a repository from."""
    for start, target in _mirrors():
        if start and url.startswith(start):
            return target + url[len(start) :]
    return url


def _mirrors() -> list[tuple[str, str]]:
    """Return the prefixes to replace and their replacements, the longest prefix first."""
    pairs = [mirror.strip().rpartition("=") for mirror in os.environ.get(VARIABLE, "").split(",")]
    return sorted(((start, target) for start, _, target in pairs if target), key=lambda pair: -len(pair[0]))


def _in_full(image: str) -> str:
    host, slash, _ = image.partition("/")
    if slash and ("." in host or ":" in host or host == "localhost"):
        return image
    return f"{_HUB}{image}" if slash else f"{_HUB}library/{image}"
