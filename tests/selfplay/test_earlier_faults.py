"""Test for faults of earlier systems of this kind in roles, episodes and rewards that no other test covers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from play_parts import Told, Writing, selfplay
from proven import Proven

from harness.agents.limits import RolloutLimits
from harness.agents.prompts import prompt
from harness.injectors.campaign import ModelCampaign
from harness.injectors.model import ModelInjector
from harness.models.scripted import ScriptedModel
from harness.records.messages import ASSISTANT, Message
from harness.records.trajectory import ExitReason, Journal, read_trajectory
from harness.records.usage import NAME
from harness.rollouts.runner import RolloutRunner
from harness.selfplay.report import tables
from harness.solvers.protocol import Solution
from pytest_ssr.grading import Grade
from pytest_ssr.records.check_reasons import CheckCode
from pytest_ssr.records.reasons import Reason, ReasonCode
from pytest_ssr.storage.store import Store

pytestmark = [pytest.mark.bubblewrap, pytest.mark.long]
NOTHING = [Message(ASSISTANT, "I am done")] * 9


def test_an_injection_without_an_artifact_has_the_reward_of_an_invalid_one(project: Path, tmp_path: Path) -> None:
    store = Store(tmp_path / "s")
    (episode,) = selfplay(project, store, Told(), model=ScriptedModel("nothing", NOTHING)).play()
    assert (episode.valid, episode.artifact_id, episode.rollouts) == (False, "", ())
    assert (episode.reward(), episode.reward(kind="validity")) == (-1.0, -1.0)
    assert episode.reason is not None
    assert episode.reason.code is CheckCode.NOTHING_SUBMITTED
    assert episode.rejected_by == "nothing-submitted"


def test_an_invalid_bug_is_never_counted_as_valid(project: Path, proven: Proven, tmp_path: Path) -> None:
    store, solver = Store(tmp_path / "s"), Told()
    bad = replace(proven.artifact, bug=proven.artifact.weaken)
    episodes = selfplay(project, store, solver, model=Writing(bad)).play()
    assert [e.valid for e in episodes] == [False]
    (total,) = tables(episodes, alpha=0.8, kind="solve-rate")["all"]
    assert (total["tried"], total["valid"], total["validity"]["rate"], total["injector_reward"]) == (1, 0, 0.0, -1.0)
    assert store.artifact_ids() == []
    assert solver.asked == []


def test_the_injectors_reward_depends_on_the_attempts_at_its_bug(
    project: Path, proven: Proven, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Sometimes(Told):
        def solve(self, task: Any, *, seed: int, journal: Journal) -> Solution:
            if journal.trajectory.attempt:
                return super().solve(task, seed=seed, journal=journal)
            return Solution(proven.artifact.bug.reverse(), journal.end(ExitReason.SUBMITTED))

    monkeypatch.setattr(
        "harness.rollouts.runner.grade_patch", lambda *_, **__: Grade("", True, Reason(ReasonCode.RESOLVED), tests=True)
    )
    (episode,) = selfplay(project, Store(tmp_path / "s"), Sometimes(name="sometimes"), attempts=4).play()
    assert [r.reward for r in episode.rollouts] == [1.0, -1.0, -1.0, -1.0]
    assert episode.reward() == pytest.approx(1 - 1.8 / 4)


def test_each_attempt_has_its_own_reproducible_seed(proven: Proven, tmp_path: Path) -> None:
    def seeds(folder: str) -> list[int]:
        rollouts = RolloutRunner(
            proven.runner, proven.artifact, proven.verdict, Told(), Store(tmp_path / folder)
        ).attempts(4)
        return [r.seed for r in rollouts]

    first = seeds("a")
    assert len(set(first)) == 4
    assert seeds("b") == first


@pytest.mark.parametrize("strategy", ["direct", "removal", "history"])
def test_the_prompt_describes_the_requested_strategy(proven: Proven, tmp_path: Path, strategy: str) -> None:
    store, least = Store(tmp_path / "s"), proven.runner.settings.min_changed_files
    injector = ModelInjector(ScriptedModel("nothing", NOTHING), strategy, RolloutLimits(format_errors=1))
    attempt = ModelCampaign(proven.runner, store, injector, seed=3).attempt(0)
    assert attempt is not None
    assert attempt.strategy == strategy
    (path,) = store.root.glob(f"rollouts/*/{NAME}")
    task = read_trajectory(path).messages[1].content
    described = [
        s for s in ("direct", "removal", "history") if prompt(f"strategy_{s}", min_changed_files=least) in task
    ]
    assert described == [strategy]
