"""Run `ssr eval` and `ssr run`: grade predictions, or a solver's rollouts, over the instances of a dataset."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from harness.cli.commands.evaluation_plan import report_plan
from harness.cli.exit_code import ExitCode
from harness.cli.rows import open_work, rows_to_plan, with_store_rows
from harness.cli.terminal import Terminal
from harness.cli.unit_runs import run_units_of
from harness.evaluation.reports import EARLIER, RESULTS, keep_earlier, store_write_errors, write_lines, write_run
from harness.evaluation.rows_work import RowsWork, Unit
from harness.evaluation.work import with_recording
from harness.executors.pytest_executor import require_xdist
from harness.exporters.store_rows import is_store
from harness.records.attempt import Attempt, Status
from harness.settings.commands import EvalSettings, RunSettings
from pytest_ssr.campaign.report import display_path
from pytest_ssr.errors import SettingsError
from pytest_ssr.progress import format_duration
from pytest_ssr.records.reasons import Reason

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
        settings = replace(settings, evaluation=with_store_rows(run, terminal))

    def report(line: str) -> None:
        terminal.echo(line, "missed")

    if run.dry_run:
        return report_plan(*rows_to_plan(settings, report), terminal, json=settings.json)
    work = open_work(settings, report)
    try:
        progress = _Progress(work.units, terminal, run.out / RESULTS)
        with contextlib.ExitStack() as stack:
            # Write the results so far, however the run ends.
            stack.callback(lambda: _write(settings, given, work, progress, terminal))
            run_units_of(settings, work, progress)
    finally:
        work.close()
    return _report(settings, work, progress, terminal)


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

    def read(self, data: Mapping[str, Any]) -> Attempt:
        """Return a result from its JSON."""
        return Attempt.read(data)

    def fail(self, unit: Unit, reason: Reason) -> None:
        """Record that a unit has no grade."""
        self.take(unit.name, unit.without_grade(reason))

    def receive(self, unit: Unit, result: Attempt) -> None:
        """Record a unit's result from another machine, which does not have the prediction's trajectory."""
        self.take(unit.name, with_recording(result, unit.recorded, unit.model))

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
    if work.counts is not None:
        about["audit"] = work.counts.to_json()
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
