"""Compute a leaderboard from results, as plain data from which every output format is written."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

from harness.evaluation.predictions import GOLD
from harness.leaderboard.frames import Cells, cells
from harness.leaderboard.injector_rows import chosen_pool, contest, injector_rows
from harness.leaderboard.records import Entry, Results, Try
from harness.leaderboard.settings import RankSettings
from harness.leaderboard.solver_rows import Row, created_days, plain, released_day, solver_rows
from harness.leaderboard.statistics.paired_tests import agreement, compare
from harness.records.task_choice import LeftOut, TaskChoice
from pytest_ssr.errors import SettingsError
from pytest_ssr.records.reasons import UNCERTAIN

SCHEMA_VERSION = 1
MOST_IN_PAIRS = 30
_DIGITS = 9


@dataclass(frozen=True, slots=True)
class Board:
    """A leaderboard."""

    about: Row
    runs: list[Row]
    solvers: list[Row]
    """Sorted, the best first."""
    injectors: list[Row]
    comparisons: list[Row]
    agreement: list[Row]
    tasks: list[Row]
    """Every attempt at every task."""
    notes: list[str]
    """Notes for readers, each one sentence."""

    def to_json(self) -> Row:
        """Return plain data for JSON; floats have nine digits, so that they are the same on every machine."""
        data: Row = _rounded({"schema_version": SCHEMA_VERSION} | {f.name: getattr(self, f.name) for f in fields(self)})
        return data


def make_board(results: Results, settings: RankSettings) -> Board:
    """Return the leaderboard of results; raises SettingsError if the settings name a solver without results."""
    if not results.attempts and not results.tries:
        raise SettingsError("the runs contain no results")
    counted = cells(results.attempts)
    settings.require_known(counted.solvers)
    solvers = solver_rows(counted, results.attempts, settings)
    pool = chosen_pool(counted, results.tries, settings)
    injectors = injector_rows(counted, results.tries, pool)
    _add_contest(solvers, injectors, counted, results.tries, pool, settings)
    order = [counted.solvers.index(row["solver"]) for row in solvers]
    about = {
        "seed": settings.seed,
        "reference_pool": pool,
        "frozen": {s: settings.frozen[s] for s in pool if s in settings.frozen},
        "alpha": settings.alpha,
        "rule": str(settings.rule),
        "reward": settings.reward,
        "tasks": len(counted.tasks),
        "repos": len(set(counted.repo_names)),
        "attempts": len(results.attempts),
        "tries": len(results.tries),
        **({"audit": _audit(counted.tasks, settings.choice)} if settings.choice is not None else {}),
    }
    runs = [asdict(r) for r in results.runs]
    return Board(
        about,
        runs,
        solvers,
        injectors,
        _comparisons(counted, order, settings),
        _agreement(counted, order),
        _tasks(counted, results, settings),
        list(_notes(results.attempts, runs, solvers, injectors, counted, about)),
    )


def _audit(tasks: Sequence[str], choice: TaskChoice) -> Row:
    """Return how many tasks pass an audit, and why the others do not."""
    problems = Counter(choice.problem(task) for task in tasks)
    left_out = {str(reason): problems[reason] for reason in LeftOut if problems[reason]}
    return {"min_sharpness": choice.min_sharpness, "passing": problems[None], "left_out": left_out}


def _add_contest(
    solvers: list[Row],
    injectors: list[Row],
    counted: Cells,
    tries: Sequence[Try],
    pool: Sequence[str],
    settings: RankSettings,
) -> None:
    if not injectors:
        return
    fitted, names = contest(counted, tries, pool, settings)
    for row in solvers:
        row["ability"] = plain(fitted.solvers[counted.solvers.index(row["solver"])])
        row["reference"] = row["solver"] in pool
    for row in injectors:
        row["difficulty"] = plain(fitted.injectors[names.index(row["injector"])])


def _comparisons(counted: Cells, order: Sequence[int], settings: RankSettings) -> list[Row]:
    """Compare all pairs of solvers; of more than `MOST_IN_PAIRS`, only neighbours and each with the first."""
    count = len(order)
    pairs = [(i, j) for i in range(count) for j in range(i + 1, count)]
    if count > MOST_IN_PAIRS:
        pairs = [(i, j) for i, j in pairs if i == 0 or j == i + 1]
    differences = compare(counted.rates, counted.repos, [(order[i], order[j]) for i, j in pairs], seed=settings.seed)
    return [
        {"first": counted.solvers[order[i]], "second": counted.solvers[order[j]], **asdict(difference)}
        for (i, j), difference in zip(pairs, differences, strict=True)
        if difference is not None
    ]


def _agreement(counted: Cells, order: Sequence[int]) -> list[Row]:
    """Return the agreement of all pairs of solvers, among the best `MOST_IN_PAIRS`."""
    order = order[:MOST_IN_PAIRS]
    level, common = agreement(counted.rates[:, list(order)])
    return [
        {
            "first": counted.solvers[order[i]],
            "second": counted.solvers[order[j]],
            "kappa": None if math.isnan(level[i, j]) else float(level[i, j]),
            "tasks": int(common[i, j]),
        }
        for i in range(len(order))
        for j in range(i + 1, len(order))
        if common[i, j]
    ]


def _tasks(counted: Cells, results: Results, settings: RankSettings) -> list[Row]:
    """Return each task with its resolve rate and every attempt at it."""
    days = created_days(results.attempts, settings)
    released = {s: released_day(s, settings) for s in counted.solvers}
    injectors: dict[str, set[str]] = {}
    for trial in results.tries:
        for bug in trial.artifacts:
            injectors.setdefault(bug, set()).add(trial.injector)
    attempts_of: dict[str, dict[str, list[Row]]] = {task: {} for task in counted.tasks}
    for attempt in results.attempts:
        attempts_of[attempt.task].setdefault(attempt.solver, []).append(_outcome(attempt))
    rates, rows = counted.rates, []
    for n, task in enumerate(counted.tasks):
        known_rates = [float(r) for r in rates[n] if not math.isnan(r)]
        rows.append(
            {
                "task": task,
                "repo": counted.repo_names[n],
                "injectors": sorted(injectors.get(task, ())),
                "created_at": days.get(task, ""),
                "solvers": len(known_rates),
                "resolved_by": sum(r > 0 for r in known_rates),
                "rate": math.fsum(known_rates) / len(known_rates) if known_rates else None,
                **(_audited(task, settings.choice) if settings.choice is not None else {}),
                "outcomes": {
                    solver: {
                        "resolved": int(counted.resolved[n, column]),
                        "graded": int(counted.graded[n, column]),
                        "missing": int(counted.missing[n, column]),
                        "contaminated": bool(released[solver] and days.get(task, "~") < released[solver]),
                        "attempts": attempts_of[task][solver],
                    }
                    for column, solver in enumerate(counted.solvers)
                    if solver in attempts_of[task]
                },
            }
        )
    return rows


def _audited(task: str, choice: TaskChoice) -> Row:
    """Return why a task does not pass an audit, empty if it does, and its sharpness."""
    problem = choice.problem(task)
    return {"audit": str(problem) if problem is not None else "", "sharpness": choice.sharpness(task)}


def _outcome(attempt: Entry) -> Row:
    measures = {m: getattr(attempt, m) for m in ("cost_usd", "tokens", "steps", "seconds")}
    return {
        "attempt": attempt.number,
        "run": attempt.run,
        "status": attempt.status,
        "reason": attempt.reason,
        "flags": [str(f.code) for f in attempt.flags],
        "flag_texts": [f.text for f in attempt.flags],
        "forged": attempt.forged,
        "flagged": attempt.flagged,
        "unsure": attempt.unsure,
        **{m: None if value < 0 else value for m, value in measures.items()},
    }


def _unsure_by_code(attempts: Sequence[Entry], row: Row) -> str:
    """Return how many attempts of a solver have each flag that makes a grade less certain."""
    flagged = (a for a in attempts if a.solver == row["solver"])
    codes = Counter(code for a in flagged for code in {f.code for f in a.flags} & UNCERTAIN)
    return ", ".join(f"{code} {count}" for code, count in sorted(codes.items()))


def _notes(
    attempts: Sequence[Entry], runs: list[Row], solvers: list[Row], injectors: list[Row], counted: Cells, about: Row
) -> Any:
    for run in runs:
        if run["absent"]:
            yield f"{run['label']} is not finished; attempts that have not been made yet: {run['absent']}"
    if references := [
        row["solver"] for row in solvers if row["solver"] == GOLD or row["solver"].startswith(f"{GOLD} (")
    ]:
        yield (
            f'not a solver but the tasks\' reference solutions: {", ".join(references)}; the column "only", the '
            "tasks' rates and the plots include it"
        )
    if audit := about.get("audit"):
        yield _audit_note(audit, about["tasks"])
    missing = sum(row["missing"] for row in solvers)
    if missing:
        yield (
            f"attempts without a grade: {missing}; they are missing, and the bounds are the rates if none or all of "
            "them were resolved"
        )
    if any(row["tasks"] < row["of_tasks"] for row in solvers):
        yield "not every solver attempted every task: compare solvers in pairs, over their common tasks"
    if len(set(counted.repo_names)) == 1:
        yield "all tasks are from one repository: differences between repositories are unknown"
    for kind, description in (("forged", "forged results"), ("flagged", "flags of tampering")):
        names = [row["solver"] for row in solvers if row[kind]]
        if names:
            yield f"attempts with {description}: {', '.join(names)}"
    if unsure := [
        f"{row['solver']} {row['unsure']} ({_unsure_by_code(attempts, row)})" for row in solvers if row["unsure"]
    ]:
        yield f"less certain grades, by flag: {'; '.join(unsure)}"
    if injectors:
        state = "frozen" if about["frozen"] else "not frozen"
        yield f"reference pool ({state}): {', '.join(about['reference_pool']) or 'empty: no solver attempted a bug'}"
    unlinked = [r.get("solver") or r["injector"] for r in (*solvers, *injectors) if _unlinked(r)]
    if injectors and unlinked:
        yield f"no contest links these to the reference pool: {', '.join(unlinked)}"


def _audit_note(audit: Row, tasks: int) -> str:
    least = audit["min_sharpness"]
    rule = "audited and sound" if least is None else f"audited and sound, with a sharpness of at least {least:g}"
    reasons = ", ".join(f"{reason} {count}" for reason, count in audit["left_out"].items())
    others = f" (others: {reasons})" if reasons else ""
    return (
        f'tasks that pass the audit ({rule}): {audit["passing"]} of {tasks}{others}; "passing %" covers these alone, '
        "everything else covers all tasks"
    )


def _unlinked(row: Row) -> bool:
    return row.get("ability", row.get("difficulty", "")) is None


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.{_DIGITS}g}")
    if isinstance(value, dict):
        return {k: _rounded(v) for k, v in value.items()}
    return [_rounded(v) for v in value] if isinstance(value, list | tuple) else value
