"""Everything that a row's evaluation runs inside a sandbox, on old versions of Python and pytest.

`benchmarks/old_interpreters.py` creates the environments and names their folder in `SSR_TEST_OLD`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from rows import diff, git, written

from harness.cli.main import main
from pytest_ssr.campaign.factory import open_runner
from pytest_ssr.execution.fork_server import ForkRequest, ForkServer, UnfitError
from pytest_ssr.execution.plain_run import AGAIN, PlainCase, Surroundings
from pytest_ssr.execution.runner import Runner
from pytest_ssr.execution.selection import Selection
from pytest_ssr.grading.blind.rewrite import rewrite
from pytest_ssr.patch import FileEntry
from pytest_ssr.project.state import CodebaseState
from pytest_ssr.records.test_run import Outcome, RunStatus, SuiteRun
from pytest_ssr.settings import RuleSettings
from pytest_ssr.storage.store import Store

OLD = os.environ.get("SSR_TEST_OLD", "")
PYTHONS = sorted(p for p in Path(OLD).glob("python*/bin/python")) if OLD else []
pytestmark = [pytest.mark.bubblewrap, pytest.mark.long]

FILE = "tests/test_shop.py"
SHOP = """\
RATE = 7


def tax(price):
    return price * RATE // 100


class Cart:
    def __init__(self, prices):
        self.prices = prices

    @property
    def total(self):
        return sum(self.prices)
"""
TESTS = """\
import unittest

import pytest

from shop import Cart, tax


@pytest.mark.parametrize("price", [100, 200])
@pytest.mark.parametrize("count", [1, 2], ids=["a - b", "x::()::y"])
def test_pairs(price, count):
    what = "price"
    assert tax(price) * count == price * 7 // 100 * count, f"{what} {'times'}: {price!r:>{count}}"


class TestCart:
    class TestInner:
        def test_deep(self):
            assert Cart([]).total == 0

    @pytest.mark.parametrize("n", [3, 4])
    def test_total(self, n):
        assert Cart([n, n]).total == 2 * n


class UnitTests(unittest.TestCase):
    def test_tax(self):
        self.assertEqual(tax(100), 7)


@pytest.fixture
def broken():
    yield
    raise ValueError


def test_teardown_breaks(broken):
    pass


@pytest.mark.xfail
def test_xfails():
    assert tax(100) == 8


@pytest.mark.xfail
def test_xpasses():
    pass


def test_skips():
    pytest.skip("no")


def test_fails():
    assert tax(100) == 8
