"""A pytest plugin that runs only the selected tests, in the requested order, and stops after so many failures."""

import json
import os


class Selection:
    """Selects from the collected tests."""

    def __init__(self, request):
        """Read a request with the fields of `pytest_ssr.execution.selection.Selection`."""
        self.tests = None if request["tests"] is None else frozenset(request["tests"])
        self.files = frozenset(request.get("files") or ())
        self.positions = {name: position for position, name in enumerate(request.get("first") or ())}
        self.file_positions = {path: position for position, path in enumerate(request.get("first_files") or ())}
        self.stop_after = request.get("stop_after") or 0
        self.leading = frozenset(request.get("leading") or ())
        counted = request.get("counted")
        self.counted = None if counted is None else frozenset(counted)
        self.session, self.failed = None, set()
        self.reports_collected = bool(request.get("reports_collected"))
        self.collected = None

    def is_wanted(self, name):
        """Return whether a test is selected."""
        return self.tests is None or name in self.tests or name.split("::", 1)[0] in self.files

    def pytest_collection_modifyitems(self, items):
        """Drop the other tests, after every other plugin has made its selection."""
        if self.reports_collected:
            self.collected = [item.nodeid for item in items]
        if self.tests is not None:
            items[:] = [item for item in items if self.is_wanted(item.nodeid)]
        if self.file_positions:
            last = len(self.file_positions)
            items.sort(key=lambda item: self.file_positions.get(item.nodeid.split("::", 1)[0], last))
        if self.leading:
            items.sort(key=lambda item: item.nodeid not in self.leading)
        if self.positions:
            last = len(self.positions)
            items.sort(key=lambda item: self.positions.get(item.nodeid, last))

    def pytest_collection_finish(self, session):
        """Count failures from now on: a file that cannot be collected is not a failed test."""
        of_all = self.stop_after and self.counted is None
        session.config.option.maxfail = session.testsfailed + self.stop_after if of_all else 0
        self.session = session

    def pytest_runtest_logreport(self, report):
        """Stop the run after so many failures of the tests that count."""
        if self.counted is None or not self.stop_after or not report.failed or report.nodeid not in self.counted:
            return
        self.failed.add(report.nodeid)
        if len(self.failed) >= self.stop_after:
            _stop(self.session, "%d of the tests that count failed" % len(self.failed))


def _stop(session, reason):
    # Sessions have `shouldfail` since pytest 3.5.
    setattr(session, "shouldfail" if hasattr(session, "shouldfail") else "shouldstop", reason)


def requested():
    """Return the selection that the file `SSR_SELECTION` describes, or None if the variable is not set."""
    if not _PATH:
        return None
    with open(_PATH, encoding="utf-8") as file:
        return Selection(json.load(file))


def selection(request):
    """Return the plugin for a request; pytest is imported here, because a fork server may start without it."""
    import pytest

    pytest.hookimpl(trylast=True)(Selection.pytest_collection_modifyitems)
    return Selection(request)


_PATH = os.environ.pop("SSR_SELECTION", "")


def pytest_configure(config):
    """Register the selection that the file `SSR_SELECTION` describes."""
    if _PATH:
        with open(_PATH, encoding="utf-8") as file:
            config.pluginmanager.register(selection(json.load(file)), "ssr-selection")
