"""Run attempts for pytest items: one at a time, in any order, in any worker, saved in the store.

This is the entry point `pytest_ssr.attempts`. It shares its stored rollouts with `ssr solve`.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from harness.agents.limits import RolloutLimits
from harness.models.budget import Budget
from harness.models.factory import is_model
from harness.rollouts.player_factory import PlayerFactory, solver_writes_code
from harness.rollouts.runner import RolloutRunner, validated_verdict
from pytest_ssr.campaign.factory import runner_source
from pytest_ssr.errors import ArtifactError, SettingsError
from pytest_ssr.execution.script_template import runner_of_artifact, runner_of_script
from pytest_ssr.extensions import Extensions
from pytest_ssr.records.artifact import read_artifact
from pytest_ssr.records.rate_interval import interval
from pytest_ssr.storage.baseline_store import project_baseline
from pytest_ssr.storage.store import Store
from pytest_ssr.storage.verdict_store import is_trusted


class AttemptResult(NamedTuple):
    """The result of one attempt."""

    resolved: bool | None
    reason: str
    rollout: str


class PytestBackend:
    """One solver and the artifacts it runs on; what an artifact's attempts share is kept until the next artifact."""

    def __init__(
        self,
        project: Path,
        store: Store,
        directories: Sequence[Path],
        *,
        solver: str,
        seed: int,
        runner_arguments: Mapping[str, Any],
        limits: Mapping[str, float],
        workers: int,
        extensions: Extensions,
    ) -> None:
        """Open the solver and the runner; raises SsrError if that fails.

        runner_arguments: keyword arguments of `open_runner`. limits: of the model, by the names of the options of
        `ssr solve`. workers: the number of processes; each one gets an equal share of the budgets. extensions: have
        further solvers and models.
        """
        if limits and not is_model(solver):
            raise SettingsError(f"--ssr-{next(iter(limits)).replace('_', '-')} is for a model, not for {solver}")
        self._store, self._seed, self._players = store, seed, _player_factory(limits, workers, store, extensions)
        self._rollout_runner: tuple[Path, RolloutRunner] | None = None
        self._invalid: dict[Path, ArtifactError] = {}
        try:
            self._solver = self._players.solver(solver)
            trusted = not solver_writes_code(solver) and all(is_trusted(store, d) for d in directories)
            self._runner_for_tests = runner_source(project, store, **runner_arguments, model_written=not trusted)
            for test_runner in dict.fromkeys(map(runner_of_artifact, directories)):
                self._runner_for_tests(test_runner)
        except BaseException:
            self._players.close()
            raise

    def attempt(self, directory: Path, number: int) -> AttemptResult:
        """Return an attempt (counted from 0) at the artifact in a directory; run it unless the store has it."""
        rollout_runner = self._runner_for(directory)
        rollout = rollout_runner.stored_attempt(number) or rollout_runner.run(number)
        return AttemptResult(rollout.verdict, rollout.reason.text, rollout.id)

    def _runner_for(self, directory: Path) -> RolloutRunner:
        if self._rollout_runner is not None and self._rollout_runner[0] == directory:
            return self._rollout_runner[1]
        self._close_runner()
        if directory in self._invalid:
            raise self._invalid[directory]
        try:
            artifact = read_artifact(directory)
            project_runner = self._runner_for_tests(runner_of_script(artifact.script))
            runner = project_runner.scoped()
            verdict = validated_verdict(artifact, runner, self._store)
        except ArtifactError as error:
            self._invalid[directory] = error
            raise
        baseline = functools.partial(project_baseline, project_runner, self._store)
        rollout_runner = RolloutRunner(
            runner, artifact, verdict, self._solver, self._store, seed=self._seed, baseline=baseline
        )
        self._rollout_runner = (directory, rollout_runner)
        return rollout_runner

    def remarks(self) -> list[str]:
        """Return a line for each model whose server lacks something: what, and what is done without it."""
        return self._players.remarks()

    def summary(self, grades: Sequence[bool | None]) -> str:
        """Return the solve rate with its interval."""
        graded = [g for g in grades if g is not None]
        low, high = interval(sum(graded), len(graded))
        line = f"{sum(graded)} of {len(graded)} attempts resolved"
        if graded:
            line += f", {sum(graded) / len(graded):.0%} (95 % interval {low:.0%} to {high:.0%})"
        if len(graded) < len(grades):
            line += f", {len(grades) - len(graded)} without a grade"
        return line

    def _close_runner(self) -> None:
        if self._rollout_runner is not None:
            self._rollout_runner[1].close()
        self._rollout_runner = None

    def close(self) -> None:
        """Stop the fork server and model servers that were started."""
        try:
            self._close_runner()
        finally:
            self._players.close()


def _player_factory(limits: Mapping[str, float], workers: int, store: Store, extensions: Extensions) -> PlayerFactory:
    """Return the factory of players, with one worker's share of the run's budgets."""
    parts = {name: limits[name] / workers for name in limits if name.startswith("budget_")}
    for name, part in parts.items():
        if name != "budget_usd" and part < 1:
            setting = f"--ssr-{name.replace('_', '-')} {limits[name]}"
            raise SettingsError(f"{setting} is less than one for each of {workers} workers")
    usd, tokens, calls = (parts.get(f"budget_{unit}") for unit in ("usd", "tokens", "calls"))
    budget = Budget(usd, None if tokens is None else int(tokens), None if calls is None else int(calls))
    default = RolloutLimits()
    return PlayerFactory(
        limits=RolloutLimits(
            steps=int(limits.get("steps", default.steps)),
            tokens=int(limits.get("rollout_tokens", default.tokens)),
            usd=limits.get("rollout_usd", default.usd),
        ),
        budget=budget,
        store=store,
        extensions=extensions,
    )
