"""Images are read from a registry, and everything is compared with its digest."""

from __future__ import annotations

from pathlib import Path

import pytest
from image_registry import image_registry, layer

from harness.containers.registry import ImageError, ImageSettings, Reference, Registry


@pytest.mark.parametrize(
    ("name", "address", "version"),
    [
        ("python", "https://registry-1.docker.io/v2/library/python", "latest"),
        ("me/shop:2", "https://registry-1.docker.io/v2/me/shop", "2"),
        ("ghcr.io/me/shop:1@sha256:ab", "https://ghcr.io/v2/me/shop", "sha256:ab"),
        ("localhost/shop", "http://localhost/v2/shop", "latest"),
        ("127.0.0.1:5000/a/b", "http://127.0.0.1:5000/v2/a/b", "latest"),
    ],
)
def test_names_are_read_as_docker_reads_them(name: str, address: str, version: str) -> None:
    reference = Reference.parse(name)
    assert (reference.address, reference.version) == (address, version)


def test_what_is_no_name_is_refused() -> None:
    with pytest.raises(ImageError):
        Reference.parse("Not A Name")


@pytest.mark.parametrize("token", ["", "secret"])
def test_the_image_of_this_machine_is_read(token: str, tmp_path: Path) -> None:
    first = layer(("a", b"1"))
    with image_registry(token) as registry:
        name = registry.add("me/shop", first, Env=["A=1=2"], WorkingDir="/srv", User="app", Entrypoint=["x"])
        read = Registry(Reference.parse(name))
        manifest = read.manifest()
        read.download(manifest.layers[0], tmp_path / "layer")
    assert manifest.settings == ImageSettings({"A": "1=2"}, "/srv", "app", ("x",))
    assert (tmp_path / "layer").read_bytes() == first


def test_content_that_differs_from_its_digest_is_refused(tmp_path: Path) -> None:
    with image_registry() as registry:
        name = registry.add("shop", layer(("a", b"1")))
        read = Registry(Reference.parse(name))
        digest = read.manifest().layers[0]
        registry.served[f"blobs/{digest}"] = b"other"
        with pytest.raises(ImageError):
            read.download(digest, tmp_path / "layer")


def test_a_missing_image_and_a_missing_registry_are_errors() -> None:
    with image_registry() as registry:
        name = registry.add("shop")
        with pytest.raises(ImageError):
            Registry(Reference.parse(f"{name}-other")).manifest()
    with pytest.raises(ImageError):
        Registry(Reference.parse(name)).manifest()
