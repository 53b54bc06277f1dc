"""Uses that a bug must not introduce, and uses that it may."""

from __future__ import annotations

import pytest

from pytest_ssr.checks.forbidden_uses import forbidden_uses
from pytest_ssr.patch import FileEntry
from pytest_ssr.project.snapshot import Snapshot, take_snapshot
from pytest_ssr.project.state import CodebaseState

CODE = "import os\n\nHOME = os.environ\n\n\ndef price(x):\n    return x\n"


@pytest.fixture(scope="module")
def snapshot(tmp_path_factory: pytest.TempPathFactory) -> Snapshot:
    root = tmp_path_factory.mktemp("unfit")
    (root / "project").mkdir()
    (root / "project" / "shop.py").write_text(CODE)
    (root / "trees").mkdir()
    return take_snapshot(root / "project", root / "trees")


UNSTEADY = {
    "time.clock_gettime(1)": "time.clock_gettime",
    "(clock := time).time()": "time under another name",
    "getattr(time, 'time')()": "time under another name",
    "id(object())": "id",
    "logging.makeLogRecord({}).created": "makeLogRecord",
    "os.path.getmtime('x')": "getmtime",
}


@pytest.mark.parametrize("code", UNSTEADY)
def test_a_bug_may_not_introduce_unsteady_sources(snapshot: Snapshot, code: str) -> None:
    head = "import logging, os, time\nfrom datetime import datetime\n\n"
    before = CodebaseState(snapshot).replace({"shop.py": FileEntry(f"{head}{CODE}".encode())})
    for line, uses in ((code, (f"shop.py uses {UNSTEADY[code]}",)), ("isinstance(x, datetime) and time.sleep(0)", ())):
        after = before.replace({"shop.py": FileEntry(f"{head}{CODE}x = {line}\n".encode())})
        assert forbidden_uses(before, after) == uses


ADDED = {
    "logging.LogRecord('', 0, '', 0, '', (), None).created": "uses LogRecord",
    "__import__('time').time()": "calls __import__",
    "import_module('time')": "uses import_module",
    "getattr(sys, 'modules')": "uses sys under another name",
    "sys.__dict__['modules']": "uses sys.__dict__",
    "vars(logging)": "uses logging under another name",
    "logging.sys": "uses logging.sys",
    "[sys]": "passes sys on",
    "exec('1')": "calls exec",
    "logging.currentframe()": "uses currentframe",
    "os.times().elapsed": "uses os.times",
    "f.time2isoz()": "uses time2isoz",
    "email.utils.localtime()": "uses localtime",
    "clock.now()": "uses now",
    "f.__globals__": "uses __globals__",
    "'/et' + 'c/hostname'": "uses /etc/hostname",
    "os.listdir('/')": "uses /",
}


@pytest.mark.parametrize("code", ADDED)
def test_a_bug_may_not_introduce_indirect_uses(snapshot: Snapshot, code: str) -> None:
    head = "import email.utils, logging, os, sys\n\n"
    before = CodebaseState(snapshot).replace({"shop.py": FileEntry(f"{head}{CODE}".encode())})
    after, later = (
        before.replace({"shop.py": FileEntry(f"{head}{CODE}x = {code}\n{more}".encode())}) for more in ("", "y = 1\n")
    )
    assert f"shop.py {ADDED[code]}" in forbidden_uses(before, after)
    assert forbidden_uses(after, later) == forbidden_uses(after, before) == ()


@pytest.mark.parametrize(
    ("line", "use"),
    [
        ("import datetime as d", "imports datetime"),
        ("from http import cookiejar", "imports http.cookiejar"),
        ("from email.utils import quote", "imports email.utils"),
        ("from importlib import import_module", "imports importlib.import_module"),
    ],
)
def test_a_bug_may_not_introduce_imports_of_clocks(snapshot: Snapshot, line: str, use: str) -> None:
    before = CodebaseState(snapshot)
    after = before.replace({"shop.py": FileEntry(f"{line}\n{CODE}".encode())})
    assert forbidden_uses(before, after) == (f"shop.py {use}",)


@pytest.mark.parametrize(
    "line",
    [
        "import json, math, os, sys",
        "from . import time",
        "x = getattr(self, 'now', '/tmp2/a'), '/', '/api/run', os.path.join('/', x), open('run')",
        "def __eq__(self, other): return True",
        "x = 'exec pytest __import__'",
    ],
)
def test_other_bugs_are_allowed(snapshot: Snapshot, line: str) -> None:
    before = CodebaseState(snapshot)
    after = before.replace({"shop.py": FileEntry(f"{CODE}{line}\n".encode())})
    assert forbidden_uses(before, after) == ()
