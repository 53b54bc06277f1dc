"""Draw changes that are marked "probably equivalent", so that a person can judge whether they are.

Run: `python benchmarks/equivalence_marks.py FOLDER... --out DRAWN.md [--per-sign 25] [--seed 0]
[--survivors FINDINGS.json...]`.
The folders hold the code of projects; no test is run. The default injectors list changes of each; those with a mark are
drawn evenly over the signs, then over the projects, with the seed. FINDINGS.json: what `ssr inject --json` printed;
its survivors are listed too, with and without a mark. The output has each change as a diff without context, numbered,
for judgements by hand; `benchmarks/results/2026-11-27-equivalence.md` has those of two draws.

A usual run tries marked changes last, so that few of its survivors have a mark. This module is also a pytest plugin
with the injectors `marked`, which yields only marked changes, and `proven`, which yields those with a proof. Run in a
project: `PYTHONPATH=BENCHMARKS pytest -p equivalence_marks --ssr-inject --ssr-injector marked --ssr-time 4m --ssr-json
FINDINGS.json`.
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.training.search.sources import SourceFolder
from pytest_ssr.campaign.factory import load_injectors
from pytest_ssr.injectors.protocol import Candidate, Injector, SourceTree
from pytest_ssr.injectors.sampler import interleave
from pytest_ssr.patch import FileEntry, make_patch
from pytest_ssr.source.equivalence import Equivalence, common_equivalence, equivalence_of_change, is_proven

MOST_CANDIDATES = 3000
"""Candidates of one project that are looked at."""


@dataclass(frozen=True, slots=True)
class MarkedInjector:
    """Yields the marked changes of the injectors `mutation` and `removal`."""

    name: str
    is_wanted: Callable[[Equivalence | None], bool]

    def candidates(self, tree: SourceTree, *, seed: int) -> Iterator[Candidate]:
        """Yield them in the usual order."""
        for candidate in interleave([i.candidates(tree, seed=seed) for i in load_injectors("mutation,removal")]):
            changes = [(path, tree.read(path), data) for path, data in candidate.changes.items()]
            if self.is_wanted(common_equivalence(changes)):
                yield candidate


def pytest_ssr_injectors() -> dict[str, Injector]:
    """Return the injector."""
    injectors = MarkedInjector("marked", lambda mark: mark is not None), MarkedInjector("proven", is_proven)
    return {injector.name: injector for injector in injectors}


@dataclass(frozen=True, slots=True)
class Drawn:
    """A change to judge."""

    project: str
    path: str
    line: int
    scope: str
    sign: str
    diff: str

    @property
    def lines(self) -> list[str]:
        """The changed lines of the diff, after one line of where it is."""
        changed = [x for x in self.diff.splitlines() if x[:1] in ("+", "-") and x[:3] not in ("+++", "---")]
        return [f"{self.project} {self.path}:{self.line} {self.scope} [{self.sign or 'no mark'}]", *changed]


def marked(folder: Path, seed: int) -> Iterator[Drawn]:
    """Yield the marked changes among the first candidates of a project."""
    tree = SourceFolder(folder)
    candidates = interleave([i.candidates(tree, seed=seed) for i in load_injectors("mutation,removal")])
    for candidate in itertools.islice(candidates, MOST_CANDIDATES):
        (path, changed), *others = candidate.changes.items()
        sign = equivalence_of_change(path, tree.read(path), changed)
        if others or sign is None or changed is None:
            continue
        before, after = (FileEntry(data, 0o100644) for data in (tree.read(path), changed))
        diff = make_patch({path: (before, after)}).data.decode()
        yield Drawn(tree.name, path, candidate.line, candidate.scope, str(sign), diff)


def survivors(file: Path) -> Iterator[Drawn]:
    """Yield the survivors of a run."""
    for item in json.loads(file.read_text())["survivors"]:
        where = item["path"], item["line"], item["scope"]
        yield Drawn(file.stem, *where, item["equivalence"] or "", item["diff"])


def drawn_evenly(changes: Sequence[Drawn], per_sign: int, seed: int) -> list[Drawn]:
    """Return at most `per_sign` changes of each sign, spread over the projects."""
    rng = random.Random(seed)
    chosen: list[Drawn] = []
    by_sign: dict[str, dict[str, list[Drawn]]] = defaultdict(lambda: defaultdict(list))
    for change in changes:
        by_sign[change.sign][change.project].append(change)
    for sign in sorted(by_sign):
        groups = list(by_sign[sign].values())
        for group in groups:
            rng.shuffle(group)
        in_turns = (change for turn in itertools.zip_longest(*groups) for change in turn if change is not None)
        chosen += itertools.islice(in_turns, per_sign)
    return chosen


def main() -> None:
    """Draw and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="*", type=Path)
    parser.add_argument("--out", required=True, type=Path)
    parser.add_argument("--per-sign", type=int, default=25)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--survivors", nargs="*", type=Path, default=[])
    options = parser.parse_args()
    changes = [change for folder in options.folders for change in marked(folder, options.seed)]
    chosen = drawn_evenly(changes, options.per_sign, options.seed) + [
        s for file in options.survivors for s in survivors(file)
    ]
    blocks = ["\n".join([f"({number})", *change.lines, ""]) for number, change in enumerate(chosen, 1)]
    options.out.write_text("\n".join(blocks))
    print(f"{len(changes)} marked changes, {len(blocks)} listed in {options.out}")


if __name__ == "__main__":
    main()
