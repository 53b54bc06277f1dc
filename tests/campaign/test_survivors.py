"""Test the ranking of survivors, the score with its gate, and the order of candidates."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import islice

import pytest

from pytest_ssr.campaign.artifact_builder import candidate_fields
from pytest_ssr.campaign.candidate_order import held_back, spread, without_repeats
from pytest_ssr.campaign.score import GateCode, LeftOut, Score, is_scored, left_out, score_of, scored_injectors
from pytest_ssr.campaign.survivors import ranked
from pytest_ssr.injectors.protocol import Candidate
from pytest_ssr.patch import FileEntry, make_patch
from pytest_ssr.records.candidate_result import CandidateResult, CandidateStatus, Goal
from pytest_ssr.records.check_reasons import CheckCode, CheckReason
from pytest_ssr.source.equivalence_signs import EquivalenceSign
from pytest_ssr.source.normal_form import EquivalenceProof

SOURCE = b"""\
import logging

log = logging.getLogger()


def simple(a):
    log.debug("a is %s", a)
    return a + 1


def branched(a):
    if a > 1 and a < 9:
        return a
    return a + 2


def _private(a):
    for b in a:
        while b:
            b -= 3
    return a


class Box:
    def __len__(self):
        return 4
"""


def result(
    old: str,
    new: str,
    scope: str,
    *,
    index: int = 0,
    path: str = "box.py",
    status: CandidateStatus = CandidateStatus.SURVIVED,
    code: CheckCode = CheckCode.NOT_NOTICED,
    strategy: str = "mutation",
) -> CandidateResult:
    """Return the result of one change of SOURCE."""
    changed = SOURCE.replace(old.encode(), new.encode())
    assert changed != SOURCE
    diff = make_patch({path: (FileEntry(SOURCE, 0o100644), FileEntry(changed, 0o100644))}).data.decode()
    line = SOURCE[: SOURCE.index(old.encode())].count(b"\n") + 1
    reason = None if status is CandidateStatus.VALID else CheckReason(code)
    return CandidateResult(index, status, strategy, "change", path, line, scope, "", diff, reason=reason)


def read(path: str) -> bytes:
    """Return the content of any file."""
    return SOURCE


def test_survivors_are_ranked_by_how_much_they_matter() -> None:
    logging = result("a is %s", "b is %s", "simple", index=1)
    private = result("b -= 3", "b -= 4", "_private", index=2)
    unreached = result("return a\n    return", "return 0\n    return", "branched", index=3, code=CheckCode.NOT_REACHED)
    simple = result("a + 1", "a - 1", "simple", index=4)
    branched = result("a + 2", "a - 2", "branched", index=5)
    dunder = result("return 4", "return 5", "Box.__len__", index=6)
    hidden = result("a + 2", "a - 2", "branched", index=7, path="_box.py")
    killed = result("a < 9", "a < 8", "branched", index=8, status=CandidateStatus.VALID)
    survivors = ranked([logging, private, unreached, hidden, killed, dunder, simple, branched], read)
    assert [s.result.index for s in survivors] == [5, 4, 6, 3, 7, 2, 1]
    assert [s.equivalence for s in survivors] == [None] * 6 + [EquivalenceSign.LOGGING]
    weights = [s.weight for s in survivors]
    assert weights == sorted(weights, reverse=True)
    assert weights[-1] < 0 < weights[-2]


def test_a_diff_that_does_not_apply_and_a_missing_file_have_no_sign() -> None:
    def missing(path: str) -> bytes:
        raise FileNotFoundError(path)

    (survivor,) = ranked([result("a is %s", "b is %s", "simple")], missing)
    assert survivor.equivalence is None
    (survivor,) = ranked([result("a is %s", "b is %s", "simple")], lambda path: SOURCE.replace(b"a is", b"c is"))
    assert survivor.equivalence is None


def test_the_sign_in_a_result_is_used_and_looked_for_only_without_one() -> None:
    plain, logging = result("a + 1", "a - 1", "simple"), result("a is %s", "b is %s", "simple")
    for change, sign, expected in (
        (plain, "message", EquivalenceSign.MESSAGE),
        (plain, "bound", EquivalenceProof.BOUND),
        (logging, "", None),
        (logging, "of a later release", None),
        (logging, None, EquivalenceSign.LOGGING),
    ):
        marked = replace(change, sign=sign)
        (survivor,) = ranked([marked], read)
        assert survivor.equivalence is expected
        assert is_scored(marked, read) is (expected is None)
    kept = candidate_fields(Candidate("mutation", "change", {}, "box.py", 1, "simple", sign="message"))
    assert replace(plain, **kept).sign == "message"


def test_proven_changes_are_left_out_and_weigh_as_little_as_probable_ones() -> None:
    plain = result("a + 1", "a - 1", "simple")
    reasons = {sign: left_out(replace(plain, sign=sign), read) for sign in ("bound", "message", "")}
    assert reasons == {"bound": LeftOut.PROVEN, "message": LeftOut.EQUIVALENT, "": None}
    proven, probable = (ranked([replace(plain, sign=sign)], read)[0].weight for sign in ("bound", "message"))
    assert proven == probable < 0
    # Of an earlier release.
    assert left_out(result("a + 2", "2 + a", "branched"), read) is LeftOut.EQUIVALENT
    assert (
        left_out(result("        return a\n", "        return a\n        del b\n", "branched"), read) is LeftOut.PROVEN
    )
    score = score_of([replace(plain, sign="bound"), plain], read, Goal(1))
    assert (score.tried, score.left_out) == (1, {LeftOut.PROVEN: 1})


def test_the_score_counts_changes_whose_outcome_is_known() -> None:
    survived = result("a + 1", "a - 1", "simple")
    rejected = {"status": CandidateStatus.REJECTED}
    results = [
        survived,
        result("a + 2", "a - 2", "branched", code=CheckCode.NOT_REACHED),
        result("a + 2", "a - 2", "branched", status=CandidateStatus.VALID),
        result("a < 9", "a < 8", "branched", code=CheckCode.TOO_MANY_BREAK, **rejected),
        # These do not count.
        result("a < 9", "a < 8", "branched", code=CheckCode.OUTCOMES_DIFFER, **rejected),
        result("a < 9", "a < 8", "branched", status=CandidateStatus.TIMED_OUT),
        result("a < 9", "a < 8", "branched", status=CandidateStatus.NOT_EXERCISED),
        result("a < 9", "a < 8", "branched", strategy="combination"),
        result("a is %s", "b is %s", "simple"),
        result("a is %s", "b is %s", "simple", status=CandidateStatus.VALID),
    ]
    score = score_of(results, read, Goal(1))
    assert (score.noticed, score.tried, score.rate) == (2, 4, 0.5)
    low, high = score.interval
    assert 0.1 < low < 0.2
    assert 0.8 < high < 0.9
    assert Score(93, 112, False).line == "score 83 % (75 to 89 %, 95 %): 93 of 112 changes noticed"
    # One change proves little: the interval, not a figure.
    few = Score(1, 1, False, left_out={LeftOut.COMBINATION: 2, LeftOut.EQUIVALENT: 1})
    assert "100 %," in few.line
    assert "score 100 %" not in few.line
    assert few.line.endswith("not counted: 2 combined, 1 probably equivalent")


@pytest.mark.parametrize(
    ("noticed", "tried", "complete", "limit", "code"),
    [
        (70, 100, False, 70, GateCode.PASSED),
        (69, 100, False, 70, GateCode.UNDER),
        (7, 7, False, 70, GateCode.TOO_FEW),
        (7, 10, True, 70, GateCode.PASSED),
        (1, 10, True, 70, GateCode.UNDER),
        (0, 0, True, 70, GateCode.PASSED),
        (0, 0, False, 70, GateCode.TOO_FEW),
        (29, 100, False, 29.000001, GateCode.UNDER),
        (0, 100, False, 0, GateCode.PASSED),
        (99, 100, False, 100, GateCode.UNDER),
    ],
)
def test_a_gate_needs_enough_changes_or_all_of_them(
    noticed: int, tried: int, complete: bool, limit: float, code: GateCode
) -> None:
    assert Score(noticed, tried, complete).gate(limit) is code


def test_few_changes_decide_if_the_user_asked_for_no_more() -> None:
    results = [result("a + 1", "a - 1", "simple", index=n) for n in range(3)]
    assert score_of(results, read, Goal(9, changes=3)).gate(50) is GateCode.UNDER
    assert score_of(results, read, Goal(9, changes=4)).gate(50) is GateCode.TOO_FEW
    logging = [result("a is %s", "b is %s", "simple")]
    assert score_of(logging, read, Goal(9, changes=1)).gate(50) is GateCode.TOO_FEW


def test_a_run_that_was_cut_does_not_pass_a_gate() -> None:
    results = [result("a + 1", "a - 1", "simple", index=n) for n in range(3)]
    cut = score_of(results, read, Goal(9, changes=4), is_cut=True)
    assert cut.gate(0) is GateCode.CUT
    assert cut.to_json(0)["gate"] == "cut"
    many = Score(99, 99, is_complete=False, is_cut=True)
    assert many.gate(80) is GateCode.CUT
    assert replace(many, is_cut=False).gate(80) is GateCode.PASSED


@pytest.mark.parametrize("status", [CandidateStatus.NOT_EXERCISED, CandidateStatus.TIMED_OUT])
def test_changes_of_which_nothing_is_known_do_not_pass_a_gate(status: CandidateStatus) -> None:
    unproven = [replace(result("a + 1", "a - 1", "simple", index=n), status=status) for n in range(3)]
    assert score_of(unproven, read, Goal(9, changes=3), is_complete=True).gate(0) is GateCode.TOO_FEW
    # Without any change, and with changes that do not count, there is nothing to prove.
    assert score_of([], read, Goal(9, changes=3), is_complete=True).gate(80) is GateCode.PASSED
    # A shard tries its candidates, whatever becomes of them: that is not enough for a gate.
    assert not score_of(unproven, read, Goal(9, changes=3, indices=range(3))).is_planned


def test_a_score_is_of_single_changes() -> None:
    assert scored_injectors("mutation, removal,combination") == "mutation, removal"
    assert scored_injectors("combination") == "combination"


def test_a_goal_ends_after_valid_results_or_after_tried_changes() -> None:
    valid, survived = (result("a + 1", "a - 1", "simple", status=s) for s in list(CandidateStatus)[:2])
    slow = result("a + 1", "a - 1", "simple", status=CandidateStatus.TIMED_OUT)
    results = [survived, slow, valid, valid, survived]
    assert Goal(1).prefix(results) == results[:3]
    assert Goal(1, changes=3).prefix(results) == results[:4]
    assert not Goal(3).is_reached(results)
    assert Goal(9, changes=4).is_reached(results)


def candidate(path: str, scope: str, operator: str, number: int) -> Candidate:
    """Return a candidate with unique changes."""
    return Candidate("mutation", operator, {path: str(number).encode()}, path, number, scope)


def test_candidates_are_spread_over_modules_functions_and_operators() -> None:
    crowd = [candidate("a.py", "f", "one", n) for n in range(12)]
    others = [candidate("a.py", "g", "one", 20), candidate("b.py", "h", "two", 21), candidate("a.py", "f", "two", 22)]
    first = list(islice(spread(iter([*crowd, *others]), lambda _: 1), 4))
    assert [(c.path, c.scope) for c in first] == [("a.py", "f"), ("b.py", "h"), ("a.py", "g"), ("a.py", "f")]
    assert first[3].operator == "two"
    assert Counter(spread(iter([*crowd, *others]), lambda _: 1).__next__().line for _ in range(3)) == {0: 3}


def test_a_module_with_expensive_candidates_has_its_turn_less_often() -> None:
    cheap = [candidate("a.py", f"f{n}", "one", n) for n in range(30)]
    dear = [candidate("b.py", f"g{n}", "one", n + 100) for n in range(30)]
    mixed = [c for pair in zip(cheap, dear, strict=True) for c in pair]
    first = list(islice(spread(iter(mixed), lambda c: 8 if c.path == "b.py" else 1), 18))
    assert Counter(c.path for c in first) == {"a.py": 16, "b.py": 2}


def test_every_candidate_is_tried_once_and_the_useless_ones_last() -> None:
    all_of_them = [candidate(f"{n % 3}.py", "f", "one", n) for n in range(200)]
    drawn = list(
        spread(held_back(without_repeats(iter([*all_of_them, *all_of_them])), lambda c: c.line < 5), lambda _: 1)
    )
    assert sorted(c.line for c in drawn) == list(range(200))
    assert max(index for index, c in enumerate(drawn) if c.line >= 60) > 150
    assert min(index for index, c in enumerate(drawn) if c.line < 5) > 130
