"""Run `ssr train search` and `ssr train selfplay`: train a policy for the solver `search`, and report its rates."""

from __future__ import annotations

import importlib.util
import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

from harness.cli.executors import open_executor
from harness.cli.exit_code import ExitCode
from harness.cli.terminal import Terminal
from harness.cli.write_errors import writing
from harness.local_models.sampling import open_sampler
from harness.models.scorers import open_scorer
from harness.selfplay.play_settings import PlaySettings
from harness.selfplay.project import Project
from harness.selfplay.project_play import Watch
from harness.settings.training import TrainSearchSettings, TrainSelfPlaySettings
from pytest_ssr.campaign.factory import load_injectors
from pytest_ssr.errors import MissingExtraError, SettingsError, SsrError
from pytest_ssr.project.snapshot import name_of
from pytest_ssr.storage.free_space import require_space
from pytest_ssr.storage.store import Store, key_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from harness.training.search.language_fitting import LanguageReport
    from harness.training.search.language_training import LanguageSettings
    from harness.training.search.loop import RoundReport
    from harness.training.search.policy_fitting import StaticData
    from harness.training.search.rates import Rate
    from harness.training.search.sources import SourceFolder
    from harness.training.search.stored_bugs import StoredBug
    from harness.training.writer.rounds import RoundLearner


_MOST_SEED = 2**31 - 1
"""LightGBM's seeds are 32-bit integers, and NumPy's are not negative."""


def _require(settings: TrainSearchSettings | TrainSelfPlaySettings) -> None:
    """Raise MissingExtraError or SettingsError before any work if a training cannot end well."""
    out, seed = settings.out, settings.seed
    if importlib.util.find_spec("lightgbm") is None:
        raise MissingExtraError("LightGBM", "search")
    if "holes" in settings.typed and not settings.generator:
        raise SettingsError("--holes has no effect without --generator", option="holes")
    if settings.generator and importlib.util.find_spec("torch") is None:
        raise MissingExtraError("torch", "generator")
    if out.exists() and not out.is_dir():
        raise SettingsError(f"--out {out} is not a folder", option="out")
    if not 0 <= seed <= _MOST_SEED:
        raise SettingsError(f"--seed {seed} is not between 0 and {_MOST_SEED}", option="seed")
    load_injectors(settings.injector)
    for option in ("lm-seconds", "lm-bugs", "lm-writes", "lm-updates", "lm-layers", "lm-learning-rate"):
        if option in settings.typed and not settings.lm:
            raise SettingsError(f"--{option} has no effect without --lm", option=option)
    if settings.lm:
        open_scorer(settings.lm)
    require_space(out, "out")


def train_search(settings: TrainSearchSettings) -> int:
    """Train the policy; return 0."""
    _require(settings)
    if "lesson" in settings.typed and not settings.episodes:
        raise SettingsError("--lesson has no effect without --episodes", option="lesson")
    from harness.training.search.policy_fitting import Lesson, TrainingSettings
    from harness.training.search.sources import open_sources, without_shared_code
    from harness.training.search.training import train

    terminal = Terminal(quiet=settings.json)
    held_out = open_sources(settings.held_out)
    sources = without_shared_code(open_sources(settings.source), held_out, terminal.note)
    stored = _stored_bugs(settings.episodes, held_out, terminal)
    holes = settings.holes if settings.generator else 0
    training = TrainingSettings(settings.bugs, settings.injector, settings.seed, settings.jobs, settings.share, holes)
    with writing(settings.out):
        report = train(
            sources,
            held_out,
            settings.out,
            training,
            watch=terminal.status,
            finished=_finished(terminal),
            stored=stored,
            lesson=Lesson(settings.lesson),
            language=_language_settings(settings),
        )
    if settings.json:
        print(json.dumps({"policy": str(settings.out), **report.to_json()}, indent=1))
        return ExitCode.DONE
    bugs, covered = (sum(counts[i] for counts in report.projects.values()) for i in (0, 1))
    terminal.echo(
        f"{len(report.projects)} projects: {bugs} bugs, {covered} with a right candidate; {report.trees} trees"
    )
    if settings.episodes:
        deciding = f"; {report.deciding} of projects that decide when to stop" if report.deciding else ""
        terminal.echo(f"proven bugs of stores: {report.proven[0]}, {report.proven[1]} with a right candidate{deciding}")
    if report.comparison is not None:
        comparison = report.comparison
        terminal.echo(
            f"held out: {len(report.held_out)} projects, {comparison.bugs} bugs, {comparison.covered} with a right "
            "candidate. Share of all whose right candidate is among the first N of their function:",
            "heading",
        )
        _tell_rates(terminal, ("by patterns", comparison.patterns), ("by the policy", comparison.policy))
    for title, language in (("other projects", report.language), ("held out", report.language_held_out)):
        if language is not None:
            _tell_language(terminal, title, language)
    terminal.echo(f"policy: {settings.out}; use it: --solver search:policy={settings.out}")
    return ExitCode.DONE


