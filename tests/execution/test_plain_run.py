"""Blind tests without pytest in charge: which ones run, twice each, and in which environment."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pytest_ssr.campaign.factory import open_runner
from pytest_ssr.execution.plain_run import AGAIN, Checkpoint, PlainCase, Surroundings
from pytest_ssr.execution.runner import Runner
from pytest_ssr.grading.blind.moved_tests import move_tests
from pytest_ssr.patch import FileEntry
from pytest_ssr.project.state import CodebaseState
from pytest_ssr.sandbox.filesystem.directory_sandbox import DirectorySandbox
from pytest_ssr.settings import RuleSettings
from pytest_ssr.storage.store import Store

FILE = "tests/test_rows.py"
HERE = Surroundings(7, with_pytest=False, ahead_s=0, seed=1)
LATER = Surroundings(7, with_pytest=True, ahead_s=10**9, seed=1)
TESTS = """\
import asyncio
import logging
import sys
import time
import unittest

import ssr_blind_recorder

RUNS = []
MARKS = [("b", [10, 20]), ("a", iter([1, 2]))]


class Mark:
    name = "parametrize"

    def __init__(self, *args, **kwargs):
        self.args, self.kwargs = args, kwargs


def setup_module(module):
    RUNS.append(module.__name__)


def test_rows(a, b):
    ssr_blind_recorder.record(0, a, b)


test_rows.pytestmark = [Mark(*m) for m in MARKS]


def test_indirect(a):
    ssr_blind_recorder.record(0, a)


test_indirect.pytestmark = [Mark("a", [1, 2], indirect=True)]


def test_fixture(capfd):
    ssr_blind_recorder.record(0)


async def test_coroutine():
    await asyncio.sleep(0)
    ssr_blind_recorder.record(0)


def test_captured(capsys):
    print("told")
    print("warned", file=sys.__stderr__)
    with capsys.disabled():
        print("elsewhere")
    ssr_blind_recorder.record(0, list(capsys.readouterr()), capsys.readouterr().out)


def test_logged(caplog):
    with caplog.at_level(logging.INFO, logger="shop"):
        logging.getLogger("shop").info("sold %d", 3)
    logging.getLogger("shop").info("hidden")
    caplog.set_level("DEBUG")
    logging.debug("seen")
    ssr_blind_recorder.record(0, caplog.messages, caplog.record_tuples[0], "sold 3" in caplog.text)
    caplog.clear()
    ssr_blind_recorder.record(1, caplog.records)


def test_folders(tmp_path_factory):
    folders = [tmp_path_factory.mktemp("one") for _ in range(2)]
    ssr_blind_recorder.record(0, [f.is_dir() for f in folders], folders[0] != folders[1])


def test_hidden():
    import pytest

    with pytest.raises(ValueError):
        int("x")
    hidden = [name for name in sys.modules if name.partition(".")[0] in ("pytest", "_pytest", "pluggy")]
    ssr_blind_recorder.record(0, hidden, pytest.approx(1.0) == 1.0)


def test_fails():
    ssr_blind_recorder.record(0)
    raise SystemExit(3)
    ssr_blind_recorder.record(1)


def test_default(tmp_path, extra=5):
    ssr_blind_recorder.record(0, tmp_path.is_dir(), extra, RUNS)
    RUNS.append(extra)


class TestMethods:
    pytestmark = Mark("c", [[1], [2]])

    @classmethod
    def setup_class(cls):
        cls.one = 1

    def setup_method(self, method):
        self.two = method.__name__

    def test_method(self, c):
        ssr_blind_recorder.record(0, self.one, self.two, c)


