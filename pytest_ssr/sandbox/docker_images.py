"""Images: pulled where they are not there, and the one that shows the host's own system."""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import sys
import tarfile
import time
from typing import TYPE_CHECKING

from pytest_ssr.errors import SandboxUnavailableError
from pytest_ssr.sandbox.host import etc_files, shown_links
from pytest_ssr.sandbox.protocol import MIB

if TYPE_CHECKING:
    import docker

LABEL = "io.pytest-ssr.owner"
_HOST_IMAGE = "pytest-ssr-host"
_TRIES = 3


def provide(client: docker.DockerClient, image: str) -> str:
    """Return the name of an image that is here, pulled where it was not, with progress on a terminal and retries.

    `SSR_IMAGE_PREFIX` (such as a mirror's `host/path/`) is put before the name to pull; then it gets its own name, but
    for one with a digest, which an engine gives to nothing else.
    """
    import docker

    source = os.environ.get("SSR_IMAGE_PREFIX", "") + image
    for known in dict.fromkeys((image, source)):
        with contextlib.suppress(docker.errors.ImageNotFound):
            client.images.get(known)
            return known
    for attempt in range(_TRIES):
        try:
            _pull(client, source)
            if source == image or "@" in image:
                return source
            name, _, tag = image.rpartition(":") if ":" in image.rsplit("/", 1)[-1] else (image, "", "latest")
            client.api.tag(source, name, tag)
            return image
        except docker.errors.DockerException as error:
            final = isinstance(error, docker.errors.NotFound) or attempt == _TRIES - 1
            if final:
                raise SandboxUnavailableError(
                    f"the image {source} is not here and cannot be pulled: {short(error)}; pull it, build it, or set "
                    "SSR_IMAGE_PREFIX to a mirror"
                ) from None
            time.sleep(2**attempt)
    raise AssertionError("the last try returns or raises")


def _pull(client: docker.DockerClient, image: str) -> None:
    import docker

    shown = sys.stderr.isatty()
    done: dict[str, tuple[int, int]] = {}
    tag = None if "@" in image or ":" in image.rsplit("/", 1)[-1] else "latest"
    for event in client.api.pull(image, tag=tag, stream=True, decode=True):
        if "error" in event:
            raise docker.errors.DockerException(event["error"])
        detail = event.get("progressDetail") or {}
        if "total" in detail:
            done[event["id"]] = (detail.get("current", 0), detail["total"])
            if shown:
                have, total = (sum(part) / MIB for part in zip(*done.values(), strict=True))
                print(f"\rssr: pulling {image}: {have:.0f} of {total:.0f} MiB", end="", file=sys.stderr, flush=True)
    if shown and done:
        print(file=sys.stderr)


def host_image(client: docker.DockerClient) -> str:
    """Return the name of an image that holds nothing but links and a small `/etc`, made where it is not there."""
    import docker

    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w") as archive:
        for place, target in shown_links().items():
            link = tarfile.TarInfo(place.lstrip("/"))
            link.type, link.linkname = tarfile.SYMTYPE, target
            archive.addfile(link)
        for name, data in sorted(etc_files().items()):
            entry = tarfile.TarInfo(f"etc/{name}")
            entry.size, entry.mode = len(data), 0o644
            archive.addfile(entry, io.BytesIO(data))
    data = raw.getvalue()
    tag = hashlib.sha256(data).hexdigest()[:16]
    try:
        client.images.get(f"{_HOST_IMAGE}:{tag}")
    except docker.errors.ImageNotFound:
        client.api.import_image_from_data(data, repository=_HOST_IMAGE, tag=tag, changes=[f"LABEL {LABEL}=none"])
    return f"{_HOST_IMAGE}:{tag}"


def short(error: Exception) -> str:
    """Return what the engine says of an error, on one line."""
    explanation = getattr(error, "explanation", None)
    return " ".join(str(explanation or error).split())[:300]
