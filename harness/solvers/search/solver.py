"""The solver `search`: draw candidate repairs by their scores and run them in the fork server until all tests pass.

A repair that fixes some of the failing tests is kept, and others are tried on top of it, so a bug in two places is
repaired one place after the other. The budget of an attempt counts candidates and the seconds of their tests, not
wall time, so an attempt with the same seed gives the same patch on a busy machine.
"""

from __future__ import annotations

import json
import math
import shutil
import threading
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, fields, replace
from functools import partial
from random import Random
from typing import Any, Protocol

from harness.records.trajectory import ExitReason, Journal, Step
from harness.solvers.protocol import Solution, SolverTask, encode_patch
from harness.solvers.search.demonstration import EDIT, demonstrate, open_conversation
from harness.solvers.search.language import Reading
from harness.solvers.search.patterns import Repair
from harness.solvers.search.policy import Policy
from harness.solvers.search.workspace import CandidateRun, SearchWorkspace, UnableError, prepare
from pytest_ssr.errors import ModelError, ProjectError, SandboxError, SsrError
from pytest_ssr.patch import Patch
from pytest_ssr.project.state import CodebaseState
from pytest_ssr.storage.store import key_of

SEARCH = "search"
CANDIDATES = "candidates.jsonl"
"""The file beside the trajectory with the candidates of an attempt, in the order in which they were tried."""
_MAX_DEPTH = 3
_BEAM_WIDTH = 3
_TEMPERATURE = 1.0
_MAX_FAILED = 200
_MAX_TESTS_S = 30.0
"""Longest suite whose tests a demonstration runs."""


def is_search(solver: str) -> bool:
    """Return whether a solver's name is that of the search, with or without a policy."""
    return solver.partition(":")[0] == SEARCH


@dataclass(slots=True)
class _Progress:
    tries: int
    """Remaining number of tries."""
    seconds: float
    """Remaining seconds for the tests of candidates."""
    candidates: int = 0
    best_state: CodebaseState | None = None
    """The state that repairs the most tests, if any state repairs one."""
    repairs: int = 0
    """Number of tests that it repairs."""
    failed: list[CodebaseState] = field(default_factory=list)
    """Candidates that repair no test, the first ones."""
    tried: list[dict[str, Any]] = field(default_factory=list)
    """Each candidate with what its tests said, as plain data."""

    @property
    def has_budget(self) -> bool:
        return self.tries > 0 and self.seconds > 0


class Proposer(Protocol):
    """Proposes the candidates of one attempt."""

    def repairs(self, base: CodebaseState) -> Iterator[Repair]:
        """Yield repairs of a state, in the order in which they are tried."""
        ...

    def record(self, journal: Journal, *, solved: bool) -> None:
        """Record at the end of the attempt how they were made. solved: whether the last one passes all tests."""
        ...


@dataclass(frozen=True, slots=True)
class _RankedRepairs:
    """Draws from the list of repairs in proportion to their scores."""

    workspace: SearchWorkspace
    rng: Random

    def repairs(self, base: CodebaseState) -> Iterator[Repair]:
        scored = self.workspace.repairs(base)
        for _, repair in sorted(scored, key=lambda pair: -(pair[0] / _TEMPERATURE + noise(self.rng))):
            yield repair

    def record(self, journal: Journal, *, solved: bool) -> None:
        """Record what a language model read for this task, in all attempts together."""
        if self.workspace.readings:
            record_model(journal, asdict(sum(self.workspace.readings.values(), Reading())))


