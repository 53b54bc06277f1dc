"""List the candidates of proven bugs as the solver `search` does, with what a ranking may know of each."""

from __future__ import annotations

import json
import math
import re
import shutil
import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from harness.rollouts.task import open_task
from harness.solvers.search.patterns import Repair, repairs_of
from harness.solvers.search.policy import Policy
from harness.solvers.search.workspace import SearchWorkspace, prepare
from harness.training.search.held_out import bug_lines
from harness.training.search.reversal import Reversal
from pytest_ssr.campaign.factory import open_runner
from pytest_ssr.errors import SsrError
from pytest_ssr.project.state import CodebaseState
from pytest_ssr.records.artifact import read_artifact
from pytest_ssr.settings import RuleSettings
from pytest_ssr.source.syntax_tree import parse, scopes
from pytest_ssr.storage.store import Store

Floats = npt.NDArray[np.float64]

LISTED = 10
"""Number of the most suspicious functions whose candidates are listed: describing them takes most of the time."""
CANDIDATE = ("function", "right", "share", "learned", "line", "line_failing", "line_passing")
"""Of a candidate: its function and whether it is right; logarithms of its share of the function's weights and of the
ranker's probability in the function; Ochiai of its lines, and the failing and passing tests that reach them."""
FUNCTION = ("score", "weight", "count", "failing", "passing", "size", "named", "is_function", "order")
"""Of a function: its suspicion, logarithms of the sum and number of its candidates' weights, tests that reach it,
logarithm of its lines, share of the failing tests that name it, whether it is one, its place by suspicion."""


@dataclass(frozen=True)
class Listing:
    """The candidates of one bug, as the solver lists them."""

    project: str
    artifact: str
    operator: str
    lines: int
    """Lines in which the buggy files and the originals differ."""
    bug_function: int
    """The place of the function with the bug among the suspicious ones, from 0; -1 if it is not there."""
    candidates: Floats
    functions: Floats

    def column(self, name: str) -> Floats:
        """Return a column of the candidates, or of their functions."""
        if name in CANDIDATE:
            return self.candidates[:, CANDIDATE.index(name)]
        return self.functions[self.candidates[:, 0].astype(int), FUNCTION.index(name)]

    @property
    def right(self) -> npt.NDArray[np.bool_]:
        """Whether each candidate gives the original."""
        return self.column("right") > 0

    @property
    def in_bug_function(self) -> npt.NDArray[np.bool_]:
        """Whether each candidate is in a function that holds a right one, or else the bug."""
        own = self.column("function")
        return np.isin(own, own[self.right]) if self.right.any() else own == self.bug_function


@dataclass(frozen=True)
class Candidates:
    """What is listed in a workspace."""

    candidates: Floats
    functions: Floats
    bug_function: int
    repairs: list[Repair]


def list_candidates(workspace: SearchWorkspace, original: CodebaseState, policy: Policy | None) -> Candidates:
    """Return the candidates and functions of a bug. policy: describes them; None if that is known."""
    base, failing = workspace.original, workspace.failing
    texts = [test_text(base, test) for test in sorted(failing)]
    reached = reach_of_lines(workspace)
    candidates, functions, spans = list[list[float]](), list[list[float]](), dict[int, int]()
    kept = list[Repair]()
    for place, (path, name) in enumerate(workspace._suspicious_functions()):
        entry, before = base.entry(path), original.entry(path)
        source = parse(path, entry.data) if entry is not None else None
        if source is None or before is None:
            continue
        every = scopes(source)
        top = every[0]
        whole = replace(top, start=0, end=len(source.data))
        reversal = Reversal(source, whole, before.data) if source.data != before.data else None
        changed = changed_line(source.data, before.data)
        for scope in (s for s in every if s.qualname == name):
            repairs = repairs_of(source, scope, every) if place < LISTED else []
            total = sum(r.weight for r in repairs)
            learned = np.zeros(len(repairs))
            if repairs and policy is not None:
                learned = log_softmax(np.array(policy.logits(source, scope, repairs)))
            span = (scope.node.start_point.row + 1, scope.node.end_point.row + 1)
            bits = [reached.get((path, n), (0, 0)) for n in range(span[0], span[1] + 1)]
            words = [re.compile(rf"\b{re.escape(w)}\b".encode()) for w in [spoken_name(name)] if w]
            named = np.mean([any(w.search(t) for w in words) for t in texts]) if texts else 0.0
            score = workspace.suspicion.of(path, *span, function=span)
            if span[0] <= changed <= span[1]:
                spans[len(functions)] = span[1] - span[0]
            for repair, value in zip(repairs, learned, strict=True):
                line = workspace.suspicion.of(path, repair.first, repair.last, function=repair.function)
                if line:
                    here = nearest(reached, path, repair.first, repair.last, span[0])
                    right = reversal is not None and reversal.matches(repair)
                    share = math.log(max(repair.weight / total, 1e-12))
                    row = (len(functions), right, share, value, line, here[0] / len(failing), math.log1p(here[1]))
                    candidates.append(list(row))
                    kept.append(repair)
            most = max(b[0] for b in bits) / len(failing), math.log1p(max(b[1] for b in bits))
            size = math.log(len(bits))
            is_function = scope.kind == "function"
            amounts = math.log(total or 1.0), math.log(len(repairs) or 1)
            functions.append([score, *amounts, *most, size, named, is_function, place])
    own = min(spans, key=lambda i: spans[i]) if spans else -1
    rows = np.array(candidates, dtype=np.float32).reshape(-1, len(CANDIDATE)), np.array(functions, dtype=np.float32)
    return Candidates(*rows, own, kept)


