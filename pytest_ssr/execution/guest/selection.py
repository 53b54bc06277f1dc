"""A pytest plugin that runs only the wanted tests, in the wanted order of files, and ends after so many failures."""

import json
import os


class Selection:
    """Keeps the wanted tests of those that are collected."""

    def __init__(self, wanted):
        """Take a request, with the fields of `pytest_ssr.execution.selection.Selection`."""
        self.tests = None if wanted["tests"] is None else frozenset(wanted["tests"])
        self.files = frozenset(wanted.get("files") or ())
        self.places = {name: place for place, name in enumerate(wanted.get("first") or ())}
        self.file_places = {path: place for place, path in enumerate(wanted.get("first_files") or ())}
        self.stop_after = wanted.get("stop_after") or 0
        self.leading = frozenset(wanted.get("leading") or ())
        counted = wanted.get("counted")
        self.counted = None if counted is None else frozenset(counted)
        self.session, self.failed = None, set()
        self.reports_collected = bool(wanted.get("reports_collected"))
        self.collected = None

    def is_wanted(self, name):
        """Tell whether a test is to be run."""
        return self.tests is None or name in self.tests or name.split("::", 1)[0] in self.files

    def pytest_collection_modifyitems(self, items):
        """Drop the other tests, once every other plugin has chosen."""
        if self.reports_collected:
            self.collected = [item.nodeid for item in items]
        if self.tests is not None:
            items[:] = [item for item in items if self.is_wanted(item.nodeid)]
        if self.file_places:
            last = len(self.file_places)
            items.sort(key=lambda item: self.file_places.get(item.nodeid.split("::", 1)[0], last))
        if self.leading:
            items.sort(key=lambda item: item.nodeid not in self.leading)
        if self.places:
            last = len(self.places)
            items.sort(key=lambda item: self.places.get(item.nodeid, last))

    def pytest_collection_finish(self, session):
        """Count failures from here: a file that cannot be collected is not a failed test."""
        of_all = self.stop_after and self.counted is None
        session.config.option.maxfail = session.testsfailed + self.stop_after if of_all else 0
        self.session = session

    def pytest_runtest_logreport(self, report):
        """End the run after so many failures of the tests that count."""
        if self.counted is None or not self.stop_after or not report.failed or report.nodeid not in self.counted:
            return
        self.failed.add(report.nodeid)
        if len(self.failed) >= self.stop_after:
            self.session.shouldfail = f"{len(self.failed)} of the tests that count failed"


def selection(wanted):
    """Return the plugin for a request; pytest is imported here, because a fork server may start without it."""
    import pytest

    pytest.hookimpl(trylast=True)(Selection.pytest_collection_modifyitems)
    return Selection(wanted)


_PATH = os.environ.pop("SSR_SELECTION", "")


def pytest_configure(config):
    """Register the selection that a file describes."""
    if _PATH:
        with open(_PATH, encoding="utf-8") as file:
            config.pluginmanager.register(selection(json.load(file)), "ssr-selection")
