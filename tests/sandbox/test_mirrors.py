"""Images and repositories are fetched from mirrors, and keep their own names."""

from __future__ import annotations

import os
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from pytest_ssr.errors import SettingsError
from pytest_ssr.sandbox.docker.images import ensure_image, find_image
from pytest_ssr.sandbox.mirrors import VARIABLE, image_source, repository_source, use_mirrors

docker = pytest.importorskip("docker")


@pytest.fixture(autouse=True)
def _variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "")
    monkeypatch.setenv("SSR_IMAGE_PREFIX", "")


@pytest.mark.parametrize(
    ("mirrors", "image", "source"),
    [
        ([], "team/box:1", "team/box:1"),
        (["ghcr.io/=m.local/gh/"], "ghcr.io/team/box:1", "m.local/gh/team/box:1"),
        (["ghcr.io/=m.local/gh/"], "team/box:1", "team/box:1"),
        (["docker.io/=m.local/"], "team/box:1", "m.local/team/box:1"),
        (["docker.io/=m.local/"], "docker.io/team/box:1", "m.local/team/box:1"),
        (["docker.io/=m.local/"], "python:3", "m.local/library/python:3"),
        (["docker.io/=m.local/"], "localhost:5000/box", "localhost:5000/box"),
        (["docker.io/=m.local/", "docker.io/team/=n.local/"], "team/box@sha256:0", "n.local/box@sha256:0"),
        (["m.local/"], "team/box:1", "m.local/team/box:1"),
        (["m.local/", "ghcr.io/=n.local/"], "ghcr.io/box", "n.local/box"),
    ],
)
def test_the_longest_prefix_of_an_image_is_replaced(mirrors: list[str], image: str, source: str) -> None:
    use_mirrors(mirrors)
    assert image_source(image) == source


def test_the_prefix_of_the_variable_is_for_other_images(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSR_IMAGE_PREFIX", "p.local/")
    use_mirrors(["ghcr.io/=m.local/"])
    assert (image_source("ghcr.io/a"), image_source("b")) == ("m.local/a", "p.local/b")


def test_the_prefix_of_a_repository_is_replaced() -> None:
    url = "https://github.com/acme/shop.git"
    use_mirrors(["m.local/", "https://github.com/=https://git.local/gh/"])
    assert repository_source(url) == "https://git.local/gh/acme/shop.git"
    assert repository_source("https://codeberg.org/a/b") == "https://codeberg.org/a/b"


@pytest.mark.parametrize("mirror", ["", "ghcr.io/=", "a=b,c=d"])
def test_a_mirror_without_a_target_is_an_error(mirror: str) -> None:
    with pytest.raises(SettingsError) as caught:
        use_mirrors([mirror])
    assert caught.value.option == "mirror"


def test_no_mirrors_keep_those_of_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "a/=b/")
    use_mirrors([])
    assert os.environ[VARIABLE] == "a/=b/"


class Engine:
    """The part of a Docker engine that pulls, finds and tags images."""

    def __init__(self) -> None:
        self.here: set[str] = set()
        self.images = SimpleNamespace(get=self._get)
        self.api = self

    def _get(self, name: str) -> Any:
        if name not in self.here:
            raise docker.errors.ImageNotFound(name)
        return SimpleNamespace(attrs={"Size": 7})

    def pull(self, name: str, **_: Any) -> Iterator[dict[str, Any]]:
        self.here.add(name)
        yield {"status": "done"}

    def tag(self, source: str, name: str, tag: str) -> None:
        assert source in self.here
        self.here.add(f"{name}:{tag}")


def test_an_image_from_a_mirror_is_tagged_with_its_own_name() -> None:
    use_mirrors(["ghcr.io/=m.local/"])
    engine: Any = Engine()
    assert find_image(engine, "ghcr.io/box:1") is None
    assert ensure_image(engine, "ghcr.io/box:1") == "ghcr.io/box:1"
    assert engine.here == {"m.local/box:1", "ghcr.io/box:1"}
    assert ensure_image(engine, "ghcr.io/box@sha256:0") == "m.local/box@sha256:0"
    assert find_image(engine, "ghcr.io/box@sha256:0") == ("m.local/box@sha256:0", 7)
