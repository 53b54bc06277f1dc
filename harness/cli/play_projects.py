"""Provide the projects of self-play: local ones, and the solved repositories of a dataset's instances."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Iterator
from pathlib import Path

from harness.cli.options import chosen_instances, require_own_images
from harness.datasets.environments import Environments
from harness.datasets.instance_task import tree_of
from harness.datasets.loading import is_saved
from harness.datasets.repositories import Repositories
from harness.selfplay.rounds import Project
from pytest_ssr.errors import SettingsError
from pytest_ssr.project.snapshot import require_directory
from pytest_ssr.storage.store import Store

_HUB_NAME = re.compile(r"[\w.-]+/[\w.-]+")


def is_dataset(source: Path) -> bool:
    """Return whether a source is a dataset: a file, a folder that `datasets` saved, or a name on the hub."""
    return source.is_file() or is_saved(source) or (not source.exists() and bool(_HUB_NAME.fullmatch(str(source))))


def require_sources(arguments: argparse.Namespace) -> None:
    """Raise SettingsError for options about instances without a dataset, and for a source that does not exist."""
    datasets = [s for s in arguments.source if is_dataset(s)]
    given = [n for n in ("split", "only", "shuffle", "slice", "images") if getattr(arguments, n) not in ("", None)]
    if given and not datasets:
        raise SettingsError(f"--{given[0]} is for instances of a dataset; {arguments.source[0]} is not a dataset")
    require_own_images(arguments)
    for source in arguments.source:
        if source not in datasets:
            require_directory(source)


def projects_of(arguments: argparse.Namespace, store: Store, report: Callable[[str], None]) -> list[Project]:
    """Return the projects of all sources; those of instances are written, each with its environment.

    report: called before a slow step, with a line that describes it. Raises InstanceError.
    """
    return [project for source in arguments.source for project in _projects_of_source(source, arguments, store, report)]


def _projects_of_source(
    source: Path, arguments: argparse.Namespace, store: Store, report: Callable[[str], None]
) -> Iterator[Project]:
    if not is_dataset(source):
        yield Project(source)
        return
    repositories = Repositories(store, arguments.repos, report=report)
    environments = Environments(store, arguments.python, report)
    for instance in chosen_instances(arguments, str(source)):
        folder = tree_of(instance, repositories, store)
        if arguments.images:
            yield Project(folder, sandbox=instance.sandbox(arguments.images))
        else:
            yield Project(folder, environments.python_of(instance, folder))
