"""A pytest plugin of the plain reference runs: what each test did, and from which files modules were imported.

It knows nothing of pytest-ssr. `plain_reference.py` puts it beside the tree with a file `plain_recorder.json`: where to
write (`out`) and which files (`watched`, absolute paths) must be the ones that were imported. One JSON object a line:
report (`id`, `when`, `outcome`), collect-error (`id`), loaded (`paths`), end (`status`, `hashes`).
"""

import hashlib
import json
import os
import sys

_HERE = os.path.dirname(os.path.abspath(__file__))
with open(os.path.join(_HERE, "plain_recorder.json")) as _file:
    _SETTINGS = json.load(_file)
_FD = os.open(_SETTINGS["out"], os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
_PID = os.getpid()


def _write(kind, **fields):
    # A test may fork: its child's reports are not the suite's.
    if os.getpid() == _PID:
        os.write(_FD, (json.dumps({"kind": kind, **fields}) + "\n").encode())


def _loaded():
    """Return which of the watched files are the origin of a module that is loaded."""
    origins = set()
    for module in list(sys.modules.values()):
        try:
            # Not getattr: a lazy module would be loaded by it.
            origins.add(object.__getattribute__(module, "__dict__").get("__file__"))
        except Exception:
            continue
    found = {os.path.realpath(path) for path in origins if isinstance(path, str)}
    return [path for path in _SETTINGS["watched"] if os.path.realpath(path) in found]


def _hashes():
    found = {}
    for path in _SETTINGS["watched"]:
        try:
            with open(path, "rb") as file:
                found[path] = hashlib.sha256(file.read()).hexdigest()
        except OSError:
            found[path] = ""
    return found


_write("loaded", paths=_loaded())


def pytest_collection_finish(session):
    _write("loaded", paths=_loaded())


def pytest_collectreport(report):
    if report.failed:
        _write("collect-error", id=report.nodeid)


def pytest_runtest_logreport(report):
    _write("report", id=report.nodeid, when=report.when, outcome=report.outcome)


def pytest_sessionfinish(session, exitstatus):
    _write("loaded", paths=_loaded())
    _write("end", status=int(exitstatus), hashes=_hashes())
