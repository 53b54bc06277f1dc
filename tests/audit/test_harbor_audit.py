"""The card of a task directory, whose verifier is a black box."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

import pytest
from planted_verifiers import FORGEABLE

from harness.audit.card import Card, Cause, ChangeStatus, Condition, Unsound
from harness.audit.harbor import VERIFIER, harbor_card
from harness.datasets.instance import EmptyResolvesError
from harness.evaluation.harbor_grading import OpenTask

pytestmark = [pytest.mark.long, pytest.mark.docker]

Opening = Callable[..., OpenTask]
TIME_S = 60.0


def card_of(opened: OpenTask, *, most: int = 6) -> Card:
    return harbor_card(opened, most=most, begin=time.monotonic(), time_s=TIME_S, report=lambda line: None)


def verifier(name: str, before: str = "") -> Mapping[str, str]:
    files, _ = FORGEABLE[name]
    start, _, script = files["tests/test.sh"].partition("reward.txt; }\n")
    return {**files, "tests/test.sh": f"{start}reward.txt; }}\n{before}\n{script}"}


def test_a_sound_task_has_a_sharpness_and_a_cost(opening: Opening) -> None:
    card = card_of(opening("shared", verifier("exit-status")))
    assert card.is_sound
    assert card.sound is not None
    assert set(card.sound.conditions) == {Condition.PLAIN, Condition.HASH_SEED, Condition.TIME_ZONE}
    assert card.sharp is not None
    assert card.sharp.count(ChangeStatus.NOTICED) >= 1
    assert card.cost.grade_s > 0
    assert card.sealed is not None
    assert card.sealed.verifier == "shared"


@pytest.mark.parametrize(
    ("before", "cause"),
    [
        ('[ "${TZ:-}" = "" ] || { reward 0; exit; }', Cause.TIME_ZONE),
        ('[ "${PYTHONHASHSEED:-0}" = 0 ] || { reward 0; exit; }', Cause.HASH_SEED),
    ],
    ids=str,
)
def test_a_verifier_that_depends_on_its_surroundings_is_unsteady(opening: Opening, before: str, cause: Cause) -> None:
    card = card_of(opening("shared", verifier("exit-status", before)), most=1)
    assert card.sound is not None
    assert card.sound.problems == (Unsound.UNSTEADY,)
    assert [(test.test, test.cause) for test in card.sound.unsteady] == [(VERIFIER, cause)]


def test_a_verifier_that_accepts_nothing_at_all_is_told(opening: Opening) -> None:
    with pytest.raises(EmptyResolvesError):
        opening("shared", verifier("exit-status", "reward 1; exit"))
