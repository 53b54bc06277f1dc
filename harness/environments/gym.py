"""Gymnasium environments: `ssr/Solve-v0`, in which an agent repairs a bug, and `ssr/Inject-v0`, in which it makes one.

An action is a shell command, a tool call `{"tool": NAME, "arguments": {...}}`, or the reply of a model: a text with a
call, or `{"reply": TEXT}`. An observation has the output of the
action, the diff of all changes so far, and the steps and seconds that are left.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from copy import deepcopy
from typing import Any, ClassVar

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Dict

from harness.agents.context import elided
from harness.agents.tools.bash import Bash
from harness.agents.tools.in_text import is_reply
from harness.environments.episode import Turn
from harness.environments.episodes import EnvironmentSettings
from harness.environments.remote_episodes import open_episodes
from harness.environments.spaces import Actions, UnicodeText
from harness.environments.task import TaskSource
from pytest_ssr.errors import ActionError, SettingsError

Observation = dict[str, Any]
_MAX_PROMPT_CHARS = 200_000
"""Characters of a task's description in the first observation; `info["prompt"]` has all of it."""
_MARGIN = 100
"""At least the length of the line that gives the number of omitted characters."""
_SEED_LIMIT = 1 << 31


class _RoleEnv(gymnasium.Env[Observation, Any]):
    """An environment for one role; the sandbox opens at the first `reset`."""

    role: ClassVar[str]
    metadata: dict[str, Any] = {"render_modes": ["ansi"], "render_fps": 1}  # noqa: RUF012 - as Gymnasium declares it

    def __init__(
        self,
        tasks: TaskSource,
        settings: EnvironmentSettings = EnvironmentSettings(),
        *,
        diff_chars: int = 20_000,
        render_mode: str | None = None,
    ) -> None:
        """Check the settings.

        tasks: where the tasks come from. diff_chars: characters of the diff in an observation. Raises SettingsError
        for an invalid value.
        """
        if getattr(tasks, "role", None) != self.role:
            raise SettingsError(f"{type(self).__name__} needs tasks for the {self.role}, not {tasks!r}")
        if render_mode not in (None, "ansi"):
            raise SettingsError(f"the render mode must be 'ansi' or None, not {render_mode!r}")
        if diff_chars < 1:
            raise SettingsError(f"diff_chars must be at least 1, not {diff_chars}")
        self.render_mode, self._diff_chars, self._shown = render_mode, diff_chars, ""
        self._episodes = open_episodes(tasks, settings)
        limits = settings.limits
        self.action_space = Actions()
        self.observation_space = Dict(
            {
                "output": UnicodeText(max(_MAX_PROMPT_CHARS, limits.output_chars) + _MARGIN),
                "diff": UnicodeText(diff_chars + _MARGIN),
                "steps_left": Box(0, limits.steps, (1,), np.int64),
                "seconds_left": Box(0.0, float(np.float32(limits.wall_s)), (1,), np.float32),
            }
        )

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Begin an episode; one that has not ended is closed without a grade.

        options: `task`, the id of the task; by default the order chooses. Raises SettingsError for other options, the
        errors of a task that cannot be played, and SandboxError if no sandbox can be opened.
        """
        super().reset(seed=seed)
        if seed is not None:
            self._episodes.restart_order()
        task_id = _task_option(options)
        episode = self._episodes.begin(seed=int(self.np_random.integers(0, _SEED_LIMIT)), task=task_id)
        self._shown = episode.prompt
        info = {
            "task": episode.task_id,
            "role": self.role,
            "system": episode.system,
            "prompt": episode.prompt,
            "tools": deepcopy(episode.tools),
            "rollout": episode.trajectory.rollout_id,
            "skipped": dict(episode.skipped),
        }
        return self._observation(elided(_encodable(episode.prompt), _MAX_PROMPT_CHARS)[0], ""), info

    def step(self, action: Any) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """Run a command, a tool, or the call in a reply of a model; of one that cannot be read, nothing is run.

        Without a grade, because the sandbox broke, the episode is truncated, and its reward is NaN. Raises ActionError
        for anything that is not an action, and for a step outside of an episode.
        """
        turn = self._take(action)
        self._shown = turn.output
        observation = self._observation(turn.output, elided(turn.diff, self._diff_chars)[0])
        reward = math.nan if turn.reward is None else turn.reward
        return observation, reward, turn.terminated, turn.truncated, self._info(turn)

    def _take(self, action: Any) -> Turn:
        """Take one step; raises ActionError for anything that is not an action."""
        if isinstance(action, str):
            if is_reply(action):
                return self._episodes.write(str(action))
            return self._episodes.call(Bash.name, {"command": str(action)})
        if isinstance(action, Mapping) and set(action) == {"reply"} and isinstance(action["reply"], str):
            return self._episodes.write(str(action["reply"]))
        return self._episodes.call(*_tool_call(action))

    def _info(self, turn: Turn) -> dict[str, Any]:
        last = turn.steps[-1] if turn.steps else None
        info: dict[str, Any] = {
            "exit_code": last.exit_code if last is not None else None,
            "limit": last.limit if last is not None else "",
            "elided_chars": last.elided_chars if last is not None else 0,
            "patch_problem": turn.patch_problem,
            "scores": dict(turn.scores),
        }
        if turn.outcome is not None:
            done = self._episodes.current.trajectory
            info |= {
                "success": turn.outcome.success,
                "graded": turn.outcome.reward is not None,
                "code": turn.outcome.code,
                "reason": turn.outcome.text,
                "exit_reason": str(done.exit_reason),
                "detail": done.detail,
                "patch": turn.diff,
                **turn.outcome.details,
            }
        return info

    def _observation(self, output: str, diff: str) -> Observation:
        episode = self._episodes.current
        return {
            "output": _encodable(output),
            "diff": _encodable(diff),
            "steps_left": np.array([episode.steps_left], np.int64),
            "seconds_left": np.array([episode.seconds_left], np.float32),
        }

    def render(self) -> str | None:
        """Return the last output."""
        return self._shown if self.render_mode == "ansi" else None

    def close(self) -> None:
        """Close the sandbox, the task and the judge; idempotent."""
        self._episodes.close()


class SolveEnv(_RoleEnv):
    """Repair a bug: a task of a store or a dataset."""

    role = "solver"


class InjectEnv(_RoleEnv):
    """Inject a bug into a project."""

    role = "injector"


def _tool_call(action: Any) -> tuple[str, Mapping[str, Any]]:
    """Return the tool and its arguments; raises ActionError for anything that is not an action."""
    if not isinstance(action, Mapping) or set(action) != {"tool", "arguments"}:
        raise ActionError(
            f"an action is a command, {{'tool': NAME, 'arguments': {{...}}}} or {{'reply': TEXT}}, not {action!r}"
        )
    if not isinstance(action["tool"], str) or not isinstance(action["arguments"], Mapping):
        raise ActionError(f"'tool' takes a name and 'arguments' a mapping, not {action!r}")
    return action["tool"], action["arguments"]


def _task_option(options: dict[str, Any] | None) -> str:
    """Return the task that the options name, empty if they name none."""
    given = dict(options or {})
    task_id = given.pop("task", "")
    if given:
        raise SettingsError(f"unknown options of reset: {', '.join(map(str, given))}; the only one is 'task'")
    if not isinstance(task_id, str):
        raise SettingsError(f"the option 'task' takes the id of a task, not {task_id!r}")
    return task_id


def _encodable(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode()


def register() -> None:
    """Register the environments with Gymnasium, once."""
    for name, env in (("ssr/Solve-v0", SolveEnv), ("ssr/Inject-v0", InjectEnv)):
        if name not in gymnasium.registry:
            entry_point = f"{__name__}:{env.__name__}"
            # After a first reset that fails, such as that of a broken sandbox, Gymnasium's checker fails in every step.
            gymnasium.register(
                name, entry_point=entry_point, nondeterministic=True, order_enforce=False, disable_env_checker=True
            )