def _language_settings(settings: TrainSearchSettings | TrainSelfPlaySettings) -> LanguageSettings | None:
    """Return how a language model is used; None without one."""
    from harness.training.search.language_training import LanguageSettings

    return LanguageSettings(settings.lm, settings.lm_seconds, settings.lm_bugs) if settings.lm else None


def _tell_language(terminal: Terminal, title: str, report: LanguageReport) -> None:
    """Print what a language model gives."""
    terminal.echo(
        f"{report.model}, {title}: {report.bugs} bugs with a right candidate in {report.projects} projects; "
        f"{report.read:.0f} candidates read of each, {report.cpu_s:.1f} s of processor time. Share whose right "
        "candidate is among the first N:",
        "heading",
    )
    _tell_rates(terminal, ("by the policy", report.policy), ("with the model", report.with_model))
    first = report.with_model[0].rate
    terminal.echo(f"  the first is right in {first:.2f}, expected {report.expected_first:.2f}")


def _tell_rates(terminal: Terminal, before: tuple[str, Sequence[Rate]], after: tuple[str, Sequence[Rate]]) -> None:
    """Print the rates of two rankings by the number of candidates, each ranking with its name."""
    for one, other in zip(before[1], after[1], strict=True):
        kind, (low, high) = ("project", other.by_project) if other.by_project else ("bug", other.by_bug)
        terminal.echo(
            f"  {one.budget:4d}: {one.rate:.2f} {before[0]}, {other.rate:.2f} {after[0]} "
            f"(95 % by {kind}: {low:.2f} to {high:.2f})"
        )


def _finished(terminal: Terminal) -> Callable[[str, int, int], None]:
    """Return what reports the static bugs of a project."""
    return lambda name, bugs, covered: terminal.echo(f"{name}: {bugs} bugs, {covered} with a right candidate")


def _stored_bugs(stores: Sequence[Path], held_out: Sequence[SourceFolder], terminal: Terminal) -> list[StoredBug]:
    """Return the proven bugs of stores; those of held-out projects are left out."""
    from harness.training.search.stored_bugs import stored_bugs

    def note(name: str, error: SsrError) -> None:
        terminal.note(f"{name} is left out: {error}")

    terminal.status("reading the proven bugs of stores")
    bugs = list(stored_bugs(stores, note)) if stores else []
    if stores and not bugs:
        raise SettingsError("no store of --episodes has a proven bug in one function", option="episodes")
    kept = [bug for bug in bugs if not any(_is_of(bug, source) for source in held_out)]
    for project in sorted({bug.project for bug in bugs} - {bug.project for bug in kept}):
        terminal.note(f"the proven bugs of {project} are left out, because it is held out")
    return kept


def _is_of(bug: StoredBug, source: SourceFolder) -> bool:
    """Return whether a bug is of a project: of its name, or of one that shares files with it."""
    return bug.project == name_of(source.folder, default=source.name) or source.has_any(bug.hashes)