def reach_of_lines(workspace: SearchWorkspace) -> dict[tuple[str, int], tuple[int, int]]:
    """Return for each line the numbers of failing and passing tests that reach it."""
    bits = {name: 1 << bit for bit, name in enumerate(workspace.reach.tests)}
    bad = sum(bits[t] for t in workspace.failing if t in bits)
    good = sum(bits[t] for t in workspace.baseline.stable if t in bits)
    lines = dict[tuple[str, int], tuple[int, int]]()
    for path, spots in workspace.reach.spots.items():
        loaded = workspace.reach.at_import.get(path, set())
        for spot, reached in spots.items():
            here = reached | (bad | good if spot in loaded else 0)
            counts = (here & bad).bit_count(), (here & good).bit_count()
            lines[path, spot[0]] = max(counts, lines.get((path, spot[0]), (0, 0)))
    return lines


def nearest(
    reached: Mapping[tuple[str, int], tuple[int, int]], path: str, first: int, last: int, top: int
) -> tuple[int, int]:
    """Return the tests that reach the lines, or the nearest line above with a statement."""
    own = [reached[path, n] for n in range(first, last + 1) if (path, n) in reached]
    if own:
        return max(own)
    return next((reached[path, n] for n in range(first - 1, top - 1, -1) if (path, n) in reached), (0, 0))


def changed_line(buggy: bytes, original: bytes) -> int:
    """Return the first line that differs, from 1; 0 if none does."""
    pairs = enumerate(zip(buggy.splitlines(), original.splitlines(), strict=False), 1)
    return next((n for n, (one, other) in pairs if one != other), 0)


def spoken_name(qualname: str) -> str:
    """Return the name by which tests use a function: that of its class for `__init__` and the like."""
    parts = [p for p in qualname.split(".") if not p.startswith(("__", "<"))]
    return parts[-1] if parts else ""


def test_text(state: CodebaseState, test: str) -> bytes:
    """Return the text of a test function; of its file, if it is not found."""
    path, *names = re.sub(r"\[.*", "", test, flags=re.DOTALL).split("::")
    entry = state.entry(path)
    source = parse(path, entry.data) if entry is not None else None
    for scope in scopes(source) if source is not None else ():
        if scope.qualname == ".".join(names):
            return bytes(source.data[scope.start : scope.end])
    return entry.data if entry is not None else b""


def log_softmax(values: Floats) -> Floats:
    top = values.max()
    return np.asarray(values - top - math.log(np.exp(values - top).sum()))


Use = Callable[[Listing, SearchWorkspace, list[Repair]], None]


def listings(
    project: Path,
    policy: Policy,
    python: Path | None,
    folder: Path,
    most: int,
    most_lines: float = math.inf,
    use: Use | None = None,
    done: Collection[str] = (),
) -> Iterator[Listing]:
    """Yield the listings of a project's bugs of at most some changed lines, and keep them in a folder.

    use: called for each bug with its listing, its workspace, and the repairs in the order of the listing,
    unless it is in `done`.
    """
    store = Store(project / ".ssr")
    runner = open_runner(project, store, settings=RuleSettings(), python=python)
    records = (json.loads(path.read_text()) for path in (store.root / "attempts").rglob("*.json"))
    operators = {record.get("artifact_id"): record.get("operator", "") for record in records}
    for artifact_folder in sorted((store.root / "artifacts").iterdir())[:most]:
        artifact, start = read_artifact(artifact_folder), time.monotonic()
        lines = bug_lines(runner.original, artifact)
        if lines > most_lines:
            continue
        kept = folder / f"{project.name}-{artifact_folder.name}.npz"
        if kept.exists() and (use is None or artifact_folder.name in done):
            yield load(kept)
            continue
        place = folder / "tasks" / artifact_folder.name
        if not kept.exists():
            # A run that was ended may have left a part of it.
            shutil.rmtree(place, ignore_errors=True)
        try:
            workspace = prepare(open_task(runner.scoped(), artifact, place, reads_machine=False))
        except SsrError as error:
            print(f"{project.name} {artifact_folder.name}: {error}", file=sys.stderr)
            continue
        listed = list_candidates(workspace, runner.original, None if kept.exists() else policy)
        if not kept.exists():
            operator = operators.get(artifact_folder.name, "")
            numbers = [lines, listed.bug_function]
            columns = {"candidates": listed.candidates, "functions": listed.functions}
            np.savez(kept, **columns, numbers=numbers, operator=operator)
        item = load(kept)
        if use is not None and listed.repairs:
            use(item, workspace, listed.repairs)
        workspace.close()
        seconds = time.monotonic() - start
        print(f"{project.name} {item.operator} {item.lines} {len(item.candidates)} {seconds:.0f} s", flush=True)
        yield item


def load(path: Path) -> Listing:
    """Return a listing that was kept."""
    project, _, artifact = path.stem.rpartition("-")
    with np.load(path) as data:
        lines, own = data["numbers"].tolist()
        columns = {name: data[name].astype(float) for name in ("candidates", "functions")}
        item = Listing(project, artifact, str(data["operator"]), lines, own, **columns)
    return replace(item, candidates=item.candidates[item.column("order") < LISTED])