class TestUnit(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.one = 1

    def setUp(self):
        self.two = 2

    def test_unit(self):
        ssr_blind_recorder.record(0, self.one, self.two)


def test_clocks():
    years = [time.gmtime().tm_year, time.localtime().tm_year, int(time.strftime("%Y")), int(time.asctime()[-4:])]
    late = [time.time(), time.time_ns() / 1e9, time.monotonic(), asyncio.new_event_loop().time()]
    ssr_blind_recorder.record(0, [y > 2050 for y in years], [n > 1e9 for n in late])


def test_process():
    ssr_blind_recorder.record(0, "pytest" in sys.modules, hash("a") == hash("b"), type(sys.stdout).__name__)
"""


CONFTEST = """\
import pytest


@pytest.fixture(params=["one", pytest.param("two", id="second")])
def number(request):
    return request.param


@pytest.fixture(autouse=True)
def always(events):
    events.append("always")


@pytest.fixture
def events():
    return []
"""
FIXTURES = """\
import os

import pytest
import ssr_blind_recorder


@pytest.fixture(name="opened")
def open_it(events, request):
    events.append("open")
    request.addfinalizer(lambda: events.append("final"))
    yield events
    events.append("close")
    ssr_blind_recorder.record(1, events)


def test_opened(opened):
    ssr_blind_recorder.record(0, opened)


def test_number(number, monkeypatch):
    monkeypatch.setenv("SSR_NUMBER", number)
    ssr_blind_recorder.record(0, os.environ["SSR_NUMBER"])


class TestClass:
    @pytest.fixture
    def own(self, opened):
        self.names = opened
        return "own"

    @pytest.mark.usefixtures("own")
    def test_used(self, events):
        ssr_blind_recorder.record(0, events is self.names, [name for name in events if name != "always"])

    def test_missing(self, own, capfd):
        ssr_blind_recorder.record(0)
"""


@pytest.fixture(scope="module")
def runner(tmp_path_factory: pytest.TempPathFactory) -> Runner:
    folder = tmp_path_factory.mktemp("plain")
    (folder / "project" / "tests").mkdir(parents=True)
    (folder / "project" / "tests" / "test_rows.py").write_text(TESTS)
    (folder / "project" / "tests" / "fixtures").mkdir()
    (folder / "project" / "tests" / "fixtures" / "conftest.py").write_text(CONFTEST)
    (folder / "project" / "tests" / "fixtures" / "test_fixtures.py").write_text(FIXTURES)
    return open_runner(folder / "project", Store(folder / "store"), settings=RuleSettings(), sandbox="process")


def run_cases(runner: Runner, surroundings: Surroundings, cases: Sequence[tuple[str, dict[str, int]]]) -> list[object]:
    """Return the id, without the file, and the values of each line."""
    wanted = [PlainCase(f"{FILE}::{name}", rows) for name, rows in cases]
    lines = written_by(runner, runner.original, wanted, surroundings)
    return [(case.removeprefix(f"{FILE}::"), values) for case, _, _, values in lines]


def written_by(
    runner: Runner, state: CodebaseState, cases: Sequence[PlainCase], surroundings: Surroundings = HERE
) -> list[list[Any]]:
    """Return the lines of the tests, without the last line, which belongs to none."""
    lines, _ = runner.plain_values(state, cases, surroundings, like_s=1.0)
    *own, note = map(json.loads, lines)
    assert note[0] == ""
    return own


ROWS = [PlainCase(f"{FILE}::test_rows[{n}]", {"a": i, "b": 1 - i}) for n, i in (("one", 0), ("two", 1))]


@pytest.mark.parametrize("streams", [True, False])
@pytest.mark.parametrize("goes_on", [True, False])
def test_the_host_may_end_a_run_at_its_checkpoint(
    runner: Runner, streams: bool, goes_on: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not streams:
        monkeypatch.delattr(DirectorySandbox, "streams")
    file = runner.original.entry(FILE)
    assert file is not None
    slow = b"def test_slow():\n    import time\n    time.sleep(%d)\n" % (0 if goes_on else 600)
    state = runner.original.replace({FILE: replace(file, data=file.data + b"\n\n" + slow)})
    seen: list[list[str]] = []

    def decide(lines: list[str]) -> bool:
        seen.append(lines)
        return goes_on

    cases = [ROWS[0], PlainCase(f"{FILE}::test_slow", {}), ROWS[1]]
    lines, limit = runner.plain_values(state, cases, HERE, like_s=1.0, checkpoint=Checkpoint(1, decide))
    assert limit is None
    (first,) = seen
    assert json.loads(first[0])[0] == ROWS[0].node_id
    ran = {json.loads(line)[0] for line in lines}
    assert (ROWS[1].node_id in ran) is goes_on


def test_code_that_repeats_the_mark_of_a_checkpoint_is_asked_once(runner: Runner) -> None:
    file = runner.original.entry(FILE)
    assert file is not None
    finds = (
        b"def test_finds() -> None:\n    import os, sys\n    frame = sys._getframe()\n"
        b"    while 'job' not in frame.f_locals:\n        frame = frame.f_back\n"
        b"    os.write(frame.f_locals['output'], 100 * frame.f_locals['mark'].encode())\n"
    )
    state = runner.original.replace({FILE: replace(file, data=file.data + b"\n\n" + finds)})
    seen: list[list[str]] = []

    def decide(lines: list[str]) -> bool:
        seen.append(lines)
        return True

    cases = [PlainCase(f"{FILE}::test_finds", {}), *ROWS]
    lines, _ = runner.plain_values(state, cases, HERE, like_s=1.0, checkpoint=Checkpoint(1, decide))
    assert len(seen) == 1
    assert [json.loads(line)[0] for line in lines][-1] == ""


def test_each_runs_twice_with_the_rows_of_its_parameters(runner: Runner) -> None:
    cases = [
        ("test_rows[one]", {"a": 0, "b": 1}),
        ("test_rows[two]", {"a": 1, "b": 0}),
        ("TestMethods::test_method[1]", {"c": 1}),
        ("TestUnit::test_unit", {}),
    ]
    values = [[1, 20], [2, 10], [1, "test_method", ["l", 2]], [1, 2]]
    expected = [(name + ending, v) for ending in ("", AGAIN) for (name, _), v in zip(cases, values, strict=True)]
    assert run_cases(runner, HERE, cases) == expected


def test_the_second_round_sees_what_the_first_left(runner: Runner) -> None:
    first, second = run_cases(runner, HERE, [("test_default", {})])
    assert first == ("test_default", [True, 5, ["l", "test_rows"]])
    assert second == ("test_defaultagain", [True, 5, ["l", "test_rows", 5]])


@pytest.mark.parametrize("name", ["test_fixture", "test_indirect[1]", "test_gone", "TestGone::test_a"])
def test_tests_that_need_pytest_are_skipped(runner: Runner, name: str) -> None:
    """The cases after it run."""
    lines = run_cases(runner, HERE, [(name, {"a": 0}), ("TestUnit::test_unit", {})])
    assert [case for case, _ in lines] == ["TestUnit::test_unit", f"TestUnit::test_unit{AGAIN}"]


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("test_coroutine", [[]]),
        ("test_captured", [[["l", "told\n", "warned\n"], ""]]),
        ("test_logged", [[["l", "sold 3", "seen"], ["t", "shop", 20, "sold 3"], True], [["l"]]]),
        ("test_folders", [[["l", True, True], True]]),
        ("test_hidden", [[["l"], True]]),
    ],
)
def test_common_fixtures_work_without_pytest(runner: Runner, name: str, values: list[list[object]]) -> None:
    """And pytest is not among the modules, although a test imports it."""
    assert run_cases(runner, HERE, [(name, {})]) == [(name + end, v) for end in ("", AGAIN) for v in values]


@pytest.mark.parametrize(
    ("name", "rows", "lines"),
    [
        (
            "test_opened",
            {},
            [(0, [["l", "always", "open"]]), (1, [["l", "always", "open", "close"]])],
        ),
        ("test_number[one]", {"number": 0}, [(0, ["one"])]),
        ("test_number[second]", {"number": 1}, [(0, ["two"])]),
        ("TestClass::test_used", {}, [(0, [True, ["l", "open"]]), (1, [["l", "always", "open", "close"]])]),
        ("TestClass::test_missing", {}, [(1, [["l", "always", "open", "close"]])]),
    ],
)
def test_fixtures_are_made_for_each_test(
    runner: Runner, name: str, rows: dict[str, int], lines: list[tuple[int, list[object]]]
) -> None:
    case = f"tests/fixtures/test_fixtures.py::{name}"
    written = written_by(runner, runner.original, [PlainCase(case, rows)])
    expected = [(case + ending, *line) for ending in ("", AGAIN) for line in lines]
    assert [(c, site, values) for c, site, _, values in written] == expected


def test_tests_run_under_other_names_in_another_folder(runner: Runner) -> None:
    text = b"""\
import os, ssr_blind_recorder, sys


def test_names():
    code = sys._getframe().f_code
    ssr_blind_recorder.record(0, os.path.exists("tests"), code.co_name, os.path.relpath(code.co_filename))
"""
    state = runner.original.replace({FILE: FileEntry(text), "pytest.ini": FileEntry(b"[pytest]\n")})
    moved, paths = move_tests(state, [FILE], "elsewhere")
    assert moved.entry("pytest.ini") is None
    assert moved.entry("elsewhere/fixtures/conftest.py") == state.entry("tests/fixtures/conftest.py")
    case = PlainCase(f"{FILE}::test_names", {}, paths[FILE])
    assert [line[3] for line in written_by(runner, moved, [case])] == [[False, "check", "elsewhere/elsewhere_0.py"]] * 2


@pytest.mark.parametrize(
    ("path", "moved"),
    [
        ("test_it.py", "x_0.py"),
        ("pkg/test_it.py", "pkg/x_0.py"),
        ("tests/test_it.py", "x/x_0.py"),
        ("pkg/tests/unit/test_it.py", "pkg/x/unit/x_0.py"),
        ("tests/unit/test/test_it.py", "x/unit/test/x_0.py"),
    ],
)
def test_only_folders_of_tests_are_moved(runner: Runner, path: str, moved: str) -> None:
    state = runner.original.replace({path: FileEntry(b""), "pkg/code.py": FileEntry(b"")})
    new_state, paths = move_tests(state, [path], "x")
    assert paths == {path: moved}
    assert new_state.entry(path) is None
    assert new_state.entry("pkg/code.py") is not None


def test_a_test_that_raises_does_not_reach_its_end(runner: Runner) -> None:
    assert [v for _, v in run_cases(runner, HERE, [("test_fails", {})])] == [[], []]


@pytest.mark.parametrize(("surroundings", "late"), [(HERE, False), (LATER, True)])
def test_clocks_can_be_ahead(runner: Runner, surroundings: Surroundings, late: bool) -> None:
    (_, values), _ = run_cases(runner, surroundings, [("test_clocks", {})])
    assert values == [["l", *[late] * 4], ["l", True, True, late, late]]


@pytest.mark.parametrize(("surroundings", "is_imported"), [(HERE, False), (LATER, True)])
def test_pytest_is_imported_on_request_and_captures_nothing(
    runner: Runner, surroundings: Surroundings, is_imported: bool
) -> None:
    (_, values), _ = run_cases(runner, surroundings, [("test_process", {})])
    assert values == [is_imported, False, "TextIOWrapper"]


def test_a_file_that_cannot_be_imported_writes_nothing(runner: Runner) -> None:
    state = runner.original.replace({FILE: FileEntry(b"import nowhere\n", 0o100644)})
    assert written_by(runner, state, [PlainCase(f"{FILE}::test_fails", {})]) == []


def test_two_files_of_one_name_are_two_modules(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        (tmp_path / "project" / folder).mkdir(parents=True)
        text = f"import ssr_blind_recorder\n\n\ndef test_it():\n    ssr_blind_recorder.record(0, {folder!r})\n"
        (tmp_path / "project" / folder / "test_it.py").write_text(text)
    store = Store(tmp_path / "store")
    runner = open_runner(tmp_path / "project", store, settings=RuleSettings(), sandbox="process")
    cases = [PlainCase(f"{folder}/test_it.py::test_it", {}) for folder in ("a", "b")]
    assert [line[3] for line in written_by(runner, runner.original, cases)] == [["a"], ["b"]] * 2


REPLACING = """\
import asyncio, functools, json


def _own(*args, **kwargs):
    return {}


class Own(dict):
    pass


json.loads = _own
json.JSONEncoder.encode = functools.partial(_own)
names = {}
exec("def dumps(value): return ''", names)
json.dumps = names["dumps"]
asyncio.run.__code__ = asyncio.sleep.__code__
len = _own
asyncio = Own
"""
USING = """\
import asyncio, os
from shop import *
import ssr_blind_recorder


def test_it():
    ssr_blind_recorder.record(0, Own())
"""


def test_the_last_line_names_what_the_project_replaces(runner: Runner) -> None:
    state = runner.original.replace({"shop.py": FileEntry(REPLACING.encode()), FILE: FileEntry(USING.encode())})
    lines, _ = runner.plain_values(state, [PlainCase(f"{FILE}::test_it", {})], HERE, like_s=1.0)
    replaced, kinds, own, foreign, *_ = json.loads(lines[-1])[3]
    assert replaced == [
        "asyncio.run",
        "asyncio.runners.run",
        "json.dumps",
        "json.encoder.JSONEncoder.encode",
        "json.loads",
    ]
    assert kinds == ["shop.Own"]
    assert own == [f"{FILE}:{name}" for name in ("Own", "asyncio", "len", "test_it")]
    assert {f"{FILE}:os", f"{FILE}:json", f"{FILE}:ssr_blind_recorder"} <= set(foreign)


def test_the_seed_of_hypothesis_is_fixed(runner: Runner) -> None:
    """As by its own option `--hypothesis-seed`: otherwise, each run draws other examples."""
    text = b"import hypothesis.core, ssr_blind_recorder\n\n\ndef test_it():\n"
    text += b"    ssr_blind_recorder.record(0, hypothesis.core.global_force_seed)\n"
    files = {"hypothesis/__init__.py": b"", "hypothesis/core.py": b"global_force_seed = None\n", FILE: text}
    state = runner.original.replace({path: FileEntry(data) for path, data in files.items()})
    assert [line[3] for line in written_by(runner, state, [PlainCase(f"{FILE}::test_it", {})])] == [[0], [0]]
