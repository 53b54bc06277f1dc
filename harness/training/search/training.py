"""Train the search policy: collect examples of many projects in parallel, fit the ranker, and measure it on others."""

from __future__ import annotations

import concurrent.futures
import itertools
import multiprocessing
import os
import random
import signal
import sys
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np

from harness.solvers.search.generator.generator import load_generator
from harness.solvers.search.policy import Policy, load_tokens, save_tokens
from harness.solvers.search.token_model import TokenModel
from harness.training.search.examples import Example, Shares, examples_of, load_examples, save_examples, static_bugs
from harness.training.search.ranker import fit
from harness.training.search.rates import Comparison, compare
from harness.training.search.sources import SourceFolder, standard_library_tokens, unique_names
from pytest_ssr.campaign.factory import load_injectors
from pytest_ssr.errors import ProjectError, SsrError
from pytest_ssr.interrupts import uninterrupted
from pytest_ssr.storage.store import code_hash, key_of

_VALIDATION_SHARE = 0.2
_LEAST_PROJECTS = 2
_LISTING = (
    "analogies", "completions", "donors", "features", "insertions", "own_class", "patterns", "token_model", "values"
)  # fmt: skip
"""The modules of the solver that examples depend on."""


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
) -> TrainingReport:
    """Train a policy, write it to a folder, and return the report.

    Examples are kept in the folder, so a run that was ended continues. watch: see Watch. finished: called for each
    project, with its name and the numbers of bugs and of those with a right candidate. Raises ProjectError if there are
    too few projects or no bug has a right candidate.
    """
    require_projects(sources)
    generator = train_generator(sources, folder, settings, watch) if settings.holes else None
    data = collect([*sources, *held_out], folder, settings, watch=watch, finished=finished, generator=generator)
    names = unique_names([*sources, *held_out])
    own = StaticData({s.folder: data.examples[s.folder] for s in sources}, data.tokens, settings)
    losses: list[tuple[float, float]] = []

    def progress(trees: int, loss: float, validation_loss: float) -> None:
        losses.append((loss, validation_loss))
        watch(f"{trees} trees, loss {validation_loss:.3f}")

    policy = fit_policy(own, [], seed=settings.seed, progress=progress)
    if generator is not None:
        policy.generator = load_generator(generator)
        policy.key = key_of(policy.key, policy.generator.key)
    policy.save(folder)
    others = [e for s in held_out for e in data.examples[s.folder]]
    everything = [e for group in data.examples.values() for e in group]
    return TrainingReport(
        {names[s.folder]: _count(data.examples[s.folder]) for s in sources},
        {names[s.folder]: _count(data.examples[s.folder]) for s in held_out},
        len(policy.ranker),
        losses,
        compare(others, lambda e: _mixture(policy, e), seed=settings.seed) if others else None,
        {o: _count([e for e in everything if e.operator == o]) for o in sorted({e.operator for e in everything})},
    )


def train_generator(sources: Sequence[SourceFolder], folder: Path, settings: TrainingSettings, watch: Watch) -> Path:
    """Train a generator on the code of the sources; return its file, which is kept for the next run."""
    from harness.training.search.generator.fitting import fit_generator

    keys = sorted(s.key for s in sources)
    path = folder / "generators" / f"{key_of(settings.holes, settings.seed, _generator_hash(), *keys)}.npz"
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
    return path


def require_projects(sources: Sequence[SourceFolder]) -> None:
    """Raise ProjectError if there are too few projects to learn from."""
    if len(sources) < _LEAST_PROJECTS:
        raise ProjectError("a policy is learned from at least two projects: one of them decides when to stop")


@dataclass(frozen=True, slots=True)
class StaticData:
    """The examples of static bugs."""

    examples: Mapping[Path, list[Example]]
    """By the folder of the project."""
    tokens: TokenModel
    settings: TrainingSettings


