"""Which files belong to the tests: by how pytest came to load them, not by the names of their folders."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from plain import plain_python

from pytest_ssr.campaign.artifact_builder import make_artifact
from pytest_ssr.campaign.campaign import Campaign
from pytest_ssr.campaign.factory import open_campaign
from pytest_ssr.checks.validator import Validation
from pytest_ssr.errors import ProjectError
from pytest_ssr.grading import grade_patch
from pytest_ssr.patch import FileEntry
from pytest_ssr.project.state import CodebaseState
from pytest_ssr.records.artifact import BugArtifact
from pytest_ssr.records.candidate_result import CandidateStatus
from pytest_ssr.records.check_reasons import CheckCode
from pytest_ssr.records.reasons import FlagCode
from pytest_ssr.records.verdict import Verdict
from pytest_ssr.settings import RuleSettings
from pytest_ssr.storage.store import Store
from pytest_ssr.weakening.weaken import weaken

SHOP = "def total(values):\n    return sum(values)\n"
PLUGIN = "import pytest\n\n\n@pytest.fixture\ndef prices():\n    return [1, 2]\n"
TEST = "import shop\n\n\ndef test_total(prices):\n    assert shop.total(prices) == 3\n\n\ndef test_b():\n    pass\n"
HELPER = "def check(value):\n    assert value == 3\n"
HELPED = "import shop\nfrom {0} import check\n\n\ndef test_total():\n    check(shop.total([1, 2]))\n\n\ndef test_b():\n    pass\n"
ENTRY = '[project]\nname = "p"\nversion = "1"\n[project.entry-points.pytest11]\np = "shout.plugin"\n'
Open = Callable[[dict[str, str]], Campaign]

LOADED = {
    "named in conftest.py": (
        {"conftest.py": "pytest_plugins = ['spec.cases']\n", "spec/__init__.py": "", "spec/cases.py": PLUGIN},
        "spec/cases.py",
    ),
    "named as a text": ({"conftest.py": "pytest_plugins = 'cases'\n", "cases.py": PLUGIN}, "cases.py"),
    "named in a test file": ({"cases.py": PLUGIN, "test_shop.py": f"pytest_plugins = ('cases',)\n{TEST}"}, "cases.py"),
    "named by a plugin": (
        {"conftest.py": "pytest_plugins = ['one']\n", "one.py": "pytest_plugins = ['two']\n", "two.py": PLUGIN},
        "two.py",
    ),
    "a package": (
        {
            "conftest.py": "pytest_plugins = ['kit']\n",
            "kit/__init__.py": "from kit.fixtures import prices\n",
            "kit/fixtures.py": PLUGIN,
        },
        "kit/fixtures.py",
    ),
    "option -p in addopts": ({"pytest.ini": "[pytest]\naddopts = -p cases\n", "cases.py": PLUGIN}, "cases.py"),
    "option -p in TOML": ({"pytest.toml": '[pytest]\naddopts = ["-pcases"]\n', "cases.py": PLUGIN}, "cases.py"),
    "in src": ({"conftest.py": "pytest_plugins = ['cases']\n", "src/cases.py": PLUGIN}, "src/cases.py"),
    "registered by hand": (
        {"conftest.py": "import cases\n\n\ndef pytest_configure(config):\n    config.pluginmanager.register(cases)\n"}
        | {"cases.py": PLUGIN},
        "cases.py",
    ),
    "rewritten on request": (
        {"conftest.py": "import pytest\n\npytest.register_assert_rewrite('helper')\n", "helper.py": HELPER}
        | {"test_shop.py": HELPED.format("helper")},
        "helper.py",
    ),
    "rewritten package": (
        {"conftest.py": "import pytest\n\npytest.register_assert_rewrite('kit')\n", "kit/__init__.py": ""}
        | {"kit/helper.py": HELPER, "test_shop.py": HELPED.format("kit.helper")},
        "kit/helper.py",
    ),
    "test files with other names": (
        {"pytest.ini": "[pytest]\npython_files = *_spec.py\n", "shop_spec.py": TEST, "conftest.py": PLUGIN},
        "shop_spec.py",
    ),
}
OWN = {
    "own plugin, by a conftest": {
        "pyproject.toml": ENTRY,
        "conftest.py": "pytest_plugins = ['shout.plugin']\n",
        "shout/__init__.py": "",
        "shout/plugin.py": PLUGIN,
        "test_shop.py": TEST,
    },
    "own plugin, in src": {
        "pyproject.toml": ENTRY,
        "conftest.py": "pytest_plugins = ['shout.plugin']\n",
        "src/shout/__init__.py": "",
        "src/shout/plugin.py": PLUGIN,
        "test_shop.py": TEST,
    },
    "own plugin of setup.cfg": {
        "setup.cfg": "[options.entry_points]\npytest11 =\n    p = shout.plugin\n",
        "conftest.py": "pytest_plugins = ['shout.plugin']\n",
        "shout/__init__.py": "",
        "shout/plugin.py": PLUGIN,
        "test_shop.py": TEST,
    },
    "own plugin of an installation": {
        "p.egg-info/entry_points.txt": "[pytest11]\np = shout.plugin\n",
        "shout/__init__.py": "",
        "shout/plugin.py": PLUGIN,
        "test_shop.py": TEST,
    },
}


WHOLE = {
    "registered as a whole": "import pytest\n\npytest.register_assert_rewrite('pkg')\n",
    "named as a whole": "pytest_plugins = ['pkg']\n",
}
SETUP = "from setuptools import setup\n\nsetup(name='p', entry_points={'pytest11': ['x = shout.plugin']})\n"
OWN["own plugin of setup.py"] = {
    "setup.py": SETUP,
    "conftest.py": "pytest_plugins = ['shout.plugin']\n",
    "shout/__init__.py": "",
    "shout/plugin.py": PLUGIN,
    "test_shop.py": TEST,
}


@pytest.fixture
def campaign_on(tmp_path: Path) -> Iterator[Open]:
    opened: list[Campaign] = []

    def open_on(files: dict[str, str]) -> Campaign:
        project = tmp_path / "p"
        for name, text in files.items():
            (project / name).parent.mkdir(parents=True, exist_ok=True)
            (project / name).write_text(text)
        store, python = Store(tmp_path / "store"), plain_python()
        opened.append(open_campaign(project, store, settings=RuleSettings(), sandbox="process", python=python))
        return opened[-1]

    yield open_on
    for campaign in opened:
        campaign.close()


@pytest.mark.parametrize("kind", LOADED)
def test_what_pytest_loads_for_the_tests_is_not_changed(campaign_on: Open, kind: str) -> None:
    files, path = LOADED[kind]
    tests = {} if "shop_spec.py" in files else {"test_shop.py": TEST}
    campaign = campaign_on({"shop.py": SHOP, **tests, **files})
    assert campaign.snapshot.allowed is not None
    assert "shop.py" in campaign.snapshot.allowed
    assert path not in campaign.snapshot.allowed


@pytest.mark.parametrize("kind", OWN)
def test_a_plugin_that_the_project_provides_is_its_code(campaign_on: Open, kind: str) -> None:
    campaign = campaign_on({"shop.py": SHOP, **OWN[kind]})
    assert campaign.snapshot.allowed is not None
    assert any(path.endswith("shout/plugin.py") for path in campaign.snapshot.allowed)


@pytest.mark.parametrize("kind", WHOLE)
def test_a_project_that_pytest_rewrites_as_a_whole_is_still_code(campaign_on: Open, kind: str) -> None:
    test = (
        "from pkg import shop\n\n\ndef test_total():\n    assert shop.total([1, 2]) == 3\n\n\ndef test_b():\n    pass\n"
    )
    files = {"conftest.py": WHOLE[kind], "pkg/__init__.py": "", "pkg/shop.py": SHOP, "tests/test_shop.py": test}
    campaign = campaign_on({**files, "pytest.ini": "[pytest]\npythonpath = .\n"})
    assert campaign.snapshot.allowed is not None
    assert "pkg/shop.py" in campaign.snapshot.allowed


def test_a_project_of_plugins_alone_is_refused_with_the_reason(campaign_on: Open) -> None:
    test = "def test_a(prices):\n    assert prices == [1, 2]\n\n\ndef test_b():\n    pass\n"
    with pytest.raises(ProjectError, match=r"cases\.py"):
        campaign_on({"conftest.py": "pytest_plugins = ['cases']\n", "cases.py": PLUGIN, "test_shop.py": test})


def test_an_artifact_with_a_bug_in_a_plugin_of_the_tests_is_rejected(campaign_on: Open) -> None:
    """Others may send such an artifact; its own tests do notice the bug."""
    campaign = campaign_on({"conftest.py": "pytest_plugins = ['cases']\n", "cases.py": PLUGIN} | SHOP_AND_TEST)
    index = 0
    while (result := campaign.attempt(index)) is not None and result.status is not CandidateStatus.VALID:
        index += 1
    assert result is not None
    campaign.settle([result], [result])
    good = campaign.store.artifact(result.artifact_id)
    original = CodebaseState(campaign.runner.snapshot)
    entry = original.entry("cases.py")
    assert entry is not None
    buggy = original.replace({"cases.py": FileEntry(entry.data.replace(b"[1, 2]", b"[1, 3]"), entry.mode)})
    bad = BugArtifact(good.script, good.test_files, good.parser, buggy.patch_from(original), good.weaken)
    verdict = Validation(bad, campaign.runner.scoped()).verdict()
    assert not verdict.valid
    assert verdict.rejected_by == "bug-scope"
    assert verdict.reason is not None
    assert verdict.reason.code is CheckCode.TEST_SURFACE_CHANGED


@pytest.mark.long
def test_a_patch_of_a_plugin_of_the_tests_repairs_nothing(campaign_on: Open) -> None:
    """The plugin's values are made to fit the bug."""
    campaign = campaign_on({"conftest.py": "pytest_plugins = ['cases']\n", "cases.py": PLUGIN} | SHOP_AND_TEST)
    original = CodebaseState(campaign.runner.snapshot)
    entries = {path: original.entry(path) for path in ("shop.py", "cases.py")}

    def changed(path: str, old: bytes, new: bytes) -> CodebaseState:
        entry = entries[path]
        assert entry is not None
        return original.replace({path: FileEntry(entry.data.replace(old, new), entry.mode)})

    buggy = changed("shop.py", b"sum(values)", b"sum(values) + 1")
    failing = frozenset({"test_shop.py::test_total"})
    artifact = make_artifact(buggy, failing, campaign.baseline, campaign.runner.settings)
    verdict = Validation(artifact, campaign.runner.scoped()).verdict()
    assert verdict.valid
    assert "cases.py" in verdict.surface
    assert Verdict.from_json(verdict.to_json()) == verdict
    patch = changed("cases.py", b"[1, 2]", b"[1, 1]").patch_from(original)
    grade = grade_patch(
        campaign.runner.scoped(),
        artifact,
        patch,
        fail_to_pass=verdict.fail_to_pass,
        pass_to_pass=verdict.pass_to_pass,
        surface=verdict.surface,
    )
    assert grade.tests is False
    assert [flag.code for flag in grade.flags] == [FlagCode.TESTS_RESTORED]


