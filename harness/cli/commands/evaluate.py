"""Run `ssr eval` and `ssr run`: grade predictions, or a solver's rollouts, over the instances of a dataset."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from harness.cli.commands.evaluation_plan import report_plan
from harness.cli.executors import open_executor
from harness.cli.exit_code import ExitCode
from harness.cli.instances import chosen_rows, require_own_images
from harness.cli.players import chosen_solver, note_remarks, open_players, share_of
from harness.cli.terminal import Terminal
from harness.datasets import Instance, InstanceError
from harness.datasets.environments import Environments
from harness.datasets.repositories import Repositories
from harness.evaluation.grading import Grader, fault_of
from harness.evaluation.plan import Planner
from harness.evaluation.predictions import read_predictions, require_name
from harness.evaluation.reports import EARLIER, RESULTS, keep_earlier, store_write_errors, write_lines, write_run
from harness.evaluation.rows_work import RowsWork, Unit
from harness.evaluation.work import PredictionWork, RolloutWork, with_recording
from harness.executors.node import Node
from harness.executors.protocol import TRIES, WorkerLostError, completed, is_remote
from harness.executors.pytest_executor import require_xdist, run_units
from harness.executors.runner_recipe import require_same_environment
from harness.exporters.store_rows import is_store, rows_of
from harness.models.factory import is_model
from harness.models.protocol import label_of
from harness.records.attempt import Attempt, Status
from harness.settings.commands import EvalSettings, RunSettings
from harness.settings.sections import EvaluationSettings
from harness.storage.rebuilt import REPOSITORIES
from pytest_ssr.campaign.report import display_path
from pytest_ssr.errors import SettingsError
from pytest_ssr.installed_plugins import load_extensions
from pytest_ssr.progress import format_duration
from pytest_ssr.project.interpreter import Interpreter, find_interpreter
from pytest_ssr.records.reasons import Reason, ReasonCode
from pytest_ssr.sandbox import choose
from pytest_ssr.sandbox.docker.provider import DockerProvider
from pytest_ssr.storage.store import Store, key_of

_KINDS = {Status.RESOLVED: "valid", Status.INFRA: "missed"}


def evaluate(settings: RunSettings | EvalSettings) -> int:
    """Run all units; return 0 if all instances are resolved, 1 if not, 3 if some have no grade.

    With --dry-run, only list the rows; return 0 if all can run, 1 if not.
    """
    run = settings.evaluation
    if not re.fullmatch(r"[\w.-]+", run.run_id) or run.run_id.startswith("."):
        raise SettingsError(f"--run-id {run.run_id!r} cannot name a folder", option="run-id")
    if run.jobs > 1:
        require_xdist()
    terminal = Terminal(quiet=settings.json)
    given = run.dataset
    if is_store(Path(run.dataset)):
        settings = replace(settings, evaluation=_with_store_rows(run, terminal))
    work = open_work(settings, lambda line: terminal.echo(line, "missed"))
    try:
        if isinstance(settings, EvalSettings) and settings.dry_run:
            return report_plan(work, terminal, json=settings.json)
        progress = _Progress(work.units, terminal, run.out / RESULTS)
        with contextlib.ExitStack() as stack:
            # Write the results so far, however the run ends.
            stack.callback(lambda: _write(settings, given, work, progress, terminal))
            _run_units(settings, work, progress)
    finally:
        work.close()
    return _report(settings, work, progress, terminal)


def _with_store_rows(run: EvaluationSettings, terminal: Terminal) -> EvaluationSettings:
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


def open_work(settings: RunSettings | EvalSettings, report: Callable[[str], None] = lambda _: None) -> RowsWork:
    """Read the dataset, and open the grader and the solver; raises an SsrError for invalid settings or data.

    report: called with each mismatch, and with what a server lacks; neither is an error.
    """
    run = settings.evaluation
    instances = chosen_rows(run.dataset, run.selection)
    store = Store(run.store or run.out / ".ssr")
    require_own_images(run.instances, run.execution)
    if isinstance(settings, EvalSettings):
        predictions = read_predictions(settings.predictions, instances, report)
        return PredictionWork.of(_open_grader(settings, store, keep_trees=False), predictions, instances)
    return _open_rollouts(settings, store, instances, workers=run.jobs, keep_trees=True, report=report)


def _open_grader(settings: RunSettings | EvalSettings, store: Store, *, keep_trees: bool) -> Grader:
    run = settings.evaluation
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
    solver = chosen_solver(chosen, players)
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
class _OpenElsewhere:
    """Opens the work of a run on a machine of a cluster, without its units."""

    settings: RunSettings | EvalSettings
    interpreter: Interpreter | None
    """The interpreter that `--python` names."""

    @classmethod
    def of(cls, settings: RunSettings | EvalSettings) -> _OpenElsewhere:
        """Return what opens the work of these settings, whose paths are absolute."""
        run = settings.evaluation
        is_named = run.execution.python is not None and not run.instances.images
        python = find_interpreter(Path.cwd(), run.execution.python, needs_pytest=False) if is_named else None
        return cls(settings, python)

    def __call__(self, node: Node) -> RowsWork:
        self._require_sandbox()
        if self.interpreter is not None:
            here = find_interpreter(Path.cwd(), self.interpreter.executable, needs_pytest=False)
            require_same_environment(here, self.interpreter)
        if isinstance(self.settings, EvalSettings):
            return PredictionWork.of(_open_grader(self.settings, node.store, keep_trees=False), [], [])
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


class _Progress:
    """Collects and reports the results of the units."""

    def __init__(self, units: Sequence[Unit], terminal: Terminal, path: Path) -> None:
        self.units, self.results = units, dict[str, Attempt]()
        self.terminal, self._path = terminal, path
        self._from_store, self._start = 0, terminal.elapsed_s

    def begin(self, stored: Mapping[str, Attempt]) -> None:
        """Add the stored results of earlier runs."""
        self.results.update(stored)
        self._from_store = len(stored)
        rows = [r.to_json() for r in stored.values()]
        if dropped := keep_earlier(self._path, rows):
            archive = display_path(self._path.with_name(EARLIER))
            self.terminal.echo(
                f"results of an earlier run that no longer apply (another patch, row, environment or version of ours): "
                f"{dropped}, kept in {archive}",
                "missed",
            )
        write_lines(self._path, rows)
        if stored:
            self.terminal.echo(f"{len(stored)} of {len(self.units)} are from an earlier run")
        self._status()

    def lose(self, name: str, reason: str) -> None:
        """Record that a worker was lost while it ran a unit."""
        unit = next(u for u in self.units if u.name == name)
        self.fail(unit, Reason(ReasonCode.WORKER_LOST, reason))

    def fail(self, unit: Unit, reason: Reason) -> None:
        """Record that a unit has no grade."""
        self.take(unit.name, unit.without_grade(reason))

    def take(self, name: str, result: Attempt) -> None:
        """Record a unit's result from a worker."""
        self.results[name] = result
        # Appended as units finish; the end of the run sorts them.
        with store_write_errors(self._path), self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(result.to_json()) + "\n")
        self.terminal.echo(_line(result), _KINDS.get(result.status, "bad"))
        self._status()

    def _status(self) -> None:
        finished, total = len(self.results), len(self.units)
        elapsed, new = self.terminal.elapsed_s - self._start, finished - self._from_store
        remaining = f", about {format_duration(elapsed / new * (total - finished))} left" if new else ""
        cost = sum(r.cost_usd for r in self.results.values())
        money = f", ${cost:.2f}" if cost else ""
        self.terminal.status(f"{finished} of {total}: {_counts(self.results.values())}{money}{remaining}")


