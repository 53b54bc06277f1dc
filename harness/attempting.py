"""Attempts as pytest's items make them: one at a time, in any order, in any worker, kept in the store.

The entry point `pytest_ssr.attempts`; what it keeps is that of `ssr solve`, and the other way round.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from harness.agents.limits import RolloutLimits
from harness.models.names import is_model
from harness.models.spending import Budget
from harness.rewards import interval
from harness.roles import Roles, writes
from harness.solving import Solving, proven
from pytest_ssr.artifact import read_artifact
from pytest_ssr.baselines import project_baseline
from pytest_ssr.errors import ArtifactError, SettingsError
from pytest_ssr.opening import open_workbench
from pytest_ssr.store import Store
from pytest_ssr.verdicts import trusts


class Made(NamedTuple):
    """What came of an attempt."""

    resolved: bool | None
    reason: str
    rollout: str


class Attempting:
    """One solver, and the artifacts it is let at; what an artifact's attempts share is kept until the next one's."""

    def __init__(
        self,
        project: Path,
        store: Store,
        directories: Sequence[Path],
        *,
        solver: str,
        seed: int,
        opening: Mapping[str, Any],
        limits: Mapping[str, float],
        workers: int,
    ) -> None:
        """opening: keyword arguments of `open_workbench`. limits: of the model, by the names of `ssr solve`'s options.

        workers: how many processes share the budgets: each gets its part. Raises an SsrError that says what is wrong.
        """
        if limits and not is_model(solver):
            raise SettingsError(f"--ssr-{next(iter(limits)).replace('_', '-')} is for a model, not for {solver}")
        self._store, self._seed, self._roles = store, seed, _roles(limits, workers, store)
        self._solving: tuple[Path, Solving] | None = None
        self._invalid: dict[Path, ArtifactError] = {}
        try:
            self._solver = self._roles.solver(solver)
            trusted = not writes(solver) and all(trusts(store, d) for d in directories)
            self._bench = open_workbench(project, store, **opening, model_written=not trusted)
        except BaseException:
            self._roles.close()
            raise

    def made(self, directory: Path, number: int) -> Made:
        """Make an attempt (counted from 0) at the artifact in a folder, unless the store holds it."""
        solving = self._at(directory)
        rollout = solving.known(number) or solving.attempt(number)
        return Made(rollout.verdict, rollout.reason.text, rollout.id)

    def _at(self, directory: Path) -> Solving:
        if self._solving is not None and self._solving[0] == directory:
            return self._solving[1]
        self._leave()
        if directory in self._invalid:
            raise self._invalid[directory]
        bench = self._bench.scoped()
        try:
            artifact = read_artifact(directory)
            verdict = proven(artifact, bench, self._store)
        except ArtifactError as error:
            self._invalid[directory] = error
            raise
        known = functools.partial(project_baseline, self._bench, self._store)
        solving = Solving(bench, artifact, verdict, self._solver, self._store, seed=self._seed, baseline=known)
        self._solving = (directory, solving)
        return solving

    def summary(self, grades: Sequence[bool | None]) -> str:
        """Return the solve rate with its interval."""
        known = [g for g in grades if g is not None]
        low, high = interval(sum(known), len(known))
        rate = f"{sum(known)} of {len(known)} attempts resolved"
        shown = f"{rate}, {sum(known) / len(known):.0%} (95 % interval {low:.0%} to {high:.0%})" if known else rate
        return shown + (f", {len(grades) - len(known)} without a grade" if len(known) < len(grades) else "")

    def _leave(self) -> None:
        if self._solving is not None:
            self._solving[1].close()
        self._solving = None

    def close(self) -> None:
        """End what has been started: warm processes, servers of models."""
        try:
            self._leave()
        finally:
            self._roles.close()


def _roles(limits: Mapping[str, float], workers: int, store: Store) -> Roles:
    """Return what opens the model, with its part of the run's budgets."""
    parts = {name: limits[name] / workers for name in limits if name.startswith("budget_")}
    for name, part in parts.items():
        if name != "budget_usd" and part < 1:
            told = f"--ssr-{name.replace('_', '-')} {limits[name]}"
            raise SettingsError(f"{told} is less than one for each of {workers} workers")
    usd, tokens, calls = (parts.get(f"budget_{unit}") for unit in ("usd", "tokens", "calls"))
    budget = Budget(usd, None if tokens is None else int(tokens), None if calls is None else int(calls))
    default = RolloutLimits()
    return Roles(
        limits=RolloutLimits(
            steps=int(limits.get("steps", default.steps)),
            tokens=int(limits.get("rollout_tokens", default.tokens)),
            usd=limits.get("rollout_usd", default.usd),
        ),
        budget=budget,
        store=store,
    )
