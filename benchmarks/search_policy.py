"""Measure a learned search policy on proven bugs of projects that it was not trained on: candidates are really run.

Run: `ssr inject PROJECT --count 30` in some projects, then
`python benchmarks/search_policy.py PROJECT... --policy FOLDER --python PYTHON --out benchmarks/results/NAME.md`.
For each artifact of each project's store, both rankings draw the same number of candidates, with several seeds, and
run their tests; a bug is solved by the first candidate that passes all tests, also in a new process. Candidates that
both rankings draw are run once. A solve rate is the mean over bugs of the share of seeds that solve it; 95 % intervals
are made by resampling bugs, and by resampling projects with their bugs. Finished bugs are kept beside the result
(.jsonl), so a run that was ended continues.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
from rate_text import rate_text

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from harness.rollouts.task import open_task
from harness.solvers.search.policy import Policy, load_policy
from harness.solvers.search.workspace import prepare
from harness.training.search.held_out import bug_lines, solve_places, solved_shares
from harness.training.search.rates import rate_of
from pytest_ssr.campaign.factory import open_runner
from pytest_ssr.errors import SsrError
from pytest_ssr.records.artifact import read_artifact
from pytest_ssr.settings import RuleSettings
from pytest_ssr.storage.store import Store

BUDGETS = (1, 5, 20, 100)


@dataclass(frozen=True)
class Solved:
    project: str
    artifact: str
    operator: str
    lines: int
    """Lines in which the buggy files and the originals differ."""
    places: Mapping[str, Sequence[int]]
    """For each ranking and seed, the number of the candidate that solves the bug; 0 if none does."""


def measure(project: Path, policy: Policy, python: Path | None, most: int, seeds: int, done: set[str]):
    store = Store(project / ".ssr")
    runner = open_runner(project, store, settings=RuleSettings(), python=python)
    records = (json.loads(path.read_text()) for path in (store.root / "attempts").rglob("*.json"))
    operators = {record.get("artifact_id"): record.get("operator", "") for record in records}
    for folder in sorted((store.root / "artifacts").iterdir()):
        if folder.name in done:
            continue
        artifact = read_artifact(folder)
        with tempfile.TemporaryDirectory() as scratch:
            try:
                task = open_task(runner.scoped(), artifact, Path(scratch))
                workspace = prepare(task)
            except SsrError as error:
                print(f"{project.name} {folder.name}: {error}", file=sys.stderr)
                continue
            places = {
                name: solve_places(workspace, ranking, folder.name, most, seeds)
                for name, ranking in (("patterns", None), ("policy", policy))
            }
            workspace.close()
        lines = bug_lines(runner.original, artifact)
        yield Solved(project.name, folder.name, operators.get(folder.name, ""), lines, places)


def cell(values: np.ndarray, projects: Sequence[str]) -> str:
    return rate_text(rate_of(0, values, projects, seed=1))


def report(solved: Sequence[Solved], policy: Policy, most: int, seeds: int) -> str:
    projects = sorted({s.project for s in solved})
    lines = [
        "# A learned search policy on projects that it was not trained on",
        "",
        f"{datetime.now(UTC):%Y-%m-%d}, Python {platform.python_version()}, `benchmarks/search_policy.py`: "
        f"{len(solved)} proven bugs of {', '.join(projects)}; {seeds} seeds. The policy was trained on static bugs of "
        f"{len(policy.trained_on['projects'])} other packages. Share of bugs solved by the first N candidates, all of "
        "them run; 95 % intervals by bug, and by project.",
        "",
        "| bugs | N | by the patterns' weights | by the policy | difference |",
        "| --- | --- | --- | --- | --- |",
    ]
    for title, chosen in (
        ("all", list(solved)),
        ("at most two changed lines", [s for s in solved if s.lines <= 2]),
        ("more changed lines", [s for s in solved if s.lines > 2]),
    ):
        for budget in [b for b in BUDGETS if b <= most] if chosen else ():
            names = [s.project for s in chosen]
            before, after = (solved_shares([s.places[name] for s in chosen], budget) for name in ("patterns", "policy"))
            cells = [cell(values, names) for values in (before, after, after - before)]
            lines.append(f"| {title} ({len(chosen)}) | {budget} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("projects", nargs="+", type=Path)
    parser.add_argument("--policy", type=Path, required=True)
    parser.add_argument("--python", type=Path)
    parser.add_argument("--most", type=int, default=100)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    policy, records = load_policy(arguments.policy), arguments.out.with_suffix(".jsonl")
    solved = [Solved(**json.loads(line)) for line in records.read_text().splitlines()] if records.exists() else []
    for project in arguments.projects:
        done = {s.artifact for s in solved}
        start = time.monotonic()
        for item in measure(project, policy, arguments.python, arguments.most, arguments.seeds, done):
            solved.append(item)
            with records.open("a") as file:
                file.write(json.dumps(item.__dict__) + "\n")
            print(f"{item.project} {item.operator} {item.lines} {dict(item.places)} {time.monotonic() - start:.0f} s")
    arguments.out.write_text(report(solved, policy, arguments.most, arguments.seeds))


if __name__ == "__main__":
    main()
