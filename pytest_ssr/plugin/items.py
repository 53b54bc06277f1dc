"""A session's items that come from artifacts and not from files of tests."""

from __future__ import annotations

import pytest


def collected(session: pytest.Session, items: list[pytest.Item], name: str) -> bool:
    """Give a session its items, as pytest does it with those of files: `-k` and the like choose among them."""
    config = session.config
    session.items = items
    config.hook.pytest_collection_modifyitems(session=session, config=config, items=items)
    config.hook.pytest_collectreport(report=pytest.CollectReport(name, "passed", None, list(items)))
    session.testscollected = len(items)
    config.hook.pytest_collection_finish(session=session)
    return True
