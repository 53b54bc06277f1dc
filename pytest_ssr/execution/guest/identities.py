"""A pytest plugin that names parameter sets by their position where their ids change from process to process.

Such ids hold a memory address, a random number or the time. `test_a.py::test_total[<Item object at 0x7f1c>]` becomes
`test_a.py::test_total[#0]`, so that a test has the same id in every run. The ini option `ssr_by_position` lists the
functions; `*` stands for all of them. In a run with `SSR_OTHER_IDS`, a file with the ids that another process has
collected, those functions are added whose sets of ids differ.
"""

import json
import os

_OTHER_IDS = os.environ.pop("SSR_OTHER_IDS", "")


def function_of(name):
    """Return the id of a parametrized test's function; an empty string if the test has no parameters."""
    classes = name.find("::")
    bracket = name.find("[", classes)
    return name[:bracket] if classes > 0 and bracket > 0 and name.endswith("]") else ""


def by_function(names):
    """Return the ids of each parametrized function, in order."""
    groups = {}
    for name in names:
        function = function_of(name)
        if function:
            groups.setdefault(function, []).append(name)
    return groups


def differing(names, others):
    """Return the functions that have as many parameter sets in both processes, under other ids."""
    before = by_function(others)
    return {
        function
        for function, ids in by_function(names).items()
        if len(ids) == len(before.get(function, ())) and set(ids) != set(before[function])
    }


def rename(item, name):
    """Give a test another id; since pytest 9.2 an id has parts."""
    parts = getattr(item, "_id", None)
    if parts is None:
        item._nodeid = name
    else:
        item._id = type(parts).parse(name)


class Identities:
    """Renames the collected tests."""

    def __init__(self, config):
        """Read which functions are named by position."""
        self.seen = []
        self.functions = {line.strip() for line in config.getini("ssr_by_position") if line.strip()}

    def pytest_collection_modifyitems(self, items):
        """Rename the tests before another plugin reorders or deselects them."""
        self.seen = [item.nodeid for item in items if function_of(item.nodeid)]
        if _OTHER_IDS:
            with open(_OTHER_IDS, encoding="utf-8") as file:
                self.functions |= differing(self.seen, json.load(file))
        counts = {}
        for item in items:
            function = function_of(item.nodeid)
            if function and (function in self.functions or "*" in self.functions) and hasattr(item, "callspec"):
                position = counts.get(function, 0)
                counts[function] = position + 1
                rename(item, "%s[#%d]" % (function, position))
        yield


def pytest_addoption(parser):
    """Add the ini option."""
    text = "functions whose parameter sets are named by position"
    parser.addini("ssr_by_position", text, type="linelist", default=[])


def pytest_configure(config):
    """Register the plugin; pytest is imported here, because a fork server may start without it."""
    import pytest

    pytest.hookimpl(hookwrapper=True, tryfirst=True)(Identities.pytest_collection_modifyitems)
    config.pluginmanager.register(Identities(config), "ssr-identities")