SHOP_AND_TEST = {"shop.py": SHOP, "test_shop.py": TEST}
COLLECTOR = """\
import pytest

import shop


def pytest_collect_file(parent, file_path):
    if file_path.suffix == ".sum":
        return Sums.from_parent(parent, path=file_path)


class Sums(pytest.File):
    def collect(self):
        for number, line in enumerate(self.path.read_text().splitlines()):
            yield Line.from_parent(self, name=f"line {number}", line=line)


class Line(pytest.Item):
    def __init__(self, *, line, **kwargs):
        super().__init__(**kwargs)
        self.line = line

    def runtest(self):
        values, expected = self.line.split("=")
        assert shop.total(map(int, values.split("+"))) == int(expected)
"""


def test_tests_of_collectors_alone_give_no_artifact_and_this_is_said_at_once(campaign_on: Open) -> None:
    campaign = campaign_on({"shop.py": SHOP, "conftest.py": COLLECTOR, "a.sum": "1+2=3\n1+1=2\n"})
    assert campaign.baseline.by_collectors == {"a.sum::line 0", "a.sum::line 1"}
    with pytest.raises(ProjectError):
        campaign.require_artifacts()


def test_tests_of_collectors_beside_others_are_evidence(campaign_on: Open) -> None:
    code = SHOP + "\n\ndef largest(values):\n    return max(values)\n"
    test = (
        "import shop\n\n\ndef test_largest():\n    assert shop.largest([1, 3, 2]) == 3\n\n\ndef test_b():\n    pass\n"
    )
    campaign = campaign_on({"shop.py": code, "conftest.py": COLLECTOR, "a.sum": "1+2=3\n1+1=2\n", "test_shop.py": test})
    campaign.require_artifacts()
    # Candidates that only they reach come last.
    scopes: list[str] = []
    while (candidate := campaign.candidate(len(scopes))) is not None:
        scopes.append(candidate.scope if candidate.strategy != "combination" else "")
    only_totals = [i for i, scope in enumerate(scopes) if scope == "total"]
    assert min(only_totals) > max(i for i, scope in enumerate(scopes) if scope == "largest")


