"""Screening: proof that changed code ran, tests that behave differently in forks, and changes that hang."""

from __future__ import annotations

import importlib.metadata
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from plain import plain_python

from pytest_ssr.campaign.campaign import Campaign
from pytest_ssr.campaign.factory import open_campaign
from pytest_ssr.campaign.trial import Trial
from pytest_ssr.execution.screening import FRESH, IMPORT, SWAP
from pytest_ssr.injectors.protocol import Candidate
from pytest_ssr.patch import FileEntry
from pytest_ssr.project.state import CodebaseState
from pytest_ssr.records.candidate_result import CandidateStatus
from pytest_ssr.records.test_run import RunStatus
from pytest_ssr.settings import RuleSettings
from pytest_ssr.storage.store import Store

pytestmark = pytest.mark.long

Open = Callable[[dict[str, str]], Campaign]
OTHER = "\n\ndef test_half():\n    assert calc.half(9) == 4\n"
CALC = "def double(x):\n    return x * 2\n\n\ndef half(x):\n    return x // 2\n"


@pytest.fixture
def campaign_on(tmp_path: Path) -> Iterator[Open]:
    """Open a campaign on a project made of some files."""
    opened: list[Campaign] = []

    def make(files: dict[str, str]) -> Campaign:
        for name, text in files.items():
            path = tmp_path / "project" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        store = Store(tmp_path / "store")
        opened.append(
            open_campaign(tmp_path / "project", store, settings=RuleSettings(), python=plain_python(), seed=0)
        )
        return opened[-1]

    yield make
    for campaign in opened:
        campaign.close()


def changed(campaign: Campaign, path: str, old: str, new: str) -> CodebaseState:
    text = campaign.runner.snapshot.read(path).decode()
    assert text.count(old) == 1
    return campaign.runner.original.replace({path: FileEntry(text.replace(old, new).encode(), 0o100644)})


def test_a_change_of_what_pytest_itself_imports_is_seen(tmp_path: Path, campaign_on: Open) -> None:
    package = tmp_path / "project" / "src" / "iniconfig"
    package.mkdir(parents=True)
    for path in importlib.metadata.files("iniconfig") or ():
        if path.parts[0] == "iniconfig" and path.suffix == ".py":
            shutil.copy2(str(path.locate()), package / path.name)
    tests = (
        "import iniconfig\n\n\ndef parsed(text):\n    return iniconfig.IniConfig('x.ini', data=text)\n\n\n"
        "def test_value():\n    assert parsed('[a]\\nb = 1\\n').get('a', 'b') == '1'\n\n\n"
        "def test_line():\n    assert parsed('[a]\\nb = 1\\n').lineof('a', 'b') == 2\n\n\n"
        "def test_nothing():\n    assert True\n"
    )
    campaign = campaign_on({"tests/test_ini.py": tests})
    assert "src/iniconfig/__init__.py" in campaign.baseline.sources
    state = changed(campaign, "src/iniconfig/__init__.py", "return None if lineno is None else lineno + 1", "return 0")
    screened = campaign.screening.run(state, runner=campaign.runner.scoped())
    assert screened.failing == {"tests/test_ini.py::test_line"}
    assert screened.tier in (SWAP, IMPORT)


@pytest.mark.parametrize("way", ["swap", "import", "survives"])
def test_a_file_that_was_loaded_as_it_is_changed_is_exercised(campaign_on: Open, way: str) -> None:
    campaign = campaign_on(
        {
            "calc.py": CALC,
            "test_calc.py": "import calc\n\n\ndef test_double():\n    assert calc.double(0) == 0\n" + OTHER,
        }
    )
    new = {"swap": "return x * 3", "import": "return x * 3\n\n\nLIMIT = 3", "survives": "return x * 4"}[way]
    screened = campaign.screening.run(changed(campaign, "calc.py", "return x * 2", new), runner=campaign.runner)
    assert not screened.failing
    assert screened.unexercised == ()
    assert screened.tier == (IMPORT if way == "import" else SWAP)


def test_a_module_that_replaces_itself_is_exercised(campaign_on: Open) -> None:
    lazy = (
        CALC
        + "\n\nimport sys\n\n\nclass Lazy:\n    double, half = staticmethod(double), staticmethod(half)\n\n\nsys.modules[__name__] = Lazy()\n"
    )
    campaign = campaign_on(
        {
            "other.py": CALC,
            "calc.py": lazy,
            "test_calc.py": "import calc, other\n\n\ndef test_double():\n    assert calc.double(0) == 0\n" + OTHER,
        }
    )
    screened = campaign.screening.run(changed(campaign, "calc.py", "Lazy()", "Lazy() or 1"), runner=campaign.runner)
    assert (screened.failing, screened.unexercised) == (frozenset(), ())


