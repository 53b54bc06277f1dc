"""Ids of rows and the tests they name, and runners that are chosen by them."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.datasets.instance import Instance, InstanceError
from harness.datasets.row_tests import RowTests, find_tests, statuses_by_row
from harness.datasets.test_runners import choose_runner, files_of_tests
from pytest_ssr.execution.test_runners import DJANGO, PYTEST, SYMPY, UNITTEST
from pytest_ssr.patch import FileEntry, Patch, make_patch
from pytest_ssr.records.decoding import decode
from pytest_ssr.records.test_run import CaseResult, Outcome, RunStatus, SuiteRun

PATH = "tests/app/tests.py"


def row(fail_to_pass: list[str], pass_to_pass: list[str] = [], *, test_paths: tuple[str, ...] = ()) -> Instance:  # noqa: B006
    test_patch = make_patch({path: (None, FileEntry(b"x\n", 0o100644)) for path in test_paths})
    empty = Patch.parse(b"")
    return Instance("a__b-1", "a/b", "c0ffee0", empty, test_patch, tuple(fail_to_pass), tuple(pass_to_pass))


def run(passed: list[str], failed: list[str] = [], names: dict[str, tuple[str, ...]] | None = None) -> SuiteRun:  # noqa: B006
    results = {i: CaseResult(Outcome.PASSED, 0.0) for i in passed}
    results |= {i: CaseResult(Outcome.FAILED, 0.0) for i in failed}
    return SuiteRun(RunStatus.COMPLETED, results=results, collected=(*passed, *failed), names=names or {})


def test_exact_ids_are_kept() -> None:
    tests = find_tests(row(["t.py::a"], ["t.py::b"]), run(["t.py::a", "t.py::b"]), run(["t.py::b"], ["t.py::a"]))
    assert tests == RowTests({"t.py::a": ("t.py::a",)}, {"t.py::b": ("t.py::b",)})
    assert decode(RowTests, tests.to_json()) == tests


def test_a_name_of_another_runner_or_a_docstring_names_its_test() -> None:
    one, two = f"{PATH}::ATest::test_a", f"{PATH}::ATest::test_b"
    names = {one: ("test_a (app.tests.ATest)",), two: ("test_b (app.tests.ATest)", "It adds.")}
    tests = find_tests(
        row(["test_a (app.tests.ATest)"], ["It adds."]), run([one, two], names=names), run([two], [one], names)
    )
    assert tests.failing == {one}
    assert tests.passing == {two}


def test_an_id_cut_at_a_space_names_all_tests_that_it_may_be() -> None:
    tests = find_tests(
        row(["t.py::a[x"], ["t.py::b[1"]),
        run(["t.py::a[x y]", "t.py::a[x z]", "t.py::b[1 2]"]),
        run(["t.py::a[x z]", "t.py::b[1 2]"], ["t.py::a[x y]"]),
    )
    # The bug breaks one of the two; the other must stay passing.
    assert tests.failing == {"t.py::a[x y]"}
    assert tests.passing == {"t.py::a[x z]", "t.py::b[1 2]"}


def test_numbers_of_unnamed_parameter_sets_are_matched_by_position() -> None:
    wanted = ["t.py::a[in-output183]", "t.py::a[in-output185]"]
    collected = ["t.py::a[in-output181]", "t.py::a[in-output190]"]
    tests = find_tests(row(["t.py::b"], wanted), run([*collected, "t.py::b"]), run(collected, ["t.py::b"]))
    assert tests.pass_to_pass == dict(zip(wanted, [(i,) for i in collected], strict=True))
    fewer = find_tests(row(["t.py::b"], wanted), run([*collected[:1], "t.py::b"]), run([], ["t.py::b"]))
    assert fewer.set_aside == tuple(wanted)


def test_pass_to_pass_ids_that_do_not_hold_are_set_aside() -> None:
    wanted = ["t.py::ok", "t.py::fails", "t.py::gone"]
    tests = find_tests(row(["t.py::a"], wanted), run(["t.py::a", "t.py::ok"], ["t.py::fails"]), run([], ["t.py::a"]))
    assert tests.set_aside == ("t.py::fails", "t.py::gone")
    assert tests.passing == {"t.py::ok"}


@pytest.mark.parametrize(
    ("solved", "unsolved"),
    [
        (run([], ["t.py::a"]), run([], ["t.py::a"])),
        (run([]), run([])),
        (run(["t.py::a"]), run(["t.py::a"])),
    ],
)
def test_fail_to_pass_ids_that_do_not_hold_make_a_row_unusable(solved: SuiteRun, unsolved: SuiteRun) -> None:
    with pytest.raises(InstanceError):
        find_tests(row(["t.py::a"]), solved, unsolved)


def test_the_status_of_an_id_is_that_of_its_first_test_that_did_not_pass() -> None:
    statuses = {"one": "passed", "two": "failed"}
    assert statuses_by_row({"a": ("one",), "b": ("one", "two"), "c": ("gone",)}, statuses) == {
        "a": "passed",
        "b": "failed",
        "c": "missing",
    }


def tree(folder: Path, *paths: str) -> Path:
    for path in paths:
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text("")
    return folder


def test_the_runner_is_chosen_by_the_ids_and_the_tree(tmp_path: Path) -> None:
    unit = row(["test_a (app.tests.ATest)"])
    assert choose_runner(row(["tests/t.py::a"]), tmp_path) is PYTEST
    assert choose_runner(unit, tmp_path) is UNITTEST
    django = tree(tmp_path / "d", "tests/runtests.py", "django/__init__.py")
    assert choose_runner(unit, django) is DJANGO
    assert choose_runner(row(["It adds."]), django) is DJANGO
    assert choose_runner(row(["test_a"]), tree(tmp_path / "s", "bin/test", "sympy/__init__.py")) is SYMPY
    with pytest.raises(InstanceError):
        choose_runner(row(["test_a"]), tmp_path)


def test_the_files_of_other_runners_are_those_of_the_test_patch(tmp_path: Path) -> None:
    tree(tmp_path, PATH, "tests/app/data.json", "tests/t.py")
    changed = (PATH, "tests/app/data.json", "tests/app/gone.py")
    assert files_of_tests(row(["It adds."], test_paths=changed), DJANGO, tmp_path) == [PATH]
    assert files_of_tests(row(["tests/t.py::a"], test_paths=changed), PYTEST, tmp_path) == ["tests/t.py"]
    with pytest.raises(InstanceError):
        files_of_tests(row(["It adds."]), DJANGO, tmp_path)
    with pytest.raises(InstanceError):
        files_of_tests(row(["tests/gone.py::a"]), PYTEST, tmp_path)