def _run_units(settings: RunSettings | EvalSettings, work: RowsWork, progress: _Progress) -> None:
    """Run the units without a stored result, the longest first."""
    stored = {u.name: r for u in work.units if (r := work.stored(u)) is not None}
    progress.begin(stored)
    missing = [u for u in work.units if u.name not in stored]
    elsewhere = is_remote(settings.evaluation.ray)
    blocked = Planner(work.grader).blocked(
        list({u.instance.id: u.instance for u in missing}.values()), elsewhere=elsewhere
    )
    work.grader.blocked = {name: reason.error for name, reason in blocked.items()}
    # They have no grade, and are reported before the others are copied and built.
    for unit in missing:
        if unit.instance.id in blocked:
            progress.take(unit.name, work.run(unit))
    missing = [u for u in missing if u.instance.id not in blocked]
    missing.sort(key=lambda u: -work.expected_s(u))
    if missing and elsewhere:
        _run_on_cluster(settings, work, missing, progress)
    elif missing:
        _run_here(settings, [u.name for u in missing], progress)


def _run_here(settings: RunSettings | EvalSettings, names: Sequence[str], progress: _Progress) -> None:
    """Run units in processes of this machine; those that lose their worker are run again."""
    for _ in range(TRIES):
        lost: dict[str, str] = {}
        run_units(
            (partial(open_work, settings), names),
            progress.take,
            lost.__setitem__,
            jobs=settings.evaluation.jobs,
            dist=settings.evaluation.dist,
        )
        if not lost:
            return
        names = list(lost)
    for name, reason in lost.items():
        progress.lose(name, reason)