@dataclass(slots=True)
class SearchSolver:
    """Repairs by search, without a model."""

    tries: int = 800
    """Number of tries of one attempt; see `CandidateRun.cost`."""
    wall_s: float = 120.0
    """Seconds for the tests of an attempt's candidates, counted as in `CandidateRun.seconds`."""
    name: str = SEARCH
    policy: Policy | None = None
    """Ranks candidates; None for the weights of the patterns."""
    _workspaces: dict[str, SearchWorkspace | UnableError | ProjectError] = field(default_factory=dict)
    _locks: dict[str, threading.Lock] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __reduce__(self) -> tuple[object, ...]:
        """Send only the settings to other processes, which have workspaces of their own."""
        settings = {f.name: getattr(self, f.name) for f in fields(self) if not f.name.startswith("_")}
        return partial(type(self), **settings), ()

    @property
    def key(self) -> str:
        """A hash of everything that an attempt depends on."""
        return key_of(self.name, self.tries, self.wall_s, *([self.policy.key] if self.policy is not None else []))

    @property
    def reads_machine(self) -> bool:
        """Whether it could read other files than the task's: what a generator has written could, when it is run."""
        return self.policy is not None and self.policy.generator is not None

    def solve(self, task: SolverTask, *, seed: int, journal: Journal) -> Solution:
        """Run one search; the seed determines which of the likely repairs are tried, and in which order.

        A task to which the search does not apply is a failed attempt; one whose tests do not run here has no grade.
        """
        progress = _Progress(self.tries, self.wall_s)
        open_conversation(task, journal)
        try:
            workspace = self._workspace(task)
            proposer = self.proposer(workspace, Random(f"{task.id}:{seed}"))
            repaired_state = _search(workspace, proposer, progress, journal)
            proposer.record(journal, solved=repaired_state is not None)
            journal.write_sibling(CANDIDATES, "".join(f"{json.dumps(row)}\n" for row in progress.tried))
        except UnableError as error:
            return Solution(None, journal.end(ExitReason.UNABLE, str(error)))
        except ModelError as error:
            return Solution(None, journal.end(ExitReason.MODEL, str(error)))
        except (SandboxError, ProjectError) as error:
            return Solution(None, journal.end(ExitReason.INFRA, str(error)))
        detail = f"{progress.candidates} candidates tried, {len(workspace.failing)} tests to repair"
        if repaired_state is None and progress.best_state is not None:
            # A partial repair, as a developer may leave one: it is graded, and may become a second-order bug.
            repaired_state, detail = progress.best_state, f"{detail}; the patch repairs {progress.repairs} of them"
        if repaired_state is None:
            if progress.seconds <= 0 < progress.tries:
                detail = f"the tests of its candidates took {self.wall_s:g} s; {detail}"
                return Solution(None, journal.end(ExitReason.TIME_LIMIT, detail))
            return Solution(None, journal.end(ExitReason.STEP_LIMIT, detail))
        patch = _patch(workspace, repaired_state)
        self._demonstrate(task, workspace, patch, progress, journal)
        return Solution(patch, journal.end(ExitReason.SUBMITTED, detail, encode_patch(patch)))

    def proposer(self, workspace: SearchWorkspace, rng: Random) -> Proposer:
        """Return what proposes the candidates of an attempt."""
        return _RankedRepairs(workspace, rng)

    def _demonstrate(
        self, task: SolverTask, workspace: SearchWorkspace, patch: Patch, progress: _Progress, journal: Journal
    ) -> None:
        """Record how a model would make the patch with its tools; without it, there is a patch and no conversation."""
        start, known = workspace.weakened, workspace.demonstrations
        if patch.data not in known:
            runs_tests = workspace.baseline.seconds <= _MAX_TESTS_S
            try:
                known[patch.data] = demonstrate(task, patch, start, runs_tests=runs_tests)
            except SsrError:
                known[patch.data] = None
        demonstration = known[patch.data]
        if demonstration is None:
            return
        record, failed = demonstration.record, (start.replace(state.changes) for state in progress.failed)
        for message in record.messages[len(journal.trajectory.messages) :]:
            journal.message(message)
        for call in record.calls:
            rejected = demonstration.rejected(start, list(failed)) if call.i == EDIT else ()
            journal.call(replace(call, rejected=tuple(rejected)))

    def release(self, task: SolverTask) -> None:
        """Release the resources that attempts at a task share."""
        with self._lock:
            workspace = self._workspaces.pop(task.id, None)
            self._locks.pop(task.id, None)
        if isinstance(workspace, SearchWorkspace):
            workspace.close()
        shutil.rmtree(task.scratch, ignore_errors=True)

    def forget(self) -> None:
        """Rank the repairs of open tasks again: the policy has changed."""
        with self._lock:
            for workspace in self._workspaces.values():
                if isinstance(workspace, SearchWorkspace):
                    workspace.use(self.policy)

    def _workspace(self, task: SolverTask) -> SearchWorkspace:
        with self._lock:
            lock = self._locks.setdefault(task.id, threading.Lock())
        with lock:
            if task.id not in self._workspaces:
                try:
                    if task.settings.by_script:
                        raise UnableError("the tests are run by the artifact's script alone, which reports no lines")
                    self._workspaces[task.id] = prepare(task, self.policy)
                except (UnableError, ProjectError) as error:
                    self._workspaces[task.id] = error
            result = self._workspaces[task.id]
        if isinstance(result, Exception):
            raise result
        return result


