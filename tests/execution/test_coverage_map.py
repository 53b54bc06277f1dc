"""Which tests a change can touch: measured on a small project, queried with changes whose effect is known."""

from __future__ import annotations

import pytest
from plain import plain_python

from pytest_ssr.execution.baseline import Baseline, measure_baseline
from pytest_ssr.execution.runner import Runner
from pytest_ssr.patch import FileEntry
from pytest_ssr.project.interpreter import find_interpreter
from pytest_ssr.project.snapshot import take_snapshot
from pytest_ssr.project.state import CodebaseState
from pytest_ssr.sandbox import choose
from pytest_ssr.settings import RuleSettings

FILES = {
    "shop.py": """\
import functools
import concurrent.futures
import threading

RATES = {"book": 7}


def registered(function):
    def wrapper(*args):
        return function(*args)

    return wrapper


@registered
def tax(kind, price):
    if kind == "book":
        return price * RATES[kind] // 100
    return price // 5


@functools.lru_cache
def table():
    return {"a": 1}


def first():
    return table()["a"]


def second():
    return table()["a"] + 1


def opened():
    connection = object()
    return connection


class Base:
    def __init_subclass__(cls):
        cls.name = cls.__name__.lower()


class Child(Base):
    def greet(self):
        return "hi " + self.name


POOL = []


def in_pool():
    POOL.append(concurrent.futures.ThreadPoolExecutor(1))
    return POOL[0].submit(pooled).result()


def pooled():
    return 8


def in_thread():
    found = []
    worker = threading.Thread(target=append, args=(found,))
    worker.start()
    worker.join()
    return found


def append(found):
    found.append(1)


def never():
    return 0


def lazily():
    import lazy

    return lazy.VALUE
""",
    "lazy.py": "from shop import never as n\n\n\ndef made():\n    return 3\n\n\nVALUE = made()\n",
    "tool.py": "def main():\n    return 5\n\n\nif __name__ == '__main__':\n    print(main())\n",
    "noted.py": 'def noted():\n    """\n    >>> noted()\n    6\n    """\n    return 6\n',
    "pytest.ini": "[pytest]\naddopts = --doctest-modules --ignore=lazy.py\n",
    "tests/data.txt": "4\n",
    "conftest.py": """\
import contextlib
import subprocess


def pytest_configure():
    for program in ("no-such-program", "./no-such-program"):
        with contextlib.suppress(FileNotFoundError):
            subprocess.run([program, "tool.py"])
""",
    "tests/test_shop.py": """\
import contextlib
import pathlib
import subprocess
import sys

import pytest

import shop
import tool


@pytest.fixture(scope="module")
def connection():
    return shop.opened()


def test_book():
    assert shop.tax("book", 100) == 7


def test_other():
    assert shop.tax("car", 100) == 20


def test_first():
    assert shop.first() == 1


def test_second():
    assert shop.second() == 2


def test_fixture(connection):
    assert connection


def test_greet():
    assert shop.Child().greet() == "hi child"


def test_pool():
    assert shop.in_pool() == 8


def test_thread():
    assert shop.in_thread() == [1]


def test_process():
    done = subprocess.run([sys.executable, "tool.py"], capture_output=True, text=True, check=True)
    assert done.stdout == "5\\n"


def test_version():
    subprocess.run("git log --pretty=format:%ct -1 HEAD", shell=True, capture_output=True, cwd="tests")
    subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True)
    with contextlib.suppress(FileNotFoundError):
        subprocess.run(["file", "-b", sys.executable], capture_output=True)


def test_source():
    assert "def main" in pathlib.Path(tool.__file__).read_text()


def test_lazy():
    assert shop.lazily() == 3
""",
    "tests/test_more.py": "import shop\n\n\ndef test_nothing():\n    assert shop\n",
}


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> tuple[Baseline, Runner]:
    project = tmp_path_factory.mktemp("project")
    for name, text in FILES.items():
        path = project / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    trees = tmp_path_factory.mktemp("trees")
    interpreter = find_interpreter(project, plain_python())
    runner = Runner(take_snapshot(project, trees), choose("auto"), interpreter, RuleSettings())
    return measure_baseline(runner), runner


