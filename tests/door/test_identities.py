"""Tests whose parameter ids change from process to process keep one identity: the position of the parameter set."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from plain import plain_python

from harness.exporters.skipped import SkipCode, SkippedError
from harness.exporters.tasks import plain_ids
from pytest_ssr.campaign.campaign import Campaign
from pytest_ssr.campaign.factory import open_campaign, open_runner
from pytest_ssr.checks.validator import Validation
from pytest_ssr.execution.baseline import SECOND_SEEDS, measure_baseline, verify
from pytest_ssr.execution.identities import by_position
from pytest_ssr.execution.script_template import default_parser, default_script, is_default
from pytest_ssr.patch import FileEntry, Patch
from pytest_ssr.project.pytest_config import options_of_script, position_options
from pytest_ssr.records.artifact import BugArtifact
from pytest_ssr.records.candidate_result import CandidateStatus
from pytest_ssr.records.check_reasons import CheckCode
from pytest_ssr.settings import RuleSettings
from pytest_ssr.storage.store import Store
from pytest_ssr.weakening.weaken import weaken

CLASS = "class P:\n    def __init__(self, v):\n        self.v = v\n\n\n"
HEAD = "import pytest\n\nimport shop\n\n\n"
BODY = "\ndef test_total(x):\n    assert shop.total([1, 2]) == 3\n"
UNSTABLE = {
    "addresses": CLASS + "@pytest.mark.parametrize('x', [P(1), P(2)], ids=repr)",
    "one address of three": CLASS + "@pytest.mark.parametrize('x', [1, P(2), 3], ids=repr)",
    "memory view": "@pytest.mark.parametrize('x', [memoryview(b'a')], ids=repr)",
    "lambda": "@pytest.mark.parametrize('x', [lambda: 1, lambda: 2], ids=str)",
    "uuid": "import uuid\n@pytest.mark.parametrize('x', [str(uuid.uuid4()) for _ in range(3)])",
    "uuid of a param": "import uuid\n@pytest.mark.parametrize('x', [pytest.param(1, id=uuid.uuid4().hex), 2])",
    "time": "import time\n@pytest.mark.parametrize('x', [time.time(), 1.5])",
    "process": "import os\n@pytest.mark.parametrize('x', [os.getpid(), 7])",
    "shuffled list": (
        "import random\n@pytest.mark.parametrize('x', [random.sample(range(99), 9) for _ in range(2)], ids=str)"
    ),
    "decimal address": "@pytest.mark.parametrize('x', [id(object()), 3])",
    "hash of a name": "@pytest.mark.parametrize('x', [hash('name'), 3])",
    "two lists": CLASS + "@pytest.mark.parametrize('y', [1, 2])\n@pytest.mark.parametrize('x', [P(1), P(2)], ids=repr)",
    "fixture": CLASS + "@pytest.fixture(params=[P(1), P(2)], ids=repr)\ndef x(request):\n    return request.param\n\n",
    "bracket": CLASS + "@pytest.mark.parametrize('x', [P(1)], ids=lambda p: f'a[0]::{p!r}]')",
}
STABLE = {
    "set": "@pytest.mark.parametrize('x', {'a', 'b', 'c', 'd'})",
    "numbers": "@pytest.mark.parametrize('x', [1, 1000000, 0x7f000000])",
    "objects without ids": CLASS + "@pytest.mark.parametrize('x', [P(1), P(2)])",
}


def runner_of(folder: Path, text: str):  # type: ignore[no-untyped-def]
    project = folder / "p"
    project.mkdir()
    (project / "shop.py").write_text("def total(values):\n    return sum(values)\n")
    (project / "test_shop.py").write_text(text)
    return open_runner(
        project, Store(folder / "store"), settings=RuleSettings(), sandbox="process", python=plain_python()
    )


def body_of(text: str) -> str:
    return BODY.replace("(x)", "(x, y)") if "'y'" in text else BODY


@pytest.mark.parametrize("kind", UNSTABLE)
def test_ids_that_change_are_replaced_by_positions(tmp_path: Path, kind: str) -> None:
    runner = runner_of(tmp_path, HEAD + UNSTABLE[kind] + body_of(UNSTABLE[kind]))
    baseline = measure_baseline(runner)
    assert baseline.by_position == ("test_shop.py::test_total",)
    expected = [f"test_shop.py::test_total[#{i}]" for i in range(len(baseline.collected))]
    assert list(baseline.collected) == expected
    assert baseline.stable == frozenset(expected)
    # Another process, with another hash seed and order, names them in the same way.
    second = verify(by_position(runner, baseline.by_position), baseline)
    assert second.set_aside == {}


@pytest.mark.parametrize("kind", STABLE)
def test_ids_that_stay_are_kept(tmp_path: Path, kind: str) -> None:
    runner = runner_of(tmp_path, HEAD + STABLE[kind] + BODY)
    baseline = measure_baseline(runner)
    assert baseline.by_position == ()
    assert not any("#" in test for test in baseline.collected)
    assert verify(runner, baseline).set_aside == {}


@pytest.mark.parametrize("way", ["marks", "hook"])
def test_tests_that_are_deselected_do_not_hide_the_others(tmp_path: Path, way: str) -> None:
    marked = CLASS + "@pytest.mark.parametrize('x', [P(1), pytest.param(P(2), marks=pytest.mark.slow), P(3)], ids=repr)"
    runner_of(tmp_path, HEAD + marked + BODY)
    project = tmp_path / "p"
    option = "addopts = -m 'not slow'\n" if way == "marks" else ""
    (project / "pytest.ini").write_text(f"[pytest]\nmarkers = slow\n{option}")
    if way == "hook":
        (project / "conftest.py").write_text(
            "def pytest_collection_modifyitems(items):\n"
            "    items[:] = [i for i in items if not i.get_closest_marker('slow')]\n"
        )
    store = Store(tmp_path / "other")
    runner = open_runner(project, store, settings=RuleSettings(), sandbox="process", python=plain_python())
    baseline = measure_baseline(runner)
    assert sorted(baseline.collected) == ["test_shop.py::test_total[#0]", "test_shop.py::test_total[#2]"]
    assert verify(by_position(runner, baseline.by_position), baseline).set_aside == {}


@pytest.mark.parametrize(
    "marks",
    [
        "@pytest.mark.parametrize('n,want', [(1, 2), (5, 5), (9, 7)], ids=['%s' % uuid.uuid4() for _ in range(3)])",
        "@pytest.mark.parametrize('n,want', [(1, 2), (5, 5), (9, 7)], ids=[str(uuid.uuid4()) + a for a in 'abc'])\n"
        "@pytest.mark.parametrize('y', [2, 3])",
    ],
    ids=["labels", "stacked"],
)
def test_a_weakening_never_moves_positions(marks: str) -> None:
    """Without one parameter set, another one would have its name."""
    names = "n, want, y" if "'y'" in marks else "n, want"
    text = f"import uuid\n\nimport pytest\n\n\n{marks}\ndef test_clip({names}):\n    assert n\n\n\ndef test_b():\n    pass\n"
    count = 6 if "'y'" in marks else 3
    clips = [f"test_shop.py::test_clip[#{n}]" for n in range(count)]
    weakened = weaken(
        lambda path: text.encode(),
        ["test_shop.py"],
        failing=clips[1:2],
        collected=[*clips, "test_shop.py::test_b"],
        parameters={name: (("n", n % 3), ("want", n % 3)) for n, name in enumerate(clips)},
    )
    assert set(weakened.removed) == set(clips)
    assert b"test_clip" not in weakened.changes["test_shop.py"]


def test_only_the_functions_that_need_it_are_named_by_position(tmp_path: Path) -> None:
    stable = "\n\n@pytest.mark.parametrize('x', ['a', 'b'])\ndef test_other(x):\n    assert x\n"
    runner = runner_of(tmp_path, HEAD + UNSTABLE["addresses"] + BODY + stable)
    other = {"test_shop.py::test_other[a]", "test_shop.py::test_other[b]"}
    assert set(measure_baseline(runner).collected) > other


def test_a_script_names_them_as_the_runs_do(tmp_path: Path) -> None:
    runner = runner_of(tmp_path, HEAD + UNSTABLE["addresses"] + BODY)
    baseline = measure_baseline(runner)
    script = default_script(["test_shop.py"], options=baseline.addopts)
    assert options_of_script(script) == position_options(baseline.by_position)
    assert is_default(script, default_parser())
    artifact = BugArtifact(script, ("test_shop.py",), default_parser(), Patch.parse(b""), Patch.parse(b""))
    statuses, _ = runner.script(runner.original, artifact)
    assert sorted(statuses.passing) == sorted(baseline.collected)


def test_the_names_of_very_many_functions_fit_into_an_argument(tmp_path: Path) -> None:
    many = [f"tests/test_{n:06d}.py::test_total" for n in range(5000)]
    assert position_options(many)[-1] == "ssr_by_position=*"
    runner = by_position(runner_of(tmp_path, HEAD + UNSTABLE["addresses"] + BODY), many)
    assert sorted(runner.fresh(runner.original).passing) == [f"test_shop.py::test_total[#{n}]" for n in range(2)]


THREE = (
    "import pytest\n\nimport shop\n\n\n"
    + CLASS
    + "@pytest.mark.parametrize('p', [P(1), P(5), P(9)], ids=repr)\ndef test_clip(p):\n"
    "    assert shop.clip(p.v, 2, 7) == {1: 2, 5: 5, 9: 7}[p.v]\n\n\ndef test_other():\n    assert shop.total([]) == 0\n"
)


@pytest.fixture
def campaign(tmp_path: Path):  # type: ignore[no-untyped-def]
    project = tmp_path / "p"
    project.mkdir()
    (project / "shop.py").write_text(
        "def total(values):\n    return sum(values)\n\n\ndef clip(x, low, high):\n    if x < low:\n        return low\n"
        "    if x > high:\n        return high\n    return x\n"
    )
    (project / "test_shop.py").write_text(THREE)
    store = Store(tmp_path / "store")
    opened = open_campaign(project, store, settings=RuleSettings(), sandbox="process", python=plain_python())
    yield opened
    opened.close()


def test_bugs_that_such_tests_notice_are_proven(campaign: Campaign) -> None:
    results = []
    while sum(r.status is CandidateStatus.VALID for r in results) < 2:
        result = campaign.attempt(len(results))
        assert result is not None
        results.append(result)
    assert not any(r.status is CandidateStatus.SURVIVED and r.scope == "clip" and not r.sign for r in results)
    campaign.settle([r for r in results if r.status is CandidateStatus.VALID], results)
    artifact = campaign.store.artifact(results[-1].artifact_id)
    failing = artifact.info["FAIL_TO_PASS"] if artifact.info is not None else []
    assert all("[#" in name or name.endswith("test_other") for name in failing)


def test_rows_for_other_harnesses_hold_no_positions(tmp_path: Path) -> None:
    runner = runner_of(tmp_path, HEAD + UNSTABLE["addresses"] + BODY)
    options = measure_baseline(runner).addopts
    script, nothing = default_script(["test_shop.py"], options=options), Patch.parse(b"")

    def artifact(*failing: str) -> BugArtifact:
        info = {"FAIL_TO_PASS": list(failing), "PASS_TO_PASS": ["a.py::b", "a.py::c[#1]"]}
        return BugArtifact(script, ("test_shop.py",), default_parser(), nothing, nothing, info)

    both = artifact("test_shop.py::test_total[#0]", "test_shop.py::test_b")
    assert plain_ids(both, "FAIL_TO_PASS") == ["test_shop.py::test_b"]
    assert plain_ids(both, "PASS_TO_PASS") == ["a.py::b"]
    with pytest.raises(SkippedError) as skipped:
        plain_ids(artifact("test_shop.py::test_total[#0]"), "FAIL_TO_PASS")
    assert skipped.value.code is SkipCode.POSITIONAL_IDS


def test_other_seeds_find_the_same_tests(tmp_path: Path) -> None:
    runner = runner_of(tmp_path, HEAD + UNSTABLE["addresses"] + BODY)
    named = by_position(runner, ["test_shop.py::test_total"])
    hash_seed, order_seed = SECOND_SEEDS
    run = named.fresh(named.original, hash_seed=hash_seed, order_seed=order_seed)
    assert sorted(run.passing) == ["test_shop.py::test_total[#0]", "test_shop.py::test_total[#1]"]
    plain = replace(named, pytest_options=())
    assert not frozenset(plain.fresh(plain.original).collected) & run.passing


BY_LINE = """\
import ast

