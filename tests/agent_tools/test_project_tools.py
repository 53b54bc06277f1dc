"""The tools for agents without the protocol: what they answer, refuse and write."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from plain import plain_python
from reviewed_project import make_project

from harness.agent_tools.answers import ReviewAnswer
from harness.agent_tools.project_tools import MOST_CONTENT, ProjectTools
from harness.settings.agent_tools import McpSettings
from harness.settings.sections import ExecutionSettings
from pytest_ssr.campaign.acceptances import AcceptanceKind, read_acceptances
from pytest_ssr.errors import NoRunError, SettingsError
from pytest_ssr.extensions import Extensions
from pytest_ssr.suggestions.verification import Verdict

pytestmark = pytest.mark.bubblewrap
TEST = "import calc\n\n\ndef test_high():\n    assert calc.clamp({}, 5) == {}\n"
NOTICING = TEST.format(7, 5)


def quiet(line: str) -> None:
    pass


def tools_of(project: Path) -> ProjectTools:
    settings = McpSettings(repo=project, execution=ExecutionSettings(python=plain_python()))
    return ProjectTools(settings, Extensions())


class Reviewed:
    """A project after a review."""

    def __init__(self, folder: Path) -> None:
        self.project = make_project(folder)
        self.tools = tools_of(self.project)
        self.review: ReviewAnswer = self.tools.review("", 60, quiet)

    def survivor(self, text: str = "return high") -> str:
        """Return the survivor that removes the limit."""
        ids = [remark.id for remark in self.review.remarks]
        return next(id for id in ids if text in self.tools.explain_survivor(id).diff)


@pytest.fixture(scope="module")
def reviewed(tmp_path_factory: pytest.TempPathFactory) -> Reviewed:
    return Reviewed(tmp_path_factory.mktemp("reviewed") / "project")


def test_before_a_review_there_is_no_survivor(tmp_path: Path) -> None:
    project = make_project(tmp_path / "project")
    with pytest.raises(NoRunError):
        tools_of(project).explain_survivor("abc")
    assert not (project / ".ssr").exists()


def test_an_id_may_be_shortened(reviewed: Reviewed) -> None:
    survivor = reviewed.survivor()
    assert reviewed.tools.explain_survivor(survivor[:-1]).id == survivor


@pytest.mark.parametrize(
    ("content", "verdict"),
    [
        (NOTICING, Verdict.VERIFIED),
        (TEST.format(7, 7), Verdict.ORIGINAL),
        (TEST.format(3, 3), Verdict.CHANGE),
        ("def test_nothing():\n    pass\n", Verdict.CHANGE),
        ("import calc\n", Verdict.ORIGINAL),
        ("import no_such_module\n\ndef test_a():\n    pass\n", Verdict.ORIGINAL),
        (f"{NOTICING}\n\ndef test_other():\n    assert False\n", Verdict.ORIGINAL),
        ("import os\n\ndef test_a():\n    os._exit(0)\n", Verdict.ORIGINAL),
    ],
)
def test_which_of_the_two_does_not_hold(reviewed: Reviewed, content: str, verdict: Verdict) -> None:
    found = reviewed.tools.verify_test(reviewed.survivor(), content, quiet)
    assert (found.verdict, found.verified) == (str(verdict), verdict is Verdict.VERIFIED)
    assert found.folder == "tests"
    assert (reviewed.project / found.file).is_file()
    assert not list(reviewed.project.glob("**/test_suggested*"))


def test_a_test_that_notices_by_chance_is_not_verified(reviewed: Reviewed) -> None:
    chance = (
        "import os\nimport calc\n\n\ndef test_a():\n    found = calc.clamp(7, 5)\n"
        "    assert found == 5 or os.environ['PYTHONHASHSEED'] != '0'\n"
    )
    found = reviewed.tools.verify_test(reviewed.survivor(), chance, quiet)
    assert found.verdict == Verdict.CHANGE


def test_what_tests_print_is_escaped_and_limited(reviewed: Reviewed) -> None:
    content = "def test_a():\n    raise ValueError('\\x1b[31m' + 'x' * 100_000)\n"
    found = reviewed.tools.verify_test(reviewed.survivor(), content, quiet)
    assert found.messages
    assert all(message.isprintable() and len(message) < 500 for message in found.messages)


def test_a_test_does_not_write_into_the_project(reviewed: Reviewed) -> None:
    target = reviewed.project / "stolen"
    content = f"def test_a():\n    open({str(target)!r}, 'w').write('a')\n"
    reviewed.tools.verify_test(reviewed.survivor(), content, quiet)
    assert not target.exists()


@pytest.mark.parametrize(
    "content",
    [
        "def test_a(:\n",
        "a = 1\0\n",
        "a = '\ud800'\n",
        "a = " + "(" * 50_000,
        "#" * (MOST_CONTENT + 1),
        "-" * 90_000 + "1",
    ],
    ids=["syntax", "null", "surrogate", "nested", "large", "deep"],
)
def test_content_that_is_no_test_file(reviewed: Reviewed, content: str) -> None:
    with pytest.raises(SettingsError):
        reviewed.tools.verify_test(reviewed.survivor(), content, quiet)


@pytest.mark.parametrize("time_s", [0, -1, float("nan"), float("inf"), 1e9])
def test_times_that_are_none(reviewed: Reviewed, time_s: float) -> None:
    with pytest.raises(SettingsError):
        reviewed.tools.review("", time_s, quiet)


@pytest.mark.parametrize("rev", ["nowhere", "--help", "a\0b", "\ud800", "x" * 100_000])
def test_revisions_that_are_none(reviewed: Reviewed, rev: str) -> None:
    with pytest.raises(SettingsError):
        reviewed.tools.review(rev, 60, quiet)


def test_a_test_is_looked_for_if_the_review_had_no_time(tmp_path: Path) -> None:
    reviewed = Reviewed(tmp_path / "project")
    survivor = reviewed.survivor()
    known = reviewed.tools.suggest_test(survivor, quiet)
    for path in (reviewed.project / ".ssr").glob("suggestions/*/*.json"):
        path.unlink()
    assert reviewed.tools.verify_test(survivor, NOTICING, quiet).folder == "tests"
    lines: list[str] = []
    found = reviewed.tools.suggest_test(survivor, lines.append)
    assert found.found
    assert found.content == known.content
    assert lines, "it was looked for"
    lines.clear()
    assert reviewed.tools.suggest_test(survivor, lines.append) == found
    assert not lines, "it was kept"


def test_code_that_has_changed_is_not_judged(tmp_path: Path) -> None:
    reviewed = Reviewed(tmp_path / "project")
    survivor = reviewed.survivor()
    code = reviewed.project / "calc.py"
    code.write_text(code.read_text().replace("return high", "return max(high, high)"))
    with pytest.raises(SettingsError):
        reviewed.tools.verify_test(survivor, NOTICING, quiet)


def test_accepted_survivors(tmp_path: Path) -> None:
    reviewed = Reviewed(tmp_path / "project")
    survivor = reviewed.survivor()
    with pytest.raises(SettingsError):
        reviewed.tools.accept(survivor, " ", "accepted")
    with pytest.raises(SettingsError):
        reviewed.tools.accept(survivor, "a sketch", "other")
    before = {path for path in reviewed.project.rglob("*") if ".ssr" not in path.parts}
    reviewed.tools.accept(survivor, 'a "sketch"\n[[accepted]]', "equivalent")
    after = {path for path in reviewed.project.rglob("*") if ".ssr" not in path.parts}
    assert {path.name for path in after - before} == {".ssr-accepted.toml"}
    (entry,) = read_acceptances(reviewed.project).entries
    assert (entry.id, entry.kind) == (survivor, AcceptanceKind.EQUIVALENT)
    assert json.loads(json.dumps(reviewed.tools.explain_survivor(survivor).accepted))
    assert survivor not in [remark.id for remark in reviewed.tools.review("", 60, quiet).remarks]