def touched(measured: tuple[Baseline, Runner], path: str, old: str, new: str) -> tuple[set[str] | None, bool]:
    """Return the names of the tests to run, None for all, and whether the change is confined to functions."""
    baseline, runner = measured
    text = FILES[path]
    assert text.count(old) == 1
    state = CodebaseState(runner.snapshot).replace({path: FileEntry(text.replace(old, new).encode())})
    assert baseline.reach is not None
    result = baseline.reach.touched_by(state)
    names = None if result.tests is None else {t.rpartition("::")[2] for t in result.tests}
    return names, result.functions is not None


ALWAYS = "test_process"


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("// 100", "// 10", {"test_book"}),
        ("price // 5", "price // 4", {"test_other"}),
        ('kind == "book"', 'kind != "book"', {"test_book", "test_other"}),
        ("return function(*args)", "return None", {"test_book", "test_other"}),
        ('return table()["a"] + 1', "return 3", {"test_second"}),
        ('"hi " + self', '"ho " + self', {"test_greet"}),
        ("return 8", "return 9", {"test_pool"}),
        ("found.append(1)", "found.append(2)", {"test_thread"}),
        ("    return 0", "    return 1", set()),
    ],
)
def test_the_tests_that_reach_a_statement_are_selected(measured, old, new, expected) -> None:
    assert touched(measured, "shop.py", old, new) == (expected | {ALWAYS}, True)


def test_a_statement_that_fills_a_cache_selects_the_tests_that_read_it(measured) -> None:
    names, _ = touched(measured, "shop.py", 'return {"a": 1}', 'return {"a": 2}')
    assert names is not None
    assert {"test_first", "test_second"} <= names


def test_a_fixture_of_a_wider_scope_concerns_all_of_that_scope(measured) -> None:
    names, confined = touched(measured, "shop.py", "return connection", "return None")
    assert names is not None
    assert {"test_fixture", "test_book"} <= names
    assert "test_nothing" not in names
    assert confined


@pytest.mark.parametrize(
    ("path", "old", "new"),
    [
        ("shop.py", '"book": 7', '"book": 8'),
        ("shop.py", "    return wrapper", "    return function"),
        ("shop.py", "cls.__name__.lower()", "cls.__name__"),
        ("shop.py", "@functools.lru_cache\n", ""),
        ("lazy.py", "return 3", "return 4"),
        ("lazy.py", "VALUE = made()", "VALUE = 5"),
    ],
)
def test_what_runs_at_import_concerns_every_test(measured, path, old, new) -> None:
    assert touched(measured, path, old, new) == (None, False)


def test_a_test_that_starts_processes_or_reads_the_file_is_selected(measured) -> None:
    names, _ = touched(measured, "tool.py", "return 5", "return 6")
    assert names == {"test_process", "test_source"}


def test_a_query_of_the_version_and_an_absent_program_run_no_code_of_the_project(measured) -> None:
    baseline, _ = measured
    assert baseline.reach is not None
    assert baseline.reach.names(baseline.reach.always) == {"tests/test_shop.py::test_process"}
    assert not baseline.reach.collected_by_processes


def test_a_doctest_is_selected_by_the_text_of_its_own_file(measured) -> None:
    baseline, _ = measured
    assert touched(measured, "noted.py", "return 6", "return 7")[0] == {"noted.noted", ALWAYS}
    assert baseline.reach is not None
    opened = baseline.reach.names(baseline.reach.opens["noted.py"])
    assert opened == {"noted.py::noted.noted"}


def test_a_file_that_is_not_a_module_concerns_every_test(measured) -> None:
    assert touched(measured, "tests/data.txt", "4", "5") == (None, False)


def test_it_reads_back_equal(measured) -> None:
    baseline, _ = measured
    again = Baseline.from_json(baseline.to_json())
    assert again == baseline
