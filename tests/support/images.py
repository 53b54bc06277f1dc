"""Build images for tests of containers."""

from __future__ import annotations

import contextlib
import io
import os
import tarfile
from collections.abc import Iterator
from importlib import metadata
from typing import Any

from pytest_ssr.sandbox.docker.provider import DockerProvider


@contextlib.contextmanager
def images_of(client: Any, name: str) -> Iterator[dict[str, str]]:
    """Build images on a base image with Python, as tags of a name: with pytest, and in SWE-bench's layout."""
    base = os.environ.get("SSR_TEST_IMAGE", "python:3.12-slim")
    provider = DockerProvider(base)
    provider.image_digest()
    provider.close()
    output = client.containers.run(
        base, ["python3", "-c", "import site; print(site.getsitepackages()[-1])"], remove=True
    )
    site = output.decode().strip().lstrip("/")
    container = client.api.create_container(base, ["true"])["Id"]
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w") as archive:
        for package in ("pytest", "iniconfig", "packaging", "pluggy", "pygments"):
            for file in metadata.files(package) or ():
                if ".." not in file.parts:
                    archive.add(file.locate(), f"{site}/{file}")
    client.api.put_archive(container, "/", raw.getvalue())
    client.api.commit(container, name, "plain")
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w") as archive:
        link = tarfile.TarInfo("opt/miniconda3/envs/testbed/bin/python")
        link.type, link.linkname = tarfile.SYMTYPE, "/usr/bin/python3"
        archive.addfile(link)
    client.api.put_archive(container, "/", raw.getvalue())
    client.api.commit(container, name, "testbed", changes=["WORKDIR /testbed/", "VOLUME /data"])
    client.api.remove_container(container, force=True)
    yield {"base": base, "plain": f"{name}:plain", "testbed": f"{name}:testbed"}
    for tag in ("plain", "testbed"):
        # Another worker may have removed it.
        with contextlib.suppress(Exception):
            client.images.remove(f"{name}:{tag}", force=True)
