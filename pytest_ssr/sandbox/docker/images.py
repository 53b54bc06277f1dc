"""Pull missing images, and build the image that shows the host's own system."""

from __future__ import annotations

import contextlib
import hashlib
import io
import sys
import tarfile
import time
from typing import TYPE_CHECKING

from pytest_ssr.errors import SandboxUnavailableError
from pytest_ssr.interrupts import raise_if_stopped
from pytest_ssr.sandbox.host import etc_files, shown_links
from pytest_ssr.sandbox.mirrors import VARIABLE, image_source
from pytest_ssr.sandbox.protocol import MIB, Image

if TYPE_CHECKING:
    import docker

LABEL = "io.pytest-ssr.owner"
_HOST_IMAGE = "localhost/pytest-ssr-host"
"""With a registry, which Podman adds to a name without one."""
_PULL_ATTEMPTS = 3


def ensure_image(client: docker.DockerClient, image: str) -> str:
    """Pull an image if it is missing, with retries and with progress on a terminal, and return its local name.

    An image from a mirror is tagged with its own name, except for a name with a digest, which an engine does not accept
    as a tag.
    """
    import docker

    source = image_source(image)
    local = find_image(client, image)
    if local is not None:
        return local[0]
    for attempt in range(_PULL_ATTEMPTS):
        try:
            _pull(client, source)
            if source == image or "@" in image:
                return source
            name, _, tag = image.rpartition(":") if ":" in image.rsplit("/", 1)[-1] else (image, "", "latest")
            client.api.tag(source, name, tag)
            return image
        except docker.errors.DockerException as error:
            final = isinstance(error, docker.errors.NotFound) or attempt == _PULL_ATTEMPTS - 1
            if final:
                raise SandboxUnavailableError(
                    f"the image {source} is missing and cannot be pulled: {short_message(error)}",
                    remedy=f"pull it, build it, or set {VARIABLE} to a mirror",
                ) from None
            time.sleep(2**attempt)
    raise AssertionError("the last attempt returns or raises")


def find_image(client: docker.DockerClient, image: str) -> tuple[str, int] | None:
    """Return the local name of an image and its size in bytes, or None if it has to be pulled."""
    import docker

    for name in dict.fromkeys((image, image_source(image))):
        with contextlib.suppress(docker.errors.ImageNotFound):
            return name, int(client.images.get(name).attrs["Size"])
    return None


def list_images(client: docker.DockerClient) -> list[Image]:
    """Return the images that have names, sorted by name."""
    found = [
        Image(name, str(image.id), int(image.attrs["Size"])) for image in client.images.list() for name in image.tags
    ]
    return sorted(found, key=lambda image: image.name)


def remove_image(client: docker.DockerClient, image: str) -> None:
    """Remove the names of an image, and with the last one its layers; raises DockerException if a container has it."""
    import docker

    while (found := find_image(client, image)) is not None:
        with contextlib.suppress(docker.errors.ImageNotFound):
            client.images.remove(found[0])


def _pull(client: docker.DockerClient, image: str) -> None:
    import docker

    shown = sys.stderr.isatty()
    done: dict[str, tuple[int, int]] = {}
    tag = None if "@" in image or ":" in image.rsplit("/", 1)[-1] else "latest"
    for event in client.api.pull(image, tag=tag, stream=True, decode=True):
        raise_if_stopped()
        if "error" in event:
            raise docker.errors.DockerException(event["error"])
        detail = event.get("progressDetail") or {}
        if "total" in detail:
            done[event["id"]] = (detail.get("current", 0), detail["total"])
            if shown:
                received, total = (sum(part) / MIB for part in zip(*done.values(), strict=True))
                line = f"\rssr: pulling {image}: {received:.0f} of {total:.0f} MiB"
                print(line, end="", file=sys.stderr, flush=True)
    if shown and done:
        print(file=sys.stderr)


def host_image(client: docker.DockerClient) -> str:
    """Return the name of an image with only symlinks and a small `/etc`, building it if it is missing."""
    import docker

    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w") as archive:
        for path, target in shown_links().items():
            link = tarfile.TarInfo(path.lstrip("/"))
            link.type, link.linkname = tarfile.SYMTYPE, target
            archive.addfile(link)
        for name, data in sorted(etc_files().items()):
            entry = tarfile.TarInfo(f"etc/{name}")
            entry.size, entry.mode = len(data), 0o644
            archive.addfile(entry, io.BytesIO(data))
    data = raw.getvalue()
    # Podman ignores the tag of an import.
    name = f"{_HOST_IMAGE}-{hashlib.sha256(data).hexdigest()[:16]}"
    try:
        client.images.get(f"{name}:latest")
    except docker.errors.ImageNotFound:
        client.api.import_image_from_data(data, repository=name, tag="latest", changes=[f"LABEL {LABEL}=none"])
    return f"{name}:latest"


def short_message(error: Exception) -> str:
    """Return the engine's message for an error, on one line and cut off at 300 characters."""
    explanation = getattr(error, "explanation", None)
    return " ".join(str(explanation or error).split())[:300]
