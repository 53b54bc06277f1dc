"""Train a language model on lessons of different kinds from the same proven bugs, each with the same number of rows.

Run: `python benchmarks/lessons.py PROJECT... --store STORE --static ROWS.jsonl --model MODEL --out FOLDER`, with the
extras `lm` and `train`, after `ssr train selfplay PROJECT... --lm-writes`, whose store it is. ROWS are static bugs that
the model has not learned from. The lessons:

- `proven`: the original for each proven bug.
- `boundary`: the same, only of bugs that some attempts resolved and others did not.
- `failed`: also the original for each written repair of a proven bug that failed: it is a bug, too.
- `static`: none of these.

Lessons are repeated until they are three quarters of the rows; static bugs are the rest, the same for each kind.
Measure the models with `benchmarks/writer.py`. A training that was ended goes on.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, cycle, islice
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from harness.rollouts.runner import ROLLOUTS
from harness.solvers.search.solver import CANDIDATES
from harness.solvers.writer.prompt import lines_of
from harness.solvers.writer.proposals import PATTERN, SAMPLES, Outcome
from harness.solvers.writer.regions import whole_lines
from harness.storage.atomic_write import write_text
from harness.training.language.plan import Adapter, Base, Method, Optimization, Plan
from harness.training.language.training import train_on_rows
from harness.training.search.examples import Bug
from harness.training.search.stored_bugs import bug_in_one_function
from harness.training.writer.static_rows import region_bugs
from pytest_ssr.injectors.equivalence import fingerprint
from pytest_ssr.patch import FileEntry
from pytest_ssr.storage.store import Store

_SHARE = 0.75
_ROWS = 8
"""The rows of an update."""


@dataclass(frozen=True)
class Proven:
    """A proven bug in one function."""

    project: str
    bug: Bug
    failed: Sequence[Bug]
    """The file after written repairs that failed, as bugs."""
    rate: float | None
    """The share of attempts that resolved it."""


def main() -> int:
    """Make the rows of each kind, and train on them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("projects", nargs="+", type=Path)
    parser.add_argument("--store", type=Path, required=True)
    parser.add_argument("--static", type=Path, required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--updates", type=int, default=60)
    parser.add_argument("--layers", type=int, default=20)
    parser.add_argument("--learning-rate", type=float, default=4e-4)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    store = Store(options.store)
    proven = [p for project in options.projects for p in _proven(store, project)]
    static = [json.loads(line) for line in options.static.read_text(encoding="utf-8").splitlines()]
    random.Random(options.seed).shuffle(static)
    for name, kind in KINDS.items():
        folder: Path = options.out / name
        if (folder / "report.json").exists():
            continue
        lessons = list(_rows(chain.from_iterable(map(kind, proven)), random.Random(f"{options.seed}:{name}")))
        count = options.updates * _ROWS
        if len(static) < count or (kind is not _none and not lessons):
            parser.error(f"{name}: {len(lessons)} lessons and {len(static)} static rows are too few for {count} rows")
        taught = list(islice(cycle(lessons), round(_SHARE * count)))
        rows = [*taught, *static[: count - len(taught)]]
        random.Random(options.seed).shuffle(rows)
        file = options.out / f"{name}.jsonl"
        write_text(file, "".join(f"{json.dumps(row)}\n" for row in rows))
        print(f"{name}: {len(lessons)} different lessons, {len(taught)} of {len(rows)} rows", flush=True)
        plan = Plan(
            Method.SFT,
            folder,
            Base(options.model),
            Adapter(layers=options.layers),
            optimization=Optimization(
                updates=options.updates,
                batch=2,
                accumulation=_ROWS // 2,
                learning_rate=options.learning_rate,
                warmup=0.1,
            ),
            seed=options.seed,
        )
        report = train_on_rows([file], plan, lambda text: print(text, file=sys.stderr))
        print(f"{name}: loss {report['loss_first']} to {report['loss_last']}", flush=True)
    return 0


def _all(proven: Proven) -> Iterator[tuple[str, Bug]]:
    yield proven.project, proven.bug


def _near_boundary(proven: Proven) -> Iterator[tuple[str, Bug]]:
    if proven.rate is not None and 0 < proven.rate < 1:
        yield from _all(proven)


def _with_failed(proven: Proven) -> Iterator[tuple[str, Bug]]:
    yield from _all(proven)
    for bug in proven.failed:
        yield proven.project, bug


def _none(_: Proven) -> Iterator[tuple[str, Bug]]:
    return iter(())


KINDS: Mapping[str, Callable[[Proven], Iterator[tuple[str, Bug]]]] = {
    "proven": _all,
    "boundary": _near_boundary,
    "failed": _with_failed,
    "static": _none,
}


def _rows(bugs: Iterator[tuple[str, Bug]], rng: random.Random) -> Iterator[dict[str, Any]]:
    """Yield a row for each bug in one region, without repetitions, in random order."""
    rows: dict[str, dict[str, Any]] = {}
    for project, bug in bugs:
        for found in region_bugs(iter([bug])):
            row = found.row(rng.choice(found.smallest), project)
            rows[json.dumps(row["messages"])] = row
    shuffled = list(rows.values())
    rng.shuffle(shuffled)
    yield from shuffled


def _proven(store: Store, project: Path) -> Iterator[Proven]:
    """Yield the valid first-order bugs of a project's episodes that are in one function."""

    def read(path: str) -> FileEntry | None:
        file = project / path
        return FileEntry(file.read_bytes()) if file.is_file() else None

    for file in sorted((store.root / "episodes").glob("*/round-*.json")):
        for episode in json.loads(file.read_text(encoding="utf-8"))["episodes"]:
            if episode["project"] != project.resolve().name or not episode["valid"] or episode["order"] != 1:
                continue
            bug = bug_in_one_function(store.artifact(episode["artifact_id"]), episode["operator"], read)
            if bug is not None:
                failed = [f for rollout in episode["rollouts"] for f in _failed(store, rollout["id"], bug)]
                yield Proven(project.name, bug, failed, episode["solve_rate"])


def _failed(store: Store, rollout: str, bug: Bug) -> Iterator[Bug]:
    """Yield the file of a bug after each written repair of it that was run in an attempt and failed."""
    samples, candidates = (_lines(store, rollout, name) for name in (SAMPLES, CANDIDATES))
    run = (c for c in candidates if c["pattern"] == PATTERN)
    files = ((s, _file_after(s, bug)) for s in samples if s["outcome"] == Outcome.CANDIDATE)
    # Both are in the order in which they were proposed; what is not Python was not run.
    for (sample, data), candidate in zip(((s, d) for s, d in files if fingerprint(d) is not None), run, strict=False):
        is_same = (sample["path"], sample["first"]) == (candidate["path"], candidate["line"])
        if candidate["on_top"] or not is_same:
            return
        if sample["path"] == bug.path and not candidate["complete"]:
            yield replace(bug, buggy=data)


def _file_after(sample: Mapping[str, Any], bug: Bug) -> bytes:
    """Return the file of a bug after a reply; the lines alone if they are for another file."""
    lines = lines_of(sample["text"])
    assert lines is not None
    if sample["path"] != bug.path:
        return textwrap.dedent(lines).encode()
    kept = whole_lines(bug.buggy.decode())
    kept[sample["first"] - 1 : sample["last"]] = [lines]
    return "".join(kept).encode()


def _lines(store: Store, rollout: str, name: str) -> list[dict[str, Any]]:
    data = store.file(f"{ROLLOUTS}/{rollout}", name)
    return [json.loads(line) for line in data.decode().splitlines()] if data is not None else []


if __name__ == "__main__":
    sys.exit(main())
