"""One episode: an agent acts step by step in a sandbox, and the outcome is graded at the end.

The steps are those of the agent loop: the same tools, limits and cuts, the same record. The time between two steps, in
which the agent decides, does not count.
"""

from __future__ import annotations

import contextlib
import json
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from harness.agents.limits import RolloutLimits
from harness.agents.loop import ending
from harness.agents.tools.protocol import Tool, ToolBundle, further_tools, schema_of
from harness.agents.turns import EndOfRollout, Turns
from harness.environments.scores import Moment, Score, ScoreFactory, checked_score
from harness.environments.task import EpisodeTask, Outcome
from harness.records.messages import ASSISTANT, TOOL, Message, Reply, ToolCall
from harness.records.trajectory import REWARDS, ExitReason, Journal, Step, Trajectory, is_truncated
from harness.records.usage import NAME
from pytest_ssr.errors import ActionError, ArtifactError, SandboxError, SettingsError
from pytest_ssr.patch import Patch

POLICY = "environment"
"""The name of the model in records of episodes whose agent is not ours."""


@dataclass(frozen=True, slots=True)
class EpisodeSettings:
    """The settings of all episodes of an environment."""

    limits: RolloutLimits = RolloutLimits()
    scores: Mapping[str, tuple[float, ScoreFactory]] = field(default_factory=dict)
    """The weight and the factory of each score."""
    tools: Callable[[], Sequence[Tool]] = lambda: ()
    """Returns new instances of further tools."""
    bundles: Sequence[ToolBundle] = ()
    """Folders of further tools, which are installed in each sandbox."""
    record: Path | None = None
    """A folder for the episodes' trajectories; None: they are not written."""
    clock: Callable[[], float] = time.monotonic


@dataclass(frozen=True, slots=True)
class Turn:
    """The result of one step."""

    output: str
    """The observation, cut as for our own agents."""
    patch: Patch | None
    """The changes so far; None if they cannot be submitted."""
    patch_problem: str
    """Why they cannot be submitted; empty if they can."""
    steps: tuple[Step, ...]
    """The records of the step's actions."""
    reward: float | None
    """None at the end of an episode without a grade."""
    scores: Mapping[str, float]
    """The value of each score, before its weight."""
    terminated: bool
    """Whether the agent ended the episode: by submitting, or by invalid or repeated actions."""
    truncated: bool
    """Whether a limit ended it, or an infrastructure failure left no grade."""
    outcome: Outcome | None
    """The result; None until the end."""

    @property
    def diff(self) -> str:
        """The changes so far as text; empty if they cannot be submitted."""
        return self.patch.data.decode("utf-8", "replace") if self.patch is not None else ""

    def known_reward(self) -> float:
        """Return the reward; raises SandboxError if a failure of the sandbox left none."""
        if self.reward is None:
            raise SandboxError(f"the episode has no reward: {self.outcome.text if self.outcome is not None else ''}")
        return self.reward