GENERATED = {
    "globals": "for n in range(3):\n    globals()[f'test_sum_{n}'] = lambda: check()\n",
    "exec": "exec('def test_' + 'sum(): check()')\n",
    "a class made at run time": "TestSum = type('TestSum', (), {'test_sum_' + 'a': lambda self: check()})\n",
    "set on a class": "class TestSum:\n    pass\n\n\nsetattr(TestSum, 'test_' + 'sum', lambda self: check())\n",
    "another name": "def _check_sum():\n    check()\n\n\ntest_sum = _check_sum\n",
    "unittest, by a loop": (
        "import unittest\n\n\nclass TestSum(unittest.TestCase):\n    pass\n\n\n"
        "for n in range(2):\n    setattr(TestSum, f'test_sum_{n}', lambda self: check())\n"
    ),
}
DEFINED = {
    "a function": "def test_sum():\n    check()\n",
    "an async-like name": "class TestSum:\n    def test_sum(self):\n        check()\n",
    "unittest": "import unittest\n\n\nclass TestSum(unittest.TestCase):\n    def test_sum(self):\n        check()\n",
    "a base class in the file": (
        "class Base:\n    def test_sum(self):\n        check()\n\n\nclass TestSum(Base):\n    pass\n"
    ),
    "a base class elsewhere": "from helper import Base\n\n\nclass TestSum(Base):\n    pass\n",
    "parametrized": "import pytest\n\n\n@pytest.mark.parametrize('x', [1, 2])\ndef test_sum(x):\n    check()\n",
}
CHECK = "import shop\n\n\ndef check():\n    assert shop.total([1, 2]) == 3\n\n\ndef test_b():\n    pass\n\n\n"
BASE = "import shop\n\n\nclass Base:\n    def test_sum(self):\n        assert shop.total([1, 2]) == 3\n"