def validation_folders(static: StaticData, *, seed: int, played: Collection[Path] = ()) -> frozenset[Path]:
    """Return the projects that decide when to stop: a fifth of those with a right candidate.

    played: folders of projects that are taken last, because their proven bugs are learned from. Raises ProjectError if
    fewer than two projects have a right candidate.
    """
    folders = [f for f, group in static.examples.items() if any(e.is_covered for e in group)]
    if len(folders) < _LEAST_PROJECTS:
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
    proven: Sequence[Example],
    *,
    seed: int,
    rewarded: Sequence[Example] = (),
    validating: Collection[Path] | None = None,
    progress: Callable[[int, float, float], None] | None = None,
) -> Policy:
    """Return a policy of static and of proven bugs.

    rewarded: see `fit`. validating: see `validation_folders`; proven bugs of these projects must not be given.
    progress: called with the number of trees and both losses. Raises ProjectError as `validation_folders` does.
    """
    if validating is None:
        validating = validation_folders(static, seed=seed)
    ranker = fit(
        [*(e for folder, group in static.examples.items() if folder not in validating for e in group), *proven],
        [e for folder, group in static.examples.items() if folder in validating for e in group],
        seed=seed,
        rewarded=rewarded,
        progress=progress,
    )
    counts = {group[0].project: _count(group) for group in static.examples.values() if group}
    settings = static.settings
    learned = [e for e in (*itertools.chain(*static.examples.values()), *proven, *rewarded) if e.is_covered]
    trained_on = {
        "projects": counts,
        "operators": sorted({e.operator for e in learned}),
        "injectors": settings.injectors,
        "seed": seed,
        "proven": len(proven) + len(rewarded),
    }
    policy = Policy(ranker, static.tokens, settings.share, trained_on=trained_on)
    policy.key = key_of(ranker.text, policy.share, policy.sharpness)
    return policy


def _mixture(policy: Policy, example: Example) -> Shares:
    learned = policy.ranker.predict(example.rows)
    return np.array(policy.mixed_logits(learned.tolist(), example.shares.tolist()))


def _count(examples: Sequence[Example]) -> tuple[int, int]:
    return len(examples), sum(e.is_covered for e in examples)


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
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(settings.jobs, context, _enter_worker) as pool:
        try:
            # Workers start here; one that an interrupt leaves half started would print a traceback.
            with uninterrupted():
                waiting = {
                    pool.submit(_write_examples, s.folder, s.name, tokens, settings, paths[s.folder], generator): s
                    for s in missing
                }
            for number, future in enumerate(concurrent.futures.as_completed(waiting), len(sources) - len(missing) + 1):
                bugs, covered = future.result()
                finished(waiting[future].name, bugs, covered)
                watch(f"listing repairs: {number} of {len(sources)} projects")
        except BrokenProcessPool:
            raise SsrError(
                "a process that lists repairs has ended, maybe for lack of memory; what is finished is kept"
            ) from None
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            for process in multiprocessing.active_children():
                process.terminate()
            raise
    names = unique_names(sources)
    examples = {
        source: [replace(e, project=names[source]) for e in load_examples(path)] for source, path in paths.items()
    }
    return StaticData(examples, load_tokens(tokens), settings)


def _key(source: SourceFolder, settings: TrainingSettings, tokens: Path, generator: Path | None) -> str:
    made_by = (settings.bugs, settings.injectors, settings.seed, code_hash(), solver_hash())
    written_by = (_generator_hash(), key_of(generator.read_bytes().hex())) if generator is not None else ()
    return key_of(source.name, source.key, *made_by, key_of(tokens.read_bytes().hex()), *written_by)


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
    return key_of(*(path.read_text(encoding="utf-8") for folder in folders for path in sorted(folder.glob("*.py"))))


def _readable(load: Callable[[Path], object], path: Path) -> bool:
    try:
        load(path)
    except (OSError, ValueError):
        return False
    return True


def _enter_worker() -> None:
    """Leave Ctrl-C to the parent process, and end with it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _write_examples(
    folder: Path, name: str, tokens: Path, settings: TrainingSettings, path: Path, generator: Path | None
) -> tuple[int, int]:
    """Make and write the examples of one source, in a process of its own; return their numbers."""
    injectors = load_injectors(settings.injectors)
    bugs = static_bugs(SourceFolder(folder), injectors, seed=settings.seed)
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
    return _count(examples)
