"""What a container is made of: its image, its mounts, its bounds, and which system calls it may make."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_ssr.sandbox import seccomp
from pytest_ssr.sandbox.docker_images import LABEL
from pytest_ssr.sandbox.docker_owners import owner
from pytest_ssr.sandbox.host import shown_directories
from pytest_ssr.sandbox.protocol import MIB

if TYPE_CHECKING:
    import docker

LOWER = "/ssr-tree"
_TMP_BYTES = 256 * MIB
_ROOM = 8 * 1024 * MIB
# A runtime of its own, as gVisor, needs several of the machine's for one of the sandbox's, and falls with the first one
# it is refused.
_MOST_PROCESSES, _MOST_OF_RUNTIME = 1024, 8192


@dataclass(frozen=True, slots=True)
class Recipe:
    """What containers must have in common so that one can stand for the other."""

    image: str
    """Name of the image; empty: the host's system."""
    runtime: str
    """The engine's runtime; empty: its default."""
    cpus: float
    """Processors it may use."""
    root: str
    """Where the tree lies."""
    scratch: str
    """Where scratch lies."""
    readable: tuple[Path, ...]
    """Host paths shown read-only at their own places."""
    hidden: tuple[str, ...] = ()
    """Files inside, and folders (these end with a slash), that are shown empty."""
    namespaces: bool = False
    """Whether commands may make namespaces and mounts of their own; the tree is then shown at `LOWER` as well."""
    user: int = field(default_factory=lambda: os.geteuid() or 1000)
    """The user of commands, never root; ours where we are not root, so that what only we may read is readable."""

    def own_places(self, volumes: Sequence[str]) -> list[str]:
        """Return the mount points of the commands' user: tree, scratch, each directory above a mount in the tree, and
        the image's volumes.

        The engine would make those directories itself, as root, and the volumes on its disk.
        """
        below = (p.relative_to(self.root) for p in self.readable if p.is_relative_to(self.root))
        between = {f"{self.root}/{folder}" for p in below for folder in p.parents if folder.name}
        return [self.root, self.scratch, *sorted(between), *(v for v in volumes if v not in between)]

    def shown_in_tree(self) -> list[str]:
        """Return the paths in the tree at which something else is shown, read-only."""
        places = [*map(str, self.readable), *(path.rstrip("/") for path in self.hidden)]
        return [place for place in places if Path(place).is_relative_to(self.root)]

    def shared_places(self) -> list[str]:
        """Return the mount points that are everybody's on any system."""
        return ["/tmp", "/dev/shm"]

    def host_config(
        self, client: docker.DockerClient, *, volumes: Sequence[str], tree_volume: str, most_bytes: int
    ) -> dict[str, Any]:
        """Return the engine's settings of a container.

        volumes: the image's. tree_volume: name of the volume that holds the tree, used if namespaces may be made.
        most_bytes: memory of all together.
        """
        import docker

        own = f"rw,exec,nosuid,nodev,uid={self.user},gid={self.user},mode=0755,size={_ROOM}"
        shared = f"rw,exec,nosuid,nodev,mode=1777,size={_TMP_BYTES}"
        shown = [*self.readable] if self.image else [*shown_directories(), *self.readable]
        mounts = [docker.types.Mount(str(p), str(p), type="bind", read_only=True) for p in shown]
        files = [p for p in self.hidden if not p.endswith("/")]
        mounts += [docker.types.Mount(p, "/dev/null", type="bind", read_only=True) for p in files]
        empty = dict.fromkeys((p.rstrip("/") for p in self.hidden if p.endswith("/")), "ro,size=4096")
        in_memory = {**dict.fromkeys(self.own_places(volumes), own), **dict.fromkeys(self.shared_places(), shared)}
        if self.namespaces:
            # One file system at two places: a mount in the tree would keep the tree from being the lower one of an
            # overlay (mount_namespaces(7), "locked mounts"), and the engine shows a file system in memory but once.
            del in_memory[self.root]
            mounts += [_tree_mount(place, tree_volume, self.user) for place in (self.root, LOWER)]
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
            mem_limit=most_bytes,
            memswap_limit=most_bytes,
            pids_limit=_MOST_OF_RUNTIME if self.runtime else _MOST_PROCESSES,
            runtime=self.runtime or None,
        )
        return config


def _tree_mount(place: str, volume: str, user: int) -> docker.types.Mount:
    import docker

    options = f"nosuid,nodev,uid={user},gid={user},mode=0755,size={_ROOM}"
    driver = docker.types.DriverConfig("local", {"type": "tmpfs", "device": "tmpfs", "o": options})
    return docker.types.Mount(place, volume, type="volume", no_copy=True, driver_config=driver, labels={LABEL: owner()})


def _opened_filter(client: docker.DockerClient) -> list[str]:
    """Return the engine's options that let commands make user namespaces, and mounts in these.

    The filter of system calls is the one that bubblewrap gets for a command that stays, in place of the engine's own.
    AppArmor's profile for containers refuses every mount, so it is switched off.
    """
    refused = {"names": sorted(seccomp.refused(namespaces=True)), "action": "SCMP_ACT_ERRNO"}
    options = [f"seccomp={json.dumps({'defaultAction': 'SCMP_ACT_ALLOW', 'syscalls': [refused]})}"]
    if any(option.startswith("name=apparmor") for option in client.info().get("SecurityOptions") or ()):
        options.append("apparmor=unconfined")
    return options