def _run_on_cluster(
    settings: RunSettings | EvalSettings, work: RowsWork, units: Sequence[Unit], progress: _Progress
) -> None:
    run = settings.evaluation
    work.opened = _OpenElsewhere.of(_with_absolute_paths(settings))
    with (
        open_executor(run.ray, run.jobs, work.grader.store, progress.terminal) as executor,
        executor.units(work) as started,
    ):
        for unit, future in completed(started, units):
            try:
                progress.take(unit.name, with_recording(future.result(), unit.recorded, unit.model))
            except WorkerLostError as error:
                progress.lose(unit.name, str(error))
            except InstanceError as error:
                progress.fail(unit, fault_of(error, unit.instance))


def _with_absolute_paths(settings: RunSettings | EvalSettings) -> RunSettings | EvalSettings:
    """Return the settings for workers, whose current folder is another one."""
    run = settings.evaluation
    repos = run.instances.repos
    instances = replace(run.instances, repos=repos.absolute() if repos is not None else None)
    return replace(settings, evaluation=replace(run, instances=instances))


def _write(
    settings: RunSettings | EvalSettings, dataset: str, work: RowsWork, progress: _Progress, terminal: Terminal
) -> None:
    run = settings.evaluation
    results = [progress.results[u.name] for u in work.units if u.name in progress.results]
    about: dict[str, Any] = {
        "dataset": dataset,
        "split": run.selection.split or "test",
        "run_id": run.run_id,
        "rule": run.rule,
        "seconds": round(terminal.elapsed_s, 1),
    }
    if isinstance(settings, EvalSettings):
        about["predictions"] = settings.predictions
    else:
        solver = settings.players.solver
        about |= {"solver": solver.name, "attempts": solver.attempts, "seed": settings.seed}
    write_run(
        run.out,
        run.run_id,
        work,
        results,
        wanted=len(work.units),
        instances=work.chosen,
        about=about,
    )


def _report(settings: RunSettings | EvalSettings, work: RowsWork, progress: _Progress, terminal: Terminal) -> int:
    results = [progress.results[u.name] for u in work.units if u.name in progress.results]
    if settings.json:
        print((settings.evaluation.out / "summary.json").read_text(encoding="utf-8"), end="")
    else:
        without_result = len(work.chosen) - len({r.task for r in results})
        terminal.echo(_totals(results, len(work.units)), "heading")
        if without_result:
            terminal.echo(f"{without_result} of {len(work.chosen)} instances have no result", "missed")
        terminal.echo(f"results: {display_path(settings.evaluation.out)}")
    if any(r.verdict is None for r in results) or len(results) < len(work.units):
        return ExitCode.BROKEN
    # An instance without a prediction counts as not resolved.
    complete = len({r.task for r in results}) == len(work.chosen)
    return ExitCode.DONE if complete and all(r.verdict for r in results) else ExitCode.NO


def _line(result: Attempt) -> str:
    flags = f"  [{'; '.join(f.text for f in result.flags)}]" if result.flags else ""
    seconds = result.seconds + result.grading_s
    attempt = f" attempt {result.attempt + 1}" if result.exit_reason else ""
    return f"{result.status:10} {result.task}{attempt}  {seconds:.1f} s: {result.reason}{flags}"


def _counts(results: Iterable[Attempt]) -> str:
    listed = list(results)
    return ", ".join(f"{n} {s}" for s in Status if (n := sum(r.status is s for r in listed))) or "nothing yet"


def _totals(results: Sequence[Attempt], wanted: int) -> str:
    graded = [r for r in results if r.verdict is not None]
    resolved = sum(bool(r.verdict) for r in graded)
    rate = f"{resolved} of {len(graded)} graded are resolved ({resolved / len(graded):.1%})" if graded else "no grade"
    return f"{rate}; {_counts(results)}; {len(results)} of {wanted} done"
