"""Measure learned search policies on proven bugs of projects that they were not trained on: candidates are really run.

Run: `ssr inject PROJECT --count 30` in some projects, then
`python benchmarks/search_policy.py PROJECT... --policy FOLDER... --python PYTHON --out benchmarks/results/NAME.md`.
For each artifact of each project's store, the patterns' weights and each policy draw the same number of candidates,
with several seeds, and run their tests; a bug is solved by the first candidate that passes all tests, also in a new
process. A solve rate is the mean over bugs of the share of seeds that solve it; 95 % intervals are made by resampling
bugs, and by resampling projects with their bugs. What is finished is kept beside the result (.jsonl): a run that was
ended continues, and a policy that is given later is added.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import tempfile
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
from rate_picture import rates_picture
from rate_text import rate_text

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from harness.rollouts.task import open_task
from harness.solvers.search.policy import Policy, load_policy
from harness.solvers.search.solver import SearchSolver
from harness.solvers.search.workspace import prepare
from harness.training.search.held_out import bug_lines, solve_places, solved_shares
from harness.training.search.rates import rate_of
from harness.training.search.training import solver_hash
from pytest_ssr.campaign.factory import open_runner
from pytest_ssr.errors import SsrError
from pytest_ssr.records.artifact import read_artifact
from pytest_ssr.settings import RuleSettings
from pytest_ssr.storage.store import Store, key_of

BUDGETS = (1, 5, 20, 100)
PATTERNS = "patterns"
_RESAMPLES = 2000


@dataclass(frozen=True)
class Measurement:
    """What one ranking makes of one proven bug."""

    project: str
    artifact: str
    operator: str
    lines: int
    """Lines in which the buggy files and the originals differ."""
    ranking: str
    most: int
    """The number of candidates that were drawn with each seed."""
    places: Sequence[int]
    """For each seed, the number of the candidate that solves the bug; 0 if none does."""
    key: str
    """Names the policy, and the code that lists candidates."""


@dataclass(frozen=True)
class Bug:
    """A proven bug that all rankings were measured on."""

    project: str
    operator: str
    lines: int
    places: Mapping[str, Sequence[int]]
    """By ranking."""


class Records:
    """The measurements in a file."""

    def __init__(self, path: Path, most: int, seeds: int, keys: Mapping[str, str]) -> None:
        """Read the file; a last line that was not written whole is removed.

        Measurements with fewer candidates or seeds than these, or with another key than their ranking's, count as not
        finished.
        """
        self._path, self._most, self._seeds, self.keys = path, most, seeds, keys
        self._finished: dict[tuple[str, str], Measurement] = {}
        whole, _, rest = (path.read_text() if path.exists() else "").rpartition("\n")
        if rest:
            path.write_text(whole + "\n" if whole else "")
        for line in whole.splitlines():
            self._keep(Measurement(**json.loads(line)))

    def _keep(self, measurement: Measurement) -> None:
        is_enough = measurement.most >= self._most and len(measurement.places) >= self._seeds
        if is_enough and self.keys.get(measurement.ranking) == measurement.key:
            self._finished[measurement.artifact, measurement.ranking] = measurement

    def __contains__(self, key: tuple[str, str]) -> bool:
        """Return whether the measurement of an artifact and a ranking is finished."""
        return key in self._finished

    def add(self, measurement: Measurement) -> None:
        """Write a measurement."""
        self._keep(measurement)
        with self._path.open("a") as file:
            file.write(json.dumps(asdict(measurement)) + "\n")

    def bugs(self, projects: Collection[str]) -> list[Bug]:
        """Return the bugs of projects that all rankings were measured on."""
        places: dict[str, dict[str, Sequence[int]]] = {}
        for measurement in self._finished.values():
            if measurement.project in projects:
                places.setdefault(measurement.artifact, {})[measurement.ranking] = measurement.places[: self._seeds]
        firsts = {artifact: self._finished[artifact, next(iter(known))] for artifact, known in places.items()}
        return [
            Bug(firsts[artifact].project, firsts[artifact].operator, firsts[artifact].lines, known)
            for artifact, known in places.items()
            if len(known) == len(self.keys)
        ]


def measure(
    project: Path, policies: Mapping[str, Policy | None], arguments: argparse.Namespace, records: Records
) -> None:
    """Measure what is not finished of a project."""
    most, seeds = arguments.most, arguments.seeds
    store = Store(project / ".ssr")
    runner = open_runner(project, store, settings=RuleSettings(), python=arguments.python)
    attempts = (json.loads(path.read_text()) for path in (store.root / "attempts").rglob("*.json"))
    operators = {record.get("artifact_id"): record.get("operator", "") for record in attempts}
    for folder in sorted((store.root / "artifacts").iterdir()):
        missing = {name: policy for name, policy in policies.items() if (folder.name, name) not in records}
        operator = operators.get(folder.name, "")
        if not missing or (arguments.operators and operator not in arguments.operators):
            continue
        artifact = read_artifact(folder)
        lines = bug_lines(runner.original, artifact)
        with tempfile.TemporaryDirectory() as scratch:
            try:
                reads_machine = any(SearchSolver(policy=policy).reads_machine for policy in missing.values())
                task = open_task(runner.scoped(), artifact, Path(scratch), reads_machine=reads_machine)
                workspace = prepare(task)
            except SsrError as error:
                print(f"{project.name} {folder.name}: {error}", file=sys.stderr)
                continue
            with closing(workspace):
                for name, policy in missing.items():
                    start = time.monotonic()
                    places = solve_places(workspace, policy, folder.name, most, seeds)
                    key = records.keys[name]
                    records.add(Measurement(project.name, folder.name, operator, lines, name, most, places, key))
                    seconds = time.monotonic() - start
                    print(f"{project.name} {operator} {lines} {name} {places} {seconds:.0f} s", flush=True)


def groups_of(bugs: Sequence[Bug], policies: Mapping[str, Policy | None]) -> Iterator[tuple[str, list[Bug]]]:
    """Yield the groups of bugs that are reported apart, each with its title."""
    yield "all", list(bugs)
    yield "at most two changed lines", [b for b in bugs if b.lines <= 2]
    yield "more changed lines", [b for b in bugs if b.lines > 2]
    learned = {name: p.trained_on.get("operators", ()) for name, p in policies.items() if p is not None}
    for name, operators in learned.items():
        if operators:
            yield f"by operators that {name} was not trained on", [b for b in bugs if b.operator not in operators]


def ratio_text(before: np.ndarray, after: np.ndarray) -> str:
    """Return how many times as many bugs are solved, with the 95 % interval if bugs are resampled."""
    if not before.sum():
        return ""
    rng = np.random.default_rng(1)
    drawn = rng.integers(0, len(before), (_RESAMPLES, len(before)))
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios = after[drawn].sum(axis=1) / before[drawn].sum(axis=1)
    low, high = np.nanquantile(ratios, (0.025, 0.975), method="nearest")
    return f"{after.sum() / before.sum():.2f} ({low:.2f}-{high:.2f})"


def report(bugs: Sequence[Bug], policies: Mapping[str, Policy | None], most: int, seeds: int, baseline: str) -> str:
    """Return the page of results. baseline: the ranking that the others are compared with."""

    def shares(chosen: Sequence[Bug], name: str, budget: int) -> np.ndarray:
        return solved_shares([b.places[name] for b in chosen], budget)

    trained = "; ".join(
        f"{name} on static bugs of {len(policy.trained_on['projects'])} other packages"
        for name, policy in policies.items()
        if policy is not None
    )
    lines = [
        "# Learned search policies on projects that they were not trained on",
        "",
        f"{datetime.now(UTC):%Y-%m-%d}, Python {platform.python_version()}, `benchmarks/search_policy.py`: {len(bugs)} "
        f"proven bugs of {', '.join(sorted({b.project for b in bugs}))}; seeds: {seeds}. Trained: {trained}. Share of "
        "bugs solved by the first N candidates, all of them run; 95 % intervals by bug, and by project.",
        "",
        f"| bugs | N | ranking | solved | difference from {baseline} | ratio (by bug) |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for title, chosen in groups_of(bugs, policies):
        names = [b.project for b in chosen]
        for budget in [b for b in BUDGETS if b <= most] if chosen else ():
            before = shares(chosen, baseline, budget)
            for name in policies:
                after = shares(chosen, name, budget)
                rates = [rate_of(budget, values, names, seed=1) for values in (after, after - before)]
                cells = [
                    f"{title} ({len(chosen)})",
                    str(budget),
                    name,
                    *map(rate_text, rates),
                    ratio_text(before, after),
                ]
                lines.append(f"| {' | '.join(cells if name != baseline else [*cells[:4], '', ''])} |")
    lines += ["", f"Bugs of each operator, and the number solved by {most} candidates:", ""]
    lines += [f"| operator | bugs | {' | '.join(policies)} |", "| --- " * (2 + len(policies)) + "|"]
    for operator in sorted({b.operator for b in bugs}):
        chosen = [b for b in bugs if b.operator == operator]
        solved = [f"{shares(chosen, name, most).sum():.3g}" for name in policies]
        lines.append(f"| {operator} | {len(chosen)} | {' | '.join(solved)} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Measure what is not finished, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("projects", nargs="+", type=Path)
    parser.add_argument("--policy", nargs="+", type=Path, required=True, help="folders; their names are shown")
    parser.add_argument("--python", type=Path)
    parser.add_argument("--most", type=int, default=100)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--operators", nargs="*", default=[], help="only their bugs, in place of all")
    parser.add_argument("--baseline", default=PATTERNS, help="the ranking that others are compared with")
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    policies = {PATTERNS: None, **{folder.name: load_policy(folder) for folder in arguments.policy}}
    if len(policies) != 1 + len(arguments.policy):
        parser.error("two policies have the same name")
    if arguments.baseline not in policies:
        parser.error(f"--baseline {arguments.baseline} is not a ranking; choose {', '.join(policies)}")
    keys = {name: key_of(solver_hash(), policy.key if policy is not None else "") for name, policy in policies.items()}
    records = Records(arguments.out.with_suffix(".jsonl"), arguments.most, arguments.seeds, keys)
    for project in arguments.projects:
        measure(project, policies, arguments, records)
    bugs = records.bugs({project.name for project in arguments.projects})
    if arguments.operators:
        bugs = [bug for bug in bugs if bug.operator in arguments.operators]
    arguments.out.write_text(report(bugs, policies, arguments.most, arguments.seeds, arguments.baseline))
    budgets, projects = [b for b in BUDGETS if b <= arguments.most], [bug.project for bug in bugs]
    rates = {
        name: [(b, rate_of(b, solved_shares([bug.places[name] for bug in bugs], b), projects, seed=1)) for b in budgets]
        for name in policies
    }
    title = f"{len(bugs)} proven bugs of {len(set(projects))} projects"
    rates_picture(arguments.out, rates, xlabel="candidates that are run", ylabel="bugs solved", title=title)


if __name__ == "__main__":
    main()
