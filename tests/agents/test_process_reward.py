"""Scores carry the ids of their steps, and the last boxed value counts."""

from __future__ import annotations

from dataclasses import replace

import pytest

from harness.agents.process_reward import ProcessReward, boxed_value, question_about
from harness.models.scripted import ScriptedModel
from harness.records.messages import ASSISTANT, SYSTEM, USER, Message, Reply, Sampling, Usage
from harness.records.trajectory import ModelCall, Step, Trajectory
from pytest_ssr.errors import ModelError, RefusedError


def rollout() -> Trajectory:
    done = Trajectory("r", "t", "solver", 0, "m", provenance={"seed": 7})
    done.messages = [
        Message(SYSTEM, "s"),
        Message(USER, "repair the adder"),
        Message(ASSISTANT, "I think."),
        Message(USER, "no tool was called"),
        Message(ASSISTANT, "now I look"),
        Message("tool", "calc.py", tool_call_id="a"),
        Message(ASSISTANT, "done"),
        Message("tool", "handed in", tool_call_id="b"),
    ]
    done.calls = [
        ModelCall(i, (0, 1), index, "stop", Usage(), None, 0.0, "", None, None, None)
        for i, index in enumerate((2, 4, 6))
    ]
    done.steps = [
        Step(0, 0, "format-error", observation_index=3),
        Step(1, 1, "tool", "bash", {"command": "ls"}, 5, 0),
        Step(2, 2, "submit", "submit", {}, 7, 0),
    ]
    return done


def judge(*votes: str) -> ScriptedModel:
    return ScriptedModel("judge", [Message(ASSISTANT, v) for v in votes])


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (r"good: \boxed{1}", 1.0),
        (r"first \boxed{1}, then I doubt: \boxed{-1}", -1.0),
        (r"\boxed{ +0.5 }", 0.5),
        (r"\boxed{7}", 1.0),
        ("no box", None),
        (r"\boxed{yes}", None),
    ],
)
def test_the_last_boxed_value_counts(text: str, value: float | None) -> None:
    assert boxed_value(text) == value


def test_a_reply_without_a_tool_is_scored_and_shifts_no_other() -> None:
    model = judge(r"\boxed{-1}", "?", r"\boxed{-1}", r"\boxed{1}", r"\boxed{1}", r"\boxed{-1}")
    scores = ProcessReward(model, votes=3).scores(rollout())
    assert [(s.step, s.score, s.votes) for s in scores] == [
        (0, -1.0, (-1.0, None, -1.0)),
        (1, pytest.approx(1 / 3), (1.0, 1.0, -1.0)),
    ]


class Seeded(ScriptedModel):
    """Stores the seed of each request in a list."""

    def reply(self, messages: object, *, tools: object, sampling: Sampling) -> Reply:
        self.seeds.append(sampling.seed)
        return super().reply(messages, tools=tools, sampling=sampling)

    def session(self, rollout: str) -> Seeded:
        return self


def test_each_vote_has_a_seed_of_its_own_and_the_key_names_what_scores_depend_on() -> None:
    model = Seeded("judge", [Message(ASSISTANT, r"\boxed{1}")] * 12)
    model.seeds = []
    ProcessReward(model, votes=3).scores(rollout())
    assert len(set(model.seeds)) == len(model.seeds) == 6
    again = Seeded("judge", [Message(ASSISTANT, r"\boxed{1}")] * 12)
    again.seeds = []
    ProcessReward(again, votes=3).scores(rollout())
    assert again.seeds == model.seeds
    keys = {ProcessReward(judge(), votes=n, sampling=Sampling(temperature=t)).key for n in (1, 3) for t in (0.0, 1.0)}
    assert len(keys) == 4


def test_a_step_without_an_observation_is_judged() -> None:
    cut = rollout()
    cut.steps[1] = replace(cut.steps[1], observation_index=len(cut.messages))
    assert "bash(command='ls')" in question_about(cut, cut.steps[1])


def test_the_judge_is_shown_the_step_it_judges() -> None:
    text = question_about(rollout(), rollout().steps[1])
    assert "repair the adder" in text
    assert "step 0: I think.\nno tool called" in text
    assert "now I look\nbash(command='ls')" in text
    assert "calc.py" in text
    assert "done" not in text.split("The step:")[1].split("A step is good")[0]


def test_scores_are_added_to_the_outcome() -> None:
    reward = ProcessReward(judge(*[r"\boxed{1}", r"\boxed{-1}"]), votes=1, coefficient=0.5)
    scores = reward.scores(rollout())
    assert reward.combined(-1.0, scores) == -1.0
    assert reward.combined(1.0, scores[:1]) == 1.5
    assert reward.combined(None, scores) is None, "an infrastructure failure has no reward"
    assert reward.combined(1.0, []) == 1.0


def test_a_question_is_shortened_until_it_fits_the_judge_s_window() -> None:
    long = rollout()
    long.messages[1] = Message(USER, "repair the adder " * 900)
    long.messages[5] = Message("tool", "calc.py " * 900, tool_call_id="a")
    model = ScriptedModel("judge", [Message(ASSISTANT, r"\boxed{1}")] * 2, context_tokens=2000)
    reward = ProcessReward(model, votes=1, sampling=Sampling(max_tokens=500))
    session = reward.opened(long)
    assert isinstance(session.model, ScriptedModel)
    assert [session.vote(long, step, 0) for step in long.steps[:2]] == [1.0, 1.0]
    for prompt in session.model.seen:
        assert model.count(prompt, tools=()) <= 1500
        assert "repair the adder" in prompt[0].content
    assert len(question_about(long, long.steps[1])) > 8000


class Choosy(ScriptedModel):
    """Raises `fault` for every request."""

    fault: ModelError

    def reply(self, *_: object, **__: object) -> Reply:
        raise self.fault

    def session(self, rollout: str) -> Choosy:
        return self


def test_a_refused_question_has_no_value_and_other_faults_name_judge_and_step() -> None:
    choosy = Choosy("choosy", [])
    choosy.fault = RefusedError("not this one")
    reward = ProcessReward(choosy, votes=2)
    assert [s.votes for s in reward.scores(rollout())] == [(None, None), (None, None)]
    choosy.fault = ModelError("gone", retry=True)
    with pytest.raises(ModelError, match="the judge choosy, step 0: gone") as caught:
        reward.scores(rollout())
    assert caught.value.retry