"""
OUTCOMES = {
    "test_pairs[a - b-100]": Outcome.PASSED,
    "test_pairs[a - b-200]": Outcome.PASSED,
    "test_pairs[x::()::y-100]": Outcome.PASSED,
    "test_pairs[x::()::y-200]": Outcome.PASSED,
    "TestCart::TestInner::test_deep": Outcome.PASSED,
    "TestCart::test_total[3]": Outcome.PASSED,
    "TestCart::test_total[4]": Outcome.PASSED,
    "UnitTests::test_tax": Outcome.PASSED,
    "test_teardown_breaks": Outcome.ERROR,
    "test_xfails": Outcome.XFAILED,
    "test_xpasses": Outcome.XPASSED,
    "test_skips": Outcome.SKIPPED,
    "test_fails": Outcome.FAILED,
}
PASSING = [name for name, outcome in OUTCOMES.items() if outcome is Outcome.PASSED]
FILES = {
    "shop.py": SHOP,
    FILE: TESTS,
    "pytest.ini": "[pytest]\naddopts = -x -v --durations 3 --strict\n",
}
OpenRunner = Callable[..., Runner]


def ids(*names: str) -> set[str]:
    return {f"{FILE}::{name}" for name in names}


def outcomes(run: SuiteRun) -> dict[str, Outcome]:
    return {name.partition("::")[2]: result.outcome for name, result in run.results.items()}


@pytest.fixture(params=PYTHONS, ids=lambda python: python.parent.parent.name)
def python(request: pytest.FixtureRequest) -> Path:
    assert isinstance(request.param, Path)
    return request.param


@pytest.fixture
def runner(tmp_path: Path, python: Path) -> Runner:
    for name, text in FILES.items():
        (tmp_path / "p" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "p" / name).write_text(text)
    settings = RuleSettings(time_limit_s=60.0)
    return open_runner(
        tmp_path / "p", Store(tmp_path / "store"), settings=settings, sandbox="bubblewrap", python=python
    )


def with_file(runner: Runner, path: str, data: str | bytes) -> CodebaseState:
    data = data.encode() if isinstance(data, str) else data
    return CodebaseState(runner.snapshot, {path: FileEntry(data)})


def test_ids_outcomes_and_facts_are_those_of_newer_versions(runner: Runner) -> None:
    run = runner.fresh(runner.original)
    assert run.status is RunStatus.COMPLETED, run.reason
    # How stacked marks are ordered differs between versions.
    assert sorted(run.collected) == sorted(ids(*OUTCOMES))
    assert outcomes(run) == OUTCOMES
    assert dict(run.parameters[f"{FILE}::test_pairs[a - b-200]"]) == {"count": 0, "price": 1}
    assert dict(run.parameters[f"{FILE}::TestCart::test_total[4]"]) == {"n": 1}
    assert run.addopts == ("-v", "--strict")
    assert run.sources == ("shop.py", FILE)
    assert "pytest" in run.modules


def test_another_order_changes_the_order_alone(runner: Runner) -> None:
    usual, reversed_ = (runner.fresh(runner.original, order_seed=seed) for seed in (None, 1))
    assert reversed_.collected == usual.collected[::-1]
    assert outcomes(reversed_) == OUTCOMES


def test_only_the_selected_tests_run_in_the_requested_order(runner: Runner) -> None:
    wanted = ids("TestCart::test_total[4]", "UnitTests::test_tax", "test_pairs[x::()::y-100]")
    first = [f"{FILE}::UnitTests::test_tax"]
    run = runner.fresh(runner.original, selection=Selection(wanted, first=first, reports_collected=True))
    assert run.status is RunStatus.COMPLETED
    assert set(run.results) == wanted
    assert run.collected[0] == first[0]
    assert set(run.before_selection) == ids(*OUTCOMES)


@pytest.mark.parametrize("counted", [True, False])
def test_a_run_stops_at_the_first_failure(runner: Runner, counted: bool) -> None:
    fails = ids("test_fails")
    selection = Selection(first=sorted(fails), stop_after=1, counted=fails if counted else None)
    run = runner.fresh(runner.original, selection=selection)
    assert run.status is RunStatus.COMPLETED, run.reason
    assert set(run.results) == fails


def test_a_changed_file_counts_as_exercised(runner: Runner) -> None:
    run = runner.fresh(with_file(runner, "shop.py", SHOP.replace("sum(", "2 * sum(")))
    assert run.exercised == {"shop.py"}
    assert outcomes(run)["TestCart::test_total[3]"] is Outcome.FAILED


def test_the_log_has_a_line_for_each_test(runner: Runner) -> None:
    output = runner.fresh(runner.original, verbose=True).output.decode()
    for name, outcome in OUTCOMES.items():
        if outcome is Outcome.PASSED:
            assert f"PASSED {FILE}::{name}" in output
    assert f"{FILE}::test_fails FAILED" in output
    assert "tax(100) == 8" in output


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ("import os\n\ndef test_a():\n    os._exit(0)\n", RunStatus.CRASHED),
        ("import nothing_like_it\n", RunStatus.COLLECTION_ERROR),
        ("def test_a(:\n", RunStatus.COLLECTION_ERROR),
        ("X = 1\n", RunStatus.NO_TESTS),
    ],
)
def test_every_kind_of_end_is_distinguished(runner: Runner, body: str, status: RunStatus) -> None:
    assert runner.fresh(with_file(runner, "tests/test_a.py", body), ["tests/test_a.py"]).status is status


def test_a_file_that_cannot_be_collected_does_not_stop_the_others(runner: Runner) -> None:
    run = runner.fresh(with_file(runner, "tests/test_a.py", "import nothing_like_it\n"))
    assert run.status is RunStatus.COLLECTION_ERROR
    assert outcomes(run) == OUTCOMES


def test_blind_tests_write_their_values(runner: Runner) -> None:
    blind = rewrite(TESTS.encode(), own=["shop"], full=True)
    lines, run = runner.values(with_file(runner, FILE, blind.text), [FILE], hash_seed=0, like_s=1.0)
    assert run.status is RunStatus.COMPLETED, run.reason
    records = [json.loads(line) for line in lines or ()]
    values = {name: values for name, _, _, values in records if values}
    assert values[f"{FILE}::TestCart::test_total[1]"][0] == 8
    assert values[f"{FILE}::UnitTests::test_tax"][0] == 7
    assert len({name for name, *_ in records}) >= len(PASSING)


def test_blind_tests_run_without_pytest_in_charge(runner: Runner, python: Path) -> None:
    if "pytest-3.0." in str(python):
        pytest.skip("functions have `pytestmark` since pytest 3.2; without it, tests with parameters write nothing")
    blind = rewrite(TESTS.encode(), own=["shop"], full=True)
    name = f"{FILE}::TestCart::test_total[1]"
    lines, _ = runner.plain_values(
        with_file(runner, FILE, blind.text), [PlainCase(name, {"n": 1})], Surroundings(7, True, 10**9, 1), like_s=1.0
    )
    found = {record[0]: record[3] for record in map(json.loads, lines) if record[3]}
    assert {found[name][0], found[name + AGAIN][0]} == {8}


def test_the_statements_that_tests_reach_are_recorded(runner: Runner) -> None:
    run, log = runner.probe(["shop.py"], [FILE], 0, None)
    assert outcomes(run) == OUTCOMES
    assert log.is_complete
    reached = log.statements(log.reached[f"{FILE}::UnitTests::test_tax"])
    assert {log.spots[index] for index in reached} >= {("shop.py", (5, 4))}


@pytest.mark.parametrize("mode", ["import", "swap"])
def test_a_fork_of_a_warm_process_gives_the_same_or_is_refused(runner: Runner, mode: str) -> None:
    server = ForkServer(runner.snapshot, runner.provider, runner.interpreter, runner.limits, ["unittest"], [FILE])
    request = ForkRequest(runner.original, targets=[FILE], functions={} if mode == "swap" else None)
    try:
        assert outcomes(server.run(request)) == OUTCOMES
    except UnfitError as error:
        pytest.skip(str(error))
    finally:
        server.close()


def test_a_row_is_resolved_by_its_own_solution_and_by_no_other(tmp_path: Path, python: Path) -> None:
    repository = tmp_path / "clones" / "acme__shop"
    old_tests = TESTS.partition("class UnitTests")[0]
    for name, text in {**FILES, FILE: old_tests, "shop.py": SHOP.replace("sum(", "len(")}.items():
        (repository / name).parent.mkdir(parents=True, exist_ok=True)
        (repository / name).write_text(text)
    git(repository, "init", "-q")
    git(repository, "add", "-A")
    git(repository, "commit", "-q", "-m", "first")
    base = git(repository, "rev-parse", "HEAD").strip()
    row = {
        "repo": "acme/shop",
        "instance_id": "acme__shop-1",
        "base_commit": base,
        "patch": diff(repository, {"shop.py": SHOP}),
        "test_patch": diff(repository, {FILE: TESTS}),
        "problem_statement": "The total is wrong.",
        "FAIL_TO_PASS": json.dumps(sorted(ids("TestCart::test_total[3]", "TestCart::test_total[4]"))),
        "PASS_TO_PASS": json.dumps(sorted(ids(*PASSING) - ids("TestCart::test_total[3]", "TestCart::test_total[4]"))),
        "version": "1.0",
    }
    dataset = str(written(tmp_path / "rows.jsonl", [row]))
    statuses = []
    for predictions in ("gold", "empty"):
        out = tmp_path / predictions
        common = ("--repos", str(repository.parent), "--python", str(python), "--sandbox", "bubblewrap")
        main(["eval", dataset, "--predictions", predictions, "--out", str(out), *common])
        lines = (out / "results.jsonl").read_text().splitlines()
        statuses += [(record["resolved"], record["status"]) for record in map(json.loads, lines)]
    assert [resolved for resolved, _ in statuses] == [True, False], statuses