def train_selfplay(settings: TrainSelfPlaySettings) -> int:
    """Play, fit and measure; return 0."""
    _require(settings)
    from harness.training.plots import selfplay_plot
    from harness.training.search.language_training import LanguageTeacher
    from harness.training.search.loop import LearningMixture, LearningSearch, Loop, LoopSettings, write_report
    from harness.training.search.policy_fitting import Lesson, TrainingSettings
    from harness.training.search.sources import SourceFolder, open_sources, without_shared_code
    from harness.training.search.training import collect, require_projects, solver_hash, train_generator

    terminal = Terminal(quiet=settings.json)
    holes = settings.holes if settings.generator else 0
    training = TrainingSettings(settings.bugs, settings.injector, settings.seed, settings.jobs, settings.share, holes)
    held_out = [SourceFolder(p) for p in settings.held_out]
    for played in open_sources(settings.source):
        if any(played.shares_code(other) for other in held_out):
            raise SettingsError(
                f"{played.folder} cannot be played, because it shares files with a project of --held-out",
                option="held-out",
            )
    sources = without_shared_code(open_sources([*settings.source, *settings.pretrain]), held_out, terminal.note)
    require_projects(sources)

    def static() -> StaticData:
        generator = train_generator(sources, settings.out, training, terminal.status) if holes else None
        watch, out = terminal.status, settings.out
        return collect(sources, out, training, watch=watch, finished=_finished(terminal), generator=generator)

    language = _language_settings(settings)

    def open_teacher(data: StaticData) -> LanguageTeacher:
        assert language is not None
        return LanguageTeacher.open(
            data,
            sources,
            settings.out,
            language,
            seed=settings.seed,
            solver_hash=solver_hash(),
            watch=terminal.status,
        )

    learner = _learner(settings, sources, terminal) if language is not None and settings.lm_updates else None
    learned_with = [
        settings.lesson,
        *([asdict(language)] if language is not None else []),
        *([asdict(learner.settings)] if learner is not None else []),
    ]
    schedule = key_of(sorted((s.name, s.key_of_all) for s in sources), replace(training, jobs=1), *learned_with)
    solver: LearningSearch | LearningMixture = LearningSearch(tries=settings.tries, schedule=schedule)
    if settings.lm_writes:
        sampler = open_sampler(settings.lm, option="lm")
        solver = LearningMixture(tries=settings.tries, schedule=schedule, sampler=sampler)
    store = Store(settings.store or settings.out / "store")
    loop = Loop(
        projects=[Project(p) for p in settings.source],
        held_out=[Project(p) for p in settings.held_out],
        store=store,
        collect=static,
        play=PlaySettings(
            rounds=settings.rounds,
            count=settings.count,
            attempts=settings.attempts,
            seed=settings.seed,
            jobs=settings.jobs,
            alpha=settings.alpha,
            adaptive=not settings.fixed_mixture,
            higher_order=0,
            sandbox=settings.execution.sandbox,
            python=settings.execution.python,
            model_written=settings.generator or settings.lm_writes,
            rule=settings.execution.rules(),
        ),
        settings=LoopSettings(
            settings.held_out_bugs,
            settings.tries,
            settings.held_out_attempts,
            settings.injector,
            Lesson(settings.lesson),
        ),
        solver=solver,
        folder=settings.out,
        watch=Watch(status=terminal.status),
        finished=lambda report: _tell_round(terminal, report),
        open_teacher=open_teacher if language is not None else None,
        learner=learner,
    )
    with writing(settings.out):
        with open_executor(settings.ray, settings.jobs, store, terminal) as executor:
            loop.executor = executor
            report = loop.run()
        path = write_report(report, settings.out)
        picture = selfplay_plot(report, settings.out)
    if settings.json:
        print(json.dumps({"policy": str(settings.out), **report.to_json()}, indent=1))
        return ExitCode.DONE
    if settings.held_out and not report.bugs:
        terminal.echo("held out: no valid bug, so nothing is measured")
    if report.bugs:
        terminal.echo(f"held out: {report.bugs} bugs; by the patterns' weights {_rates_text(report.patterns)}")
    terminal.echo(f"report: {path}" + (f", {picture}" if picture is not None else ""))
    learned = report.rounds[-1].language
    model = f",lm={learned.model}" if learned is not None else ""
    terminal.echo(f"policy: {settings.out}; use it: --solver search:policy={settings.out}{model}")
    return ExitCode.DONE


def _learner(settings: TrainSelfPlaySettings, sources: Sequence[SourceFolder], terminal: Terminal) -> RoundLearner:
    """Return what trains the language model after each round."""
    from harness.training.writer.rounds import MODELS, RoundLearner, RoundSettings

    return RoundLearner(
        settings.lm,
        RoundSettings(settings.lm_updates, settings.lm_layers, settings.lm_learning_rate),
        sources,
        settings.out / MODELS,
        settings.injector,
        settings.seed,
        settings.jobs,
        terminal.status,
    )


def _tell_round(terminal: Terminal, report: RoundReport) -> None:
    terminal.echo(_round_line(report))
    if (learned := report.language) is not None:
        losses = "" if learned.loss_first is None else f", loss {learned.loss_first:.2f} to {learned.loss_last:.2f}"
        terminal.echo(f"  {learned.model}: {learned.rows} rows, {learned.proven} of proven bugs{losses}")
    for left in report.not_attempted:
        terminal.echo(f"{left.project}: {left.bugs} of its bugs not given to the solver: {left.reason.text}", "bad")


def _round_line(report: RoundReport) -> str:
    drawn = "" if report.solve_rate is None else f"solve rate {report.solve_rate:.2f} (target {report.target:.2f}), "
    measured = f"held out {_rates_text(report.held_out)}, " if report.held_out else ""
    return f"round {report.round}: {drawn}{measured}learned from {report.proven} proven bugs"


def _rates_text(rates: Sequence[Rate]) -> str:
    return ", ".join(f"{rate.rate:.2f} with {rate.budget} candidates" for rate in rates)
