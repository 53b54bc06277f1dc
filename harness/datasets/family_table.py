"""Look up what the rows of a repository need: the Python, the packages and the test runner of each version.

The facts are in `family_tables/`. They cover the repositories of SWE-bench and SWE-Gym; rows of other datasets hold
theirs in `install_config` or `eval_script`.
"""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files

from packaging.version import InvalidVersion, Version

from harness.datasets.runner_commands import RunnerCommand

PUBLISHED_BEFORE = "2024-08-01"
"""The facts describe environments without packages that were published on or after this day."""
_PYTEST = RunnerCommand("pytest")
_TABLES = ("swe_bench.toml", "swe_gym.toml")


@dataclass(frozen=True, slots=True)
class FamilyEntry:
    """What the tests of a repository need from one version on."""

    since: str
    """The first version of the repository."""
    python: str = ""
    """A version; empty for the one that runs the harness."""
    packages: tuple[str, ...] = ()
    """Requirements besides the declared dependencies."""
    requirements: tuple[str, ...] = ()
    """Files of the repository with more requirements; some versions do not have them."""
    command: RunnerCommand = _PYTEST


def family_entry(repo: str, version: str) -> FamilyEntry | None:
    """Return the entry for a version of a repository; None if the tables do not have the repository.

    A version before that of the first entry takes the first, one that cannot be read the last.
    """
    entries = family_entries().get(repo.lower(), ())
    wanted = _version(version)
    reached = [entry for entry in entries if wanted is None or Version(entry.since) <= wanted]
    return next(iter([*reversed(reached), *entries]), None)


@functools.cache
def family_entries() -> dict[str, tuple[FamilyEntry, ...]]:
    """Return the entries of each repository, named in lower case, in ascending order of versions."""
    result: dict[str, tuple[FamilyEntry, ...]] = {}
    for table in _TABLES:
        text = (files(__package__) / "family_tables" / table).read_text(encoding="utf-8")
        result |= {repo: _entries(groups) for repo, groups in tomllib.loads(text).items()}
    return result


def _entries(groups: Sequence[dict[str, object]]) -> tuple[FamilyEntry, ...]:
    entries = []
    values: dict[str, object] = {}
    for group in groups:
        values |= group
        entries.append(_entry(**values))  # type: ignore[arg-type]
    return tuple(entries)


def _entry(
    since: str,
    *,
    python: str = "",
    packages: Sequence[str] = (),
    requirements: Sequence[str] = (),
    runner: str = "pytest",
    tox: str = "",
    environment: dict[str, str] | None = None,
) -> FamilyEntry:
    command = RunnerCommand(runner, tox=tox, environment=tuple(sorted((environment or {}).items())))
    return FamilyEntry(since, python, tuple(packages), tuple(requirements), command)


def _version(text: str) -> Version | None:
    try:
        return Version(text)
    except InvalidVersion:
        return None
