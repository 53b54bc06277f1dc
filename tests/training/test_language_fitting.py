"""The weights of a language model's columns are fitted to lists of other projects."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pytest

from harness.local_models.scoring import Scores, Variant
from harness.solvers.search.language import COLUMNS
from harness.solvers.search.policy import Policy
from harness.solvers.search.token_model import TokenModel
from harness.solvers.search.trees import Trees
from harness.training.search.examples import static_bugs
from harness.training.search.language_fitting import Weights, fit_language, fit_weights, report_of
from harness.training.search.language_lists import (
    WHOLE_LIST,
    ReadList,
    load_lists,
    read_lists,
    save_lists,
    tokens_per_second,
)
from harness.training.search.language_training import LanguageSettings, _budget
from harness.training.search.sources import SourceFolder
from pytest_ssr.campaign.factory import load_injectors

RATIO = COLUMNS.index("ratio")


@dataclass(frozen=True)
class LikesOriginals:
    """A stand-in for a model that finds texts likely which it has seen."""

    seen: tuple[str, ...]
    key: str = "originals"
    tokens: int = 10

    def open(self, text: str) -> LikesOriginals:
        return self

    def glance(self, variants: Sequence[Variant]) -> list[float | None]:
        return [0.5] * len(variants)

    def read(self, variants: Sequence[Variant], *, after: int) -> list[Scores | None]:
        values = [0.0 if any(v.text.strip() in one for one in self.seen) else -1.0 for v in variants]
        return [Scores((value,), (value,)) for value in values]


def lists(count: int, *, informative: bool, projects: int = 4, size: int = 30, read: int = 20) -> list[ReadList]:
    """Return lists in which the ratio is high for right candidates, or tells nothing."""
    rng = np.random.default_rng(3)
    result = []
    for number in range(count):
        policy = np.sort(rng.normal(size=size))[::-1]
        right = np.zeros(size, bool)
        right[rng.integers(0, read)] = True
        rows = rng.normal(size=(size, len(COLUMNS)))
        if informative:
            rows[:, RATIO] += 3 * right
        rows[read:] = np.nan
        glances = rng.normal(size=size)
        result.append(ReadList(f"p{number % projects}", "operator", policy, glances, right, rows, 0.5))
    return result


def test_a_column_that_tells_the_right_candidate_ranks_it_first():
    ranking, report = fit_language("smollm2", LikesOriginals(()), lists(80, informative=True), 100, seed=1)
    assert ranking.weights[RATIO] > 1
    assert report.with_model[0].rate > report.policy[0].rate + 0.3
    assert report.projects == 4
    assert report.read == 20
    # Calibrated: what the weights expect of the first candidate is what comes out.
    assert report.expected_first == pytest.approx(report.with_model[0].rate, abs=0.15)


def test_columns_that_tell_nothing_leave_the_policy_alone():
    _, report = fit_language("smollm2", LikesOriginals(()), lists(80, informative=False), 100, seed=1)
    assert report.with_model[0].rate <= report.policy[0].rate + 0.15


def test_the_bugs_of_a_project_are_ranked_by_weights_of_the_others():
    own = lists(40, informative=True, projects=2)
    # In one project, the column misleads: weights that had learned from it would not be misled.
    misled = [
        ReadList(
            one.project,
            one.operator,
            one.policy,
            one.glances,
            one.right,
            one.rows * (-1.0 if one.project == "p1" else 1.0),
            one.cpu_s,
        )
        for one in own
    ]
    _, report = fit_language("smollm2", LikesOriginals(()), misled, 100, seed=1)
    seen = report_of("smollm2", [e for e in misled if e.project == "p1"], lambda _: fit_weights(misled[1::2]), seed=1)
    assert report.with_model[0].rate < seen.with_model[0].rate


def test_candidates_that_were_not_read_have_the_policys_logit_and_a_glance():
    one = lists(1, informative=True)[0]
    logits = Weights(2.0, 3.0, 5.0, np.ones(len(COLUMNS))).logits(one)
    assert logits[20:] == pytest.approx(2 * one.policy[20:] + 3 * one.glances[20:])
    assert logits[:20] == pytest.approx(2 * one.policy[:20] + 3 * one.glances[:20] + 5 + one.rows[:20].sum(axis=1))


def test_no_list_is_an_error():
    with pytest.raises(ValueError, match="right candidate"):
        fit_weights([])


def test_lists_are_read_as_they_were_written(tmp_path):
    written = lists(3, informative=True)
    save_lists(tmp_path / "a.npz", written)
    for one, other in zip(written, load_lists(tmp_path / "a.npz"), strict=True):
        assert (one.project, one.operator, one.cpu_s) == (other.project, other.operator, other.cpu_s)
        for name in ("policy", "glances", "right", "rows"):
            assert np.array_equal(getattr(one, name), getattr(other, name), equal_nan=name == "rows")
    save_lists(tmp_path / "none.npz", [])
    assert load_lists(tmp_path / "none.npz") == []
    (tmp_path / "a.npz").write_bytes((tmp_path / "a.npz").read_bytes()[:200])
    with pytest.raises((ValueError, OSError)):
        load_lists(tmp_path / "a.npz")


def constant_policy() -> Policy:
    trees = Trees("", np.zeros(1, int), np.zeros(1, int), np.zeros(1), np.zeros(2, int), np.zeros(1))
    return Policy(trees, TokenModel())


def test_lists_of_static_bugs_hold_a_right_candidate_and_its_columns(projects):
    source = SourceFolder(projects[0])
    seen = tuple(source.read(path).decode() for path in source.code_paths())
    bugs = static_bugs(source, load_injectors("mutation"), seed=1, project=source.files)
    found = list(read_lists(bugs, "p", constant_policy(), LikesOriginals(seen), count=4, most_bugs=40, tokens=10**6))
    assert len(found) == 4
    for one in found:
        assert one.right.any()
        assert list(one.policy) == sorted(one.policy, reverse=True)
    # The model has seen the originals, so most right candidates are likelier than the bugs; others have other spaces.
    assert sum((one.rows[one.right, RATIO] > 0).any() for one in found) >= 2
    bugs = static_bugs(source, load_injectors("mutation"), seed=1, project=source.files)
    few = list(read_lists(bugs, "p", constant_policy(), LikesOriginals(seen), count=1, most_bugs=40, tokens=150))
    assert 0 < few[0].was_read.sum() < len(few[0].right)


def test_the_speed_of_a_model_is_in_tens():
    speed = tokens_per_second(LikesOriginals(()))
    assert speed >= 10
    assert speed % 10 == 0


@pytest.mark.parametrize("seconds", [0.0, float("inf"), 1e300])
def test_the_highest_budget_is_the_whole_list(tmp_path, seconds):
    settings = LanguageSettings("smollm2", seconds)
    assert _budget(LikesOriginals(()), tmp_path, settings, lambda _: None) == WHOLE_LIST
