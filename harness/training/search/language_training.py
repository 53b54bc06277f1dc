"""Teach a policy to use a language model: read candidates of static bugs in parallel, fit the weights, measure them."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from harness.local_models.scoring import Scorer
from harness.models.scorers import open_scorer
from harness.solvers.search.policy import Policy
from harness.storage.atomic_write import write_text
from harness.training.search.examples import Bug, static_bugs
from harness.training.search.language_fitting import LanguageReport, Weights, fit_language, report_of
from harness.training.search.language_lists import (
    WHOLE_LIST,
    ReadList,
    load_lists,
    read_lists,
    save_lists,
    tokens_per_second,
)
from harness.training.search.policy_fitting import ProvenExamples, StaticData, TrainingSettings, fit_policy
from harness.training.search.processes import run_calls
from harness.training.search.sources import SourceFolder
from pytest_ssr.campaign.factory import load_injectors
from pytest_ssr.errors import ProjectError
from pytest_ssr.storage.store import code_hash, key_of

_FOLDS = 4
LEAST_PROJECTS = 3
"""Each fold has a policy that two other projects at least are learned from."""
_SPEEDS = "language-speeds.json"


@dataclass(frozen=True, slots=True)
class LanguageSettings:
    """How a policy learns to use a language model."""

    model: str
    """What `--lm` named."""
    seconds: float = 5.0
    """Seconds of processor time for one list of candidates; 0 for the whole list."""
    bugs: int = 15
    """Most bugs of a project whose candidates are read."""


@dataclass(frozen=True, slots=True)
class LanguageTeacher:
    """Teaches policies to use a language model, by the lists of static bugs and of proven ones."""

    settings: LanguageSettings
    scorer: Scorer
    tokens: int
    """Budget of one list."""
    rankers: Mapping[Path, Policy]
    """A policy for each project, by its folder, that did not learn from it."""
    sources: Mapping[SourceFolder, Policy]
    """The same policies, by the projects whose static bugs are read."""
    lists: Sequence[ReadList]
    """Those of static bugs."""
    reading: _Reading
    seed: int

    @classmethod
    def open(
        cls,
        static: StaticData,
        sources: Sequence[SourceFolder],
        folder: Path,
        settings: LanguageSettings,
        *,
        seed: int,
        solver_hash: str,
        watch: Callable[[str], None],
    ) -> LanguageTeacher:
        """Fit the rankers, and read the candidates of static bugs.

        What was read is kept in the folder, so a run that was ended continues. solver_hash: of the code that lists
        repairs. Raises ProjectError if too few projects have a bug with a right candidate.
        """
        scorer = open_scorer(settings.model)
        tokens = _budget(scorer, folder, settings, watch)
        reading = _Reading(static.settings, settings, scorer, tokens, folder / "readings", solver_hash, watch)
        covered = [s for s in sources if any(e.is_covered for e in static.examples[s.folder])]
        if len(covered) < LEAST_PROJECTS:
            raise ProjectError(
                f"{len(covered)} projects have a bug with a right candidate, and {LEAST_PROJECTS} are needed to fit a "
                "language model's columns; add projects, or raise --bugs"
            )
        rankers = dict[SourceFolder, Policy]()
        folds = _folds(covered, seed)
        for number, fold in enumerate(folds, 1):
            watch(f"fitting the ranker without a part of the projects: {number} of {len(folds)}")
            others = {f: group for f, group in static.examples.items() if f not in {s.folder for s in fold}}
            rankers |= dict.fromkeys(fold, fit_policy(replace(static, examples=others), ProvenExamples(), seed=seed))
        by_folder = {source.folder.resolve(): ranker for source, ranker in rankers.items()}
        return cls(settings, scorer, tokens, by_folder, rankers, reading.read(rankers), reading, seed)

    def using(self, model: str) -> LanguageTeacher:
        """Return a teacher with another model of the same size, which reads the candidates of static bugs again."""
        settings, scorer = replace(self.settings, model=model), open_scorer(model)
        reading = replace(self.reading, settings=settings, scorer=scorer)
        return replace(self, settings=settings, scorer=scorer, reading=reading, lists=reading.read(self.sources))

    def teach(self, policy: Policy, proven: Sequence[ReadList] = ()) -> tuple[Policy, LanguageReport]:
        """Return a policy with the language model, and what the model gives on the bugs of other projects.

        proven: the lists of proven bugs.
        """
        model, lists = self.settings.model, [*self.lists, *proven]
        ranking, report = fit_language(model, self.scorer, lists, self.tokens, seed=self.seed)
        return replace(policy, language=ranking, key=key_of(policy.key, ranking.to_json())), report

    def read_proven(self, bugs: Iterable[tuple[str, Path, Bug]]) -> list[ReadList]:
        """Return the lists of proven bugs that have a right candidate.

        bugs: each with the name and the folder of its project; those of other projects than the rankers' are left out.
        """
        return [
            one
            for name, folder, bug in bugs
            if (ranker := self.rankers.get(folder.resolve())) is not None
            for one in read_lists(iter([bug]), name, ranker, self.scorer, count=1, most_bugs=1, tokens=self.tokens)
        ]

    def measure(self, policy: Policy, held_out: Sequence[SourceFolder]) -> LanguageReport | None:
        """Return what the model gives on the static bugs of held-out projects; None without any bug of them."""
        assert policy.language is not None
        weights = Weights.of(policy.language)
        lists = self.reading.read(dict.fromkeys(held_out, replace(policy, language=None)))
        return report_of(self.settings.model, lists, lambda _: weights, seed=self.seed) if lists else None


def _folds(sources: Sequence[SourceFolder], seed: int) -> list[list[SourceFolder]]:
    mixed = sorted(sources, key=lambda s: (s.name, str(s.folder)))
    random.Random(f"folds:{seed}").shuffle(mixed)
    count = min(_FOLDS, len(mixed))
    return [mixed[i::count] for i in range(count)]


def _budget(scorer: Scorer, folder: Path, settings: LanguageSettings, watch: Callable[[str], None]) -> int:
    """Return the tokens that are read in the seconds of a list; the speed of a model is measured once for a folder."""
    if not settings.seconds:
        return WHOLE_LIST
    path = folder / _SPEEDS
    try:
        speeds = json.loads(path.read_text(encoding="utf-8"))
        speed = int(speeds[scorer.key])
    except (OSError, ValueError, KeyError, TypeError):
        watch("measuring the speed of the language model")
        speed = tokens_per_second(scorer)
        write_text(path, json.dumps({scorer.key: speed}))
    return max(1, round(min(WHOLE_LIST, settings.seconds * speed)))


@dataclass(frozen=True, slots=True)
class _Reading:
    """Reads candidates of projects, in several processes."""

    training: TrainingSettings
    settings: LanguageSettings
    scorer: Scorer
    tokens: int
    folder: Path
    solver_hash: str
    watch: Callable[[str], None]

    def read(self, policies: Mapping[SourceFolder, Policy]) -> list[ReadList]:
        """Return the lists of the bugs of projects, each ranked by a policy."""
        self.folder.mkdir(parents=True, exist_ok=True)
        paths = {source: self.folder / f"{self._key(source, policy)}.npz" for source, policy in policies.items()}
        missing = [source for source, path in paths.items() if _stored(path) is None]
        done = len(paths) - len(missing)
        self.watch(f"reading candidates: {done} of {len(paths)} projects")

        def count(source: SourceFolder, _: int) -> None:
            nonlocal done
            done += 1
            self.watch(f"reading candidates: {done} of {len(paths)} projects")

        calls = {
            s: partial(
                _write_lists,
                s.folder,
                s.name,
                policies[s],
                self.scorer,
                self.training,
                self.settings,
                self.tokens,
                paths[s],
            )
            for s in missing
        }
        run_calls(calls, self.training.jobs, count)
        return [one for path in paths.values() for one in _stored(path) or ()]

    def _key(self, source: SourceFolder, policy: Policy) -> str:
        training = (self.training.injectors, self.training.seed, self.training.bugs)
        model = (self.scorer.key, self.tokens, self.settings.bugs)
        return key_of(source.name, source.key_of_all, policy.key, *training, *model, code_hash(), self.solver_hash)


def _stored(path: Path) -> list[ReadList] | None:
    try:
        return load_lists(path)
    except (OSError, ValueError):
        return None


def _write_lists(
    folder: Path,
    name: str,
    policy: Policy,
    scorer: Scorer,
    training: TrainingSettings,
    settings: LanguageSettings,
    tokens: int,
    path: Path,
) -> int:
    """Read and write the lists of one project, in a process of its own; return their number."""
    source = SourceFolder(folder)
    bugs = static_bugs(source, load_injectors(training.injectors), seed=training.seed, project=source.files)
    lists = list(read_lists(bugs, name, policy, scorer, count=settings.bugs, most_bugs=training.bugs, tokens=tokens))
    save_lists(path, lists)
    return len(lists)
