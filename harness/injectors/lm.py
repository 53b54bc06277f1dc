"""The injector `lm:MODEL`: a language model on this machine writes lines of a function with a bug.

Functions are drawn as the injector `mutation` draws them. For each, a region that tests run is put between marks, and
the model writes replies for its place; those that are other code become candidates, which are tried like those of
operators.
"""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any

from harness.injectors.lm_prompt import bug_question
from harness.local_models.sampling import Question, Sampler, open_sampler
from harness.local_models.stored_sampler import StoredSampler
from harness.solvers.writer.prompt import BEGIN, END, has_marks, lines_of
from harness.solvers.writer.proposals import TOKENS, Outcome, outcome_of
from harness.solvers.writer.regions import Region, function_text, regions_of
from harness.storage.code_version import code_hash
from pytest_ssr.errors import ProjectError, SettingsError
from pytest_ssr.injectors.equivalence import fingerprint
from pytest_ssr.injectors.protocol import Candidate, Injector, MeasuredTree, SourceTree
from pytest_ssr.injectors.sampler import Change, draw
from pytest_ssr.interrupts import raise_if_stopped
from pytest_ssr.source.syntax_tree import Edit, ParsedSource, Scope, splice
from pytest_ssr.storage.store import key_of

PREFIX = "lm:"
STRATEGY, OPERATOR = "lm", "write-lines"
TOGETHER = 8
"""Replies for one region, which share what the model reads of the prompt."""
TEMPERATURE = 0.7
MOST_FRUITLESS = 20
"""Regions in a row without a candidate after which the model has nothing more to give: each costs seconds."""
_AHEAD = 4
_MOST_SEED = 2**31


def lm_names(names: str) -> list[str]:
    """Return those names of a comma-separated list that are language models on this machine."""
    return [name for each in names.split(",") if (name := each.strip()).partition(":")[0] == PREFIX[:-1]]


def lm_injectors(names: str, root: Path) -> dict[str, Injector]:
    """Return the injectors of a comma-separated list that are language models on this machine, by their names.

    root: the folder of the store that keeps the replies. Raises SettingsError for a model that is not there,
    MissingExtraError without the extra `lm`.
    """
    found: dict[str, Injector] = {}
    for name in lm_names(names):
        model = name.removeprefix(PREFIX)
        if model in (name, ""):
            raise SettingsError(
                f"{name!r} is not an injector; a language model on this machine is named lm:MODEL", option="injector"
            )
        # The path of a folder is nobody else's business.
        label = f"{PREFIX}{Path(model).name}"
        found[name] = LmInjector(label, StoredSampler(open_sampler(model, option="injector"), root))
    return found


@dataclass(slots=True)
class LmInjector:
    """Has a model write bugs; the same ones for the same tree and seed, on one machine."""

    name: str
    sampler: Sampler
    counts: Counter[Outcome] = field(default_factory=Counter)
    """Number of replies by what became of them."""
    ahead: int = _AHEAD
    """See `SlowInjector`."""

    def depends_on(self, tree: SourceTree) -> str:
        """Return a hash of the model and of this code."""
        return key_of(code_hash(), self.sampler.key)

    def candidates(self, tree: SourceTree, *, seed: int) -> Iterator[Candidate]:
        """Yield what is written for one region of each function, then for another one, until no region is left.

        It ends earlier if the model gives no candidate for many regions in a row; raises ProjectError if it has given
        none at all.
        """
        written = _Written(self, tree, seed)
        while True:
            asked = written.asked
            written.rng = Random(f"{STRATEGY}:{seed}:{written.round}")
            order = written.rng.randrange(_MOST_SEED)
            for candidate in draw(tree, strategy=STRATEGY, seed=order, enumerate_changes=written.changes):
                data = candidate.changes[candidate.path]
                assert data is not None
                yield replace(candidate, provenance=written.provenance[_name(candidate.path, data)])
            if written.asked == asked or written.fruitless >= MOST_FRUITLESS:
                break
            written.round += 1
        if not written.provenance:
            raise ProjectError(
                f"{self.name} has written no bug for {written.asked} regions of functions that tests run; train it: "
                "ssr static-bugs --role injector"
            )

    def to_json(self) -> dict[str, Any]:
        """Return the number of replies by what became of them as JSON data."""
        return {"model": self.name, "sampled": self.counts.total(), **{str(o): self.counts[o] for o in Outcome}}


