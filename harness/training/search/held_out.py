"""Measure a policy on proven bugs of projects that it is not trained on: candidates are drawn and really run.

The bugs of a project are made once and kept in the store, as are the results of each policy, so that every round of a
training run is measured on the same bugs with the same budget.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

import numpy as np

from harness.rollouts.task import open_task
from harness.solvers.search.policy import Policy
from harness.solvers.search.solver import SearchSolver, noise
from harness.solvers.search.workspace import SearchWorkspace, UnableError, prepare
from harness.storage.code_version import code_hash
from harness.training.search.examples import Shares
from harness.training.search.reversal import changed_lines
from pytest_ssr.errors import ArtifactError, ProjectError
from pytest_ssr.execution.runner import Runner
from pytest_ssr.project.state import CodebaseState
from pytest_ssr.records.artifact import BugArtifact
from pytest_ssr.storage.store import Store
from pytest_ssr.storage.stored_records import StoredRecords

_RECORDS = "held-out"


@dataclass(frozen=True, slots=True)
class HeldOutBug:
    """A proven bug that policies are measured on."""

    project: str
    artifact_id: str
    operator: str
    lines: int
    """The number of lines in which the buggy files and the originals differ."""
    artifact: BugArtifact
    runner: Runner


def bug_lines(original: CodebaseState, artifact: BugArtifact) -> int:
    """Return the number of lines that a bug changes, the larger of both sides of each change."""
    states = (original, original.apply(artifact.bug))
    return sum(
        changed_lines(*(e.data if (e := state.entry(path)) is not None else b"" for state in states))
        for path in artifact.bug.paths
    )


class HeldOutBugs:
    """Measures policies on a fixed set of bugs."""

    def __init__(self, bugs: Sequence[HeldOutBug], store: Store, folder: Path, *, most: int, seeds: int) -> None:
        """Prepare to measure. folder: for the tasks. most: candidates of one attempt. seeds: attempts at each bug."""
        self.bugs = bugs
        self._records, self._folder, self._most, self._seeds = StoredRecords(store, _RECORDS), folder, most, seeds

    def places(self, policies: Sequence[Policy | None], *, watch: Callable[[str], None]) -> list[list[list[int]]]:
        """Return for each policy, bug and seed the number of the first candidate that solves the bug; 0 if none does.

        None stands for the weights of the patterns. A bug that cannot be prepared counts as not solved.
        Raises SandboxError if a sandbox fails, because that is no result.
        """
        results: list[list[list[int]]] = [[] for _ in policies]
        reads_machine = any(SearchSolver(policy=policy).reads_machine for policy in policies)
        for number, bug in enumerate(self.bugs, 1):
            watch(f"held-out bug {number} of {len(self.bugs)}")
            keys = [self._key(bug, policy, reads_machine) for policy in policies]
            stored = [self._records.get(*key) for key in keys]
            if None in stored:
                for key, places in zip(keys, self._solve(bug, policies, reads_machine), strict=True):
                    self._records.put({"places": places}, *key)
                stored = [self._records.get(*key) for key in keys]
            for result, record in zip(results, stored, strict=True):
                result.append(list((record or {})["places"]))
        return results

    def _key(self, bug: HeldOutBug, policy: Policy | None, reads_machine: bool) -> tuple[object, ...]:
        name = policy.key if policy is not None else ""
        return (code_hash(), bug.artifact_id, name, self._most, self._seeds, reads_machine)

    def _solve(self, bug: HeldOutBug, policies: Sequence[Policy | None], reads_machine: bool) -> list[list[int]]:
        try:
            folder = self._folder / bug.artifact_id
            task = open_task(bug.runner.scoped(), bug.artifact, folder, reads_machine=reads_machine)
            workspace = prepare(task)
        except (ArtifactError, ProjectError, UnableError):
            return [[0] * self._seeds for _ in policies]
        try:
            return [solve_places(workspace, policy, bug.artifact_id, self._most, self._seeds) for policy in policies]
        finally:
            workspace.close()


def solve_places(workspace: SearchWorkspace, policy: Policy | None, name: str, most: int, seeds: int) -> list[int]:
    """Return for each seed the number of the first candidate that solves a task; 0 if none of the first `most` does."""
    workspace.use(policy)
    return [_place(workspace, Random(f"{name}:{seed}"), most) for seed in range(seeds)]


def _place(workspace: SearchWorkspace, rng: Random, most: int) -> int:
    scored = workspace.repairs(workspace.original)
    order = sorted(scored, key=lambda pair: -(pair[0] + noise(rng)))
    tried = 0
    for _, repair in order:
        state = workspace.state(workspace.original, repair)
        if state is None:
            continue
        tried += 1
        if workspace.run_candidate(state).complete and workspace.confirm(state):
            return tried
        if tried >= most:
            break
    return 0


def solved_shares(places: Sequence[Sequence[int]], budget: int) -> Shares:
    """Return for each bug the share of attempts that a number of candidates is enough for."""
    return np.array([np.mean([0 < place <= budget for place in attempts]) for attempts in places])
