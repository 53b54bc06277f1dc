"""Turn the units of `ssr run` and `ssr eval` into pytest items, so that xdist distributes them.

`ssr` loads this plugin (`-p`) into a separate pytest session in each worker. A unit's result is stored before its
report is sent.
"""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import pytest

from harness.executors.protocol import Runnable
from harness.executors.pytest_executor import ENDS, OUTCOME, WORK
from pytest_ssr.errors import SsrError
from pytest_ssr.interrupts import install_signal_handlers


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option for the file that holds the plan."""
    parser.addoption(WORK, type=Path, help="written by ssr")


class UnitItem(pytest.Item):
    """One unit."""

    def __init__(self, *, work: Runnable[Any, Any], unit: Any, **node_arguments: Any) -> None:
        super().__init__(**node_arguments)
        self._work, self._unit = work, unit

    def runtest(self) -> None:
        """Run the unit; an error that ends the whole run ends the session."""
        try:
            result = self._work.run(self._unit)
        except SsrError as error:
            self.session.shouldstop = str(error)
            self.user_properties.append((ENDS, json.dumps([type(error).__name__, str(error)])))
            pytest.fail(str(error), pytrace=False)
        self.user_properties.append((OUTCOME, json.dumps(result.to_json())))


class WorkerPlugin:
    """Fills the session of a worker process."""

    def __init__(self, plan: Path) -> None:
        with plan.open("rb") as file:
            open_work, self._names = pickle.load(file)
        self._work = open_work()

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection(self, session: pytest.Session) -> bool:
        """Create an item for each unit to run, in the requested order."""
        install_signal_handlers()
        by_name = {u.name: u for u in self._work.units}
        session.items = [
            UnitItem.from_parent(session, name=name, nodeid=name, work=self._work, unit=by_name[name])
            for name in self._names
        ]
        session.testscollected = len(session.items)
        session.config.hook.pytest_collection_finish(session=session)
        return True

    def pytest_sessionfinish(self) -> None:
        """Close the work and everything it started."""
        self._work.close()


def pytest_configure(config: pytest.Config) -> None:
    """Open the work in each worker process; xdist's controller only distributes it."""
    if not config.pluginmanager.hasplugin("dsession"):
        config.pluginmanager.register(WorkerPlugin(config.getoption(WORK)))
