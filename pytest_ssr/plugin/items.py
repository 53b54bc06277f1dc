"""Collect items from artifacts instead of test files."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from pytest_ssr.escaping import escaped_line
from pytest_ssr.records.artifact import BUG


class ArtifactCollector(pytest.Collector):
    """A collector for one artifact."""

    plugin: Any
    """The session plugin that created it."""
    directory: Path
    index: int
    """Its index among all artifacts."""


def collect_artifacts(
    session: pytest.Session, kind: type[ArtifactCollector], directories: Mapping[int, Path], plugin: Any
) -> bool | None:
    """Fill a session with the items of artifacts; options such as `-k` select among them as usual.

    kind: the class of the node for each artifact. directories: by their index among all artifacts; nodes are named
    after the bug's diff. Returns None if xdist's workers collect instead.
    """
    config = session.config
    if config.pluginmanager.hasplugin("dsession"):
        return None
    items: list[pytest.Item] = []
    for index, directory in directories.items():
        name = Path(os.path.relpath(directory, config.invocation_params.dir)).as_posix()
        # pytest writes node ids to the terminal unescaped.
        name = escaped_line(name)
        node: Any = kind.from_parent(session, name=name, nodeid=f"{name}/{BUG}", path=directory / BUG)
        node.plugin, node.directory, node.index = plugin, directory, index
        items.extend(node.collect())
    session.items = items
    config.hook.pytest_collection_modifyitems(session=session, config=config, items=items)
    config.hook.pytest_collectreport(report=pytest.CollectReport("ssr", "passed", None, list(items)))
    session.testscollected = len(items)
    config.hook.pytest_collection_finish(session=session)
    return True
