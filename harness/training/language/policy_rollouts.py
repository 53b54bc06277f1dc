"""Let the model that is trained play both roles: it injects bugs, and repairs bugs of a store or its own new ones.

TRL calls `PolicyRollouts` for each batch of prompts. The prompt of a row is a task as JSON: its role, project and, for
a solver, the id of a bug. If it has no id, all solvers of the group repair one bug that the injectors of the same batch
have made; the reward of that bug's injector is then the paper's (arXiv 2512.18552, section 2.4) for the group's solve
rate. So both roles are updated together, from one batch. A valid bug that nobody tried has no reward. Without a new bug
they repair one of the store, and if the project has none yet, the group injects, too.
"""

from __future__ import annotations

import hashlib
import json
import threading
import weakref
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from harness.datasets.instance import InstanceError
from harness.environments import DatasetTasks, EnvironmentSettings, ProjectTasks, StoreTasks
from harness.environments.adapters.trl import Rollout, generate, token_columns
from harness.environments.episodes import Episodes
from harness.environments.remote_episodes import open_episodes, together
from harness.environments.scores import OUTCOME
from harness.records.messages import USER
from harness.records.rewards import injector_reward, solve_rate
from harness.records.trajectory import ExitReason
from harness.training.language.guarded import is_main
from harness.training.language.left_out import LeftOut, LeftOutCode, LeftOutError
from harness.training.language.plan import INJECTOR, SOLVER
from harness.training.language.run_folder import RunFolder
from harness.training.language.update_counts import UpdateCounts
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

    @property
    def outcome_weight(self) -> float:
        """The weight of the result in the reward."""
        return self.settings.scores.get(OUTCOME, 0.0) if self.settings.scores else 1.0

    def tasks(self, role: str, project: str) -> StoreTasks | DatasetTasks | ProjectTasks:
        """Return the tasks of a role in a project."""
        return self.solver[project] if role == SOLVER else self.injector[project]


@dataclass(frozen=True, slots=True)
class Update:
    """The update that is played, and this process's part of it."""

    step: int
    """The number of updates before it."""
    offset: int = 0
    """The index of this process's first rollout among those of all processes."""

    def seed(self, seed: int, index: int) -> int:
        """Return the seed of a rollout of this process. seed: that of the training."""
        digest = hashlib.sha256(f"{seed} {self.step} {self.offset + index}".encode()).digest()
        return int.from_bytes(digest[:4], "big") >> 1


@dataclass(slots=True)
class _Slots:
    """The environments of an update: each rollout has its own, because its outcome is read at the end of the update."""

    used: Counter[tuple[str, str]] = field(default_factory=Counter)

    def take(self, task: PolicyTask) -> int:
        """Return the number of a free environment of the task's role and project."""
        self.used[task.role, task.project] += 1
        return self.used[task.role, task.project] - 1


