"""Run a PostgreSQL server of our own for tests, on a socket in a temporary folder."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

_USER = "ssr"


def programs() -> Path | None:
    """Return the folder of PostgreSQL's programs, or None if it is not installed."""
    found = shutil.which("initdb")
    if found is not None:
        return Path(found).parent
    folders = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    return folders[-1].parent if folders else None


@contextlib.contextmanager
def server() -> Iterator[str]:
    """Run a server and yield its URL without the name of a database."""
    folder = programs()
    assert folder is not None
    with tempfile.TemporaryDirectory(prefix="ssr-pg-") as data, socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        free.close()
        prefix: list[str] = []
        if os.geteuid() == 0:
            # The server refuses to run as root.
            subprocess.run(["chown", "-R", "postgres", data], check=True)
            prefix = ["setpriv", "--reuid", "postgres", "--regid", "postgres", "--clear-groups"]
        at = f"{data}/db"
        initdb = [*prefix, str(folder / "initdb"), "-D", at, "-A", "trust", "-U", _USER, "--no-sync"]
        subprocess.run(initdb, check=True, capture_output=True, cwd=data)
        options = f"-p {port} -k {data} -c listen_addresses=127.0.0.1 -c fsync=off"
        control = [*prefix, str(folder / "pg_ctl"), "-D", at, "-w"]
        start = [*control, "-l", f"{data}/log", "-o", options, "start"]
        subprocess.run(start, check=True, stdout=subprocess.DEVNULL, cwd=data)
        try:
            yield f"postgresql://{_USER}@127.0.0.1:{port}"
        finally:
            stop = [*control, "-m", "immediate", "stop"]
            subprocess.run(stop, check=False, stdout=subprocess.DEVNULL, cwd=data)
