"""Measure which part of the search loses right repairs: the drawn function, the order inside it, or the noise.

Run: `ssr inject PROJECT` in projects that the policy was not trained on, then
`python benchmarks/joint_ranking.py PROJECT... --tune PROJECT... --policy FOLDER --python PYTHON --folder DIR --out MD`.
Each proven bug is opened as the solver sees it, and its candidates are listed once. A candidate is right if it gives
the original file, apart from comments and blank space. The places of the right function and of the right
candidate are compared among rankings; the joint ones are fitted on the bugs of `--tune`, or of all projects but the
bug's. Lists and measured tests are kept in DIR. With `--run N`, the first N candidates of some rankings are really run;
finished bugs are kept beside the result (.jsonl), so a run that was ended continues.
"""

from __future__ import annotations

import argparse
import json
import math
import platform
import random
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import lightgbm
import numpy as np
from rate_text import rate_text
from scipy.optimize import minimize

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from joint_lists import FUNCTION, Floats, Listing, listings, log_softmax

from harness.solvers.search.patterns import Repair
from harness.solvers.search.policy import Policy, load_policy
from harness.solvers.search.solver import noise
from harness.solvers.search.workspace import SearchWorkspace
from harness.training.search.rates import rate_of

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


def drawn_scores(item: Listing, policy: Policy | None) -> Floats:
    """Return the logarithms of the scores that the solver draws by, or that it drew by with a policy before."""
    inside = item.column("share")
    if policy is not None:
        inside = inside.copy()
        mixed = policy.sharpness * (policy.share * item.column("learned") + (1 - policy.share) * inside)
        for function in np.unique(item.column("function")):
            own = item.column("function") == function
            inside[own] = log_softmax(mixed[own])
    return SHARPNESS * np.log(item.column("line")) + item.column("weight") + inside


def joint_scores(item: Listing, policy: Policy) -> Floats:
    """Return the logarithms of the scores that the solver draws by with a policy: one list of all functions, no fit.

    Unlike `drawn_scores` with a policy, the functions do not count by the sum of their candidates' weights, and the
    sharpness applies to the suspicion, too.
    """
    mixed = policy.share * item.column("learned") + (1 - policy.share) * item.column("share")
    return policy.sharpness * (SHARPNESS * np.log(item.column("line")) + mixed)


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
    own = np.unique(item.column("function")[item.right]).astype(int).tolist() or [item.bug_function]
    if own == [-1]:
        return math.inf
    best, kinds = scores[own].max(), item.functions[:, FUNCTION.index("is_function")]
    # The class around a method has the score of its most suspicious method.
    others = scores[kinds == kinds[own].max()]
    return 1 + int((others > best).sum()) + (int((others == best).sum()) - 1) / 2


def inside(item: Listing, scores: Floats, *, drawn: bool) -> Floats:
    """Return the hits if the function is known: only its candidates are ranked, without suspicion of functions."""
    own = item.in_bug_function
    known = replace(item, candidates=item.candidates[own])
    return hits(known, scores[own], np.random.default_rng(0) if drawn else None)


def known_repair(item: Listing, scores: Floats) -> Floats:
    """Return the hits if the right candidate were the first of its function: each function is tried once, in order."""
    place = function_place(item) if item.right.any() else math.inf
    return np.array([float(place <= budget) for budget in BUDGETS])


def fit_others(tuned: Sequence[Listing], held: Sequence[Listing]) -> Callable[[Listing], Floats]:
    """Return the scores of a conditional logit that is fitted on all projects but that of the bug."""
    fitted = {
        name: fit_linear([item for item in [*tuned, *held] if item.project != name])
        for name in {item.project for item in held}
    }
    return lambda item: fitted[item.project](item)


