"""Let the model that is trained play both roles: it injects bugs, and repairs bugs of a store or its own new ones.

TRL calls `PolicyRollouts` for each batch of prompts. The prompt of a row is a task as JSON: its role, project and, for
a solver, the id of a bug. If it has no id, all solvers of the group repair one bug that the injectors of the same batch
have made; the reward of that bug's injector is then the paper's (arXiv 2512.18552, section 2.4) for the group's solve
rate. So both roles are updated together, from one batch. A valid bug that nobody tried has no reward.
"""

from __future__ import annotations

import hashlib
import json
import threading
import weakref
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from harness.datasets.instance import InstanceError
from harness.environments import DatasetTasks, EnvironmentSettings, ProjectTasks, StoreTasks
from harness.environments.adapters.trl import Rollout, generate, token_columns
from harness.environments.episodes import Episodes
from harness.environments.remote_episodes import open_episodes, together
from harness.records.messages import USER
from harness.records.rewards import injector_reward, solve_rate
from harness.training.language.left_out import LeftOut, LeftOutCode, LeftOutError
from harness.training.language.plan import INJECTOR, SOLVER
from harness.training.language.run_folder import RunFolder
from pytest_ssr.errors import (
    ArtifactError,
    ContextError,
    ProjectError,
    SandboxError,
    SettingsError,
    SsrError,
)


@dataclass(frozen=True, slots=True)
class PolicyTask:
    """What one rollout has to do."""

    role: str
    project: str
    """The project's folder, or the dataset."""
    bug: str = ""
    """The id of the bug or the row; empty for an injector, and for a solver that repairs a new bug."""

    def row(self) -> dict[str, Any]:
        """Return the row of the trainer's data set."""
        content = json.dumps({"role": self.role, "project": self.project, "bug": self.bug})
        return {"prompt": [{"role": USER, "content": content}]}

    @classmethod
    def of(cls, prompt: Sequence[Mapping[str, Any]]) -> PolicyTask:
        """Return the task of a row's prompt."""
        return cls(**json.loads(prompt[-1]["content"]))


@dataclass(frozen=True, slots=True)
class PolicyEnvironment:
    """The tasks of both roles, and how they are played."""

    solver: Mapping[str, StoreTasks | DatasetTasks]
    """By the project's folder, or the dataset."""
    injector: Mapping[str, ProjectTasks]
    settings: EnvironmentSettings
    alpha: float
    """The penalty of a bug that is solved always or never."""

    def tasks(self, role: str, project: str) -> StoreTasks | DatasetTasks | ProjectTasks:
        """Return the tasks of a role in a project."""
        return self.solver[project] if role == SOLVER else self.injector[project]


