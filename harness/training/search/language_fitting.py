"""Fit the weights of a language model's columns, by a conditional logit on the lists of static bugs.

The probability of a candidate is the softmax, over its list, of a weighted sum of the policy's logit and the columns;
the loss of a list is the negative logarithm of the probability of its right candidates (McFadden, 1974).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass

import numpy as np

from harness.local_models.scoring import Scorer
from harness.solvers.search.language import COLUMNS, LanguageRanking
from harness.training.search.language_lists import Floats, ReadList
from harness.training.search.rates import BUDGETS, Rate, rate_of

_PENALTY = 0.5
"""Factor of half the sum of squared weights, of columns with a standard deviation of one."""


@dataclass(frozen=True, slots=True)
class Weights:
    """The weights of a conditional logit."""

    policy: float
    glance: float
    read: float
    columns: Floats

    @classmethod
    def of(cls, ranking: LanguageRanking) -> Weights:
        """Return the weights of a policy."""
        return cls(ranking.policy, ranking.glance, ranking.read, np.array(ranking.weights))

    def logits(self, one: ReadList) -> Floats:
        """Return the logit of each candidate."""
        from_columns = self.read + np.nan_to_num(one.rows) @ self.columns
        unread = self.policy * one.policy + self.glance * one.glances
        logits: Floats = unread + np.where(one.was_read, from_columns, 0.0)
        return logits


@dataclass(frozen=True, slots=True)
class LanguageReport:
    """What the columns give on bugs of projects whose lists the weights were not fitted to."""

    model: str
    bugs: int
    """The number of bugs, each with a right candidate."""
    projects: int
    read: float
    """Mean number of candidates that were read."""
    cpu_s: float
    """Mean seconds of processor time of the model for a bug."""
    policy: tuple[Rate, ...]
    """The share whose right candidate is among the first of the policy's list, without draws."""
    with_model: tuple[Rate, ...]
    """The same for the list that the model has ranked again."""
    expected_first: float
    """The mean probability that the weights give to the first candidate of the list: its share of right ones, if they
    are calibrated."""

    def to_json(self) -> dict[str, object]:
        """Return the report as JSON data."""
        return asdict(self)


def fit_weights(lists: Sequence[ReadList]) -> Weights:
    """Return the weights with the lowest penalized loss; raises ValueError without a list."""
    from scipy.optimize import minimize

    if not lists:
        raise ValueError("there is no bug with a right candidate")
    columns = np.concatenate([one.rows[one.was_read] for one in lists])
    scale = np.maximum(columns.std(axis=0), 1e-6) if len(columns) else np.ones(len(COLUMNS))
    inputs = [
        np.column_stack([one.policy, one.glances, one.was_read, np.nan_to_num(one.rows) / scale]) for one in lists
    ]
    start = np.array([1.0, *[0.0] * (2 + len(COLUMNS))])

    def loss(weights: Floats) -> tuple[float, Floats]:
        # The policy's weight is drawn towards one, the others towards zero: the policy alone.
        value, gradient = _PENALTY / 2 * float(((weights - start) ** 2).sum()), _PENALTY * (weights - start)
        for rows, one in zip(inputs, lists, strict=True):
            logits = rows @ weights
            shares = np.exp(logits - logits.max())
            shares /= shares.sum()
            wanted = np.where(one.right, shares, 0.0)
            chance = max(float(wanted.sum()), 1e-12)
            value -= np.log(chance)
            gradient = gradient + rows.T @ (shares - wanted / chance)
        return value, gradient

    found = minimize(loss, start, jac=True, method="L-BFGS-B").x
    policy, glance, read = (float(value) for value in found[:3])
    return Weights(policy, glance, read, np.asarray(found[3:] / scale))


def fit_language(
    name: str, scorer: Scorer, lists: Sequence[ReadList], tokens: int, *, seed: int
) -> tuple[LanguageRanking, LanguageReport]:
    """Return the ranking, and what it gives on the bugs of each project if it is fitted to those of the others.

    tokens: budget of one list. Raises ValueError without a list.
    """
    weights = fit_weights(lists)
    ranking = LanguageRanking(
        name,
        scorer.key,
        weights.policy,
        tuple(map(float, weights.columns)),
        weights.glance,
        weights.read,
        tokens,
        scorer,
    )
    by_project = {
        project: fit_weights(others) if (others := [one for one in lists if one.project != project]) else weights
        for project in dict.fromkeys(one.project for one in lists)
    }
    return ranking, report_of(name, lists, lambda one: by_project[one.project], seed=seed)


def report_of(
    name: str, lists: Sequence[ReadList], weights_of: Callable[[ReadList], Weights], *, seed: int
) -> LanguageReport:
    """Return what weights give. weights_of: returns those that a list is ranked by."""
    projects = [one.project for one in lists]
    logits = [weights_of(one).logits(one) for one in lists]
    places = [(_place(one.policy, one), _place(values, one)) for one, values in zip(lists, logits, strict=True)]
    rates = [
        tuple(rate_of(n, np.array([float(pair[which] <= n) for pair in places]), projects, seed) for n in BUDGETS)
        for which in (0, 1)
    ]
    firsts = [float(np.exp(values - values.max()).sum()) for values in logits]
    return LanguageReport(
        name,
        len(lists),
        len(set(projects)),
        float(np.mean([one.was_read.sum() for one in lists])),
        float(np.mean([one.cpu_s for one in lists])),
        rates[0],
        rates[1],
        float(np.mean([1 / total for total in firsts])),
    )


def _place(logits: Floats, one: ReadList) -> int:
    """Return the place of the first right candidate; equal logits are in the policy's order."""
    order = np.lexsort((-one.policy, -logits))
    return 1 + int(np.argmax(one.right[order]))
