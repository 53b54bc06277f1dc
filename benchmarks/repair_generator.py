"""Measure what pieces of namesakes and a generator add to the patterns, on static bugs of held-out projects.

Run: `python benchmarks/repair_generator.py PROJECT... --policy FOLDER --out benchmarks/results/NAME.md`, with a policy
of `ssr train search ... --generator`. Namesakes are the project's functions of the same name. Operators change
functions and classes of each project; no test is run. A candidate is right if it gives the original code, apart from
comments, blank space, and line breaks in brackets. The share of bugs whose right candidate is among the first N is the
mean over several draws with the solver's noise; 95 % intervals are made by resampling bugs, and by resampling projects
with their bugs. Finished bugs are kept beside the result (.jsonl), so a run that was ended continues.
"""

from __future__ import annotations

import argparse
import json
import math
import platform
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
from rate_text import rate_text

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from harness.solvers.search.generator.filling import GENERATED, NAMESAKE, WRITTEN
from harness.solvers.search.patterns import Repair, repairs_of
from harness.solvers.search.policy import Policy, load_policy
from harness.training.search.examples import LONGEST_BYTES, Bug, static_bugs
from harness.training.search.rates import rate_of
from harness.training.search.reversal import Reversal
from harness.training.search.sources import SourceFolder, open_sources
from pytest_ssr.campaign.factory import load_injectors
from pytest_ssr.injectors.equivalence import parses, scope_text
from pytest_ssr.source.syntax_tree import ParsedSource, Scope, parse, scopes

BUDGETS = (1, 5, 20, 100)
RANKINGS = ("the patterns' weights", "the policy, patterns alone", "the policy with namesakes", "and the generator")
DRAWS = 20


@dataclass(frozen=True)
class Measured:
    project: str
    number: int
    operator: str
    listed: bool
    """Whether repairs were listed: the bug is in one function or class, which is not too long."""
    by_patterns: bool = False
    by_namesakes: bool = False
    by_generator: bool = False
    candidates: int = 0
    places: Sequence[Sequence[int]] = ()
    """For each ranking and draw, the rank of the first right candidate; 0 if no candidate is right."""
    seconds: tuple[float, float] = (0.0, 0.0)
    """Processor time of the pieces of namesakes, and of the generator."""


def only(source: ParsedSource, qualname: str) -> Scope | None:
    same = [s for s in scopes(source) if s.qualname == qualname and s.kind != "module"]
    return same[0] if len(same) == 1 else None


def places(scores: Sequence[float], right: Sequence[bool], seed: str) -> list[int]:
    if not any(right):
        return [0] * DRAWS
    rng = np.random.default_rng(list(seed.encode()))
    logs, flags = np.array(scores), np.array(right)
    result = []
    for _ in range(DRAWS):
        noisy = logs + rng.gumbel(size=len(logs))
        result.append(int(1 + (noisy > noisy[flags].max()).sum()))
    return result


def measured(name: str, number: int, bug: Bug, policy: Policy) -> Measured:
    source, original = parse(bug.path, bug.buggy), parse(bug.path, bug.original)
    assert source is not None
    assert original is not None
    scope, before = only(source, bug.qualname), only(original, bug.qualname)
    if scope is None or before is None or scope.end - scope.start > LONGEST_BYTES:
        return Measured(name, number, bug.operator, False)
    repairs = repairs_of(source, scope, scopes(source))
    project = bug.project() if bug.project is not None else None
    start = time.process_time()
    named = policy.completed(source, scope, repairs, project, generate=False)
    middle = time.process_time()
    completed = policy.completed(source, scope, repairs, project)
    seconds = middle - start, time.process_time() - middle
    reversal = Reversal(source, scope, scope_text(original, before))

    def right(repair: Repair) -> bool:
        own_breaks = repair.pattern in WRITTEN and reversal.matches_apart_from_breaks(repair)
        return reversal.matches(repair) or own_breaks

    found, flags = [], list[bool]()
    for index, listed in enumerate((repairs, repairs, named, completed)):
        flags = of_listed = [right(r) for r in listed]
        learned = index > 0 and any(of_listed)
        scores = policy.scores(source, scope, listed) if learned else [math.log(r.weight) for r in listed]
        found.append(places(scores, of_listed, f"{name} {number}"))
    by = {r.pattern for r, is_right in zip(completed, flags, strict=True) if is_right}
    by_patterns = bool(by - set(WRITTEN))
    return Measured(
        name, number, bug.operator, True, by_patterns, NAMESAKE in by, GENERATED in by, len(completed), found, seconds
    )