class Episode:
    """An episode from the opened sandbox to its outcome."""

    def __init__(
        self,
        task: EpisodeTask,
        settings: EpisodeSettings,
        *,
        seed: int,
        number: int = 0,
        skipped: Mapping[str, str] | None = None,
    ) -> None:
        """Open a sandbox; raises SandboxError if that fails, SettingsError for tools with the same name.

        number: counts the episodes of an environment. skipped: why tasks before this one were skipped, by their ids.
        """
        self.task_id, self.system = task.id, task.system
        self.skipped = dict(skipped or {})
        self._settings, self._clock = settings, settings.clock
        self._work = task.start(seed=seed)
        tools = [*self._work.tools, *settings.tools(), *further_tools(settings.bundles)]
        _require_distinct(tools)
        self._tools = tools
        self.tools = [schema_of(tool) for tool in tools]
        self._journal = self._open_journal(task, seed, number)
        self._scores: dict[str, Score] = {name: make() for name, (_, make) in settings.scores.items()}
        self._rewards: list[float | None] = []
        self.outcome: Outcome | None = None
        self._closed = False
        self._stack = contextlib.ExitStack()
        with contextlib.ExitStack() as stack:
            self._workspace = stack.enter_context(self._work.open())
            for bundle in settings.bundles:
                bundle.install(self._workspace)
            self.prompt = self._work.prompt(self._workspace)
            self._stack = stack.pop_all()
        self._turns = Turns(tools, settings.limits, self._workspace, self._journal, clock=settings.clock)
        self._idle_since = settings.clock()

    def _open_journal(self, task: EpisodeTask, seed: int, number: int) -> Journal:
        rollout_id = secrets.token_hex(8)
        trajectory = Trajectory(rollout_id, task.id, task.role, number, POLICY, provenance={"seed": seed})
        record = self._settings.record
        journal = Journal(trajectory, record / rollout_id / NAME if record is not None else None)
        journal.describe(tools=self.tools, sampling={}, limits=asdict(self._settings.limits), observe_as=TOOL)
        return journal

    @property
    def trajectory(self) -> Trajectory:
        """The record so far."""
        return self._journal.trajectory

    @property
    def steps_left(self) -> int:
        """The number of steps until the limit."""
        return self._turns.steps_left

    @property
    def seconds_left(self) -> float:
        """The seconds of steps until the limit, at least 0."""
        return max(0.0, self._turns.seconds_left + self._idle_s())

    def _idle_s(self) -> float:
        """Return the seconds since the last step, which do not count."""
        return self._clock() - self._idle_since

    def call(self, name: str, arguments: Mapping[str, Any]) -> Turn:
        """Call a tool; raises ActionError for arguments that are not JSON.

        An unknown tool and arguments that do not fit its schema become an observation, as for our own agents.
        """
        try:
            raw = json.dumps(dict(arguments))
        except (TypeError, ValueError, RecursionError) as error:
            raise ActionError(f"the arguments of {name!r} are not JSON: {error}") from None
        number = len(self.trajectory.calls)
        call = ToolCall.parse(f"call-{number}", name, raw)
        return self._reply(Reply(Message(ASSISTANT, "", (call,)), "tool_calls", sampled=False))

    def write(self, text: str) -> Turn:
        """Take one step with a reply in plain text; its fenced block is a call, unless the task has another form."""
        call = self._work.action(text)
        return self._reply(Reply(Message(ASSISTANT, text, () if call is None else (call,)), "stop", sampled=False))

    def _reply(self, reply: Reply) -> Turn:
        """Take one step with a reply; raises ActionError after the end of the episode."""
        self._require_open()
        self._turns.wait(self._idle_s())
        journal, messages = self._journal, self.trajectory.messages
        if not messages:
            self._turns.begin(self.system, self.prompt)
        first_message, first_step = len(messages) + 1, len(self.trajectory.steps)
        patch, problem = None, ""
        with ending(journal, self._workspace, self._work.partial_result):
            self._turns.take(reply, tuple(range(len(messages))))
            patch, problem = self._diff()
            self._turns.require_within_limits()
        self._idle_since = self._clock()
        if journal.ended:
            self._finish()
            patch, problem = self._work.patch, ""
        output = "\n".join(m.content for m in messages[first_message:] if m.role != ASSISTANT)
        return self._turn(output, patch, problem, tuple(self.trajectory.steps[first_step:]))

    def stop(self, detail: str, reason: ExitReason = ExitReason.STEP_LIMIT) -> Turn:
        """End the episode as a limit does: its changes are graded. detail: the caller's reason, for the record."""
        self._require_open()
        with ending(self._journal, self._workspace, self._work.partial_result):
            raise EndOfRollout(reason, detail)
        self._finish()
        return self._turn("", self._work.patch, "", ())

    def close(self) -> None:
        """Close the sandbox; an episode without an outcome is recorded as interrupted. Idempotent."""
        if self._closed:
            return
        self._closed = True
        self._journal.end(ExitReason.INTERRUPTED, "closed before the end")
        self._stack.close()

    def _require_open(self) -> None:
        if self.outcome is not None:
            raise ActionError("the episode has ended; reset the environment before the next step")
        if self._closed:
            raise ActionError("the environment is closed")

    def _finish(self) -> None:
        """Close the sandbox, and grade what the episode has left."""
        self.close()
        self.outcome = self._work.outcome(self.trajectory)

    def _diff(self) -> tuple[Patch | None, str]:
        try:
            return self._work.diff(self._workspace), ""
        except ArtifactError as error:
            return None, str(error)

    def _turn(self, output: str, patch: Patch | None, problem: str, steps: tuple[Step, ...]) -> Turn:
        outcome = self.outcome
        values: dict[str, float] = {}
        reward: float | None = None
        if outcome is None or outcome.reward is not None:
            moment = Moment(self.trajectory, patch, outcome, self._work.tests_passing)
            values = {name: checked_score(name, score(moment)) for name, score in self._scores.items()}
            reward = sum(weight * values[name] for name, (weight, _) in self._settings.scores.items())
        self._rewards.append(reward)
        if outcome is not None:
            known = [each for each in self._rewards if each is not None]
            total = sum(known) if len(known) == len(self._rewards) else None
            found = {"reward": total, "success": outcome.success, "reason": outcome.text}
            self._journal.write_sibling(REWARDS, json.dumps({"rewards": self._rewards, **found}))
        reason = self.trajectory.exit_reason
        truncated = outcome is not None and (outcome.reward is None or is_truncated(reason))
        terminated = outcome is not None and not truncated
        return Turn(output, patch, problem, steps, reward, values, terminated, truncated, outcome)


def _require_distinct(tools: Sequence[Tool]) -> None:
    names = [tool.name for tool in tools]
    if duplicate := next((n for n in names if names.count(n) > 1), None):
        raise SettingsError(f"two tools have the name {duplicate!r}; rename one of them")
