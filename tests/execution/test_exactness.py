"""The fast path against a whole run in a fresh process, in cases in which selection or forking could go wrong."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from plain import plain_python

from pytest_ssr.campaign.campaign import Campaign
from pytest_ssr.campaign.factory import open_campaign
from pytest_ssr.execution import screening
from pytest_ssr.execution.screening import FRESH, IMPORT, SWAP
from pytest_ssr.patch import FileEntry
from pytest_ssr.records.test_run import RunStatus
from pytest_ssr.settings import RuleSettings
from pytest_ssr.storage.store import Store

pytestmark = pytest.mark.long

CORE = """\
import functools
import inspect

TASKS = {}


def task(function):
    if inspect.isgeneratorfunction(function):
        run = functools.wraps(function)(lambda *a: list(function(*a)))
    else:
        run = function
    TASKS[function.__name__] = run
    return run


@task
def evens(n):
    return [i for i in range(n) if i % 2 == 0]


@functools.lru_cache(maxsize=None)
def compiled(pattern):
    parts = []
    for part in pattern.split("."):
        parts.append("*" if part == "any" else part)
    return tuple(parts)


@functools.lru_cache(maxsize=None)
def doubled(x):
    return x * 2


def first_of(names):
    for name in names:
        if name == "b":
            return name
        if name > "b":
            return name + "?"
    return ""


item = 1


def local(values):
    found = [item for item in values]
    found.append(item)
    return found


def unreached(x):
    return x


def slow(x):
    return x + 1


def answer():
    return 42
"""
READ = """\
def spoken(x):
    text = str(x)
    return text


def shown(x):
    return repr(x)
"""
TESTS = """\
import inspect
import time

import pytest

from pkg.core import TASKS, compiled, doubled, first_of, local, slow
from pkg.read import shown, spoken


@pytest.fixture(scope="session")
def service():
    time.sleep(0.6)


class TestSteps:
    def test_fills(self):
        assert doubled(2)

    def test_finds(self):
        assert doubled(2) == 4


def test_task():
    assert TASKS["evens"](4) == [0, 2]


def test_exact():
    assert compiled("a.b") == ("a", "b")
    assert compiled("x.any")


def test_any():
    assert compiled("x.any") == ("x", "*")


def test_other():
    assert compiled("c.d")[0] == "c"
    assert compiled("x.any")


def test_set():
    assert first_of({"b", "c"}) in ("b", "c?")


def test_local():
    assert local([2]) == [2, 1]


def test_source_once():
    assert "repr" in inspect.getsource(shown)


def test_source_twice():
    assert "repr" in inspect.getsource(shown)


def test_source_again():
    assert "x" in inspect.getsource(shown)


def test_service(service):
    assert slow(1) == 2


def test_served(service):
    assert slow(2) == 3


def test_spoken():
    assert spoken(1) == "1"


def test_spoken_again():
    assert spoken(2) == "2"
"""
FILES = {
    "pkg/__init__.py": "from pkg.read import shown\nREADY = shown(0)\n",
    "pkg/core.py": CORE,
    "pkg/read.py": READ,
    "pkg/aside.py": "import xml.dom.minidom\n\n\ndef strip(text):\n    return text.strip()\n",
    "tests/test_core.py": TESTS,
    "tests/test_needs_other.py": """\
import pkg


def test_needs_other():
    assert pkg.aside.strip(" a ") + pkg.READY == "a0"
""",
    "tests/test_other.py": """\
import os
import sys

import pkg.aside

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, "pkg"))
import aside


def test_other():
    assert aside.strip(" b ") == "b"


def test_xml():
    assert pkg.aside.xml.dom.minidom.parseString("<a/>").documentElement.tagName == "a"
""",
    "tests/test_waits.py": """\
import threading

from pkg.core import answer

GO = threading.Event()


def test_waits():
    waits = threading.Thread(target=GO.wait)
    waits.start()
    assert answer() == 42
    GO.set()
    waits.join()


def test_lets_go():
    GO.set()
""",
    "pkg/optional.py": """\
import wsgiref

LEVEL = 1
if LEVEL > 0:
    import wsgiref.headers


def headers():
    return wsgiref.headers.Headers([])
""",
    "pkg/frozen.py": "import gc\n\n\ndef half(x):\n    return x // 2\n\n\ngc.freeze()\n",
    "pkg/lazy.py": "def name():\n    import sched\n\n    return sched.__name__\n",
    "tests/test_forbids.py": """\
import os

from pkg.lazy import name


def test_forbids(monkeypatch):
    def forbidden(*args, **kwargs):
        raise RuntimeError("it would block")

    for function in ("stat", "lstat", "readlink", "write"):
        monkeypatch.setattr(os, function, forbidden)
    assert name() == "sched"
""",
    "pkg/data.py": "def word():\n    return 'word'\n",
    "tests/test_odd.py": """\
import importlib.util
import pkgutil

import pkg.data
import pkg.frozen
from pkg.optional import headers

spec = importlib.util.spec_from_file_location("again", pkg.frozen.__file__)
again = importlib.util.module_from_spec(spec)
spec.loader.exec_module(again)


def test_headers():
    assert not headers()


def test_frozen():
    assert pkg.frozen.half(5) == 2
    assert again.half(0) == 0


def test_data():
    assert b"return 'word'" in pkgutil.get_data("pkg", "data.py")
