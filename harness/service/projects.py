"""Keep the projects that jobs work on: folders of the service's machines, and repositories that git clones by https."""

from __future__ import annotations

import contextlib
import re
import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError

from harness.database.engine import describing, reading
from harness.database.schema import projects
from pytest_ssr.errors import SsrError

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_ADDRESS = re.compile(r"https://[A-Za-z0-9][A-Za-z0-9.-]*(:[0-9]{1,5})?(/[A-Za-z0-9._~+-]+)+/?")
_COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
IMAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/:@-]{0,254}")
_PYTHON = re.compile(r"python3(\.[0-9]{1,2})?")
_MOST_ROOTS = 3
"""Allowed folders that a message names; only administrators add projects, and so read it."""


class ProjectErrorCode(StrEnum):
    """Why a project is refused."""

    NAME = "name"
    NAME_TAKEN = "name-taken"
    SOURCE = "source"
    COMMIT = "commit"
    IMAGE = "image"
    PYTHON = "python"


class ProjectRefusedError(SsrError):
    """A project cannot be added."""

    def __init__(self, message: str, *, code: ProjectErrorCode) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True, slots=True)
class Project:
    """A project that jobs work on."""

    id: str
    name: str
    source: str
    """An absolute folder, or an address that begins with https."""
    commit: str
    """What is checked out of an address; empty for its main branch at that time."""
    image: str
    """The container image that the project's tests run in; empty for none."""
    python: str
    """The name of the interpreter, such as python3.12; empty for the project's own environment."""
    created_at: float

    @property
    def is_address(self) -> bool:
        """Whether the source is an address for git."""
        return self.source.startswith("https://")


class Projects:
    """The projects of a service."""

    def __init__(self, engine: sa.Engine, roots: Sequence[Path] = ()) -> None:
        """roots: the folders below which projects may be; none allows addresses only."""
        self._engine = engine
        self._roots = [root.resolve() for root in roots]

    def add(self, name: str, source: str, *, commit: str = "", image: str = "", python: str = "") -> Project:
        """Add a project; raises ProjectRefusedError."""
        for pattern, value, code in (
            (_NAME, name, ProjectErrorCode.NAME),
            (_COMMIT, commit, ProjectErrorCode.COMMIT),
            (IMAGE, image, ProjectErrorCode.IMAGE),
            (_PYTHON, python, ProjectErrorCode.PYTHON),
        ):
            if (value or code is ProjectErrorCode.NAME) and not pattern.fullmatch(value):
                raise ProjectRefusedError(f"{value[:80]!r} {_ADVICE[code]}", code=code)
        source = self._allowed(source)
        if commit and not source.startswith("https://"):
            advice = "a folder is used as it is; leave out the commit, or give an address"
            raise ProjectRefusedError(advice, code=ProjectErrorCode.COMMIT)
        project = Project(secrets.token_hex(16), name, source, commit, image, python, time.time())
        row = {column: getattr(project, column) for column in projects.c.keys()}  # noqa: SIM118 - of columns
        with describing(self._engine.url):
            try:
                with self._engine.begin() as connection:
                    connection.execute(sa.insert(projects).values(row))
            except IntegrityError:
                message = f"there is a project {name!r} already; choose another name"
                raise ProjectRefusedError(message, code=ProjectErrorCode.NAME_TAKEN) from None
        return project

    def list(self) -> list[Project]:
        """Return all projects, sorted by name."""
        with describing(self._engine.url), reading(self._engine).connect() as connection:
            return [Project(**row._mapping) for row in connection.execute(sa.select(projects).order_by("name"))]

    def get(self, project_id: str) -> Project | None:
        """Return a project, or None if it does not exist."""
        with describing(self._engine.url), reading(self._engine).connect() as connection:
            row = connection.execute(sa.select(projects).where(projects.c.id == project_id)).one_or_none()
        return None if row is None else Project(**row._mapping)

    def remove(self, project_id: str) -> bool:
        """Remove a project, not its results; False if it does not exist."""
        with describing(self._engine.url), self._engine.begin() as connection:
            return connection.execute(sa.delete(projects).where(projects.c.id == project_id)).rowcount > 0

    def _allowed(self, source: str) -> str:
        """Return a source as it is stored; raises ProjectRefusedError for one that is not allowed."""
        if _ADDRESS.fullmatch(source) and len(source) <= 500:
            return source
        if source.startswith("/") and "\0" not in source and len(source) <= 4_000:
            # An OSError: a name is too long, or a folder may not be read. A RuntimeError: links lead in a circle.
            with contextlib.suppress(OSError, RuntimeError):
                # Resolved, so that no link leads out of the roots.
                folder = Path(source).resolve()
                if any(folder.is_relative_to(root) for root in self._roots) and folder.is_dir():
                    return str(folder)
        # The same answer whether a folder does not exist or is not allowed: it is not to be explored.
        folders = " or ".join(str(root) for root in self._roots[:_MOST_ROOTS])
        wanted = f"nor the absolute path of a folder below {folders}" if folders else "(--root allows folders)"
        message = f"the source is {'neither' if folders else 'not'} an https address of a git repository {wanted}"
        raise ProjectRefusedError(message, code=ProjectErrorCode.SOURCE)


_ADVICE = {
    ProjectErrorCode.NAME: "is not a name; use up to 64 letters, digits, dots, dashes and underscores",
    ProjectErrorCode.COMMIT: "is not a commit; use its full hash",
    ProjectErrorCode.IMAGE: "is not the name of a container image",
    ProjectErrorCode.PYTHON: "is not an interpreter; use a name such as python3.12",
}
