"""Measure which part of the search loses right repairs: the drawn function, the order inside it, or the noise.

Run: `ssr inject PROJECT` in projects that the policy was not trained on, then
`python benchmarks/joint_ranking.py PROJECT... --tune PROJECT... --policy FOLDER --python PYTHON --folder DIR --out MD`.
Each proven bug is opened as the solver sees it, and its candidates are listed once. A candidate is right if it gives
the original file, apart from comments and blank space; none is run. The places of the right function and of the right
candidate are compared among rankings; the joint ones are fitted on the bugs of `--tune` alone. Lists are kept in DIR.
"""

from __future__ import annotations

import argparse
import json
import math
import platform
import re
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import lightgbm
import numpy as np
import numpy.typing as npt
from rate_text import rate_text
from scipy.optimize import minimize

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from harness.rollouts.task import open_task
from harness.solvers.search.patterns import repairs_of
from harness.solvers.search.policy import Policy, load_policy
from harness.solvers.search.workspace import SearchWorkspace, prepare
from harness.training.search.held_out import bug_lines
from harness.training.search.rates import rate_of
from harness.training.search.reversal import Reversal
from pytest_ssr.campaign.factory import open_runner
from pytest_ssr.errors import SsrError
from pytest_ssr.project.state import CodebaseState
from pytest_ssr.records.artifact import read_artifact
from pytest_ssr.settings import RuleSettings
from pytest_ssr.source.syntax_tree import parse, scopes
from pytest_ssr.storage.store import Store

Floats = npt.NDArray[np.float64]

BUDGETS = (1, 5, 20, 100)
_DRAWS = 20
SHARPNESS = 6
"""The solver's exponent of the suspicion; see `workspace`."""
RIDGE = 0.5
JOINT = ("share", "learned", "line_failing", "line_passing", "weight", "count", "size", "named", "is_function", "order")
TREES = {
    "learning_rate": 0.05,
    "num_leaves": 7,
    "min_data_in_leaf": 50,
    "lambda_l2": 5.0,
    "feature_fraction": 0.7,
    "deterministic": True,
    "force_row_wise": True,
    "verbosity": -1,
}

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


def list_candidates(workspace: SearchWorkspace, original: CodebaseState, policy: Policy) -> tuple[Floats, Floats, int]:
    """Return the candidates and functions of a bug, and the place of the function that the bug is in."""
    base, failing = workspace.original, workspace.failing
    texts = [test_text(base, test) for test in sorted(failing)]
    reached = reach_of_lines(workspace)
    candidates, functions, spans = list[list[float]](), list[list[float]](), dict[int, int]()
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
            repairs = repairs_of(source, scope, every)
            if not repairs:
                continue
            total = sum(r.weight for r in repairs)
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
            most = max(b[0] for b in bits) / len(failing), math.log1p(max(b[1] for b in bits))
            size = math.log(len(bits))
            is_function = scope.kind == "function"
            functions.append([score, math.log(total), math.log(len(repairs)), *most, size, named, is_function, place])
    own = min(spans, key=lambda i: spans[i]) if spans else -1
    return np.array(candidates, dtype=np.float32), np.array(functions, dtype=np.float32), own


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


def listings(project: Path, policy: Policy, python: Path | None, folder: Path, most: int) -> Iterator[Listing]:
    """Yield the listings of a project's bugs, and keep them in a folder."""
    store = Store(project / ".ssr")
    runner = open_runner(project, store, settings=RuleSettings(), python=python)
    records = (json.loads(path.read_text()) for path in (store.root / "attempts").rglob("*.json"))
    operators = {record.get("artifact_id"): record.get("operator", "") for record in records}
    for artifact_folder in sorted((store.root / "artifacts").iterdir())[:most]:
        kept = folder / f"{project.name}-{artifact_folder.name}.npz"
        if not kept.exists():
            artifact, start = read_artifact(artifact_folder), time.monotonic()
            with tempfile.TemporaryDirectory() as scratch:
                try:
                    workspace = prepare(open_task(runner.scoped(), artifact, Path(scratch)))
                except SsrError as error:
                    print(f"{project.name} {artifact_folder.name}: {error}", file=sys.stderr)
                    continue
                candidates, functions, own = list_candidates(workspace, runner.original, policy)
                workspace.close()
            lines, operator = bug_lines(runner.original, artifact), operators.get(artifact_folder.name, "")
            np.savez(kept, candidates=candidates, functions=functions, numbers=[lines, own], operator=operator)
            print(f"{project.name} {operator} {lines} {len(candidates)} {time.monotonic() - start:.0f} s", flush=True)
        with np.load(kept) as data:
            lines, own = data["numbers"].tolist()
            yield Listing(
                project.name,
                artifact_folder.name,
                str(data["operator"]),
                lines,
                own,
                data["candidates"].astype(float),
                data["functions"].astype(float),
            )