""",
    "pytest.ini": "[pytest]\nfilterwarnings = error\npythonpath = .\n",
}
CHANGES = {
    "cache": ("core", 'part == "any"', 'part == "all"', SWAP),
    "cache in a class": ("core", "return x * 2", "return x * 3", SWAP),
    "generator inspected at import": (
        "core",
        "    return [i for i in range(n) if i % 2 == 0]",
        "    yield from [i for i in range(n) if i % 2 == 0]",
        IMPORT,
    ),
    "refused by the compiler": ("core", "def unreached(x):\n    return x", "def unreached(x):\n    break", IMPORT),
    "warned about by the compiler": (
        "core",
        "def unreached(x):\n    return x",
        "def unreached(x):\n    x is 0",
        IMPORT,
    ),
    "an escape": ("core", "def unreached(x):\n    return x", 'def unreached(x):\n    "\\d"\n    return x', IMPORT),
    "hash seed": ("core", 'name + "?"', "name.nothing", SWAP),
    "a name that becomes local": ("core", "    return found", "    item = found\n    return item", SWAP),
    "source read": ("read", "return repr(x)", "return str(x)", IMPORT),
    "lines that move": ("read", "return text", "more = text\n    return more", IMPORT),
    "a slow fixture": ("core", "return x + 1", "return 1 + x", SWAP),
    "an end of the session": ("read", "text = str(x)", "raise KeyboardInterrupt", FRESH),
    "needs another file": ("read", "return repr(x)", "return str(repr(x))", IMPORT),
    "loaded by another path": ("aside", "text.strip()", "text.lstrip()", SWAP),
    "a module loaded while a test runs": (
        "read",
        "    text = str(x)",
        "    import colorsys\n\n    text = str(x + colorsys.ONE_THIRD)",
        IMPORT,
    ),
    "a thread that another test releases": ("core", "return 42", "return 43", FRESH),
    "an import that is skipped": ("optional", "LEVEL > 0", "LEVEL > 1", FRESH),
    "functions that are frozen": ("frozen", "x // 2", "x % 2 * 3", SWAP),
    "a source that a loader returns": ("data", "'word'", "'other'", IMPORT),
    "loaded already": ("aside", "import xml.dom.minidom", "import xml", FRESH),
}


@pytest.fixture(scope="module")
def campaign(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Campaign]:
    root = tmp_path_factory.mktemp("exact")
    for path, text in FILES.items():
        file = root / "project" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    python = plain_python()
    opened = open_campaign(root / "project", Store(root / "store"), settings=RuleSettings(), python=python, seed=0)
    yield opened
    opened.close()


def test_every_mode_works_and_every_test_counts(campaign: Campaign) -> None:
    assert campaign.runner.fork_server is not None
    assert campaign.runner.fork_server.refusals == {}
    assert len(campaign.baseline.stable) == len(campaign.baseline.collected) == 24
    assert not campaign.baseline.disturbed


def test_evidence_makes_no_call_that_tests_forbid(campaign: Campaign) -> None:
    same = FileEntry(FILES["pkg/lazy.py"].replace("()", "( )").encode(), 0o100644)
    state = campaign.runner.original.replace({"pkg/lazy.py": same})
    fresh = campaign.screening.fresh(state, runner=campaign.runner.scoped())
    assert fresh.failing == frozenset()
    assert fresh.run.exercised == frozenset({"pkg/lazy.py"})


@pytest.mark.parametrize("name", CHANGES)
def test_fast_is_as_fresh(campaign: Campaign, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(screening, "_SWAP_FLOOR_S", 0.3)
    module, old, new, tier = CHANGES[name]
    path = f"pkg/{module}.py"
    assert FILES[path].count(old) == 1
    entry = FileEntry(FILES[path].replace(old, new).encode(), 0o100644)
    state = campaign.runner.original.replace({path: entry})
    fast = campaign.screening.run(state, runner=campaign.runner.scoped())
    fresh = campaign.screening.fresh(state, runner=campaign.runner.scoped())
    assert fast.tier == tier, fast.fallback
    assert fast.failing == fresh.failing
    first = campaign.screening.run(state, runner=campaign.runner.scoped(), stop_after=1)
    assert first.failing <= fresh.failing
    assert bool(first.failing) == bool(fresh.failing)
    assert (fast.run.status is RunStatus.TIMED_OUT) == (fresh.run.status is RunStatus.TIMED_OUT)


POOL = """\
import multiprocessing
from concurrent.futures import ProcessPoolExecutor

POOLS = []


def one(x):
    return x + 1


def two(x):
    return x + 2


def run(function, x):
    if not POOLS:
        POOLS.append(ProcessPoolExecutor(1, multiprocessing.get_context("forkserver")))
    return POOLS[0].submit(function, x).result()
"""
POOL_TESTS = """\
from pool import one, run, two


def test_starts():
    assert run(one, 1) == 2


def test_uses():
    assert run(two, 1) == 3


def test_starts_in_the_other_order():
    assert run(one, 2) == 3
"""


def test_a_test_that_uses_a_process_of_an_earlier_test(tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    (project / "pool.py").write_text(POOL)
    (project / "test_pool.py").write_text(POOL_TESTS)
    opened = open_campaign(project, Store(tmp_path / "store"), settings=RuleSettings(), python=plain_python(), seed=0)
    try:
        entry = FileEntry(POOL.replace("x + 2", "x + 5").encode(), 0o100644)
        state = opened.runner.original.replace({"pool.py": entry})
        assert opened.screening.run(state, runner=opened.runner.scoped()).failing == {"test_pool.py::test_uses"}
    finally:
        opened.close()
