"""`ssr eval` and `ssr run`: predictions, or a solver's attempts, over the instances of a dataset, graded and kept."""

from __future__ import annotations

import argparse
import contextlib
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from harness.commands import BROKEN, DONE, NO
from harness.evaluation.grading import Grading
from harness.evaluation.outcome import Outcome, Status
from harness.evaluation.predictions import read_predictions, require_name
from harness.evaluation.reports import EARLIER, RESULTS, keep_earlier, reporting, write_lines, write_run
from harness.evaluation.work import Attempted, Predicted, Unit, Work
from harness.exporters.stored import is_store, rows_of
from harness.instances.checkouts import REPOSITORIES, Checkouts
from harness.instances.environments import Environments
from harness.models.names import is_model
from harness.options import (
    chosen_instances,
    chosen_rule,
    chosen_solver,
    open_roles,
    require_counts,
    require_own_images,
    rule_settings,
)
from harness.sharing import require_xdist, share
from harness.terminal import Terminal
from pytest_ssr.errors import SettingsError
from pytest_ssr.progress import duration
from pytest_ssr.reasons import Reason, ReasonCode
from pytest_ssr.report import shown
from pytest_ssr.store import Store, key_of

_KINDS = {Status.RESOLVED: "valid", Status.INFRA: "missed"}
_BUDGETS = ("budget_usd", "budget_tokens", "budget_calls")


def evaluate(arguments: argparse.Namespace) -> int:
    """Do all units of a run; 0 when all that have a grade are resolved, 1 when not, 3 where some have none."""
    require_counts(arguments, "jobs", *(["attempts"] if hasattr(arguments, "solver") else []))
    if not re.fullmatch(r"[\w.-]+", arguments.run_id) or arguments.run_id.startswith("."):
        raise SettingsError(f"--run-id {arguments.run_id!r} cannot name a folder")
    if arguments.jobs > 1:
        require_xdist()
    terminal = Terminal(quiet=arguments.json)
    if is_store(Path(arguments.dataset)):
        arguments = _of_store(arguments, terminal)
    work = opened_work(arguments, lambda what: terminal.say(what, "missed"))
    try:
        watch = _Watch(work.units, terminal, arguments.out / RESULTS)
        with contextlib.ExitStack() as stack:
            # Whatever ends the run, what there is is written.
            stack.callback(lambda: _written(arguments, work, watch, terminal))
            _shared_out(arguments, work, watch)
    finally:
        work.close()
    return _told(arguments, work, watch, terminal)


def _of_store(arguments: argparse.Namespace, terminal: Terminal) -> argparse.Namespace:
    """Return the arguments with a store's artifacts as a file of rows; raises SettingsError where there is none."""
    given, store = Path(arguments.dataset), Store(arguments.store or arguments.out / ".ssr")
    terminal.status(f"{given}: writing what its artifacts start from")

    left: list[str] = []

    def leave(what: str, why: str) -> None:
        left.append(f"{what}: {why}")
        terminal.say(f"left out: {left[-1]}", "missed")

    rows = list(rows_of(given, store.root / REPOSITORIES, leave))
    if not rows:
        why = f" ({left[0]})" if left else ""
        raise SettingsError(f"the store {given} holds no artifact that can be graded{why}; ssr inject makes some")
    path = store.root / "datasets" / f"{key_of(rows)}.jsonl"
    write_lines(path, rows)
    return argparse.Namespace(**{**vars(arguments), "dataset": str(path), "given": str(given)})


def opened_work(arguments: argparse.Namespace, told: Callable[[str], None] = lambda _: None) -> Work:
    """Read the dataset and open what grades, and the solver; raises an SsrError that says what is wrong.

    told: is told what does not fit and is no mistake.
    """
    instances = chosen_instances(arguments, arguments.dataset)
    store = Store(arguments.store or arguments.out / ".ssr")
    require_own_images(arguments)
    checkouts = Checkouts(store, arguments.repos)
    grading = Grading(
        store,
        checkouts,
        Environments(store, arguments.python),
        rule_settings(arguments),
        arguments.sandbox,
        images=arguments.images or "",
        logs=not arguments.no_logs,
        full=arguments.full,
        rule=chosen_rule(arguments),
    )
    if not hasattr(arguments, "solver"):
        return Predicted.of(grading, read_predictions(arguments.predictions, instances, told), instances)
    if arguments.judge:
        raise SettingsError("--judge is for ssr solve and ssr play, whose rewards it joins")
    roles = open_roles(_part(arguments), arguments.out)
    solver = chosen_solver(arguments, roles)
    name = require_name(arguments.name or solver.name, "--name")
    units = [Unit(i, name, a) for i in instances for a in range(arguments.attempts)]
    by_statement = is_model(arguments.solver) and not arguments.show_tests
    return Attempted(
        grading,
        units,
        solver,
        seed=arguments.seed,
        grade_unsubmitted=arguments.grade_unsubmitted,
        by_statement=by_statement,
        closing=roles.close,
    )