def drawn_scores(item: Listing, policy: Policy | None) -> Floats:
    """Return the logarithms of the scores that the solver draws by, with the patterns' weights or with a policy."""
    inside = item.column("share")
    if policy is not None:
        inside = inside.copy()
        mixed = policy.sharpness * (policy.share * item.column("learned") + (1 - policy.share) * inside)
        for function in np.unique(item.column("function")):
            own = item.column("function") == function
            inside[own] = log_softmax(mixed[own])
    return SHARPNESS * np.log(item.column("line")) + item.column("weight") + inside


def features(item: Listing) -> Floats:
    """Return what the joint rankings know of each candidate."""
    logs = [np.log(np.maximum(item.column(name), 1e-3)) for name in ("line", "score")]
    return np.column_stack([*logs, *(item.column(name) for name in JOINT)])


def fit_linear(items: Sequence[Listing]) -> Callable[[Listing], Floats]:
    """Return the scores of a conditional logit: the likelihood of the right candidates in one list of all functions."""
    covered = [item for item in items if item.right.any()]
    rows = [features(item) for item in covered]
    joined = np.concatenate(rows)
    center, scale = joined.mean(axis=0), joined.std(axis=0) + 1e-9
    lists = [((x - center) / scale, item.right) for x, item in zip(rows, covered, strict=True)]

    def loss(theta: Floats) -> tuple[float, Floats]:
        total, slope = RIDGE * float(theta @ theta), 2 * RIDGE * theta
        for x, right in lists:
            logs = log_softmax(x @ theta)
            inside = log_softmax(logs[right])
            total -= float(np.logaddexp.reduce(logs[right]))
            slope = slope + np.exp(logs) @ x - np.exp(inside) @ x[right]
        return total, slope

    theta = minimize(loss, np.zeros(joined.shape[1]), jac=True, method="L-BFGS-B").x
    return lambda item: np.asarray((features(item) - center) / scale @ theta)


def fit_trees(items: Sequence[Listing], *, rounds: int = 60) -> Callable[[Listing], Floats]:
    """Return the scores of gradient-boosted trees on top of the conditional logit, with the same loss."""
    linear, rng = fit_linear(items), np.random.default_rng(0)
    parts, starts, rights, factors = [], [], [], []
    for item in (item for item in items if item.right.any()):
        right = np.flatnonzero(item.right)
        scores = linear(item)
        # The hardest wrong candidates and a draw of the others, each of which stands for several.
        wrong = np.flatnonzero(~item.right)
        hard = wrong[np.argsort(-scores[wrong])][:300]
        easy = np.setdiff1d(wrong, hard)
        easy = rng.permutation(easy)[:300]
        kept = np.concatenate([right, hard, easy])
        parts.append(features(item)[kept])
        starts.append(scores[kept])
        rights.append(np.isin(kept, right))
        weight = max(0, len(wrong) - len(hard)) / max(1, len(easy))
        factors.append(np.where(np.isin(kept, easy), math.log(max(weight, 1e-9)), 0.0))
    bounds = np.cumsum([0, *map(len, parts)])

    def gradient(scores: Floats, _data: lightgbm.Dataset) -> tuple[Floats, Floats]:
        slopes, curves = [], []
        for i, right in enumerate(rights):
            own = scores[bounds[i] : bounds[i + 1]]
            shares = np.exp(log_softmax(own + factors[i]))
            wanted = np.where(right, shares / max(float(shares[right].sum()), 1e-12), 0.0)
            slopes.append(shares - wanted)
            curves.append(np.maximum(shares * (1 - shares), 1e-3))
        return np.concatenate(slopes), np.concatenate(curves)

    data = lightgbm.Dataset(np.concatenate(parts), init_score=np.concatenate(starts), free_raw_data=False)
    booster = lightgbm.Booster({**TREES, "objective": "none"}, data)
    for _ in range(rounds):
        booster.update(fobj=gradient)
    return lambda item: np.asarray(linear(item) + booster.predict(features(item), raw_score=True))


def hits(item: Listing, scores: Floats, rng: np.random.Generator | None = None) -> Floats:
    """Return for each budget whether a right candidate is among the first; its probability, if the order is drawn."""
    right = item.right
    if not right.any():
        return np.zeros(len(BUDGETS))
    places = []
    for _ in range(1 if rng is None else _DRAWS):
        own = scores if rng is None else scores + rng.gumbel(size=len(scores))
        best = own[right].max()
        ties = int((own[~right] == best).sum())
        places.append(1 + int((own[~right] > best).sum()) + ties / 2)
    return np.array([np.mean([place <= budget for place in places]) for budget in BUDGETS])


def function_place(item: Listing) -> float:
    """Return the place of the function with the bug by suspicion, ties by their middle; infinite if not listed."""
    scores = item.functions[:, FUNCTION.index("score")]
    own = [int(i) for i in np.unique(item.column("function")[item.in_bug_function])]
    if not own:
        return math.inf
    best = scores[own].max()
    return 1 + int((scores > best).sum()) + (int((scores == best).sum()) - 1) / 2


