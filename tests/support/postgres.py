"""Start a PostgreSQL server for tests."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import sqlalchemy as sa

_OWNER = "postgres"
"""The account that runs the server if the tests run as root, which PostgreSQL refuses."""
_OPTIONS = "-c listen_addresses=127.0.0.1 -c max_connections=100 -c fsync=off"


@dataclass(frozen=True, slots=True)
class Postgres:
    """A server of its own, with a superuser `ssr` that needs no password."""

    programs: Path
    data: Path
    port: int

    def url(self, name: str) -> str:
        """Return the URL of a database."""
        return f"postgresql://ssr@127.0.0.1:{self.port}/{name}"

    def create(self, name: str) -> str:
        """Create a database and return its URL."""
        url = self.url("postgres").replace("postgresql", "postgresql+psycopg")
        engine = sa.create_engine(url, isolation_level="AUTOCOMMIT")
        with engine.connect() as connection:
            connection.execute(sa.text(f'CREATE DATABASE "{name}"'))
        engine.dispose()
        return self.url(name)

    def start(self) -> None:
        """Start the server, and wait until it accepts connections."""
        options = f"-p {self.port} -k {self.data.parent} {_OPTIONS}"
        self._run("pg_ctl", "-D", self.data, "-o", options, "-l", self.data.parent / "log", "-w", "start")

    def stop(self) -> None:
        """End the server at once, as a power failure does."""
        self._run("pg_ctl", "-D", self.data, "-m", "immediate", "-w", "stop")

    def initialise(self) -> None:
        """Create the server's files."""
        self._run("initdb", "-D", self.data, "-A", "trust", "-U", "ssr", "--no-sync")

    def _run(self, program: str, *arguments: object) -> None:
        command = [str(self.programs / program), *map(str, arguments)]
        user = _OWNER if os.getuid() == 0 else None
        # The server inherits standard output: a pipe would stay open.
        subprocess.run(
            command, check=True, user=user, cwd="/", stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=60
        )


def programs() -> Path | None:
    """Return the folder of PostgreSQL's programs, or None if it is not installed."""
    found = shutil.which("initdb")
    installed = [Path(found)] if found else sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    return installed[-1].parent if installed else None


@contextlib.contextmanager
def running(folder: Path) -> Iterator[Postgres]:
    """Run a server. folder: contains PostgreSQL's programs."""
    with tempfile.TemporaryDirectory(prefix="ssr-postgres-") as name:
        if os.getuid() == 0:
            shutil.chown(name, _OWNER)
        server = Postgres(folder, Path(name) / "data", free_port())
        server.initialise()
        server.start()
        try:
            yield server
        finally:
            server.stop()


def free_port() -> int:
    """Return a port of 127.0.0.1 that nothing uses now."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        port: int = listening.getsockname()[1]
    return port
