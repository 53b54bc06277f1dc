"""Whose a container is: a label that names a process, and the removal of what a process that is gone has left.

An engine may serve several machines (`DOCKER_HOST`), and a process can only be looked for on its own one.
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

from pytest_ssr.sandbox.docker_images import LABEL

if TYPE_CHECKING:
    import docker

_PATIENCE_S = 3.0
_UNKNOWN = "-"
_ENDED = ("created", "exited", "dead")
_MACHINE_ID = Path("/etc/machine-id")


@functools.cache
def owner() -> str:
    """Return what tells this process from every other one: the machine's start, pid namespace, pid, its start; and the
    machine.
    """
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    started = _started(os.getpid())
    return f"{boot} {os.stat('/proc/self/ns/pid').st_ino} {os.getpid()} {started} {_machine()}"


def _machine() -> str:
    """Return what stays the same when a machine starts anew and no other one has; `-` where that is not known.

    Copies of one image have one machine id, hence the name. The id itself is not to be shown (machine-id(5)).
    """
    try:
        known = _MACHINE_ID.read_text().strip()
    except OSError:
        known = ""
    if not known or known == "uninitialized":
        return _UNKNOWN
    return hashlib.sha256(f"{known} {socket.gethostname()}".encode()).hexdigest()[:16]


def _started(pid: int) -> str:
    """Return when a process began, in the kernel's ticks; empty where there is none."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    return ""


def reap(client: docker.DockerClient) -> int:
    """Remove the containers and volumes whose process is gone; returns how many containers."""
    count = 0
    for found in client.api.containers(all=True, filters={"label": LABEL}):
        if _is_gone(found["Labels"][LABEL], running=found["State"] not in _ENDED):
            with contextlib.suppress(Exception):
                client.api.remove_container(found["Id"], force=True, v=True)
                count += 1
    for volume in client.api.volumes(filters={"label": LABEL})["Volumes"] or ():
        if _is_gone(volume["Labels"][LABEL], running=False):
            remove_volume(client, volume["Name"])
    return count


def remove_volume(client: docker.DockerClient, name: str) -> None:
    """Remove a volume once the engine has removed its container; what is gone already is no error."""
    import docker

    until = time.monotonic() + _PATIENCE_S
    while time.monotonic() < until:
        try:
            client.api.remove_volume(name)
        except docker.errors.NotFound:
            return
        except docker.errors.APIError:
            # It is still in use.
            time.sleep(0.02)
        except Exception:
            # The engine is gone; the next run removes it.
            return


def _is_gone(label: str, *, running: bool) -> bool:
    """Tell whether the process of a label is gone for certain; labels of older releases name no machine."""
    boot, space, _, _, machine = owner().split()
    theirs = label.split()
    if len(theirs) < 4:
        return False
    if theirs[0] == boot:
        # Another namespace: its processes cannot be seen from here.
        return theirs[1] == space and _started(int(theirs[2])) != theirs[3]
    named = theirs[4] if len(theirs) > 4 else _UNKNOWN
    if named == _UNKNOWN:
        return not running
    # An earlier start of this machine: all that ran then is gone. Another machine: it may be running there.
    return named == machine
