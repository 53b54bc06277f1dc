"""The solver `search:writer=MODEL`: the candidates of the search take turns with those that a language model writes."""

from __future__ import annotations

import copy
import itertools
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from random import Random

from harness.local_models.sampling import Sampler
from harness.records.trajectory import Journal, Step
from harness.solvers.search.patterns import Repair
from harness.solvers.search.solver import SEARCH, Proposer, SearchSolver, is_search
from harness.solvers.search.workspace import SearchWorkspace
from harness.solvers.writer.failing_test import failure_of
from harness.solvers.writer.proposals import Outcome, WrittenRepairs
from pytest_ssr.errors import SettingsError
from pytest_ssr.injectors.equivalence import fingerprint
from pytest_ssr.project.state import CodebaseState
from pytest_ssr.storage.store import key_of

EVERY = 4
"""Every fourth try is a written one. What a list solves grows with the logarithm of its tries (with a policy 0.24 of
205 bugs with 5, 0.37 with 20, 0.48 with 100), so a quarter fewer cost it about 0.03; a small model, which is right less
often than the first candidates of a list, would take more from it with more of the tries."""
REPLIES = 100
"""Most replies of an attempt, as for `lm:MODEL`: writing costs more than running."""
_WRITER = "writer="


class Kind(StrEnum):
    """Where a candidate comes from."""

    LISTED = "listed"
    WRITTEN = "written"


def split_writer(solver: str) -> tuple[str, str]:
    """Return the name of a search without its writer, and the name of the model that writes; empty without a writer.

    Raises SettingsError if the model has no name.
    """
    rest = solver.removeprefix(f"{SEARCH}:")
    if not is_search(solver) or rest == solver:
        return solver, ""
    if rest.startswith(_WRITER):
        search, separator, model = SEARCH, _WRITER, rest.removeprefix(_WRITER)
    else:
        search, separator, model = solver.partition(f",{_WRITER}")
    if separator and not model:
        raise SettingsError(f"{solver!r} names no model after {_WRITER}", option="solver")
    return search, model


@dataclass(slots=True)
class MixedRepairs:
    """Proposes the candidates of a list and those that a model writes in turn, in one attempt.

    A candidate with which its file compiles to the same code as with an earlier one on the same state is not proposed.
    """

    workspace: SearchWorkspace
    listed: Proposer
    written: WrittenRepairs
    run: Counter[Kind] = field(default_factory=Counter)
    """Number of candidates that were proposed, and so were run."""
    repeats: Counter[Kind] = field(default_factory=Counter)
    """Number of candidates that compile to the same code as an earlier one of either kind."""
    last: Kind | None = None
    """The kind of the candidate that was proposed last."""

    def repairs(self, base: CodebaseState) -> Iterator[Repair]:
        """Yield a written repair at every fourth place; when one kind has no more, only those of the other kind."""
        new = {Kind.LISTED: self._new(Kind.LISTED, base), Kind.WRITTEN: self._new(Kind.WRITTEN, base)}
        known = defaultdict[str, set[str]](set)
        for place in itertools.count(1):
            turn = (Kind.WRITTEN, Kind.LISTED) if place % EVERY == 0 else (Kind.LISTED, Kind.WRITTEN)
            found = next(((kind, repair) for kind in turn if (repair := self._next(kind, new[kind], known))), None)
            if found is None:
                return
            self.last, repair = found
            self.run[self.last] += 1
            yield repair

    def record(self, journal: Journal, *, solved: bool) -> None:
        """Record what both have recorded, and how many candidates of each kind were run."""
        self.listed.record(journal, solved=solved)
        self.written.record(journal, solved=solved)
        facts = {
            "sampled": len(self.written.written),
            **{f"run_{kind}": self.run[kind] for kind in Kind},
            **{f"repeats_{kind}": self.repeats[kind] for kind in Kind},
            "solved_by": str(self.last) if solved and self.last is not None else "",
        }
        journal.step(Step(len(journal.trajectory.steps), -1, "tool", "mixture", facts))

    def _new(self, kind: Kind, base: CodebaseState) -> Iterator[tuple[Repair, str]]:
        """Yield the repairs of a kind that give valid Python, with the fingerprints of their files."""
        for repair in (self.listed if kind is Kind.LISTED else self.written).repairs(base):
            state = self.workspace.state(base, repair)
            entry = state.entry(repair.path) if state is not None else None
            if entry is not None and (made := fingerprint(entry.data)) is not None:
                yield repair, made

    def _next(self, kind: Kind, new: Iterator[tuple[Repair, str]], known: dict[str, set[str]]) -> Repair | None:
        """Return the next repair of a kind that is not known, and remember it."""
        for repair, made in new:
            if made not in known[repair.path]:
                known[repair.path].add(made)
                return repair
            self.repeats[kind] += 1
            if kind is Kind.WRITTEN:
                # The row of the reply that was yielded last: it was new among the replies alone.
                self.written.written[-1]["outcome"] = str(Outcome.REPEAT)
        return None


@dataclass(slots=True, kw_only=True)
class MixedSolver(SearchSolver):
    """Repairs by search, with candidates that a language model writes among those of the list."""

    sampler: Sampler
    temperature: float = 0.7
    shows_failure: bool = True
    """Whether the model is told of a failing test."""

    @property
    def key(self) -> str:
        """A hash of everything that an attempt depends on."""
        policy = self.policy.key if self.policy is not None else ""
        writing = self.sampler.key, self.temperature, self.shows_failure
        return key_of(f"{SEARCH}:{_WRITER}", policy, self.tries, self.wall_s, *writing)

    @property
    def reads_machine(self) -> bool:
        """Whether it could read other files than the task's: what a model has written could, when it is run."""
        return True

    def proposer(self, workspace: SearchWorkspace, rng: Random) -> Proposer:
        """Return what proposes the candidates of an attempt."""
        failure = failure_of(workspace) if self.shows_failure else None
        # The list is drawn as without a writer.
        own = Random(copy.copy(rng).random())
        written = WrittenRepairs(workspace, self.sampler, own, min(self.tries, REPLIES), self.temperature, failure)
        # `super()` without arguments finds the class that `slots` replaces.
        return MixedRepairs(workspace, super(MixedSolver, self).proposer(workspace, rng), written)
