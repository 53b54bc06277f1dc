"""Compare how many changes of this project's own code its tests notice, at two commits.

Run: `python benchmarks/own_survivors.py BEFORE AFTER --out benchmarks/results/NAME.md [--count 12]`.
This package's operators change ten modules in a checkout of each commit, one function at a time, drawn with a fixed
seed. The tests of the module's topic run until the first failure; a change that no test notices has survived. The tests
that need containers and the long ones are left out. A file of JSON lines beside the result keeps each change; changes
that it holds are not run again.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from harness.training.search.examples import static_bugs
from harness.training.search.sources import SourceFolder
from pytest_ssr.campaign.factory import load_injectors

MODULES = {
    "pytest_ssr/patch/parse.py": "tests/patch* --ignore-glob=*against_git*",
    "pytest_ssr/weakening/weaken.py": "tests/weakening",
    "pytest_ssr/injectors/removal.py": "tests/injectors/test_removal.py",
    "pytest_ssr/injectors/combination.py": "tests/injectors/test_combination.py",
    "harness/leaderboard/statistics/bradley_terry.py": "tests/leaderboard/test_bradley_terry.py",
    "harness/leaderboard/statistics/estimates.py": "tests/leaderboard/test_statistics.py",
    "harness/leaderboard/submissions.py": "tests/leaderboard/test_submissions.py",
    "harness/agents/context.py": "tests/agents/test_context.py",
    "harness/agents/process_reward.py": "tests/agents/test_process_reward.py",
    "harness/models/http.py": "tests/models/test_http.py",
}
"""Module to the arguments that select its tests; both commits have them."""
_MARKS = "not (long or docker or apptainer or gvisor or browser)"
_WALL_S = 180


class OneFile(SourceFolder):
    """A folder of which injectors change one file only."""

    def __init__(self, folder: Path, path: str) -> None:
        super().__init__(folder)
        self._code = (path,)


@dataclass(frozen=True, slots=True)
class Checkout:
    """The project at one commit."""

    name: str
    folder: Path

    def changes(self, module: str, count: int) -> Iterator[tuple[str, bytes]]:
        """Yield the names and the new contents of changes of a module."""
        bugs = list(static_bugs(OneFile(self.folder, module), load_injectors("mutation"), seed=1))
        random.Random(module).shuffle(bugs)
        for bug in bugs[:count]:
            yield f"{bug.operator} {bug.qualname}", bug.buggy

    def notices(self, module: str) -> bool:
        """Return whether the module's tests fail."""
        command = f"{sys.executable} -m pytest -q -x -p no:cacheprovider -m '{_MARKS}' {MODULES[module]}"
        environment = {**os.environ, "PYTHONPATH": str(self.folder), "PYTHONDONTWRITEBYTECODE": "1"}
        try:
            done = subprocess.run(
                ["bash", "-c", command],
                cwd=self.folder,
                env=environment,
                capture_output=True,
                timeout=_WALL_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return True
        return done.returncode != 0


def run(checkout: Checkout, count: int, known: set[tuple[str, str, str]]) -> Iterator[dict[str, object]]:
    """Yield a record for each change that is not known."""
    for module in MODULES:
        path = checkout.folder / module
        original = path.read_bytes()
        changes = [(n, d) for n, d in checkout.changes(module, count) if (checkout.name, module, n) not in known]
        if changes and checkout.notices(module):
            print(f"{checkout.name} {module}: its tests fail without a change, so it is left out", flush=True)
            continue
        for name, data in changes:
            try:
                path.write_bytes(data)
                noticed = checkout.notices(module)
            finally:
                path.write_bytes(original)
            yield {"commit": checkout.name, "module": module, "change": name, "noticed": noticed}


def table(records: list[dict[str, object]], commits: list[str]) -> str:
    """Return survivors by module and commit."""
    lines = [f"| module | {' | '.join(commits)} |", "| --- |" + " --- |" * len(commits)]
    for module in [*MODULES, "all"]:
        cells = []
        for commit in commits:
            noticed = [r["noticed"] for r in records if r["commit"] == commit and module in (r["module"], "all")]
            cells.append(f"{noticed.count(False)} of {len(noticed)}")
        lines.append(f"| `{module}` | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("commits", nargs=2)
    parser.add_argument("--count", type=int, default=12, help="changes of each module")
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    path = arguments.out.with_suffix(".jsonl")
    records = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    known = {(r["commit"], r["module"], r["change"]) for r in records}
    with tempfile.TemporaryDirectory() as work:
        for commit in arguments.commits:
            folder = Path(work, commit)
            subprocess.run(["git", "clone", "-q", "--shared", ".", str(folder)], check=True)
            subprocess.run(["git", "-C", str(folder), "checkout", "-q", commit], check=True)
            for record in run(Checkout(commit, folder), arguments.count, known):
                records.append(record)
                with path.open("a") as file:
                    file.write(json.dumps(record) + "\n")
    text = f"# Changes of our own code that no test notices\n\n{table(records, arguments.commits)}\n"
    arguments.out.write_text(text)
    print(text)


if __name__ == "__main__":
    main()
