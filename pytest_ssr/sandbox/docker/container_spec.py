"""Describe a container: its image, mounts, resource bounds and allowed system calls."""

from __future__ import annotations

import atexit
import json
import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_ssr.errors import SandboxUnavailableError
from pytest_ssr.sandbox.docker.engine import is_podman
from pytest_ssr.sandbox.docker.images import LABEL
from pytest_ssr.sandbox.docker.reaper import owner
from pytest_ssr.sandbox.host import shown_directories
from pytest_ssr.sandbox.protocol import MIB
from pytest_ssr.sandbox.supervision import seccomp

if TYPE_CHECKING:
    import docker

LOWER = "/ssr-tree"
_TMP_BYTES = 256 * MIB
_TREE_BYTES = 8 * 1024 * MIB
# A runtime such as gVisor uses several host processes or threads for one in the sandbox, and crashes when one is
# refused.
_MAX_PROCESSES, _MAX_RUNTIME_PROCESSES = 1024, 8192


@dataclass(frozen=True, slots=True)
class ContainerSpec:
    """The properties that two containers must share to be interchangeable."""

    image: str
    """The name of the image; empty to show the host's system."""
    runtime: str
    """The engine's runtime; empty for its default."""
    cpus: float
    """Number of processors the container may use."""
    root: str
    """The path of the tree inside."""
    scratch: str
    """The path of the scratch directory inside."""
    readable: tuple[Path, ...]
    """Host paths that are mounted read-only at the same paths."""
    hidden: tuple[str, ...] = ()
    """Files inside, and folders (these end with a slash), that are shown empty."""
    namespaces: bool = False
    """Whether commands may create namespaces and mounts; the tree is then also shown at `LOWER`."""
    user: int = field(default_factory=lambda: os.geteuid() or 1000)
    """The uid of commands, never 0; our own unless we are root, so that files only we may read are readable."""

    def private_mounts(self, volumes: Sequence[str]) -> list[str]:
        """Return the mount points that belong to the commands' user: tree, scratch, each directory above a mount in
        the tree, and the image's volumes.

        The engine would create those directories itself, as root, and the volumes on its disk.
        """
        below = (p.relative_to(self.root) for p in self.readable if p.is_relative_to(self.root))
        between = {f"{self.root}/{folder}" for p in below for folder in p.parents if folder.name}
        return [self.root, self.scratch, *sorted(between), *(v for v in volumes if v not in between)]

    def shown_in_tree(self) -> list[str]:
        """Return the paths in the tree that are covered by other, read-only mounts."""
        paths = [*map(str, self.readable), *(path.rstrip("/") for path in self.hidden)]
        return [path for path in paths if Path(path).is_relative_to(self.root)]

    def shared_mounts(self) -> list[str]:
        """Return the mount points that every user may write to on any system."""
        return ["/tmp", "/dev/shm"]

    def host_config(
        self, client: docker.DockerClient, *, volumes: Sequence[str], tree_volume: str, max_bytes: int
    ) -> dict[str, Any]:
        """Return the engine's settings for a container.

        volumes: those of the image. tree_volume: the volume for the tree, used if `namespaces` is set.
        max_bytes: memory limit of all processes together.
        """
        import docker

        # Podman accepts no ids: `U` gives the file system to the container's user. It would copy what it covers.
        is_for_podman = is_podman(client)
        owner_of = "U" if is_for_podman else f"uid={self.user},gid={self.user}"
        without_copy = ",notmpcopyup" if is_for_podman else ""
        own = f"rw,exec,nosuid,nodev,{owner_of},mode=0755,size={_TREE_BYTES}{without_copy}"
        shared = f"rw,exec,nosuid,nodev,mode=1777,size={_TMP_BYTES}{without_copy}"
        shown = [*self.readable] if self.image else [*shown_directories(), *self.readable]
        mounts = [docker.types.Mount(str(p), str(p), type="bind", read_only=True) for p in shown]
        files = [p for p in self.hidden if not p.endswith("/")]
        mounts += [docker.types.Mount(p, "/dev/null", type="bind", read_only=True) for p in files]
        empty = dict.fromkeys((p.rstrip("/") for p in self.hidden if p.endswith("/")), f"ro,size=4096{without_copy}")
        in_memory = {**dict.fromkeys(self.private_mounts(volumes), own), **dict.fromkeys(self.shared_mounts(), shared)}
        if is_for_podman and (path := next((p for p in (*in_memory, *empty) if ":" in p), None)) is not None:
            raise SandboxUnavailableError(f"Podman cannot mount anything at a path with a colon: {path}")
        if self.namespaces:
            # One file system at two paths: a mount inside the tree would prevent using it as the lower directory of an
            # overlay (mount_namespaces(7), "locked mounts"), and the engine mounts each tmpfs only once.
            del in_memory[self.root]
            _create_volume(client, tree_volume, self.user)
            mounts += [
                docker.types.Mount(path, tree_volume, type="volume", no_copy=True) for path in (self.root, LOWER)
            ]
        config: dict[str, Any] = client.api.create_host_config(
            auto_remove=True,
            network_mode="none",
            cap_drop=["ALL"],
            security_opt=["no-new-privileges", *(_opened_filter(client) if self.namespaces else ())],
            read_only=True,
            tmpfs={**in_memory, **empty},
            mounts=mounts,
            log_config=docker.types.LogConfig(type="none"),
            nano_cpus=int(self.cpus * 1e9),
            mem_limit=max_bytes,
            memswap_limit=max_bytes,
            pids_limit=_MAX_RUNTIME_PROCESSES if self.runtime else _MAX_PROCESSES,
            runtime=self.runtime or None,
        )
        return config


def _create_volume(client: docker.DockerClient, name: str, user: int) -> None:
    """Create a volume in memory; Podman would ignore its options in the settings of a container."""
    options = f"nosuid,nodev,uid={user},gid={user},mode=0755"
    if not is_podman(client):
        # Podman takes it for a quota of its disk; the memory of the container limits both.
        options += f",size={_TREE_BYTES}"
    client.api.create_volume(name, "local", {"type": "tmpfs", "device": "tmpfs", "o": options}, labels={LABEL: owner()})


@cache
def _file_with(text: str) -> str:
    """Return the path of a file with this text, which is removed when this process ends."""
    descriptor, path = tempfile.mkstemp(prefix="pytest-ssr-", suffix=".json")
    with open(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
    atexit.register(Path(path).unlink, missing_ok=True)
    return path


def _opened_filter(client: docker.DockerClient) -> list[str]:
    """Return the engine's options that allow commands to create user namespaces, and mounts inside them.

    The system call filter is the one of bubblewrap for long-running commands instead of the engine's own.
    AppArmor's profile for containers refuses every mount, so it is disabled.
    """
    refused = {"names": sorted(seccomp.refused(namespaces=True)), "action": "SCMP_ACT_ERRNO"}
    profile = json.dumps({"defaultAction": "SCMP_ACT_ALLOW", "syscalls": [refused]})
    # Podman reads a profile from a file of its machine.
    options = [f"seccomp={_file_with(profile) if is_podman(client) else profile}"]
    if any(option.startswith("name=apparmor") for option in client.info().get("SecurityOptions") or ()):
        options.append("apparmor=unconfined")
    return options
