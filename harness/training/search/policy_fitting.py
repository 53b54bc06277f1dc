"""Fit the ranker of the search policy to the examples of static bugs, of proven bugs, and of graded attempts."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from harness.solvers.search.generator.generator import Generator
from harness.solvers.search.policy import Policy
from harness.solvers.search.token_model import TokenModel
from harness.training.search.examples import Bug, Example, example_of, list_repairs
from harness.training.search.ranker import fit
from pytest_ssr.errors import ProjectError
from pytest_ssr.storage.store import key_of

LEAST_PROJECTS = 2
_VALIDATION_SHARE = 0.2
_REPEATS = 5
"""How often an example of a proven bug counts, beside those of static bugs, of which there are many more."""


@dataclass(frozen=True, slots=True)
class TrainingSettings:
    """What the examples are made of."""

    bugs: int = 200
    """Most bugs of a project."""
    injectors: str = "mutation,removal"
    seed: int = 0
    jobs: int = 1
    share: float = 0.5
    """Share of the ranker in the policy."""
    holes: int = 0
    """The number of holes that a generator is trained on; 0 for none."""


@dataclass(frozen=True, slots=True)
class StaticData:
    """The examples of static bugs."""

    examples: Mapping[Path, list[Example]]
    """By the folder of the project."""
    tokens: TokenModel
    settings: TrainingSettings
    generator: Generator | None = None
    """Its repairs are candidates, too."""


class Lesson(StrEnum):
    """What the ranker learns from a proven bug."""

    REVERSE = "reverse"
    """The candidate that gives the original code is likelier: supervised."""
    GRADES = "grades"
    """The candidates that attempts submitted and the grader found resolved have a reward: policy gradient."""
    BOTH = "both"


@dataclass(frozen=True, slots=True)
class ProvenExamples:
    """The examples of proven bugs."""

    reversed: Sequence[Example] = ()
    """The original code is right."""
    rewarded: Sequence[Example] = ()
    """What attempts submitted and the grader found resolved is right; see `fit`."""

    @classmethod
    def of(cls, bugs: Iterable[tuple[str, Bug]], static: StaticData, lesson: Lesson) -> ProvenExamples:
        """Return the examples of bugs, each with the name of its project."""
        reversed_bugs, rewarded = list[Example](), list[Example]()
        for project, bug in bugs:
            listed = list_repairs(bug, static.generator)
            for graded, examples in ((False, reversed_bugs), (True, rewarded)):
                if listed is not None and lesson is not (Lesson.REVERSE if graded else Lesson.GRADES):
                    rng = random.Random(f"{project}:{static.settings.seed}")
                    examples.append(example_of(listed, project, static.tokens, rng, graded=graded))
        return cls(reversed_bugs, rewarded)

    def __add__(self, other: ProvenExamples) -> ProvenExamples:
        return ProvenExamples([*self.reversed, *other.reversed], [*self.rewarded, *other.rewarded])


def validation_folders(static: StaticData, *, seed: int, played: Collection[Path] = ()) -> frozenset[Path]:
    """Return the projects that decide when to stop: a fifth of those with a right candidate.

    played: folders of projects that are taken last, because their proven bugs are learned from. Raises ProjectError if
    fewer than two projects have a right candidate.
    """
    folders = [f for f, group in static.examples.items() if any(e.is_covered for e in group)]
    if len(folders) < LEAST_PROJECTS:
        raise ProjectError(
            f"{len(folders)} of the {len(static.examples)} projects have a bug with a right candidate, and two are "
            "needed; add projects, or raise --bugs"
        )
    folders.sort(key=lambda folder: (folder.resolve().name, str(folder)))
    random.Random(f"validation:{seed}").shuffle(folders)
    last = {folder.resolve() for folder in played}
    folders.sort(key=lambda folder: folder.resolve() in last)
    return frozenset(folders[: max(1, round(_VALIDATION_SHARE * len(folders)))])


def fit_policy(
    static: StaticData,
    proven: ProvenExamples,
    *,
    seed: int,
    validating: Collection[Path] | None = None,
    progress: Callable[[int, float, float], None] | None = None,
) -> Policy:
    """Return a policy of static and of proven bugs.

    validating: see `validation_folders`; proven bugs of these projects must not be given.
    progress: called with the number of trees and both losses. Raises ProjectError as `validation_folders` does.
    """
    if validating is None:
        validating = validation_folders(static, seed=seed)
    ranker = fit(
        [
            *(e for folder, group in static.examples.items() if folder not in validating for e in group),
            *[*proven.reversed] * _REPEATS,
        ],
        [e for folder, group in static.examples.items() if folder in validating for e in group],
        seed=seed,
        rewarded=[*proven.rewarded] * _REPEATS,
        progress=progress,
    )
    counts = {group[0].project: count_covered(group) for group in static.examples.values() if group}
    settings = static.settings
    learned = [e for e in itertools.chain(*static.examples.values(), proven.reversed, proven.rewarded) if e.is_covered]
    trained_on = {
        "projects": counts,
        "operators": sorted({e.operator for e in learned}),
        "injectors": settings.injectors,
        "seed": seed,
        "proven": max(len(proven.reversed), len(proven.rewarded)),
    }
    policy = Policy(ranker, static.tokens, settings.share, trained_on=trained_on)
    policy.key = key_of(ranker.text, policy.share, policy.sharpness)
    if static.generator is not None:
        policy.generator = static.generator
        policy.key = key_of(policy.key, static.generator.key)
    return policy


def count_covered(examples: Sequence[Example]) -> tuple[int, int]:
    """Return the number of examples, and of those with a right candidate."""
    return len(examples), sum(e.is_covered for e in examples)
