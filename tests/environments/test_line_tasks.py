"""A bug is repaired with one reply: the lines between the marks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from plain import plain_python
from proven import TEST_ADD, Proven, make

from harness.environments import EnvironmentSettings, LineTasks
from harness.environments.episodes import Episodes
from harness.records.messages import USER
from harness.solvers.writer.prompt import BEGIN, END, reply
from pytest_ssr.errors import ActionError, ArtifactError
from pytest_ssr.records.reasons import ReasonCode
from pytest_ssr.storage.store import Store

pytestmark = pytest.mark.bubblewrap
RIGHT = "    return a + b\n"


@pytest.fixture
def episodes(proven: Proven) -> Iterator[Episodes]:
    tasks = LineTasks(proven.project, proven.store.root, sandbox="bubblewrap", python=plain_python())
    opened = Episodes(tasks, EnvironmentSettings())
    yield opened
    opened.close()


def test_the_question_has_the_place_and_a_failing_test_and_no_system_prompt(episodes: Episodes) -> None:
    episode = episodes.begin(seed=1)
    assert episode.system == ""
    assert f"{BEGIN}\n    return a - b\n{END}" in episode.prompt
    assert "Failing test: tests/test_calc.py::test_add\nAssertion: assert add(" in episode.prompt
    assert "a + b" not in episode.prompt
    episodes.write(reply(RIGHT))
    assert episode.trajectory.messages[0].role == USER


def test_the_right_lines_are_resolved_and_end_the_episode(episodes: Episodes) -> None:
    episodes.begin(seed=1)
    turn = episodes.write(f"{reply(RIGHT)}\n")
    assert (turn.reward, turn.terminated, turn.truncated) == (1.0, True, False)
    assert turn.outcome is not None
    assert turn.outcome.code == ReasonCode.RESOLVED
    assert "+    return a + b" in turn.diff
    with pytest.raises(ActionError):
        episodes.write(reply(RIGHT))


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (reply("    return a * b\n"), ReasonCode.TESTS_FAIL),
        (reply("    return (\n"), None),
        (reply("    return a - b\n"), ReasonCode.NO_PATCH),
        (f"{BEGIN}\n    return a + b\n", ReasonCode.NO_PATCH),
        ("```bash\nrm -rf /\n```", ReasonCode.NO_PATCH),
        ("", ReasonCode.NO_PATCH),
        ("\x1b[2J\ud800", ReasonCode.NO_PATCH),
    ],
    ids=["wrong", "not Python", "unchanged", "cut off", "an action", "nothing", "no text"],
)
def test_other_replies_are_unresolved(episodes: Episodes, text: str, code: ReasonCode | None) -> None:
    episodes.begin(seed=1)
    turn = episodes.write(text)
    assert (turn.reward, turn.terminated) == (-1.0, True)
    assert turn.outcome is not None
    assert turn.outcome.success is False
    assert code is None or turn.outcome.code == code


def test_a_bug_in_two_functions_is_no_task(project: Path, tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    both = {"return a + b": "return a - b", "if x > high:\n        return high": "if x > high:\n        return low"}
    made = make(project, store, both, {TEST_ADD: "", ", (9, 4)": ""})
    tasks = LineTasks(project, store.root, sandbox="bubblewrap", python=plain_python()).open()
    with pytest.raises(ArtifactError):
        tasks.task(made.verdict.artifact_id)
    tasks.close()
