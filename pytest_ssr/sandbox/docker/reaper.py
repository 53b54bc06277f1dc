"""Label containers with the process that owns them, and remove what processes that have ended left behind.

An engine may serve several machines (`DOCKER_HOST`), and a process can be looked up only on its own machine.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import socket
import time
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_ssr.sandbox.docker.images import LABEL

if TYPE_CHECKING:
    import docker

_REMOVE_WAIT_S = 3.0
_UNKNOWN = "-"
_ENDED = ("created", "exited", "dead")
_MACHINE_ID = Path("/etc/machine-id")


@functools.cache
def owner() -> str:
    """Return the label of this process: the machine's boot id, pid namespace, pid, start time, and machine."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    start_time = _start_time(os.getpid())
    return f"{boot} {os.stat('/proc/self/ns/pid').st_ino} {os.getpid()} {start_time} {_machine()}"


def _machine() -> str:
    """Return a hash that identifies this machine across reboots, or `-` if the machine has no id.

    Copies of one image share a machine id, so the host name is included. The id itself must not be exposed
    (machine-id(5)).
    """
    try:
        machine_id = _MACHINE_ID.read_text().strip()
    except OSError:
        machine_id = ""
    if not machine_id or machine_id == "uninitialized":
        return _UNKNOWN
    return hashlib.sha256(f"{machine_id} {socket.gethostname()}".encode()).hexdigest()[:16]


def _start_time(pid: int) -> str:
    """Return the start time of a process in clock ticks; empty if the process does not exist."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    return ""


def reap(client: docker.DockerClient) -> int:
    """Remove the containers, volumes and networks whose process has ended; return the number of containers removed."""
    count = 0
    for container in client.api.containers(all=True, filters={"label": LABEL}):
        if _is_gone(container["Labels"][LABEL], running=container["State"] not in _ENDED):
            with contextlib.suppress(Exception):
                client.api.remove_container(container["Id"], force=True, v=True)
                count += 1
    for volume in client.api.volumes(filters={"label": LABEL})["Volumes"] or ():
        if _is_gone(volume["Labels"][LABEL], running=False):
            remove_volume(client, volume["Name"])
    for network in client.api.networks(filters={"label": LABEL}):
        if _is_gone(network["Labels"][LABEL], running=False):
            with contextlib.suppress(Exception):
                client.api.remove_network(network["Id"])
    return count


def remove_volume(client: docker.DockerClient, name: str) -> None:
    """Remove a volume once the engine has removed its container; a missing volume is ignored."""
    import docker

    deadline = time.monotonic() + _REMOVE_WAIT_S
    while time.monotonic() < deadline:
        try:
            client.api.remove_volume(name)
        except docker.errors.NotFound:
            return
        except docker.errors.APIError:
            # It is still in use.
            time.sleep(0.02)
        except Exception:
            # The engine does not respond; the next run removes the volume.
            return


def _is_gone(label: str, *, running: bool) -> bool:
    """Return whether the process of a label has certainly ended; labels of older releases contain no machine."""
    boot, namespace, _, _, machine = owner().split()
    fields = label.split()
    if len(fields) < 4:
        return False
    if fields[0] == boot:
        # Processes of another pid namespace cannot be seen from here.
        return fields[1] == namespace and _start_time(int(fields[2])) != fields[3]
    label_machine = fields[4] if len(fields) > 4 else _UNKNOWN
    if label_machine == _UNKNOWN:
        return not running
    # An earlier boot of this machine: its processes have ended. Another machine: the process may still run there.
    return label_machine == machine
