"""Open the rows of `ssr eval` and `ssr run`: read their dataset, open their grader and solver."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias, overload

from harness.audit.work import AuditWork
from harness.cli.instances import chosen_rows, require_own_containers, require_own_images
from harness.cli.players import chosen_solver, note_remarks, open_players, share_of
from harness.cli.preflight import Preflight
from harness.cli.terminal import Terminal
from harness.datasets import Instance
from harness.datasets.environments import Environments
from harness.datasets.repositories import Repositories
from harness.evaluation.grading import Grader
from harness.evaluation.predictions import Prediction, read_predictions, require_name
from harness.evaluation.reports import write_lines
from harness.evaluation.rows_work import RowsWork, RowUnits, Unit
from harness.evaluation.work import PredictionWork, RolloutWork
from harness.executors.node import Node
from harness.executors.runner_recipe import require_same_environment
from harness.exporters.store_rows import rows_of
from harness.models.factory import is_model
from harness.models.protocol import label_of
from harness.records.task_choice import ChoiceCounts, TaskChoice
from harness.settings.commands import AuditSettings, EvalSettings, RunSettings
from harness.settings.sections import EvaluationSettings
from harness.storage.rebuilt import REPOSITORIES
from pytest_ssr.errors import SettingsError
from pytest_ssr.installed_plugins import load_extensions
from pytest_ssr.project.interpreter import Interpreter, find_interpreter
from pytest_ssr.sandbox import choose
from pytest_ssr.sandbox.docker.provider import DockerProvider
from pytest_ssr.sandbox.mirrors import use_mirrors
from pytest_ssr.storage.store import Store, key_of

RowSettings: TypeAlias = RunSettings | EvalSettings | AuditSettings
"""The settings of a command over rows."""


def with_store_rows(run: EvaluationSettings, terminal: Terminal) -> EvaluationSettings:
    """Return the settings with a store's artifacts as a dataset file; raises SettingsError if there are none."""
    given, store = Path(run.dataset), Store(run.store or run.out / ".ssr")
    terminal.status(f"{given}: writing the repositories of its artifacts")

    skipped: list[str] = []

    def skip(subject: str, reason: str) -> None:
        skipped.append(f"{subject}: {reason}")
        terminal.echo(f"left out: {skipped[-1]}", "missed")

    rows = list(rows_of(given, store.root / REPOSITORIES, skip))
    if not rows:
        example = f" ({skipped[0]})" if skipped else ""
        raise SettingsError(
            f"the store {given} contains no artifact that can be graded{example}; create some with ssr inject"
        )
    path = store.root / "datasets" / f"{key_of(rows)}.jsonl"
    write_lines(path, rows)
    return replace(run, dataset=str(path))


@overload
def open_work(settings: RunSettings | EvalSettings, report: Callable[[str], None] = ...) -> RowsWork: ...


@overload
def open_work(settings: RowSettings, report: Callable[[str], None] = ...) -> RowUnits[Any]: ...


def open_work(settings: RowSettings, report: Callable[[str], None] = lambda _: None) -> RowUnits[Any]:
    """Read the dataset, and open the grader and the solver; raises an SsrError for invalid settings or data.

    report: called with each mismatch, and with what a server lacks; neither is an error.
    """
    run = settings.evaluation
    rows = _open_rows(run, report)
    work: RowsWork
    if isinstance(settings, EvalSettings):
        predictions = rows.predictions(settings.predictions, report)
        work = PredictionWork.of(_open_grader(settings, rows.store, keep_trees=False), predictions, rows.kept)
    elif isinstance(settings, AuditSettings):
        return _open_audit(settings, rows.store, rows.kept)
    else:
        work = _open_rollouts(settings, rows.store, rows.kept, workers=run.jobs, keep_trees=True, report=report)
    work.counts = rows.counts
    return work


def rows_to_plan(
    settings: RowSettings, report: Callable[[str], None] = lambda _: None
) -> tuple[Grader, Sequence[Instance], ChoiceCounts | None]:
    """Return the grader of a run, the rows that it would grade, and how many an audit leaves out.

    Opens no solver. See `open_work`.
    """
    rows = _open_rows(settings.evaluation, report)
    instances: Sequence[Instance] = rows.kept
    if isinstance(settings, EvalSettings):
        predicted = {p.instance_id for p in rows.predictions(settings.predictions, report)}
        instances = [i for i in instances if i.id in predicted]
    return _open_grader(settings, rows.store, keep_trees=isinstance(settings, RunSettings)), instances, rows.counts


@dataclass(frozen=True, slots=True)
class _Rows:
    """The rows of a run."""

    store: Store
    selected: Sequence[Instance]
    kept: Sequence[Instance]
    """Those that no audit leaves out."""
    counts: ChoiceCounts | None

    def predictions(self, source: str, report: Callable[[str], None]) -> list[Prediction]:
        """Return the predictions for the rows that are kept; one for another selected row is no mismatch."""
        kept = {instance.id for instance in self.kept}
        return [p for p in read_predictions(source, self.selected, report) if p.instance_id in kept]