class PolicyRollouts:
    """Generates the rollouts of a batch: a `rollout_func` of TRL's GRPOTrainer."""

    def __init__(
        self, environment: PolicyEnvironment, folder: RunFolder, *, group: int, seed: int, samples: int, context: int
    ) -> None:
        """group: rollouts of one task. samples: rollouts of each batch to log. context: tokens of the model's."""
        self._environment, self._folder = environment, folder
        self._group, self._seed, self._samples, self._context = group, seed, samples, context
        self.left_out = LeftOut()
        """The tasks that cannot be played."""
        self._unusable: dict[PolicyTask, SsrError] = {}
        self._pools: dict[tuple[str, str], list[Episodes]] = {}
        self._lock = threading.Lock()
        """For the tokenizer, and for what is counted: rollouts begin in several threads."""
        self._closing = weakref.finalize(self, _close, self._pools)

    def __call__(self, prompts: Sequence[Any], trainer: Any) -> dict[str, list[Any] | None]:
        """Return the columns of all rollouts, in the order of the prompts; raises SandboxError if none has a reward."""
        tasks = [PolicyTask.of(prompt) for prompt in prompts]
        step = trainer.state.global_step
        rollouts: dict[int, Rollout] = {}
        for role in (INJECTOR, SOLVER):
            chosen = [index for index, task in enumerate(tasks) if task.role == role]
            if role == SOLVER:
                tasks = self._with_bugs(tasks, rollouts, step)
            rollouts |= self._play(tasks, chosen, trainer, step)
        ordered = [rollouts[index] for index in range(len(prompts))]
        rewards = self._rewards(tasks, ordered)
        if all(reward is None for reward in rewards):
            outcome = ordered[0].outcome
            raise SandboxError(
                f"none of the {len(ordered)} rollouts of update {step + 1} has a reward: "
                f"{outcome.text if outcome is not None else ''}",
                remedy="the same command continues from the last checkpoint",
            )
        self._log(tasks, ordered, rewards, trainer, step)
        successes = [rollout.outcome.success if rollout.outcome is not None else None for rollout in ordered]
        return {
            **token_columns(ordered),
            "given": rewards,
            "role": [task.role for task in tasks],
            "success": successes,
        }

    def _play(self, tasks: list[PolicyTask], chosen: Sequence[int], trainer: Any, step: int) -> dict[int, Rollout]:
        """Play the tasks with these indices together; return their rollouts.

        A task that cannot be played is replaced by another one, also in `tasks`.
        """
        slots: dict[int, int] = {}
        used: Counter[tuple[str, str]] = Counter()
        for index in chosen:
            role, project = tasks[index].role, tasks[index].project
            slots[index] = used[role, project]
            used[role, project] += 1
            pool = self._pools.setdefault((role, project), [])
            if slots[index] == len(pool):
                pool.append(open_episodes(self._environment.tasks(role, project), self._environment.settings))
        begun = together(
            lambda index: self._first_usable(tasks[index], slots[index], self._seed_of(step, index), trainer), chosen
        )
        rollouts: dict[int, Rollout] = {}
        for index, (task, rollout) in zip(chosen, begun, strict=True):
            tasks[index], rollouts[index] = task, rollout
        generate(list(rollouts.values()), trainer)
        return rollouts

    def _first_usable(self, task: PolicyTask, slot: int, seed: int, trainer: Any) -> tuple[PolicyTask, Rollout]:
        """Return a begun rollout of a task, or of the first of its substitutes that can be played.

        Raises the error of the task if there is none.
        """
        for candidate in self._candidates(task):
            if candidate in self._unusable:
                continue
            try:
                return candidate, self._begun(candidate, slot, seed, trainer)
            except (ArtifactError, InstanceError, ProjectError, ContextError) as error:
                self._leave_out(candidate, error)
        raise SettingsError(f"none of the tasks in {task.project} can be played: {self._unusable[task]}")

    def _leave_out(self, task: PolicyTask, error: SsrError) -> None:
        """Count a task that cannot be played, once."""
        with self._lock:
            if task not in self._unusable:
                self._unusable[task] = error
                text = " ".join(str(error).split())
                self.left_out.add(task.bug or task.role, LeftOutError(LeftOutCode.UNUSABLE_TASK, text))

    def _candidates(self, task: PolicyTask) -> Iterator[PolicyTask]:
        """Yield a task, and then its substitutes in an order that all processes share."""
        yield task
        if task.role == SOLVER and task.bug:
            others = [bug for bug in sorted(self._bugs(task.project)) if bug != task.bug]
            Random(f"{self._seed} {task.bug}").shuffle(others)
            for bug in others:
                yield PolicyTask(SOLVER, task.project, bug)

    def _begun(self, task: PolicyTask, slot: int, seed: int, trainer: Any) -> Rollout:
        """Begin a rollout; raises ContextError for a prompt that does not fit into the model's context."""
        episodes = self._begin(task, slot, seed)
        with self._lock:
            rollout = Rollout.of(episodes, trainer)
        if self._context and len(rollout.prompt_ids) >= self._context:
            raise ContextError(
                f"the prompt of the {task.role} in {task.project} has {len(rollout.prompt_ids)} tokens, but "
                f"the model's context is {self._context}"
            )
        return rollout

    def _begin(self, task: PolicyTask, slot: int, seed: int) -> Episodes:
        """Begin an episode in the environment of a slot; it is opened again for a bug that is newer than it."""
        source = self._environment.tasks(task.role, task.project)
        pool = self._pools[task.role, task.project]
        wanted = task.bug or (task.project if task.role == INJECTOR else "")
        if not pool[slot].has(wanted):
            pool[slot].close()
            pool[slot] = open_episodes(source, self._environment.settings)
        pool[slot].begin(seed=seed, task=wanted)
        return pool[slot]

    def _seed_of(self, step: int, index: int) -> int:
        digest = hashlib.sha256(f"{self._seed} {step} {index}".encode()).digest()
        return int.from_bytes(digest[:4], "big") >> 1

    def _with_bugs(self, tasks: Sequence[PolicyTask], injected: Mapping[int, Rollout], step: int) -> list[PolicyTask]:
        """Return the tasks in which each group of solvers without a bug has one: a new one, otherwise a stored one."""
        fresh: dict[str, list[str]] = {}
        for index, rollout in injected.items():
            bug = _new_bug(rollout)
            known = fresh.setdefault(tasks[index].project, [])
            if bug and bug not in known:
                known.append(bug)
        assigned = list(tasks)
        for first in range(0, len(tasks), self._group):
            task = tasks[first]
            if task.role == SOLVER and not task.bug:
                bug = self._bug(fresh.get(task.project, []), task.project, self._seed_of(step, first))
                for index in range(first, min(first + self._group, len(tasks))):
                    assigned[index] = PolicyTask(SOLVER, task.project, bug)
        return assigned

    def _bug(self, fresh: list[str], project: str, seed: int) -> str:
        return fresh.pop(0) if fresh else Random(seed).choice(self._bugs(project))

    def _bugs(self, project: str) -> list[str]:
        """Return the ids of the bugs of a store, or of the rows of a dataset."""
        opened = self._environment.solver[project].open()
        try:
            return opened.ids
        finally:
            opened.close()

    def _rewards(self, tasks: Sequence[PolicyTask], rollouts: Sequence[Rollout]) -> list[float | None]:
        """Return the rewards; that of a new bug is by its solve rate if solvers of the same batch tried it."""
        attempts: dict[str, list[bool | None]] = {}
        for task, rollout in zip(tasks, rollouts, strict=True):
            if task.role == SOLVER and rollout.outcome is not None:
                attempts.setdefault(task.bug, []).append(rollout.outcome.success)
        has_solvers = bool(attempts)
        rewards: list[float | None] = []
        for rollout in rollouts:
            bug = _new_bug(rollout)
            if bug and has_solvers:
                rate = solve_rate(attempts.get(bug, []))
                rewards.append(injector_reward(True, rate, alpha=self._environment.alpha))
            else:
                rewards.append(rollout.reward)
        return rewards

    def _log(
        self,
        tasks: Sequence[PolicyTask],
        rollouts: Sequence[Rollout],
        rewards: Sequence[float | None],
        trainer: Any,
        step: int,
    ) -> None:
        """Append some rollouts to the log of the run, of different groups first."""
        order = sorted(range(len(tasks)), key=lambda index: (index % self._group, index))
        lines = []
        for index in order[: self._samples]:
            rollout, outcome = rollouts[index], rollouts[index].outcome
            lines.append(
                {
                    "step": step + 1,
                    "role": tasks[index].role,
                    "project": Path(tasks[index].project).name,
                    "bug": tasks[index].bug or _new_bug(rollout),
                    "reward": rewards[index],
                    "code": outcome.code if outcome is not None else "",
                    "tokens": len(rollout.ids),
                    "text": trainer.processing_class.decode(rollout.ids),
                }
            )
        self._folder.append(self._folder.rollouts, lines)


def policy_reward(
    given: Sequence[float | None], role: Sequence[str], success: Sequence[bool | None], log_metric: Any, **row: Any
) -> list[float | None]:
    """Return the rewards that `PolicyRollouts` has computed, and log them by role: a reward function of the trainer."""
    for name, rate in ((SOLVER, "solve_rate"), (INJECTOR, "valid_rate")):
        rewards = [r for r, played in zip(given, role, strict=True) if played == name and r is not None]
        graded = [s for s, played in zip(success, role, strict=True) if played == name and s is not None]
        if rewards:
            log_metric(f"reward/{name}", sum(rewards) / len(rewards))
        if graded:
            log_metric(rate, sum(graded) / len(graded))
    return list(given)


def _new_bug(rollout: Rollout) -> str:
    """Return the id of the valid bug that a rollout has injected; empty if it has not."""
    outcome = rollout.outcome
    return str(outcome.details.get("artifact", "")) if outcome is not None and outcome.success else ""


def _close(pools: dict[tuple[str, str], list[Episodes]]) -> None:
    for pool in pools.values():
        for episodes in pool:
            episodes.close()
