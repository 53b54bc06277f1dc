"""Podman takes the place of Docker: its socket and program are found, and containers are described as it reads them."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import docker
import pytest

from harness.harbor.command import run_docker
from pytest_ssr.errors import SandboxUnavailableError
from pytest_ssr.sandbox.docker import engine
from pytest_ssr.sandbox.docker.container_spec import ContainerSpec


@pytest.fixture(autouse=True)
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("DOCKER_HOST", "CONTAINER_HOST"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setattr(engine, "_DOCKER_SOCKET", str(tmp_path / "docker.sock"))
    return tmp_path


def podman_socket(machine: Path) -> Path:
    path = machine / "podman" / "podman.sock"
    path.parent.mkdir()
    path.touch()
    return path


def test_the_socket_of_podman_is_used_if_docker_has_none(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = podman_socket(machine)
    assert engine.engine_variables()["DOCKER_HOST"] == f"unix://{path}"
    monkeypatch.setenv("CONTAINER_HOST", "unix:///elsewhere.sock")
    assert engine.engine_variables()["DOCKER_HOST"] == "unix:///elsewhere.sock"
    monkeypatch.setenv("DOCKER_HOST", "unix:///named.sock")
    assert engine.engine_variables()["DOCKER_HOST"] == "unix:///named.sock"


def test_docker_comes_first(machine: Path) -> None:
    podman_socket(machine)
    (machine / "docker.sock").touch()
    assert "DOCKER_HOST" not in engine.engine_variables()


def test_the_program_is_docker_or_podman(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(machine))
    assert engine.client_program() is None
    for name in ("podman", "docker"):
        (machine / name).touch(mode=0o755)
        assert engine.client_program() == str(machine / name)


def test_the_program_of_podman_gets_its_address(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (machine / "podman").write_text('#!/bin/sh\necho "$CONTAINER_HOST"\n')
    (machine / "podman").chmod(0o755)
    monkeypatch.setenv("PATH", str(machine))
    monkeypatch.setenv("CONTAINER_HOST", "unix:///elsewhere.sock")
    assert run_docker("ps", seconds=30).output.strip() == "unix:///elsewhere.sock"


class _Client:
    """The parts of the SDK's client that describe a container, without an engine."""

    def __init__(self, name: str) -> None:
        self.volumes: list[dict[str, str]] = []
        create = docker.APIClient(version="1.41").create_host_config
        self.api = SimpleNamespace(create_host_config=create, create_volume=self._create_volume)
        self._name = name

    def version(self) -> dict[str, Any]:
        return {"Components": [{"Name": self._name}]}

    def info(self) -> dict[str, Any]:
        return {}

    def _create_volume(self, name: str, driver: str, options: dict[str, str], labels: dict[str, str]) -> None:
        self.volumes.append(options)


@pytest.mark.parametrize(("name", "is_podman"), [("Podman Engine", True), ("Engine", False)])
def test_containers_are_described_as_the_engine_reads_them(name: str, is_podman: bool) -> None:
    client: Any = _Client(name)
    spec = ContainerSpec("image", "", 2.0, "/tree", "/scratch", (), namespaces=True)
    config = spec.host_config(client, volumes=[], tree_volume="tree", max_bytes=2**30)
    scratch = config["Tmpfs"]["/scratch"].split(",")
    assert ("U" in scratch) is is_podman
    assert (f"uid={spec.user}" in scratch) is not is_podman
    (volume,) = client.volumes
    assert ("size" in volume["o"]) is not is_podman
    (profile,) = [o.removeprefix("seccomp=") for o in config["SecurityOpt"] if o.startswith("seccomp=")]
    assert Path(profile).is_file() if is_podman else profile.startswith("{")


@pytest.mark.parametrize("place", [{"root": "/a:b"}, {"root": "/tree", "hidden": ("/a:b/",)}])
def test_a_path_that_podman_cannot_mount_is_named(place: dict[str, Any]) -> None:
    spec = ContainerSpec("image", "", 2.0, scratch="/scratch", readable=(), **place)
    with pytest.raises(SandboxUnavailableError, match="/a:b"):
        spec.host_config(_Client("Podman Engine"), volumes=[], tree_volume="", max_bytes=2**30)  # type: ignore[arg-type]
