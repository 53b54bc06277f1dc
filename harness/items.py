"""The units of `ssr run` and `ssr eval` as pytest's items, so that xdist shares them out.

A plugin that `ssr` gives to a pytest of its own (`-p harness.items`), in each worker. What a unit came to is in the
store before its report tells of it.
"""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import pytest

from harness.evaluating import opened_work
from harness.evaluation.work import Unit, Work
from harness.sharing import ENDS, OUTCOME, WORK
from pytest_ssr.errors import SsrError
from pytest_ssr.stopping import end_at_signals


def pytest_addoption(parser: pytest.Parser) -> None:
    """Take the file that says what is to be done."""
    parser.addoption(WORK, type=Path, help="written by ssr")


class UnitItem(pytest.Item):
    """One unit."""

    def __init__(self, *, work: Work, unit: Unit, **known: Any) -> None:
        super().__init__(**known)
        self._work, self._unit = work, unit

    def runtest(self) -> None:
        """Do it; what ends the whole run ends the session."""
        try:
            outcome = self._work.make(self._unit)
        except SsrError as error:
            self.session.shouldstop = str(error)
            self.user_properties.append((ENDS, json.dumps([type(error).__name__, str(error)])))
            pytest.fail(str(error), pytrace=False)
        self.user_properties.append((OUTCOME, json.dumps(outcome.to_json())))


class Working:
    """Fills the session of a process that works."""

    def __init__(self, plan: Path) -> None:
        with plan.open("rb") as file:
            arguments, self._names = pickle.load(file)
        self._work = opened_work(arguments)

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection(self, session: pytest.Session) -> bool:
        """Make an item of each unit that is to be done, in the order that was asked for."""
        end_at_signals()
        by_name = {u.name: u for u in self._work.units}
        session.items = [
            UnitItem.from_parent(session, name=name, nodeid=name, work=self._work, unit=by_name[name])
            for name in self._names
        ]
        session.testscollected = len(session.items)
        session.config.hook.pytest_collection_finish(session=session)
        return True

    def pytest_sessionfinish(self) -> None:
        """End what was started."""
        self._work.close()


def pytest_configure(config: pytest.Config) -> None:
    """Open the work in each process that does some; xdist's own process only shares it out."""
    if not config.pluginmanager.hasplugin("dsession"):
        config.pluginmanager.register(Working(config.getoption(WORK)))