import pytest

import shop

LINES = [node.lineno for node in ast.parse(open(shop.__file__).read()).body]


@pytest.mark.parametrize("line", LINES, ids=lambda line: f"shop.py:{line}")
def test_line(line):
    assert line


def test_total():
    assert shop.total([1, 2]) == 3
"""
SHOP_OF_TWO = "def total(values):\n    found = values\n    found = list(found)\n    return sum(found)\n\n\ndef name():\n    return 1\n"


def test_tests_whose_ids_hold_line_numbers_are_not_broken_by_a_line_that_goes(tmp_path: Path) -> None:
    runner = runner_of(tmp_path, BY_LINE)
    (tmp_path / "p" / "shop.py").write_text(SHOP_OF_TWO)
    store = Store(tmp_path / "other")
    settings = RuleSettings(min_passing_tests=1)
    runner = open_runner(tmp_path / "p", store, settings=settings, sandbox="process", python=plain_python())
    shorter = SHOP_OF_TWO.replace("    found = list(found)\n", "")
    original = runner.original
    buggy = original.replace({"shop.py": FileEntry(shorter.encode(), 0o100644)})
    weak = BY_LINE.replace("\n\n\n@pytest.mark.parametrize", "\n\n\n@pytest.mark.skip\n@pytest.mark.parametrize")
    weakened = original.replace({"test_shop.py": FileEntry(weak.encode(), 0o100644)})
    artifact = BugArtifact(
        script=default_script(["test_shop.py"], options=()),
        test_files=("test_shop.py",),
        parser=default_parser(),
        bug=buggy.patch_from(original),
        weaken=weakened.patch_from(original),
    )
    reason = Validation(artifact, runner).verdict().reason
    assert reason is not None
    assert reason.code is CheckCode.IDS_CHANGE
