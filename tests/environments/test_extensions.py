"""Tools and scores of other packages: the example of the documentation, installed; and scores of a judge."""

from __future__ import annotations

import json
import re
import sys
import tomllib
from pathlib import Path

import pytest
from plain import plain_python
from proven import Proven

from harness.environments import EnvironmentSettings, StoreTasks
from harness.environments.episodes import Episodes
from harness.environments.extensions import TOOLS_GROUP, load_tools
from harness.environments.scores import GROUP, load_scores

pytestmark = [pytest.mark.bubblewrap, pytest.mark.long]
PAGE = Path(__file__).parents[2] / "docs" / "environments.md"
FIX = {"command": "sed -i 's/return a - b/return a + b/' calc.py"}


def example(language: str) -> str:
    """Return the block of the documentation's section about other packages in a language."""
    section = PAGE.read_text().partition("## Tools and scores of other packages")[2].partition("\n## ")[0]
    (block,) = re.findall(rf"```{language}\n(.*?)```", section, re.DOTALL)
    return str(block)


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Install the package of the documentation's example."""
    groups = tomllib.loads(example("toml"))["project"]["entry-points"]
    assert set(groups) == {TOOLS_GROUP, GROUP}
    lines = [f"[{group}]\n" + "".join(f"{n} = {v}\n" for n, v in points.items()) for group, points in groups.items()]
    folder = tmp_path / "site" / "ssr_extras-1.dist-info"
    folder.mkdir(parents=True)
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: ssr-extras\nVersion: 1\n")
    (folder / "entry_points.txt").write_text("\n".join(lines))
    (tmp_path / "site" / "ssr_extras.py").write_text(example("python"))
    monkeypatch.syspath_prepend(tmp_path / "site")
    monkeypatch.delitem(sys.modules, "ssr_extras", raising=False)


def tasks_of(proven: Proven) -> StoreTasks:
    return StoreTasks(proven.project, proven.store.root, sandbox="bubblewrap", python=plain_python())


@pytest.mark.usefixtures("installed")
def test_a_tool_of_another_package_is_called_and_a_score_of_it_is_in_the_reward(proven: Proven) -> None:
    settings = EnvironmentSettings(tools=["find"], scores={"outcome": 1.0, "small-change": 0.01, "plan": 0.0})
    episodes = Episodes(tasks_of(proven), settings)
    episodes.begin(seed=1)
    names = [tool["function"]["name"] for tool in episodes.current.tools]
    assert sorted(names) == ["bash", "editor", "find", "submit"]
    found = episodes.call("find", {"text": "return a - b"})
    assert re.search(r"^\./calc\.py:\d+: +return a - b$", found.output, re.MULTILINE)
    assert "must be of type string" in episodes.call("find", {"text": 1}).output
    assert episodes.write("<plan>I look.</plan><execute>ls</execute>").scores["plan"] == 1.0
    assert episodes.call("bash", FIX).reward == 0.0
    end = episodes.call("submit", {})
    # One line was taken out, and one put in.
    assert end.scores == {"outcome": 1.0, "small-change": -2.0, "plan": 0.0}
    assert end.reward == pytest.approx(0.98)
    episodes.close()


@pytest.mark.usefixtures("installed")
def test_each_episode_has_its_own_tools_and_scores() -> None:
    first, second = load_tools(["find"]), load_tools(["find"])
    assert first[0] is not second[0]
    weight, factory = load_scores({"small-change": 2.0}, None)["small-change"]
    assert weight == 2.0
    assert factory() is not factory()


def test_a_judge_scores_the_steps_at_the_end(proven: Proven, tmp_path: Path) -> None:
    votes = tmp_path / "votes.json"
    # Three votes on each of two steps, one of them without a value: 0.1 and 0.7.
    votes.write_text(json.dumps([rf"\boxed{{{vote}}}" for vote in ("0", "0", "0.3", "1", "?", "0.4")]))
    settings = EnvironmentSettings(scores={"outcome": 1.0, "process": 0.5}, judge=f"scripted:{votes}")
    episodes = Episodes(tasks_of(proven), settings)
    for _ in range(2):
        episodes.begin(seed=1)
        assert [episodes.call("bash", call).reward for call in ({"command": "cat calc.py"}, FIX)] == [0.0, 0.0]
        end = episodes.call("submit", {})
        assert end.scores == {"outcome": 1.0, "process": pytest.approx(0.4)}
        assert end.reward == pytest.approx(1.2)
    episodes.close()