def _part(arguments: argparse.Namespace) -> argparse.Namespace:
    """Return the arguments with a worker's part of the budgets; raises SettingsError where that is nothing."""
    found = argparse.Namespace(**vars(arguments))
    for name in _BUDGETS:
        value = getattr(arguments, name)
        if value is None or arguments.jobs == 1:
            continue
        if name != "budget_usd" and value < arguments.jobs:
            told = f"--{name.replace('_', '-')} {value}"
            raise SettingsError(f"{told} is less than one for each of {arguments.jobs} workers")
        setattr(found, name, value / arguments.jobs if name == "budget_usd" else value // arguments.jobs)
    return found


class _Watch:
    """Keeps what the units came to, and tells of each."""

    def __init__(self, units: Sequence[Unit], terminal: Terminal, results: Path) -> None:
        self.units, self.outcomes = units, dict[str, Outcome]()
        self._terminal, self._results = terminal, results
        self._again, self._begin = 0, terminal.elapsed_s

    def begin(self, known: Mapping[str, Outcome]) -> None:
        """Take what earlier runs have made."""
        self.outcomes.update(known)
        self._again = len(known)
        rows = [o.to_json() for o in known.values()]
        if passed := keep_earlier(self._results, rows):
            place = shown(self._results.with_name(EARLIER))
            self._terminal.say(
                f"outcomes of an earlier run that no longer hold (another patch, row, environment or version of ours): "
                f"{passed}, kept in {place}",
                "missed",
            )
        write_lines(self._results, rows)
        if known:
            self._terminal.say(f"{len(known)} of {len(self.units)} are there from an earlier run")
        self._status()

    def lose(self, name: str, why: str) -> None:
        """Take it that a worker was lost over a unit."""
        unit = next(u for u in self.units if u.name == name)
        instance = unit.instance
        self.take(
            name, Outcome(instance.id, instance.repo, unit.model, Status.INFRA, Reason(ReasonCode.WORKER_LOST, why))
        )

    def take(self, name: str, outcome: Outcome) -> None:
        """Take what a worker has made of a unit."""
        self.outcomes[name] = outcome
        # In the order of their ends; the end of the run puts them in order.
        with reporting(self._results), self._results.open("a", encoding="utf-8") as file:
            file.write(json.dumps(outcome.to_json()) + "\n")
        self._terminal.say(_line(outcome), _KINDS.get(outcome.status, "bad"))
        self._status()

    def _status(self) -> None:
        made, total = len(self.outcomes), len(self.units)
        spent, anew = self._terminal.elapsed_s - self._begin, made - self._again
        left = f", about {duration(spent / anew * (total - made))} left" if anew else ""
        cost = sum(o.cost_usd for o in self.outcomes.values())
        paid = f", ${cost:.2f}" if cost else ""
        self._terminal.status(f"{made} of {total}: {_counted(self.outcomes.values())}{paid}{left}")


def _shared_out(arguments: argparse.Namespace, work: Work, watch: _Watch) -> None:
    """Do the units that no earlier run has done, longest first."""
    known = {u.name: o for u in work.units if (o := work.known(u)) is not None}
    watch.begin(known)
    missing = [u for u in work.units if u.name not in known]
    if missing:
        names = [u.name for u in sorted(missing, key=lambda u: -work.expected_s(u))]
        plain = argparse.Namespace(**{k: v for k, v in vars(arguments).items() if k != "run"})
        share((plain, names), watch.take, watch.lose, jobs=arguments.jobs, dist=arguments.dist)


def _written(arguments: argparse.Namespace, work: Work, watch: _Watch, terminal: Terminal) -> None:
    made = [(u, watch.outcomes[u.name]) for u in work.units if u.name in watch.outcomes]
    about: dict[str, Any] = {
        "dataset": getattr(arguments, "given", arguments.dataset),
        "split": arguments.split or "test",
        "run_id": arguments.run_id,
        "rule": arguments.rule,
        "seconds": round(terminal.elapsed_s, 1),
    }
    for name in ("predictions", "solver", "attempts", "seed"):
        if hasattr(arguments, name):
            about[name] = getattr(arguments, name)
    write_run(
        arguments.out,
        arguments.run_id,
        work,
        [o for _, o in made],
        wanted=len(work.units),
        instances=work.chosen,
        about=about,
    )


def _told(arguments: argparse.Namespace, work: Work, watch: _Watch, terminal: Terminal) -> int:
    outcomes = [watch.outcomes[u.name] for u in work.units if u.name in watch.outcomes]
    if arguments.json:
        print((arguments.out / "summary.json").read_text(encoding="utf-8"), end="")
    else:
        none = len(work.chosen) - len({o.instance_id for o in outcomes})
        terminal.say(_totals(outcomes, len(work.units)), "heading")
        if none:
            terminal.say(f"{none} of {len(work.chosen)} instances have no outcome", "missed")
        terminal.say(f"results: {shown(arguments.out)}")
    if any(o.verdict is None for o in outcomes) or len(outcomes) < len(work.units):
        return BROKEN
    # An instance without a prediction is not resolved.
    whole = len({o.instance_id for o in outcomes}) == len(work.chosen)
    return DONE if whole and all(o.verdict for o in outcomes) else NO


def _line(outcome: Outcome) -> str:
    flags = f"  [{'; '.join(f.text for f in outcome.flags)}]" if outcome.flags else ""
    seconds = outcome.solver_s + outcome.grading_s
    which = f" attempt {outcome.attempt + 1}" if outcome.exit_reason else ""
    return f"{outcome.status:10} {outcome.instance_id}{which}  {seconds:.1f} s: {outcome.reason}{flags}"


def _counted(outcomes: Iterable[Outcome]) -> str:
    found = list(outcomes)
    return ", ".join(f"{n} {s}" for s in Status if (n := sum(o.status is s for o in found))) or "nothing yet"


def _totals(outcomes: Sequence[Outcome], wanted: int) -> str:
    graded = [o for o in outcomes if o.verdict is not None]
    solved = sum(bool(o.verdict) for o in graded)
    rate = f"{solved} of {len(graded)} graded are resolved ({solved / len(graded):.1%})" if graded else "no grade"
    return f"{rate}; {_counted(outcomes)}; {len(outcomes)} of {wanted} done"
