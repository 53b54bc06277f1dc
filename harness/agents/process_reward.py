"""Score the steps of a rollout with a judge model, and combine the scores with the outcome.

The judge votes m times on each step. The last boxed value of a vote counts, and a step's score is the mean of its
votes that have one. Scores carry the step's id, so a reply that called no tool, which is also a step, does not shift
the others. The reward is outcome + coefficient * mean score.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from harness.agents.context import elided
from harness.agents.prompts import prompt
from harness.models.protocol import Model, identity_of
from harness.records.messages import USER, Message, Sampling
from harness.records.trajectory import Step, Trajectory
from pytest_ssr.errors import ModelError, RefusedError, SettingsError
from pytest_ssr.storage.store import key_of

_BOXED = re.compile(r"\\boxed\{\s*([+-]?\d+(?:\.\d+)?)\s*\}")
_BEFORE, _SHORT, _LONG, _TASK = 8, 1000, 4000, 8000
_MIN_SHARE = 0.02
JUDGE_SAMPLING = Sampling(max_tokens=1024)


@dataclass(frozen=True, slots=True)
class StepScore:
    """The judge's score of one step."""

    step: int
    """The step's id."""
    score: float | None
    """Mean of the votes, -1 to 1; None if no vote has a value."""
    votes: tuple[float | None, ...]
    """Each vote; None for a vote without a value."""

    @classmethod
    def of(cls, step: int, votes: Sequence[float | None]) -> StepScore:
        """Return the score of a step with these votes."""
        valid = [v for v in votes if v is not None]
        return cls(step, fmean(valid) if valid else None, tuple(votes))


@dataclass(frozen=True, slots=True)
class ProcessReward:
    """Scores the steps of rollouts with a model."""

    model: Model
    votes: int = 3
    coefficient: float = 1.0
    sampling: Sampling = JUDGE_SAMPLING

    def __post_init__(self) -> None:
        """Raise SettingsError for less than one vote."""
        if self.votes < 1:
            raise SettingsError(f"the judge needs at least 1 vote, not {self.votes}")

    @property
    def key(self) -> str:
        """A hash of everything that the scores depend on."""
        return key_of(identity_of(self.model), self.votes, self.sampling)

    def opened(self, rollout: Trajectory) -> ProcessReward:
        """Return the judge for one rollout."""
        return replace(self, model=self.model.session(f"judge-{rollout.rollout_id}"))

    def vote(self, rollout: Trajectory, step: Step, number: int) -> float | None:
        """Return one vote on a step; None if the reply has no value, or the server refuses the question.

        Raises ModelError, naming the judge and the step, if the judge does not reply.
        """
        base = int(rollout.provenance.get("seed") or 0) * 1000
        sampling = replace(self.sampling, seed=(base + step.id * self.votes + number) & 0x7FFFFFFF)
        try:
            question = [Message(USER, self._fitting_question(rollout, step))]
            return boxed_value(self.model.reply(question, tools=(), sampling=sampling).message.content)
        except RefusedError:
            return None
        except ModelError as error:
            error.args = (f"the judge {self.model.name}, step {step.id}: {error}",)
            raise

    def _fitting_question(self, rollout: Trajectory, step: Step) -> str:
        """Return the question about a step, shortened until it fits into the judge's window together with the reply."""
        room, share = self.model.context_tokens - self.sampling.max_tokens, 1.0
        while True:
            text = question_about(rollout, step, share=share)
            if share < _MIN_SHARE or self.model.count([Message(USER, text)], tools=()) <= room:
                return text
            share /= 2

    def scores(self, rollout: Trajectory) -> list[StepScore]:
        """Return the scores of all steps except the submission; raises ModelError if the judge does not reply."""
        judge = self.opened(rollout)
        return [
            StepScore.of(step.id, [judge.vote(rollout, step, number) for number in range(self.votes)])
            for step in scored_steps(rollout)
        ]

    def combined(self, outcome: float | None, scores: Sequence[StepScore]) -> float | None:
        """Return the reward of a rollout: None without an outcome, the outcome alone without a score."""
        if outcome is None:
            return None
        values = [s.score for s in scores if s.score is not None]
        return outcome + self.coefficient * fmean(values) if values else outcome


def scored_steps(rollout: Trajectory) -> list[Step]:
    """Return the steps of a rollout that are scored: all except the submission."""
    return [s for s in rollout.steps if s.kind != "submit"]


def boxed_value(text: str) -> float | None:
    r"""Return the last value in `\boxed{}`, clipped to -1 to 1; None if there is no value."""
    values = _BOXED.findall(text)
    return max(-1.0, min(1.0, float(values[-1]))) if values else None


def question_about(rollout: Trajectory, step: Step, *, share: float = 1.0) -> str:
    """Return the judge's prompt for a step: the task, the previous steps, the step and its observation.

    share: the share of its maximum length that each part may have.
    """
    short, long, max_chars = (max(1, int(share * n)) for n in (_SHORT, _LONG, _TASK))
    before = [s for s in rollout.steps if s.id < step.id][-_BEFORE:]
    shown = "\n\n".join(f"step {s.id}: {_shown_step(rollout, s, short)}" for s in before) or "none"
    outcome = _observed(rollout, step)
    task = rollout.messages[1].content if len(rollout.messages) > 1 else ""
    return prompt(
        "judge",
        task=elided(task, max_chars)[0],
        before=shown,
        step=_shown_step(rollout, step, long),
        outcome=elided(outcome, long)[0],
    )


def _shown_step(rollout: Trajectory, step: Step, max_chars: int) -> str:
    """Return the model's text of a step and its tool call."""
    call = next((c for c in rollout.calls if c.i == step.call), None)
    text = rollout.messages[call.assistant_index].content if call is not None else ""
    arguments: Mapping[str, object] = step.arguments
    called = f"{step.tool}({', '.join(f'{k}={v!r}' for k, v in arguments.items())})" if step.tool else "no tool called"
    return elided(f"{text}\n{called}".strip(), max_chars)[0]


def _observed(rollout: Trajectory, step: Step) -> str:
    if not 0 <= step.observation_index < len(rollout.messages):
        return ""
    return rollout.messages[step.observation_index].content