@dataclass(slots=True)
class _Written:
    """What was written for a tree so far."""

    injector: LmInjector
    tree: SourceTree
    seed: int
    rng: Random = field(default_factory=Random)
    """Draws the seeds of replies in this round."""
    round: int = 0
    """Number of the region of each function that is rewritten, from 0."""
    asked: int = 0
    """Number of regions for which the model was asked."""
    fruitless: int = 0
    """Number of regions in a row that gave no candidate."""
    regions: dict[tuple[str, int], list[Region]] = field(default_factory=dict)
    """The regions of each function, by its file and its first byte, in the order in which they are rewritten."""
    known: dict[tuple[str, int], set[str]] = field(default_factory=lambda: defaultdict(set))
    """The fingerprints of each function with the lines that were written for it."""
    provenance: dict[str, Mapping[str, Any]] = field(default_factory=dict)

    def changes(self, source: ParsedSource, scope: Scope, rng: Random) -> Sequence[Change]:
        """Return what is written for the region of this round in a function; nothing if it has no further one."""
        place = source.path, scope.start
        if place not in self.regions:
            self.regions[place] = self._regions(source, scope)
        if self.round >= len(self.regions[place]) or self.fruitless >= MOST_FRUITLESS:
            return []
        raise_if_stopped()
        region = self.regions[place][self.round]
        first = source.line(scope.start) + region.first - 1
        self.asked += 1
        found: list[Change] = []
        for reply in self._replies(region):
            lines = lines_of(reply)
            outcome = outcome_of(region, lines, self.known[place])
            self.injector.counts[outcome] += 1
            if outcome is Outcome.CANDIDATE and lines is not None:
                edits = (_edit(scope, region, lines),)
                found.append((OPERATOR, edits))
                self.provenance[_name(source.path, splice(source.data, edits))] = {
                    "model": self.injector.name,
                    "model_key": self.injector.sampler.key,
                    "region": [first, first + region.last - region.first],
                    "reply": reply,
                }
        self.fruitless = 0 if found else self.fruitless + 1
        return found

    def _replies(self, region: Region) -> Sequence[str]:
        asked = Question(bug_question(region), BEGIN, f"\n{END}")
        sampler, seed = self.injector.sampler, self.rng.randrange(_MOST_SEED)
        return sampler.sample(asked, count=TOGETHER, temperature=TEMPERATURE, tokens=TOKENS, seed=seed).replies

    def _regions(self, source: ParsedSource, scope: Scope) -> list[Region]:
        """Return the regions of a function on which a bug may count, in random order."""
        text = function_text(source, scope) if scope.kind == "function" else None
        if text is None or has_marks(text) or fingerprint(text.encode(), indented=text[:1].isspace()) is None:
            return []
        top = source.line(scope.start)
        found = [each for each in regions_of(text) if self._may_count(source.path, top + each.first - 1, each)]
        Random(f"{self.seed}:{source.path}:{scope.qualname}:{scope.start}").shuffle(found)
        return found

    def _may_count(self, path: str, first: int, region: Region) -> bool:
        last = first + region.last - region.first
        return not isinstance(self.tree, MeasuredTree) or self.tree.may_count(path, first, last)


def _edit(scope: Scope, region: Region, lines: str) -> Edit:
    """Return the edit that puts lines in the place of a region.

    It leaves the last line break of a function as it is, which is not a part of the scope.
    """
    start = scope.start + len(region.before.encode())
    old, new = region.lines.encode(), lines.encode()
    if not region.after:
        old, new = old.removesuffix(b"\n"), new.removesuffix(b"\n")
    return Edit(start, start + len(old), new)


def _name(path: str, data: bytes) -> str:
    return f"{path} {hashlib.sha256(data).hexdigest()}"


def count_line(injector: LmInjector) -> str:
    """Return what became of an injector's replies as one line."""
    parts = ", ".join(f"{injector.counts[outcome]} {outcome}" for outcome in Outcome)
    return f"{injector.name}: {injector.counts.total()} replies: {parts}"
