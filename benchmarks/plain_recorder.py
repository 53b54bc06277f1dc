"""Pytest plugin of the plain reference runs: record the outcome of each test and the files of imported modules.

It does not use pytest-ssr. `plain_reference.py` puts it beside the tree with a file `plain_recorder.json`: the output
file (`out`) and the files (`watched`, absolute paths) that must be the ones that were imported. One JSON object a line:
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
    """Return the watched files from which a module has been loaded."""
    origins = set()
    for module in list(sys.modules.values()):
        try:
            # getattr would load a lazy module.
            origins.add(object.__getattribute__(module, "__dict__").get("__file__"))
        except Exception:
            continue
    files = {os.path.realpath(path) for path in origins if isinstance(path, str)}
    return [path for path in _SETTINGS["watched"] if os.path.realpath(path) in files]


def _hashes():
    hashes = {}
    for path in _SETTINGS["watched"]:
        try:
            with open(path, "rb") as file:
                hashes[path] = hashlib.sha256(file.read()).hexdigest()
        except OSError:
            hashes[path] = ""
    return hashes


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
