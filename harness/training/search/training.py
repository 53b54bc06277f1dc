"""Train the search policy: collect examples of many projects in parallel, fit the ranker, and measure it on others."""

from __future__ import annotations

import itertools
import sys
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from harness.solvers.search.generator.generator import load_generator
from harness.solvers.search.policy import Policy, load_tokens, save_tokens
from harness.training.search.examples import (
    Example,
    Shares,
    examples_of,
    load_examples,
    save_examples,
    static_bugs,
)
from harness.training.search.language_fitting import LanguageReport
from harness.training.search.language_training import LanguageSettings, LanguageTeacher
from harness.training.search.policy_fitting import (
    LEAST_PROJECTS,
    Lesson,
    ProvenExamples,
    StaticData,
    TrainingSettings,
    count_covered,
    fit_policy,
    validation_folders,
)
from harness.training.search.processes import run_calls
from harness.training.search.rates import Comparison, compare
from harness.training.search.sources import SourceFolder, standard_library_tokens, unique_names
from harness.training.search.stored_bugs import StoredBug
from pytest_ssr.campaign.factory import load_injectors
from pytest_ssr.errors import ProjectError
from pytest_ssr.storage.store import code_hash, key_of

_LISTING = (
    "analogies", "completions", "donors", "features", "insertions", "namesakes", "own_class", "patterns",
    "policy", "project_files", "token_model", "values",
    "generator/code_stream", "generator/cuts", "generator/filling", "generator/holes",
)  # fmt: skip
"""The modules of the solver that examples depend on."""


@dataclass(frozen=True, slots=True)
class TrainingReport:
    """What was learned from, and what it gives."""

    projects: Mapping[str, tuple[int, int]]
    """The number of bugs of each project that was learned from, and of those with a right candidate."""
    held_out: Mapping[str, tuple[int, int]]
    """The same for the projects that were not."""
    trees: int
    losses: Sequence[tuple[float, float]]
    """The mean loss of a bug after each tree, on the projects learned from and on those that decide when to stop."""
    comparison: Comparison | None
    """The rates on held-out projects; None without any."""
    operators: Mapping[str, tuple[int, int]]
    """The number of all bugs of each operator, and of those with a right candidate."""
    proven: tuple[int, int] = (0, 0)
    """The same for the proven bugs of stores that were learned from."""
    deciding: int = 0
    """The number of proven bugs that were not, because their projects decide when to stop."""
    language: LanguageReport | None = None
    """What a language model gives on each project, with rankers and weights that did not learn from it."""
    language_held_out: LanguageReport | None = None
    """The same on held-out projects."""

    def to_json(self) -> dict[str, object]:
        """Return the report as JSON data."""
        return {**asdict(self), "comparison": self.comparison.to_json() if self.comparison is not None else None}


Watch = Callable[[str], None]
"""Called with a line that says what is being done."""


def train(
    sources: Sequence[SourceFolder],
    held_out: Sequence[SourceFolder],
    folder: Path,
    settings: TrainingSettings,
    *,
    watch: Watch,
    finished: Callable[[str, int, int], None],
    stored: Sequence[StoredBug] = (),
    lesson: Lesson = Lesson.BOTH,
    language: LanguageSettings | None = None,
) -> TrainingReport:
    """Train a policy, write it to a folder, and return the report.

    Examples are kept in the folder, so a run that was ended continues. watch: see Watch. finished: called for each
    project, with its name and the numbers of bugs and of those with a right candidate. stored: proven bugs to learn
    from, too; those of the projects that decide when to stop are left out. language: the model that ranks
    candidates, too. Raises ProjectError if there are too few projects or no bug has a right candidate.
    """
    require_projects(sources)
    generator = train_generator(sources, folder, settings, watch) if settings.holes else None
    data = collect([*sources, *held_out], folder, settings, watch=watch, finished=finished, generator=generator)
    names = unique_names([*sources, *held_out])
    own = replace(data, examples={s.folder: data.examples[s.folder] for s in sources})
    stored_files = frozenset[str]().union(*{bug.hashes for bug in stored})
    validating = validation_folders(
        own, seed=settings.seed, played=[s.folder for s in sources if s.has_any(stored_files)]
    )
    deciding = [s for s in sources if s.folder in validating]
    bugs = [(bug.project, bug.bug) for bug in stored if not any(s.has_any(bug.hashes) for s in deciding)]
    if bugs:
        watch(f"listing repairs of {len(bugs)} proven bugs")
    proven = ProvenExamples.of(bugs, own, lesson)
    losses: list[tuple[float, float]] = []

    def progress(trees: int, loss: float, validation_loss: float) -> None:
        losses.append((loss, validation_loss))
        watch(f"{trees} trees, loss {validation_loss:.3f}")

    policy = fit_policy(own, proven, seed=settings.seed, validating=validating, progress=progress)
    measured: tuple[LanguageReport | None, LanguageReport | None] = (None, None)
    if language is not None:
        teacher = LanguageTeacher.open(
            own, sources, folder, language, seed=settings.seed, solver_hash=solver_hash(), watch=watch
        )
        policy, report = teacher.teach(policy)
        measured = (report, teacher.measure(policy, held_out))
    policy.save(folder)
    others = [e for s in held_out for e in data.examples[s.folder]]
    by_operator = defaultdict[str, list[Example]](list)
    for example in itertools.chain(*data.examples.values()):
        by_operator[example.operator].append(example)
    return TrainingReport(
        {names[s.folder]: count_covered(data.examples[s.folder]) for s in sources},
        {names[s.folder]: count_covered(data.examples[s.folder]) for s in held_out},
        len(policy.ranker),
        losses,
        compare(others, lambda e: _mixture(policy, e), seed=settings.seed) if others else None,
        {operator: count_covered(examples) for operator, examples in sorted(by_operator.items())},
        count_covered(proven.reversed or proven.rewarded),
        len(stored) - len(bugs),
        *measured,
    )