def _search(
    workspace: SearchWorkspace, proposer: Proposer, progress: _Progress, journal: Journal
) -> CodebaseState | None:
    """Try repairs of the buggy state, then of the best states so far; return a state that passes all tests."""
    bases: list[tuple[int, CodebaseState]] = [(0, workspace.original)]
    for depth in range(_MAX_DEPTH):
        improved: dict[str, tuple[int, CodebaseState]] = {}
        for index, (passing, base) in enumerate(bases):
            # The states of a level share the remaining tries; a level reserves a part once a state improved.
            share = progress.tries // (len(bases) - index)
            repaired_state = _search_level(workspace, base, passing, share, proposer, progress, improved, journal)
            if repaired_state is not None:
                return repaired_state
        if not improved or not progress.has_budget or depth == _MAX_DEPTH - 1:
            return None
        bases = sorted(improved.values(), key=lambda pair: -pair[0])[:_BEAM_WIDTH]
    return None


def _search_level(
    workspace: SearchWorkspace,
    base: CodebaseState,
    passing: int,
    share: int,
    proposer: Proposer,
    progress: _Progress,
    improved: dict[str, tuple[int, CodebaseState]],
    journal: Journal,
) -> CodebaseState | None:
    repairs = proposer.repairs(base)
    until = progress.tries - share
    # Once a state improved, half of the remaining share is reserved for repairs on top of it.
    while progress.has_budget and progress.tries > (until + share // 2 if improved else until):
        repair = next(repairs, None)
        if repair is None:
            break
        state = workspace.state(base, repair)
        if state is None:
            continue
        run = workspace.run_candidate(state)
        progress.tries -= run.cost
        progress.seconds -= run.seconds
        progress.candidates += 1
        progress.tried.append(_tried(workspace, repair, run, on_top=bool(base.changes)))
        if not run.repaired and not base.changes and len(progress.failed) < _MAX_FAILED:
            progress.failed.append(state)
        if run.complete and workspace.confirm(state):
            _record(journal, repair.pattern, repair.path, repair.first, len(run.repaired))
            return state
        if len(run.repaired) > passing:
            _record(journal, repair.pattern, repair.path, repair.first, len(run.repaired))
            improved[state.tree_hash] = (len(run.repaired), state)
            if len(run.repaired) > progress.repairs:
                progress.best_state, progress.repairs = state, len(run.repaired)
    return None


def _tried(workspace: SearchWorkspace, repair: Repair, run: CandidateRun, *, on_top: bool) -> dict[str, Any]:
    """Return what a page shows of a candidate. on_top: whether it was tried on top of another one."""
    return {
        "path": repair.path,
        "line": repair.first,
        "pattern": repair.pattern,
        "on_top": on_top,
        "passed": sorted(run.repaired),
        "failed": sorted(set(workspace.quick_tests) - run.repaired),
        "complete": run.complete,
    }


def _record(journal: Journal, pattern: str, path: str, line: int, repaired: int) -> None:
    arguments = {"pattern": pattern, "path": path, "line": line, "repaired": repaired}
    journal.step(Step(len(journal.trajectory.steps), -1, "tool", "repair", arguments))


def record_model(journal: Journal, facts: dict[str, Any]) -> None:
    """Record what a language model did for the candidates."""
    journal.step(Step(len(journal.trajectory.steps), -1, "tool", "language-model", facts))


def _patch(workspace: SearchWorkspace, repaired_state: CodebaseState) -> Patch:
    """Return the repair as a diff on the task's tree."""
    return workspace.weakened.replace(repaired_state.changes).patch_from(workspace.weakened)


def noise(rng: Random) -> float:
    """Return a draw from the Gumbel distribution; added to the logarithms of scores, it draws in proportion to them."""
    draw = max(1e-12, rng.random())
    return -math.log(-math.log(draw) + 1e-300)
