"""The solver `search`: candidate repairs drawn by their scores, tried in forks of warm processes, until all tests pass.

A repair that lets some failing tests pass and not all is kept, and others are tried on top of it: a bug in two places
is undone one place after the other. What an attempt may try is counted, in candidates and in the seconds of their
tests, not by the clock: so an attempt with the same seed gives the same patch on a busy machine.
"""

from __future__ import annotations

import math
import shutil
import threading
from dataclasses import dataclass, field
from random import Random

from harness.solvers.handing_in import recorded
from harness.solvers.protocol import Solution, SolverTask
from harness.solvers.search.ground import Ground, UnableError, noise, survey
from harness.trajectory import ExitReason, Journal, Step
from pytest_ssr.codebase import CodebaseState
from pytest_ssr.errors import ProjectError, SandboxError
from pytest_ssr.patch import Patch
from pytest_ssr.store import key_of

_DEEPEST = 3
_BEAM = 3
_TEMPERATURE = 1.0


@dataclass(slots=True)
class _Spent:
    tries: int
    """That may still be made."""
    seconds: float
    """That the tests of candidates may still take."""
    made: int = 0
    nearest: CodebaseState | None = None
    """The state that repairs most, of those that repair something."""
    repairs: int = 0
    """How many tests it repairs."""

    @property
    def left(self) -> bool:
        return self.tries > 0 and self.seconds > 0


@dataclass(slots=True)
class SearchSolver:
    """Repairs without a model."""

    tries: int = 800
    """Candidates of one attempt."""
    wall_s: float = 120.0
    """Seconds that the tests of an attempt's candidates may take, each run counted as `Tried.seconds` says."""
    name: str = "search"
    _grounds: dict[str, Ground | UnableError | ProjectError] = field(default_factory=dict)
    _locks: dict[str, threading.Lock] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def key(self) -> str:
        """Everything that an attempt depends on."""
        return key_of(self.name, self.tries, self.wall_s)

    def solve(self, task: SolverTask, *, seed: int, journal: Journal) -> Solution:
        """Search once; the seed decides which of the likely repairs are tried, and in which order.

        A task that a search has nothing to go by in is a failed attempt; one whose tests do not run here has no grade.
        """
        spent = _Spent(self.tries, self.wall_s)
        try:
            ground = self._ground(task)
            found = _searched(ground, Random(f"{task.id}:{seed}"), spent, journal)
        except UnableError as error:
            return Solution(None, journal.end(ExitReason.UNABLE, str(error)))
        except (SandboxError, ProjectError) as error:
            return Solution(None, journal.end(ExitReason.INFRA, str(error)))
        detail = f"{spent.made} candidates tried, {len(ground.failing)} tests to be repaired"
        if found is None and spent.nearest is not None:
            # What a developer would leave behind: it gets its grade, and may become a bug of second order.
            found, detail = spent.nearest, f"{detail}; handed in repairs {spent.repairs} of them"
        if found is None:
            if spent.seconds <= 0 < spent.tries:
                why = f"the tests of its candidates have taken {self.wall_s:g} s; {detail}"
                return Solution(None, journal.end(ExitReason.TIME_LIMIT, why))
            return Solution(None, journal.end(ExitReason.STEP_LIMIT, detail))
        patch = _patch(ground, found)
        return Solution(patch, journal.end(ExitReason.SUBMITTED, detail, recorded(patch)))

    def release(self, task: SolverTask) -> None:
        """Let go of what attempts at a task share."""
        with self._lock:
            ground = self._grounds.pop(task.id, None)
            self._locks.pop(task.id, None)
        if isinstance(ground, Ground):
            ground.close()
        shutil.rmtree(task.scratch, ignore_errors=True)

    def _ground(self, task: SolverTask) -> Ground:
        with self._lock:
            lock = self._locks.setdefault(task.id, threading.Lock())
        with lock:
            if task.id not in self._grounds:
                try:
                    self._grounds[task.id] = survey(task)
                except (UnableError, ProjectError) as error:
                    self._grounds[task.id] = error
            found = self._grounds[task.id]
        if isinstance(found, Exception):
            raise found
        return found


def _searched(ground: Ground, chance: Random, spent: _Spent, journal: Journal) -> CodebaseState | None:
    """Try repairs of the buggy state, then of what has come nearest so far."""
    bases: list[tuple[int, CodebaseState]] = [(0, ground.original)]
    for depth in range(_DEEPEST):
        nearer: dict[str, tuple[int, CodebaseState]] = {}
        for place, (passing, base) in enumerate(bases):
            # Deeper levels share what is left; the first one leaves them a part where something came nearer.
            share = spent.tries // (len(bases) - place)
            found = _level(ground, base, passing, share, chance, spent, nearer, journal)
            if found is not None:
                return found
        if not nearer or not spent.left or depth == _DEEPEST - 1:
            return None
        bases = sorted(nearer.values(), key=lambda pair: -pair[0])[:_BEAM]
    return None


def _level(
    ground: Ground,
    base: CodebaseState,
    passing: int,
    share: int,
    chance: Random,
    spent: _Spent,
    nearer: dict[str, tuple[int, CodebaseState]],
    journal: Journal,
) -> CodebaseState | None:
    scored = ground.repairs(base)
    order = sorted(scored, key=lambda pair: -(math.log(pair[0]) / _TEMPERATURE + noise(chance)))
    until = spent.tries - share
    for _, repair in order:
        # Once something has come nearer, half of what is left is for what builds on it.
        if not spent.left or spent.tries <= (until + share // 2 if nearer else until):
            return None
        state = ground.state(base, repair)
        if state is None:
            continue
        tried = ground.tried(state)
        spent.tries -= tried.cost
        spent.seconds -= tried.seconds
        spent.made += 1
        if tried.whole and ground.confirmed(state):
            _record(journal, repair.pattern, repair.path, repair.first, len(tried.repaired))
            return state
        if len(tried.repaired) > passing:
            _record(journal, repair.pattern, repair.path, repair.first, len(tried.repaired))
            nearer[state.tree_hash] = (len(tried.repaired), state)
            if len(tried.repaired) > spent.repairs:
                spent.nearest, spent.repairs = state, len(tried.repaired)
    return None


def _record(journal: Journal, pattern: str, path: str, line: int, repaired: int) -> None:
    arguments = {"pattern": pattern, "path": path, "line": line, "repaired": repaired}
    journal.step(Step(len(journal.trajectory.steps), -1, "tool", "repair", arguments))


def _patch(ground: Ground, found: CodebaseState) -> Patch:
    """Return the repair as a diff on the tree that was given."""
    return ground.weakened.replace(found.changes).patch_from(ground.weakened)
