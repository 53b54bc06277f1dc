"""Durations and sizes that are read from a store."""

from __future__ import annotations

from pathlib import Path

import pytest
from capacity_parts import add_attempt, add_candidate, add_prediction, add_tree, bug_store

from harness.capacity.durations import MIN_UNITS, Work, read_durations
from harness.records.attempt import Status
from pytest_ssr.errors import SettingsError
from pytest_ssr.records.candidate_result import CandidateStatus
from pytest_ssr.storage.store import Store


def test_candidates_by_outcome_with_the_size_of_what_they_leave(tmp_path: Path) -> None:
    store = bug_store(tmp_path / "s")
    store.put_file("verdicts/b", "v.json", b"x" * 1000)
    add_tree(store, "t", b"y" * 500)
    store.put_record("baselines", "b", {"seconds": 7.5})
    store.put_record("baselines", "files-b", {"a.py": "100644 1"})
    store.put_file("attempts/campaign", "00099.json", b"{")
    store.put_record("attempts", "result-of-ssr-run", {"seconds": 1})
    measured = read_durations(store, Work.BUGS)
    assert {name: (o.count, o.mean_s, o.median_s, o.longest_s) for name, o in measured.outcomes.items()} == {
        "survived": (2, 1.0, 1.0, 1.0),
        "valid": (8, 4.0, 4.0, 4.0),
    }
    assert len(measured.groups) == len(measured.units) == 10
    assert measured.files_per_unit == 12 / 10
    assert measured.bytes_per_unit > 100
    assert (measured.tree_bytes, measured.tree_disk_bytes) == (500, 502)
    assert measured.preparation_s == 7.5
    assert measured.to_json()["counted"] == 8


def test_attempts_at_one_bug_are_a_group_and_aborted_ones_do_not_count(tmp_path: Path) -> None:
    store = Store(tmp_path / "s")
    for n, resolved in enumerate((True, True, False, False, None)):
        add_attempt(store, f"r{n}", 10.0, 2.0, resolved, task=f"bug{n % 2}", ending="completed")
    add_attempt(store, "r9", 500.0, 0.0, None, task="bug0", ending="aborted")
    measured = read_durations(store, Work.ATTEMPTS)
    assert sorted(len(group) for group in measured.groups) == [2, 3]
    assert {unit.seconds for unit in measured.units} == {12.0}
    assert {name: o.count for name, o in measured.outcomes.items()} == {"resolved": 2, "unresolved": 2, "no-grade": 1}
    assert sum(unit.counts for unit in measured.units) == 4


def test_predictions_for_one_instance_are_a_group(tmp_path: Path) -> None:
    store = Store(tmp_path / "s")
    for n in range(6):
        add_prediction(store, f"i{n % 3}", f"m{n}", 1.0 + n, Status.INFRA if n == 5 else Status.RESOLVED)
    measured = read_durations(store, Work.ROWS)
    assert [len(group) for group in measured.groups] == [2, 2, 2]
    assert sum(unit.counts for unit in measured.units) == 5
    assert measured.files_per_unit == 1


@pytest.mark.parametrize("work", Work)
def test_too_few_results_are_a_mistake_of_the_user(tmp_path: Path, work: Work) -> None:
    store = Store(tmp_path / "s")
    for n in range(MIN_UNITS - 1):
        add_candidate(store, n, 1.0)
    with pytest.raises(SettingsError) as caught:
        read_durations(store, work)
    assert caught.value.option == work


def test_nothing_that_counts_is_a_mistake_of_the_user(tmp_path: Path) -> None:
    store = Store(tmp_path / "s")
    for n in range(MIN_UNITS):
        add_candidate(store, n, 1.0, CandidateStatus.SURVIVED)
    with pytest.raises(SettingsError) as caught:
        read_durations(store, Work.BUGS)
    assert caught.value.option == "bugs"
