"""Measure a language model that writes repairs, on static bugs of projects that it was not trained on.

Run: `python benchmarks/writer.py SOURCE... --model MODEL... --out benchmarks/results/NAME.md`, with the extra `lm`.
MODEL is a name as for the solver `lm:MODEL`, or TITLE=NAME. Each bug is in a region of a function, and the model is
given this place: the smallest region with all of the bug, and no failing test. A reply is right if the function is then
the original, apart from comments and blank space; no test is run. 95 % intervals are made by resampling bugs, and by
resampling projects with their bugs. What is finished is kept beside the result (.jsonl): a run that was ended goes on,
and a model that is given later is measured on the same bugs.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path

import numpy as np
from rate_text import rate_text

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from harness.local_models.sampling import LocalSampler, Question, open_sampler
from harness.solvers.writer.prompt import BEGIN, END, lines_of, question
from harness.solvers.writer.proposals import TOKENS
from harness.storage.atomic_write import write_text
from harness.training.search.examples import static_bugs
from harness.training.search.rates import rate_of
from harness.training.search.reversal import code_lines
from harness.training.search.sources import SourceFolder, open_sources, unique_names
from harness.training.writer.static_rows import RegionBug, region_bugs
from pytest_ssr.campaign.factory import load_injectors
from pytest_ssr.storage.store import key_of


@dataclass(frozen=True)
class Measurement:
    """What one model writes for one bug."""

    bug: str
    """A hash of the prompt, of what is right, and of how replies are sampled."""
    project: str
    operator: str
    path: str
    function: str
    model: str
    """The key of its weights."""
    right: Sequence[bool]
    """Of each reply."""
    unchanged: int
    """Replies with the buggy lines, apart from comments and blank space."""
    incomplete: int
    """Replies without an end mark."""
    different: int
    """Different replies."""
    cpu_s: float

    @property
    def repeats(self) -> int:
        """Replies that are equal to an earlier one."""
        return len(self.right) - self.different


class Records:
    """The measurements in a file."""

    def __init__(self, path: Path) -> None:
        """Read the file; a last line that was not written whole is removed."""
        self._path = path
        whole, _, rest = (path.read_text() if path.exists() else "").rpartition("\n")
        if rest:
            path.write_text(f"{whole}\n" if whole else "")
        self.known = {(m.model, m.bug): m for m in (Measurement(**json.loads(line)) for line in whole.splitlines())}

    def add(self, measurement: Measurement) -> None:
        """Write a measurement."""
        self.known[measurement.model, measurement.bug] = measurement
        with self._path.open("a") as file:
            file.write(json.dumps(asdict(measurement)) + "\n")


@dataclass(frozen=True)
class Sampling:
    """How replies are sampled."""

    count: int
    temperature: float
    tokens: int
    seed: int


def bugs_of(source: SourceFolder, count: int, seed: int) -> Iterator[RegionBug]:
    """Yield some bugs of a project."""
    yield from islice(region_bugs(static_bugs(source, load_injectors("mutation,removal"), seed=seed)), count)


def key_of_bug(bug: RegionBug, project: str, how: Sampling) -> str:
    """Return a hash of a bug and of how replies are sampled."""
    return key_of(project, bug.path, json.dumps(question(bug.smallest[0])), bug.original, json.dumps(asdict(how)))


def measured(bug: RegionBug, project: str, sampler: LocalSampler, how: Sampling) -> Measurement:
    """Sample replies for a bug, and compare them with the original."""
    region = bug.smallest[0]
    begin = time.process_time()
    asked = Question(question(region), BEGIN, f"\n{END}")
    sampled = sampler.sample(asked, count=how.count, temperature=how.temperature, tokens=how.tokens, seed=how.seed)
    cpu_s = time.process_time() - begin
    original, buggy = code_lines(bug.original.encode()), code_lines(region.with_lines(region.lines).encode())
    written = [lines_of(reply) for reply in sampled.replies]
    functions = [None if lines is None else code_lines(region.with_lines(lines).encode()) for lines in written]
    return Measurement(
        key_of_bug(bug, project, how),
        project,
        bug.operator,
        bug.path,
        bug.function,
        sampler.key,
        [function == original for function in functions],
        sum(function == buggy for function in functions),
        sum(function is None for function in functions),
        len(set(sampled.replies)),
        round(cpu_s, 2),
    )


def share_right(measurement: Measurement, budget: int) -> float:
    """Return the expected share of draws of some of the replies that have a right one."""
    count, right = len(measurement.right), sum(measurement.right)
    missed = 1.0
    for place in range(min(budget, count)):
        missed *= max(0, count - right - place) / (count - place)
    return 1.0 - missed


def table(rows: Mapping[str, Sequence[Measurement]], count: int, seed: int) -> Iterator[str]:
    """Yield the lines of the table of models."""
    names = (
        "model",
        "bugs",
        "right with 1",
        f"right among {count}",
        "repeats",
        "unchanged",
        "incomplete",
        "CPU s a bug",
    )
    yield f"| {' | '.join(names)} |"
    yield "|---|---|---|---|---|---|---|---|"
    for title, found in rows.items():
        projects, replies = [m.project for m in found], max(1, sum(len(m.right) for m in found))
        cells = [
            rate_text(rate_of(budget, np.array([share_right(m, budget) for m in found]), projects, seed), digits=3)
            for budget in (1, count)
        ]
        totals = [sum(values) for values in zip(*((m.repeats, m.unchanged, m.incomplete) for m in found), strict=True)]
        cells += [f"{total / replies:.2f}" for total in totals]
        cells.append(f"{sum(m.cpu_s for m in found) / max(1, len(found)):.1f}")
        yield f"| {title} | {len(found)} | {' | '.join(cells)} |"


def differences(rows: Mapping[str, Sequence[Measurement]], count: int, seed: int) -> Iterator[str]:
    """Yield the lines of the table that compares each model with the first one, on the same bugs."""
    (first, base), *others = rows.items()
    yield f"| minus {first} | with 1 | among {count} |"
    yield "|---|---|---|"
    for title, found in others:
        projects = [m.project for m in found]
        cells = []
        for budget in (1, count):
            pairs = zip(found, base, strict=True)
            more = np.array([share_right(m, budget) - share_right(b, budget) for m, b in pairs])
            cells.append(rate_text(rate_of(budget, more, projects, seed), digits=3))
        yield f"| {title} | {' | '.join(cells)} |"


def by_operator(rows: Mapping[str, Sequence[Measurement]]) -> Iterator[str]:
    """Yield the lines of the table of operators."""
    yield f"| operator | bugs | {' | '.join(rows)} |"
    yield "|---|---|" + "---|" * len(rows)
    counts = Counter(m.operator for found in list(rows.values())[:1] for m in found)
    solved = {title: Counter(m.operator for m in found if any(m.right)) for title, found in rows.items()}
    for operator, count in counts.most_common():
        yield f"| {operator} | {count} | {' | '.join(str(solved[title][operator]) for title in rows)} |"


def report(rows: Mapping[str, Sequence[Measurement]], how: Sampling) -> str:
    """Return the result as Markdown."""
    projects = sorted({m.project for found in rows.values() for m in found})
    return "\n".join([
        "# Repairs that a language model writes",
        "",
        f"Static bugs of {len(projects)} projects that were not trained on ({', '.join(projects)}), "
        f"{datetime.now(UTC):%Y-%m-%d}. The place is given, and no failing test. {how.count} replies at the "
        f"temperature {how.temperature:g}, of at most {how.tokens} tokens; seed {how.seed}. Right: the original, apart "
        "from comments and blank space. Intervals: 95 %, by bug, then by project. Repeats, unchanged, incomplete: "
        "shares of all replies.",
        "",
        *table(rows, how.count, how.seed),
        "",
        *([*differences(rows, how.count, how.seed), ""] if len(rows) > 1 else []),
        f"Bugs with a right reply among {how.count}, by operator:",
        "",
        *by_operator(rows),
        "",
    ])  # fmt: skip


def main() -> None:
    """Measure the models, and write the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", nargs="+", type=Path)
    parser.add_argument("--model", action="append", required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--per-project", type=int, default=8)
    parser.add_argument("--replies", type=int, default=10)
    parser.add_argument("--temperature", type=float, default=0.7)
    parser.add_argument("--tokens", type=int, default=TOKENS)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    how = Sampling(arguments.replies, arguments.temperature, arguments.tokens, arguments.seed)
    records = Records(arguments.out.with_suffix(".jsonl"))
    sources = open_sources(arguments.source)
    names = unique_names(sources)
    bugs = [(names[s.folder], bug) for s in sources for bug in bugs_of(s, arguments.per_project, how.seed)]
    rows: dict[str, list[Measurement]] = defaultdict(list)
    for model in arguments.model:
        title, _, name = model.rpartition("=")
        sampler = open_sampler(name, option="model")
        for number, (project, bug) in enumerate(bugs, 1):
            key = sampler.key, key_of_bug(bug, project, how)
            if key not in records.known:
                records.add(measured(bug, project, sampler, how))
            rows[title or name].append(records.known[key])
            print(f"\r{title or name}: {number} of {len(bugs)} bugs", end="", file=sys.stderr)
        print(file=sys.stderr)
    write_text(arguments.out, report(rows, how))
    print(report(rows, how))


if __name__ == "__main__":
    main()