def measure(source: SourceFolder, policy: Policy, count: int, done: int) -> Iterator[Measured]:
    injectors, number = load_injectors("mutation,removal"), 0
    for bug in static_bugs(source, injectors, seed=0, project=source.files):
        if not parses(bug.buggy) or parse(bug.path, bug.buggy) is None or parse(bug.path, bug.original) is None:
            continue
        number += 1
        if number > count:
            return
        if number > done:
            yield measured(source.name, number, bug, policy)


def report(bugs: Sequence[Measured], policy: Policy) -> str:
    names = [b.project for b in bugs]
    covered = sum(b.by_patterns for b in bugs)
    named = sum(b.by_namesakes and not b.by_patterns for b in bugs)
    more = sum(b.by_generator and not b.by_patterns and not b.by_namesakes for b in bugs)
    listed = [b for b in bugs if b.listed]
    lines = [
        "# Repairs beyond the patterns, on projects that nothing was trained on",
        "",
        f"{datetime.now(UTC):%Y-%m-%d}, Python {platform.python_version()}, `benchmarks/repair_generator.py`: "
        f"{len(bugs)} static bugs of {', '.join(sorted(set(names)))}, {len(bugs) - len(listed)} of them not in one "
        "function or class of usual length. "
        f"{covered} have a right candidate of a pattern ({covered / len(bugs):.1%}), {named} more have one of a piece "
        f"of a namesake, {more} more have one of the generator; together {(covered + named + more) / len(bugs):.1%}. "
        f"For a function, the pieces take {np.mean([b.seconds[0] for b in listed]):.2f} s of processor time, and the "
        f"generator {np.mean([b.seconds[1] for b in listed]):.2f} s.",
        "",
        "Share of all bugs whose right candidate is among the first N of its function; 95 % intervals by bug, and by "
        "project.",
        "",
        "| ranking | " + " | ".join(map(str, BUDGETS)) + " |",
        "| --- |" + " --- |" * len(BUDGETS),
    ]
    hits = {}
    for index, ranking in enumerate(RANKINGS):
        cells = []
        for budget in BUDGETS:
            values = np.array([np.mean([0 < p <= budget for p in b.places[index]]) if b.places else 0.0 for b in bugs])
            hits[index, budget] = values
            cells.append(cell(values, names))
        lines.append(f"| {ranking} | " + " | ".join(cells) + " |")
    for title, more_of in (("namesakes", 2), ("both", 3)):
        cells = [cell(hits[more_of, budget] - hits[1, budget], names) for budget in BUDGETS]
        lines.append(f"| difference by {title} | " + " | ".join(cells) + " |")
    lines += [
        "",
        "Bugs with a right candidate by operator:",
        "",
        "| operator | bugs | by patterns | with namesakes | with the generator |",
        "| --- | --- | --- | --- | --- |",
    ]
    for operator in sorted({b.operator for b in bugs}, key=lambda o: (-sum(b.operator == o for b in bugs), o)):
        own = [b for b in bugs if b.operator == operator]
        counts = [
            sum(b.by_patterns for b in own),
            sum(b.by_patterns or b.by_namesakes for b in own),
            sum(b.by_patterns or b.by_namesakes or b.by_generator for b in own),
        ]
        lines.append(f"| {operator} | {len(own)} | " + " | ".join(map(str, counts)) + " |")
    return "\n".join(lines) + "\n"


def cell(values: np.ndarray, projects: Sequence[str]) -> str:
    return rate_text(rate_of(0, values, projects, seed=1), digits=3)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("packages", nargs="+", type=Path)
    parser.add_argument("--policy", type=Path, required=True)
    parser.add_argument("--bugs", type=int, default=80)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    policy, records = load_policy(arguments.policy), arguments.out.with_suffix(".jsonl")
    if policy.generator is None:
        parser.error(f"{arguments.policy} has no generator")
    bugs = [Measured(**json.loads(line)) for line in records.read_text().splitlines()] if records.exists() else []
    for source in open_sources(arguments.packages):
        done = sum(b.project == source.name for b in bugs)
        for item in measure(source, policy, arguments.bugs, done):
            bugs.append(item)
            with records.open("a") as file:
                file.write(json.dumps(asdict(item)) + "\n")
        print(source.name, sum(b.project == source.name for b in bugs), file=sys.stderr, flush=True)
    arguments.out.write_text(report(bugs, policy))


if __name__ == "__main__":
    main()