def rankings(
    tuned: Sequence[Listing], held: Sequence[Listing], policy: Policy
) -> dict[str, Callable[[Listing], Floats]]:
    """Return what is compared, by name; each gives the hits of a bug at the budgets."""
    linear, trees, others = fit_linear(tuned), fit_trees(tuned), fit_others(tuned, held)
    return {
        "patterns, drawn (as the solver does)": lambda i: hits(i, drawn_scores(i, None), np.random.default_rng(0)),
        "policy, drawn (as the solver did)": lambda i: hits(i, drawn_scores(i, policy), np.random.default_rng(0)),
        "patterns, sorted": lambda i: hits(i, drawn_scores(i, None)),
        "policy, sorted": lambda i: hits(i, drawn_scores(i, policy)),
        "joint, drawn": lambda i: hits(i, joint_scores(i, policy), np.random.default_rng(0)),
        "joint, sorted": lambda i: hits(i, joint_scores(i, policy)),
        "joint logit, drawn": lambda i: hits(i, linear(i), np.random.default_rng(0)),
        "joint logit, sorted": lambda i: hits(i, linear(i)),
        "joint trees, sorted": lambda i: hits(i, trees(i)),
        "joint logit of all other projects, sorted": lambda i: hits(i, others(i)),
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


class Runs:
    """Runs the first candidates of rankings, and keeps the numbers of those that solve the bugs in a file."""

    def __init__(self, path: Path, ranked: Mapping[str, Callable[[Listing], Floats]], most: int) -> None:
        self.places: dict[str, dict[str, int]] = {}
        self._path, self._ranked, self._most = path, ranked, most
        self.names = tuple(ranked)
        for line in path.read_text().splitlines() if path.exists() else ():
            artifact, places = json.loads(line)
            self.places[artifact] = places

    def add(self, item: Listing, workspace: SearchWorkspace, repairs: list[Repair]) -> None:
        """Run the first candidates of each ranking on one bug."""
        if item.artifact in self.places:
            return
        if len(repairs) > len(item.candidates):
            repairs = repairs[: len(item.candidates)]
        if len(repairs) < len(item.candidates):
            print(f"{item.project} {item.artifact}: other lines are reached now", file=sys.stderr)
            return
        confirmed = dict[str, bool]()
        places = {name: self._place(workspace, repairs, of(item), confirmed) for name, of in self._ranked.items()}
        self.places[item.artifact] = places
        with self._path.open("a") as file:
            file.write(json.dumps([item.artifact, places]) + "\n")
        print(item.project, item.lines, bool(item.right.any()), places, flush=True)

    def _place(
        self, workspace: SearchWorkspace, repairs: list[Repair], scores: Floats, confirmed: dict[str, bool]
    ) -> int:
        tried = 0
        for index in np.argsort(-scores, kind="stable"):
            state = workspace.state(workspace.original, repairs[index])
            if state is None:
                continue
            tried += 1
            if workspace.run_candidate(state).complete:
                name = state.tree_hash
                if name not in confirmed:
                    confirmed[name] = workspace.confirm(state)
                if confirmed[name]:
                    return tried
            if tried >= self._most:
                break
        return 0


def noisy(item: Listing, scores: Floats) -> Floats:
    """Return scores with the noise of one draw."""
    rng = random.Random(item.artifact)
    return scores + np.array([noise(rng) for _ in scores])


def run_rankings(
    tuned: Sequence[Listing], held: Sequence[Listing], policy: Policy
) -> dict[str, Callable[[Listing], Floats]]:
    """Return the rankings whose candidates are run."""
    return {
        "patterns": lambda i: noisy(i, drawn_scores(i, None)),
        "policy": lambda i: noisy(i, drawn_scores(i, policy)),
        "joint": lambda i: noisy(i, joint_scores(i, policy)),
        "joint logit": fit_others(tuned, held),
    }


def run_table(held: Sequence[Listing], runs: Runs, most: int) -> Iterator[str]:
    """Yield a table of the bugs that are solved by the first candidates, all of them run."""
    others = [name for name in runs.names if name != "patterns"]
    yield "| bugs | N | " + " | ".join(["patterns", *others, *(f"{n} - patterns" for n in others)]) + " |"
    yield "|---" * (3 + 2 * len(others)) + "|"
    for title, most_lines in (("all", math.inf), ("at most two changed lines", 2)):
        chosen = [item for item in held if item.lines <= most_lines]
        names = [item.project for item in chosen]
        for budget in [b for b in BUDGETS if b <= most] if chosen else ():
            solved = {
                name: np.array([float(0 < runs.places[item.artifact][name] <= budget) for item in chosen])
                for name in runs.names
            }
            base = solved["patterns"]
            values = [base, *(solved[n] for n in others), *(solved[n] - base for n in others)]
            yield f"| {title} ({len(chosen)}) | {budget} | " + " | ".join(cell(v, names) for v in values) + " |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("projects", nargs="+", type=Path)
    parser.add_argument("--tune", nargs="+", type=Path, required=True)
    parser.add_argument("--policy", type=Path, required=True)
    parser.add_argument("--python", type=Path)
    parser.add_argument("--most", type=int, default=30, help="bugs of each project")
    parser.add_argument("--lines", type=float, default=math.inf, help="bugs of at most this number of changed lines")
    parser.add_argument("--run", type=int, default=0, help="candidates of each ranking that are really run")
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    policy, kept = load_policy(arguments.policy), (arguments.python, arguments.folder, arguments.most)
    tuned = [item for project in arguments.tune for item in listings(project, policy, *kept)]
    chosen = (*kept, arguments.lines)
    held = [item for project in arguments.projects for item in listings(project, policy, *chosen)]
    runs = Runs(arguments.out.with_suffix(".jsonl"), run_rankings(tuned, held, policy), arguments.run)
    if arguments.run:
        for project in arguments.projects:
            for _ in listings(project, policy, *chosen, runs.add, runs.places):
                pass
    lines = [
        "# One ranking of the repairs of all functions",
        "",
        f"{datetime.now(UTC):%Y-%m-%d}, Python {platform.python_version()}, `benchmarks/joint_ranking.py`: {len(held)} "
        f"proven bugs of {', '.join(sorted({i.project for i in held}))}; joint rankings fitted on {len(tuned)} of "
        f"{', '.join(sorted({i.project for i in tuned}))}, {sum(i.right.any() for i in tuned)} with a right candidate.",
        "",
        *tables(tuned, held, policy),
        *run_table([item for item in held if item.artifact in runs.places], runs, arguments.run),
    ]
    arguments.out.write_text("\n".join(lines))


if __name__ == "__main__":
    main()