@pytest.mark.parametrize("kind", [*GENERATED, *DEFINED])
def test_tests_that_no_file_defines_are_known_before_any_change_is_tried(campaign_on: Open, kind: str) -> None:
    text = GENERATED.get(kind) or DEFINED[kind]
    campaign = campaign_on({"shop.py": SHOP, "helper.py": BASE, "test_shop.py": CHECK + text})
    expected = {t for t in campaign.baseline.stable if "sum" in t.lower()} if kind in GENERATED else set()
    assert campaign.generated == expected
    assert bool(expected) == (kind in GENERATED)
    base = campaign.baseline
    tried = weaken(
        campaign.snapshot.read,
        base.defining_files,
        failing={t for t in base.stable if "sum" in t.lower()},
        collected=base.collected,
        parameters=base.parameters,
    )
    assert set(tried.unremovable) == expected


def test_a_suite_of_docstrings_gives_no_artifact(campaign_on: Open) -> None:
    code = "".join(
        f'def {name}():\n    """\n    >>> {name}()\n    1\n    """\n    return 1\n\n\n' for name in ("one", "two")
    )
    campaign = campaign_on({"shop.py": code, "pytest.ini": "[pytest]\naddopts = --doctest-modules\n"})
    with pytest.raises(ProjectError):
        campaign.require_artifacts()


@pytest.mark.parametrize(
    ("mark", "status"),
    [
        # It fails in the sandbox, perhaps for lack of a network, and may pass elsewhere.
        ("", CandidateStatus.UNDECIDED),
        ("@pytest.mark.xfail\n", CandidateStatus.SURVIVED),
        ("@pytest.mark.skip\n", CandidateStatus.SURVIVED),
    ],
)
def test_a_change_that_a_test_set_aside_reaches_does_not_survive(
    campaign_on: Open, mark: str, status: CandidateStatus
) -> None:
    test = (
        "import pytest\n\nimport shop\n\n\n"
        f"{mark}def test_remote():\n    assert shop.total([1, 2]) == 3\n    raise OSError('no network')\n\n\n"
        "def test_loose():\n    shop.total([1])\n\n\ndef test_b():\n    pass\n"
    )
    campaign = campaign_on({"shop.py": SHOP, "test_shop.py": test})
    results = [campaign.attempt(index) for index in range(3)]
    assert {r.status for r in results if r is not None and not r.sign} & {status}
    others = {CandidateStatus.SURVIVED, CandidateStatus.UNDECIDED} - {status}
    assert not {r.status for r in results if r is not None} & others


IN_PROCESS = """\
import pytest

import shop


def test_inner(tmp_path, monkeypatch):
    (tmp_path / "conftest.py").write_text("X = 1\\n")
    (tmp_path / "shop.py").write_text("Y = 1\\n")
    (tmp_path / "test_inner.py").write_text("def test_a():\\n    pass\\n")
    monkeypatch.chdir(tmp_path)
    assert pytest.main([str(tmp_path), "-q", "-p", "no:cacheprovider"]) == 0


def test_pytester(pytester):
    pytester.makeconftest("import pytest\\n\\n\\n@pytest.fixture\\ndef one():\\n    return 1\\n")
    pytester.makepyfile("def test_a(one):\\n    assert one == 1\\n")
    pytester.runpytest_inprocess().assert_outcomes(passed=1)


def test_total():
    assert shop.total([1, 2]) == 3
"""


def test_tests_that_run_pytest_in_their_own_process_are_used(campaign_on: Open) -> None:
    conftest = "pytest_plugins = ['pytester']\n"
    campaign = campaign_on({"conftest.py": conftest, "tests/test_shop.py": IN_PROCESS, "shop.py": SHOP})
    assert len(campaign.baseline.stable) == 3
    result = next(r for i in range(20) if (r := campaign.attempt(i)) and r.status is CandidateStatus.VALID)
    assert result.path == "shop.py"