def train_generator(sources: Sequence[SourceFolder], folder: Path, settings: TrainingSettings, watch: Watch) -> Path:
    """Train a generator on the code of the sources; return its file, which is kept for the next run."""
    from harness.training.search.generator.fitting import fit_generator

    keys = sorted(s.key_of_all for s in sources)
    made_by = (settings.holes, settings.seed, code_hash(), solver_hash(), _generator_hash())
    path = folder / "generators" / f"{key_of(*made_by, *keys)}.npz"
    if not _readable(load_generator, path):
        watch("cutting holes into code")
        generator = fit_generator(
            sources,
            holes=settings.holes,
            seed=settings.seed,
            progress=lambda holes, loss: watch(f"generator: {holes} of {settings.holes} holes, loss {loss:.2f}"),
        )
        path.parent.mkdir(parents=True, exist_ok=True)
        generator.save(path)
        for source in sources:
            source.files.cache_clear()
    return path


def require_projects(sources: Sequence[SourceFolder]) -> None:
    """Raise ProjectError if there are too few projects to learn from."""
    if len(sources) < LEAST_PROJECTS:
        raise ProjectError("a policy is learned from at least two projects: one of them decides when to stop")


def _mixture(policy: Policy, example: Example) -> Shares:
    learned = policy.ranker.predict(example.rows)
    return np.array(policy.mixed_logits(learned.tolist(), example.shares.tolist()))


def collect(
    sources: Sequence[SourceFolder],
    folder: Path,
    settings: TrainingSettings,
    *,
    watch: Watch,
    finished: Callable[[str, int, int], None],
    generator: Path | None = None,
) -> StaticData:
    """Return the examples of each source; those that an earlier run has written to the folder are read.

    watch, finished: as for `train`. generator: the file of a generator, whose repairs are candidates, too.
    """
    store, tokens = folder / "examples", folder / "tokens" / f"{key_of(sys.version, solver_hash())}.npz"
    store.mkdir(parents=True, exist_ok=True)
    if not _readable(load_tokens, tokens):
        watch("counting the tokens of the standard library")
        save_tokens(standard_library_tokens(), tokens)
    paths = {s.folder: store / f"{_key(s, settings, tokens, generator)}.npz" for s in sources}
    missing = [s for s in sources if not _readable(load_examples, paths[s.folder])]
    watch(f"listing repairs: {len(sources) - len(missing)} of {len(sources)} projects")
    done = len(sources) - len(missing)

    def count(source: SourceFolder, counts: tuple[int, int]) -> None:
        nonlocal done
        done += 1
        finished(source.name, *counts)
        watch(f"listing repairs: {done} of {len(sources)} projects")

    calls = {
        s: partial(_write_examples, s.folder, s.name, tokens, settings, paths[s.folder], generator) for s in missing
    }
    run_calls(calls, settings.jobs, count)
    names = unique_names(sources)
    examples = {
        source: [replace(e, project=names[source]) for e in load_examples(path)] for source, path in paths.items()
    }
    loaded = load_generator(generator) if generator is not None else None
    return StaticData(examples, load_tokens(tokens), settings, loaded)


def _key(source: SourceFolder, settings: TrainingSettings, tokens: Path, generator: Path | None) -> str:
    made_by = (settings.bugs, settings.injectors, settings.seed, code_hash(), solver_hash())
    written_by = (_generator_hash(), key_of(generator.read_bytes().hex())) if generator is not None else ()
    files = (key_of(*source.code_paths()), source.key_of_all)
    return key_of(source.name, *files, *made_by, key_of(tokens.read_bytes().hex()), *written_by)


def solver_hash() -> str:
    """Return a hash of the code that lists and describes repairs."""
    from harness.solvers import search

    folder = Path(str(search.__file__)).parent
    return key_of(*((folder / f"{name}.py").read_text(encoding="utf-8") for name in _LISTING))


def _generator_hash() -> str:
    """Return a hash of the code that cuts and fills holes."""
    from harness.solvers.search import generator
    from harness.training.search import generator as training

    folders = (Path(str(module.__file__)).parent for module in (generator, training))
    paths = [Path(__file__).with_name("sources.py"), *(p for folder in folders for p in sorted(folder.glob("*.py")))]
    return key_of(*(path.read_text(encoding="utf-8") for path in paths))


def _readable(load: Callable[[Path], object], path: Path) -> bool:
    try:
        load(path)
    except (OSError, ValueError):
        return False
    return True


def _write_examples(
    folder: Path, name: str, tokens: Path, settings: TrainingSettings, path: Path, generator: Path | None
) -> tuple[int, int]:
    """Make and write the examples of one source, in a process of its own; return their numbers."""
    source = SourceFolder(folder)
    bugs = static_bugs(source, load_injectors(settings.injectors), seed=settings.seed, project=source.files)
    examples = list(
        examples_of(
            bugs,
            name,
            load_tokens(tokens),
            count=settings.bugs,
            seed=settings.seed,
            generator=load_generator(generator) if generator is not None else None,
        )
    )
    save_examples(path, examples)
    return count_covered(examples)