def _open_rows(run: EvaluationSettings, report: Callable[[str], None]) -> _Rows:
    selected = chosen_rows(run.dataset, run.selection)
    kept, counts = _audited(selected, run.cards.choice())
    if counts is not None:
        report(counts.line)
    if any(instance.harbor is not None for instance in kept):
        require_own_containers(run.instances, run.execution)
    require_own_images(run.instances, run.execution)
    return _Rows(Store(run.store or run.out / ".ssr"), selected, kept, counts)


def _audited(
    instances: Sequence[Instance], choice: TaskChoice | None
) -> tuple[Sequence[Instance], ChoiceCounts | None]:
    """Return the rows that an audit does not leave out; raises SettingsError if it leaves out all of them."""
    if choice is None:
        return instances, None
    counts = ChoiceCounts(choice)
    kept = [instance for instance in instances if counts.keeps(instance.id, instance.artifact_id)]
    if instances and not kept:
        raise SettingsError(
            f"{counts.line}: nothing is left; name the cards of these tasks, or a lower --min-sharpness", option="audit"
        )
    return kept, counts


def _open_grader(settings: RowSettings, store: Store, *, keep_trees: bool) -> Grader:
    run = settings.evaluation
    use_mirrors(run.instances.mirror)
    return Grader(
        store,
        Repositories(store, run.instances.repos, images=run.instances.images or ""),
        Environments(store, run.execution.python),
        run.execution.rules(),
        run.execution.sandbox,
        images=run.instances.images or "",
        logs=not run.no_logs,
        full=run.full,
        rule=run.rule,
        keep_trees=keep_trees,
    )


def _open_audit(settings: AuditSettings, store: Store, instances: Sequence[Instance]) -> AuditWork:
    grader = _open_grader(settings, store, keep_trees=False)
    return AuditWork.of(grader, instances, changes=settings.changes, time_s=settings.time_s)


def _open_rollouts(
    settings: RunSettings,
    store: Store,
    instances: Sequence[Instance],
    *,
    workers: int,
    keep_trees: bool,
    report: Callable[[str], None] = lambda _: None,
) -> RolloutWork:
    """Return the rollouts of a run. workers: how many share its budget. report: called with what a server lacks."""
    chosen = replace(settings.players, budget=share_of(settings.players.budget, workers))
    players = open_players(chosen, store.root, load_extensions())
    ready = Preflight()
    solver = ready.take(lambda: chosen_solver(chosen, players))
    ready.end(players, store.root)
    note_remarks(players, report)

    def close() -> None:
        note_remarks(players, report)
        players.close()

    name = require_name(settings.name or label_of(solver), "--name")
    units = [Unit(i, name, attempt) for i in instances for attempt in range(chosen.solver.attempts)]
    by_statement = is_model(chosen.solver.name) and not settings.show_tests
    return RolloutWork(
        _open_grader(settings, store, keep_trees=keep_trees),
        units,
        solver,
        seed=settings.seed,
        grade_unsubmitted=chosen.model.grade_unsubmitted,
        by_statement=by_statement,
        on_close=close,
    )


@dataclass(frozen=True)
class OpenElsewhere:
    """Opens the work of a run on a machine of a cluster, without its units."""

    settings: RowSettings
    interpreter: Interpreter | None
    """The interpreter that `--python` names."""

    @classmethod
    def of(cls, settings: RowSettings) -> OpenElsewhere:
        """Return what opens the work of these settings from any folder."""
        run = settings.evaluation
        repos = run.instances.repos
        instances = replace(run.instances, repos=repos.absolute() if repos is not None else None)
        settings = replace(settings, evaluation=replace(run, instances=instances))
        is_named = run.execution.python is not None and not run.instances.images
        python = find_interpreter(Path.cwd(), run.execution.python, needs_pytest=False) if is_named else None
        return cls(settings, python)

    def __call__(self, node: Node) -> RowUnits[Any]:
        """Return the work on a machine; raises an SsrError if no row can run there."""
        self._require_sandbox()
        if self.interpreter is not None:
            here = find_interpreter(Path.cwd(), self.interpreter.executable, needs_pytest=False)
            require_same_environment(here, self.interpreter)
        if isinstance(self.settings, EvalSettings):
            return PredictionWork.of(_open_grader(self.settings, node.store, keep_trees=False), [], [])
        if isinstance(self.settings, AuditSettings):
            return _open_audit(self.settings, node.store, [])
        return _open_rollouts(self.settings, node.store, [], workers=node.workers, keep_trees=False)

    def _require_sandbox(self) -> None:
        """Raise SandboxUnavailableError if no row can run here, whatever its image: the machine lacks the sandbox."""
        run = self.settings.evaluation
        if run.instances.images == "docker":
            with contextlib.closing(DockerProvider()) as docker:
                docker.connect()
        else:
            provider = choose(run.instances.images or run.execution.sandbox, model_written=True)
            getattr(provider, "close", lambda: None)()