def inside(item: Listing, scores: Floats, *, drawn: bool) -> Floats:
    """Return the hits if the function is known: only its candidates are ranked, without suspicion of functions."""
    own = item.in_bug_function
    known = replace(item, candidates=item.candidates[own])
    return hits(known, scores[own], np.random.default_rng(0) if drawn else None)


def known_repair(item: Listing, scores: Floats) -> Floats:
    """Return the hits if the right candidate were the first of its function: each function is tried once, in order."""
    place = function_place(item) if item.right.any() else math.inf
    return np.array([float(place <= budget) for budget in BUDGETS])


def rankings(
    tuned: Sequence[Listing], held: Sequence[Listing], policy: Policy
) -> dict[str, Callable[[Listing], Floats]]:
    """Return what is compared, by name; each gives the hits of a bug at the budgets."""
    linear, trees = fit_linear(tuned), fit_trees(tuned)
    others = {
        name: fit_linear([item for item in [*tuned, *held] if item.project != name])
        for name in {item.project for item in held}
    }
    return {
        "patterns, drawn (as the solver does)": lambda i: hits(i, drawn_scores(i, None), np.random.default_rng(0)),
        "policy, drawn (as the solver does)": lambda i: hits(i, drawn_scores(i, policy), np.random.default_rng(0)),
        "patterns, sorted": lambda i: hits(i, drawn_scores(i, None)),
        "policy, sorted": lambda i: hits(i, drawn_scores(i, policy)),
        "joint logit, drawn": lambda i: hits(i, linear(i), np.random.default_rng(0)),
        "joint logit, sorted": lambda i: hits(i, linear(i)),
        "joint trees, sorted": lambda i: hits(i, trees(i)),
        "joint logit of all other projects, sorted": lambda i: hits(i, others[i.project](i)),
        "function known: patterns, drawn": lambda i: inside(i, drawn_scores(i, None), drawn=True),
        "function known: patterns, sorted": lambda i: inside(i, drawn_scores(i, None), drawn=False),
        "function known: policy, drawn": lambda i: inside(i, drawn_scores(i, policy), drawn=True),
        "function known: policy, sorted": lambda i: inside(i, drawn_scores(i, policy), drawn=False),
        "repair known, one of each function by suspicion": lambda i: known_repair(i, drawn_scores(i, None)),
        "a right candidate exists": lambda i: np.full(len(BUDGETS), float(i.right.any())),
    }


def cell(values: Floats, projects: Sequence[str]) -> str:
    return rate_text(rate_of(0, values, projects, seed=1))


def tables(tuned: Sequence[Listing], held: Sequence[Listing], policy: Policy) -> Iterator[str]:
    groups = {"all": list(held), "at most two changed lines": [item for item in held if item.lines <= 2]}
    ranked = rankings(tuned, held, policy)
    for title, chosen in groups.items():
        names = [item.project for item in chosen]
        results = {name: np.array([of(item) for item in chosen]) for name, of in ranked.items()}
        places = np.array([function_place(item) for item in chosen])
        shares = ", ".join(f"{n}: {np.mean(places <= n):.2f}" for n in (1, 2, 5, 10, 20, 40))
        yield f"{title}: {len(chosen)} bugs, {sum(i.right.any() for i in chosen)} with a right candidate. Place of the"
        yield f"function with the bug by suspicion, at most {shares}."
        yield ""
        yield "| ranking | " + " | ".join(map(str, BUDGETS)) + " | difference from the patterns at 20 |"
        yield "|---" * (len(BUDGETS) + 2) + "|"
        base = results["patterns, drawn (as the solver does)"]
        for name, values in results.items():
            cells = [cell(values[:, i], names) for i in range(len(BUDGETS))]
            at_20 = BUDGETS.index(20)
            yield f"| {name} | " + " | ".join([*cells, cell(values[:, at_20] - base[:, at_20], names)]) + " |"
        yield ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("projects", nargs="+", type=Path)
    parser.add_argument("--tune", nargs="+", type=Path, required=True)
    parser.add_argument("--policy", type=Path, required=True)
    parser.add_argument("--python", type=Path)
    parser.add_argument("--most", type=int, default=30, help="bugs of each project")
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    policy = load_policy(arguments.policy)
    held, tuned = (
        [item for p in projects for item in listings(p, policy, arguments.python, arguments.folder, arguments.most)]
        for projects in (arguments.projects, arguments.tune)
    )
    lines = [
        "# One ranking of the repairs of all functions",
        "",
        f"{datetime.now(UTC):%Y-%m-%d}, Python {platform.python_version()}, `benchmarks/joint_ranking.py`: {len(held)} "
        f"proven bugs of {', '.join(sorted({i.project for i in held}))}; joint rankings fitted on {len(tuned)} of "
        f"{', '.join(sorted({i.project for i in tuned}))}, {sum(i.right.any() for i in tuned)} with a right candidate.",
        "",
        *tables(tuned, held, policy),
    ]
    arguments.out.write_text("\n".join(lines))


if __name__ == "__main__":
    main()