class PolicyRollouts:
    """Generates the rollouts of a batch: a `rollout_func` of TRL's GRPOTrainer."""

    def __init__(
        self,
        environment: PolicyEnvironment,
        folder: RunFolder,
        *,
        group: int,
        seed: int,
        samples: int,
        context: int = 0,
        reply_tokens: int = 0,
    ) -> None:
        """group: rollouts of one task. samples: rollouts of each batch to log.

        context: tokens of the longest sequence, 0 for no limit. reply_tokens: tokens of the longest reply.
        """
        self._environment, self._folder = environment, folder
        self._group, self._seed, self._samples = group, seed, samples
        self._context, self._reply_tokens = context, reply_tokens
        self.left_out = LeftOut()
        """The tasks that cannot be played."""
        self._unusable: dict[PolicyTask, SsrError] = {}
        self._pools: dict[tuple[str, str], list[Episodes]] = {}
        self._lock = threading.Lock()
        """For the tokenizer, and for what is counted: rollouts begin in several threads."""
        self._closing = weakref.finalize(self, _close, self._pools)

    def __call__(self, prompts: Sequence[Any], trainer: Any) -> dict[str, list[Any] | None]:
        """Return the columns of all rollouts, in the order of the prompts.

        Raises SandboxError if no rollout of the update has a reward, in any process.
        """
        tasks = [PolicyTask.of(prompt) for prompt in prompts]
        update = Update(trainer.state.global_step, trainer.accelerator.process_index * len(prompts))
        rollouts: dict[int, Rollout] = {}
        free = _Slots()
        for role in (INJECTOR, SOLVER):
            chosen = [index for index, task in enumerate(tasks) if task.role == role]
            if role == SOLVER:
                tasks = self._with_bugs(tasks, rollouts, update)
            rollouts |= self._play(tasks, chosen, free, trainer, update)
        ordered = [rollouts[index] for index in range(len(prompts))]
        rewards = self._rewards(tasks, ordered)
        self._count(ordered, rewards, trainer, update.step)
        if is_main():
            self._log(tasks, ordered, rewards, trainer, update.step)
        successes = [rollout.outcome.success if rollout.outcome is not None else None for rollout in ordered]
        return {
            **token_columns(ordered),
            "given": rewards,
            "role": [task.role for task in tasks],
            "success": successes,
            "full": [rollout.full for rollout in ordered],
            "cut": [rollout.cut_replies > 0 for rollout in ordered],
        }

    def _count(self, rollouts: Sequence[Rollout], rewards: Sequence[float | None], trainer: Any, step: int) -> None:
        """Append the counts of the update to those of the run; raises SandboxError if no rollout has a reward."""
        counts = UpdateCounts.of(rollouts, rewards, self._group).of_all_processes(trainer)
        if counts.without_reward == counts.played:
            outcome = rollouts[0].outcome
            raise SandboxError(
                f"none of the {counts.played} rollouts of update {step + 1} has a reward: "
                f"{outcome.text if outcome is not None else ''}",
                remedy="the same command continues from the last checkpoint",
            )
        if is_main():
            self._folder.append(self._folder.counts, [{"step": step + 1, **counts.to_json()}])

    def _play(
        self, tasks: list[PolicyTask], chosen: Sequence[int], free: _Slots, trainer: Any, update: Update
    ) -> dict[int, Rollout]:
        """Play the tasks with these indices together; return their rollouts.

        A task that cannot be played is replaced by another one, also in `tasks`.
        """
        slots = {index: free.take(tasks[index]) for index in chosen}
        for index in chosen:
            role, project = tasks[index].role, tasks[index].project
            pool = self._pools.setdefault((role, project), [])
            if slots[index] == len(pool):
                pool.append(open_episodes(self._environment.tasks(role, project), self._environment.settings))
        begun = together(
            lambda index: self._first_usable(tasks[index], slots[index], update.seed(self._seed, index), trainer),
            chosen,
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
        """Begin a rollout; raises ContextError if its prompt and a reply do not fit into the context."""
        episodes = self._begin(task, slot, seed)
        with self._lock:
            rollout = Rollout.of(episodes, trainer, context=self._context, reply_tokens=self._reply_tokens)
        if self._context and len(rollout.prompt_ids) + self._reply_tokens > self._context:
            raise ContextError(
                f"the prompt of the {task.role} in {task.project} has {len(rollout.prompt_ids)} tokens and a reply "
                f"{self._reply_tokens} (--reply-tokens), but the context has {self._context}"
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

    def _with_bugs(
        self, tasks: Sequence[PolicyTask], injected: Mapping[int, Rollout], update: Update
    ) -> list[PolicyTask]:
        """Return the tasks in which each group of solvers without a bug has one: a new one, otherwise a stored one.

        While a project has none, the group injects.
        """
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
                bug = self._bug(fresh.get(task.project, []), task.project, update.seed(self._seed, first))
                for index in range(first, min(first + self._group, len(tasks))):
                    assigned[index] = PolicyTask(SOLVER if bug else INJECTOR, task.project, bug)
        return assigned

    def _bug(self, fresh: list[str], project: str, seed: int) -> str:
        """Return a new bug, otherwise a stored one; empty if the project has none."""
        if fresh:
            return fresh.pop(0)
        stored = self._bugs(project)
        return Random(seed).choice(stored) if stored else ""

    def _bugs(self, project: str) -> list[str]:
        """Return the ids of the bugs of a store, or of the rows of a dataset."""
        source = self._environment.solver[project]
        if isinstance(source, StoreTasks):
            return source.ids()
        opened = source.open()
        try:
            return opened.ids
        finally:
            opened.close()

    def _rewards(self, tasks: Sequence[PolicyTask], rollouts: Sequence[Rollout]) -> list[float | None]:
        """Return the rewards; that of a new bug is by its solve rate if the batch has solvers in its project."""
        attempts: dict[str, list[bool | None]] = {}
        for task, rollout in zip(tasks, rollouts, strict=True):
            if task.role == SOLVER and rollout.outcome is not None:
                attempts.setdefault(task.bug, []).append(rollout.outcome.success)
        with_solvers = {task.project for task in tasks if task.role == SOLVER}
        return [
            self._reward_by_solvers(rollout, attempts.get(_new_bug(rollout), []))
            if _new_bug(rollout) and task.project in with_solvers
            else rollout.reward
            for task, rollout in zip(tasks, rollouts, strict=True)
        ]

    def _reward_by_solvers(self, rollout: Rollout, attempts: Sequence[bool | None]) -> float | None:
        """Return the reward of a new bug: its solve rate decides the outcome, and other scores are as they were."""
        outcome = rollout.outcome
        by_rate = injector_reward(True, solve_rate(attempts), alpha=self._environment.alpha)
        if by_rate is None or outcome is None or outcome.reward is None or rollout.reward is None:
            return None
        weight = self._environment.outcome_weight
        return rollout.reward - weight * outcome.reward + weight * by_rate

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
    given: Sequence[float | None],
    role: Sequence[str],
    success: Sequence[bool | None],
    full: Sequence[ExitReason | None],
    cut: Sequence[bool],
    log_metric: Any,
    **row: Any,
) -> list[float | None]:
    """Return the rewards that `PolicyRollouts` has computed, and log them by role: a reward function of the trainer.

    It also logs the shares of rollouts without a reward, of those that a limit of tokens has ended, and of those with a
    reply that one has cut.
    """
    log_metric("without_reward", sum(reward is None for reward in given) / len(given))
    log_metric("context_full", full.count(ExitReason.CONTEXT) / len(full))
    log_metric("completion_full", full.count(ExitReason.TOKEN_LIMIT) / len(full))
    log_metric("cut", sum(cut) / len(cut))
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
