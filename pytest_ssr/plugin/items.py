"""A session's items that come from artifacts and not from files of tests."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from pytest_ssr.artifact import BUG
from pytest_ssr.escaping import escaped_line


class OfArtifact(pytest.Collector):
    """One artifact."""

    plugin: Any
    """What has collected it."""
    directory: Path


def collected(session: pytest.Session, kind: type[OfArtifact], directories: Sequence[Path], plugin: Any) -> bool | None:
    """Give a session the items of artifacts, as pytest does it with those of files: `-k` and the like choose.

    kind: a node for each artifact, named after its bug. None where xdist's workers collect.
    """
    config = session.config
    if config.pluginmanager.hasplugin("dsession"):
        return None
    items: list[pytest.Item] = []
    for directory in directories:
        shown = Path(os.path.relpath(directory, config.invocation_params.dir)).as_posix()
        # Pytest writes node ids to the terminal as they are.
        shown = escaped_line(shown)
        node: Any = kind.from_parent(session, name=shown, nodeid=f"{shown}/{BUG}", path=directory / BUG)
        node.plugin, node.directory = plugin, directory
        items.extend(node.collect())
    session.items = items
    config.hook.pytest_collection_modifyitems(session=session, config=config, items=items)
    config.hook.pytest_collectreport(report=pytest.CollectReport("ssr", "passed", None, list(items)))
    session.testscollected = len(items)
    config.hook.pytest_collection_finish(session=session)
    return True