def test_a_change_that_nothing_loads_does_not_survive(campaign_on: Open) -> None:
    """The tests import another copy: that none of them fails proves nothing."""
    campaign = campaign_on(
        {
            "calc.py": CALC,
            "vendored/calc.py": CALC,
            "conftest.py": "import sys\n\nsys.path.insert(0, 'vendored')\nimport calc\n",
            "test_calc.py": "import calc\n\n\ndef test_double():\n    assert calc.double(2) == 4\n" + OTHER,
        }
    )
    state = changed(campaign, "calc.py", "return x * 2", "return x * 3")
    screened = campaign.screening.run(state, runner=campaign.runner)
    assert (screened.failing, screened.unexercised, screened.tier) == (frozenset(), ("calc.py",), FRESH)
    changes: dict[str, bytes | None] = {"calc.py": state.changes["calc.py"].data}  # type: ignore[union-attr]
    attempt = Trial(campaign, 0, Candidate("mutation", "by hand", changes, "calc.py", 2, "double")).finish()
    assert attempt is not None
    assert attempt.status is CandidateStatus.NOT_EXERCISED


FORK_TESTS = """\
import gc

import calc


def test_differs_in_forks():
    assert calc.double(3) == 6 and gc.get_freeze_count() == 0


def test_double():
    assert calc.double(2) == 4


def test_half():
    assert calc.half(9) == 4
"""


@pytest.mark.parametrize("new", ["return x * 2 + (x == 3)", "return x * 2 + 0"])
def test_only_the_test_that_differs_in_forks_runs_in_a_fresh_process(campaign_on: Open, new: str) -> None:
    campaign = campaign_on({"calc.py": CALC, "test_calc.py": FORK_TESTS})
    for _ in range(2):
        runner = campaign.runner.scoped()
        screened = campaign.screening.run(changed(campaign, "calc.py", "return x * 2", new), runner=runner)
        expected = {"test_calc.py::test_differs_in_forks"} if "==" in new else set()
        assert screened.failing == expected
        assert screened.tier == SWAP
        assert runner.counts.forks >= 1
        assert campaign.screening.unsteady == {}


def test_a_test_that_depends_on_others_and_on_the_fork_is_set_aside(campaign_on: Open) -> None:
    """In a fork it fails because of the state of the garbage collector there; alone it fails because no other test has prepared it."""
    tests = FORK_TESTS.replace(
        "def test_differs_in_forks():\n",
        "READY = []\n\n\ndef test_a_first():\n    READY.append(1)\n\n\ndef test_needs():\n",
    ).replace("    assert calc.double(3) == 6 and gc", "    assert calc.double(3) == 6 and READY and gc")
    campaign = campaign_on({"calc.py": CALC, "test_calc.py": tests})
    state = changed(campaign, "calc.py", "return x * 2", "return 2 * x")
    screened = campaign.screening.run(state, runner=campaign.runner)
    assert screened.failing == frozenset()
    assert set(campaign.screening.unsteady) == {"test_calc.py::test_needs"}


def test_a_change_that_hangs_ends_by_the_time_of_its_test_and_not_of_the_suite(campaign_on: Open) -> None:
    slow = "import time\n\nimport pytest\n\n\n@pytest.mark.parametrize('n', range(3))\ndef test_slow(n):\n    time.sleep(2)\n"
    campaign = campaign_on(
        {
            "calc.py": CALC,
            "test_calc.py": "import calc\n\n\ndef test_double():\n    assert calc.double(2) == 4\n",
            "test_slow.py": slow + "\n    import calc\n    assert calc.double(1) == 2\n",
        }
    )
    state = changed(campaign, "calc.py", "return x * 2", "while x == 2: pass\n    return x * 2")
    screened = campaign.screening.run(state, runner=campaign.runner.scoped())
    assert screened.run.status is RunStatus.TIMED_OUT
    # All of them may take 2 s + 5 * 6 s; the quick one, which comes first, 2.5 s.
    assert screened.run.seconds < 15
    assert not [i for i in screened.run.results if "test_slow" in i]


TABLE = """\
_TABLE = None


def build():
    return {"a": 1, "b": 2}


def table():
    global _TABLE
    if _TABLE is None:
        _TABLE = build()
    return _TABLE


def other():
    return 1
"""
TABLE_TESTS = """\
from table import build, other, table

LATER = []


def test_first():
    assert table()["a"] == 1


def test_depends_on_the_order():
    assert not LATER
    assert build()["b"] == 2


def test_kept():
    assert table()["b"] == 2


def test_other():
    LATER.append(1)
    assert other() == 1


def test_another():
    assert other() == 1
"""


def test_a_change_that_a_flickering_test_noticed_first_is_seen_by_the_tests_of_the_other_order(tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    (project / "table.py").write_text(TABLE)
    (project / "test_table.py").write_text(TABLE_TESTS)
    store = Store(tmp_path / "store")
    campaign = open_campaign(project, store, settings=RuleSettings(), python=plain_python(), seed=0)
    changes = {"table.py": TABLE.replace('"b": 2', '"b": 3').encode()}
    try:
        attempt = Trial(campaign, 0, Candidate("mutation", "by hand", changes, "table.py", 5, "build")).finish()
        assert campaign.set_aside == {"test_table.py::test_depends_on_the_order"}
    finally:
        campaign.close()
    assert attempt is not None
    assert attempt.status is CandidateStatus.VALID
    assert attempt.fail_to_pass == 1
