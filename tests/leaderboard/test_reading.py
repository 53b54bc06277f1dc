"""Runs of three kinds are read, each attempt once; what is damaged is named by file and line."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from board_parts import board, episode, outcomes, results_only, run_folder, store

from harness.leaderboard.reading import read_runs
from harness.leaderboard.records import Results
from pytest_ssr.errors import SettingsError

TOLD = {"a__b-1": "ru", "a__b-2": "ri"}


def read(*paths: Path | str) -> Results:
    return read_runs([str(p) for p in paths])


def test_a_run_s_folder(tmp_path: Path) -> None:
    found = read(run_folder(tmp_path / "mine", outcomes("m", TOLD), wanted=9))
    assert [(a.task, a.number, a.resolved) for a in found.attempts] == [
        ("a__b-1", 0, True),
        ("a__b-1", 1, False),
        ("a__b-2", 0, True),
        ("a__b-2", 1, None),
    ]
    assert [(r.label, r.kind, r.attempts, r.absent) for r in found.runs] == [("mine", "results", 4, 5)]
    first = found.attempts[0]
    assert (first.cost_usd, first.tokens, first.steps, first.seconds) == (0.5, 1000, 10, 30.0)


def test_what_predictions_cost_is_not_known(tmp_path: Path) -> None:
    found = read(results_only(tmp_path / "r", outcomes("m", TOLD, rollout="")))
    assert {(a.cost_usd, a.tokens, a.steps, a.seconds) for a in found.attempts} == {(-1, -1, -1, -1)}
    unpriced = read(results_only(tmp_path / "u", outcomes("m", TOLD, unpriced=2)))
    assert {a.cost_usd for a in unpriced.attempts} == {-1}


def test_fields_that_we_do_not_know_are_passed_over(tmp_path: Path) -> None:
    folder = results_only(tmp_path / "r", outcomes("m", TOLD))
    path = folder / "results.jsonl"
    rows = [
        {**json.loads(line), "later": [1], "created_at": "2026-01-02T03:04:05Z"}
        for line in path.read_text().splitlines()
    ]
    path.write_text("\n\n".join(map(json.dumps, rows)))
    assert {a.created_at for a in read(folder).attempts} == {"2026-01-02T03:04:05Z"}


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ('{"instance_id": ', "it is not JSON"),
        ("[" * 100_000, "it is not JSON"),
        ("\ufeff\udcff", "it is not JSON"),
        ("[]", "it is no object"),
        ("{}", "it is no result of schema version 2"),
        ('{"cost_usd": "x"}', "cost_usd of a Outcome is no float"),
        ('{"cost_usd": NaN}', "cost_usd of a Outcome is no float"),
        ('{"steps": true}', "steps of a Outcome is no int"),
        ('{"status": "good"}', "it is no result of schema version 2"),
        ('{"flags": [1]}', "it is no result of schema version 2"),
        ('{"model": ""}', "it is no result of schema version 2"),
    ],
)
def test_a_damaged_line_is_named(tmp_path: Path, line: str, why: str) -> None:
    good = outcomes("m", {"a__b-1": "r"})[0].to_json()
    if line.startswith("{") and line.endswith("}") and line != "{}":
        line = json.dumps({**good, **json.loads(line)})
    path = tmp_path / "results.jsonl"
    path.write_bytes(f"{json.dumps(good)}\n{line}\n".encode("utf-8", "surrogateescape"))
    with pytest.raises(SettingsError, match=rf"results.jsonl: line 2 is damaged: {why}"):
        read(tmp_path)


def test_a_result_of_an_earlier_release_is_refused_with_what_to_do(tmp_path: Path) -> None:
    good = outcomes("m", {"a__b-1": "r"})[0].to_json()
    (tmp_path / "results.jsonl").write_text(json.dumps({**good, "schema_version": 1}))
    with pytest.raises(SettingsError, match="line 1 is a result of an earlier release; run the same command again"):
        read(tmp_path)


def test_what_a_killed_run_has_finished_is_read(tmp_path: Path) -> None:
    path = results_only(tmp_path / "run", outcomes("m", {"a__b-1": "r", "a__b-2": "u"})) / "results.jsonl"
    whole = path.read_bytes()
    path.write_bytes(whole[:-20])
    found = read(path.parent)
    assert [(a.task, a.status) for a in found.attempts] == [("a__b-1", "resolved")]
    assert [r.absent for r in found.runs] == [1]
    path.write_bytes(whole[:-1])
    assert [a.task for a in read(path.parent).attempts] == ["a__b-1", "a__b-2"]
    assert [r.absent for r in read(path.parent).runs] == [0]


def test_text_that_cannot_be_written_is_replaced(tmp_path: Path) -> None:
    folder = results_only(tmp_path / "r", outcomes("m\ud800", {"a\udfff": "r"}))
    (found,) = read(folder).attempts
    assert (found.solver, found.task) == ("m\ufffd", "a\ufffd")


def test_the_order_of_runs_and_lines_decides_nothing(tmp_path: Path) -> None:
    one, two = outcomes("m", TOLD), outcomes("n", TOLD)
    first = results_only(tmp_path / "x" / "one", one), results_only(tmp_path / "x" / "two", two)
    second = results_only(tmp_path / "y" / "one", one[::-1]), results_only(tmp_path / "y" / "two", two[::-1])
    straight, mixed = board(*first), board(*reversed(second))
    assert json.dumps(straight.to_json()) == json.dumps(mixed.to_json())


def test_the_same_results_count_once_and_parts_of_a_run_are_one(tmp_path: Path) -> None:
    made = outcomes("m", TOLD)
    folder, again = results_only(tmp_path / "r", made), results_only(tmp_path / "copy", made)
    assert len(read(folder, folder, tmp_path / "copy" / ".." / "r").attempts) == 4
    assert len(read(folder, again).attempts) == 4
    part = results_only(tmp_path / "part", outcomes("m", {"a__b-3": "r"}))
    assert {a.solver for a in read(folder, part).attempts} == {"m"}


def test_a_solver_with_other_results_for_the_same_is_told_apart_by_run(tmp_path: Path) -> None:
    first = results_only(tmp_path / "low" / "run", outcomes("m", TOLD))
    second = results_only(tmp_path / "high" / "run", outcomes("m", TOLD, seed="other"))
    found = read(first, f"best={second}")
    assert {a.solver for a in found.attempts} == {"m (run)", "m (best)"}
    assert {a.solver for a in read(first, second).attempts} == {"m (low/run)", "m (high/run)"}
    with pytest.raises(SettingsError, match="two runs are called run; name each with NAME=PATH"):
        read(f"run={first}", f"run={second}")


def test_two_results_for_one_attempt_in_one_run_are_a_fault(tmp_path: Path) -> None:
    made = outcomes("m", {"a__b-1": "r"})
    folder = results_only(tmp_path / "r", [*made, replace(made[0], rollout="other")])
    with pytest.raises(SettingsError, match="r holds two results for attempt 1 of m at a__b-1"):
        read(folder)
    assert len(read(results_only(tmp_path / "twice", made * 2)).attempts) == 1


def test_what_was_never_handed_in_is_missing_and_not_left_out(tmp_path: Path) -> None:
    """As in reports of SWE-bench; what one file of predictions lacks, another of the solver may hold."""
    one = run_folder(tmp_path / "one", outcomes("m", {"a__b-1": "r"}), instances=["a__b-1", "c__d-2"])
    resolved, missing = read(one).attempts
    assert (resolved.task, resolved.resolved) == ("a__b-1", True)
    assert (missing.task, missing.repo, missing.status, missing.resolved) == ("c__d-2", "c/d", "incomplete", None)
    two = run_folder(tmp_path / "two", outcomes("m", {"c__d-2": "u"}), instances=["a__b-1", "c__d-2"])
    both = read(one, two).attempts
    assert [(a.solver, a.task, a.status) for a in both] == [("m", "a__b-1", "resolved"), ("m", "c__d-2", "unresolved")]
    going_on = run_folder(tmp_path / "three", outcomes("m", TOLD), wanted=9, instances=["a__b-1", "a__b-2", "a__b-3"])
    assert "a__b-3" not in {a.task for a in read(going_on).attempts}


def test_several_solvers_of_one_run_are_missing_where_the_others_are(tmp_path: Path) -> None:
    some = [*outcomes("m", {"a__b-1": "r"}), *outcomes("n", {"a__b-2": "r"})]
    found = read(run_folder(tmp_path / "r", some)).attempts
    told = [(a.solver, a.task, a.status) for a in found if a.status == "incomplete"]
    assert sorted(told) == [("m", "a__b-2", "incomplete"), ("n", "a__b-1", "incomplete")]


def test_what_is_no_run_is_named(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(SettingsError, match=r"gone is not there; name a folder with results.jsonl"):
        read(tmp_path / "gone")
    with pytest.raises(SettingsError, match="empty is no run"):
        read(tmp_path / "empty")
    with pytest.raises(SettingsError, match="none holds no result"):
        read(results_only(tmp_path / "none", []))
    (tmp_path / "odd.json").write_text("{}")
    with pytest.raises(SettingsError, match=r"odd\.json is no run"):
        read(tmp_path / "odd.json")


def test_our_own_files_in_swe_bench_s_form_say_the_same(tmp_path: Path) -> None:
    told = {"a__b-1": "r", "a__b-2": "u", "c__d-3": "i", "c__d-4": "e"}
    folder = run_folder(tmp_path / "r", outcomes("some/m", told))
    ours = [(a.task, a.repo, a.status) for a in read(folder).attempts]
    (totals,) = folder.glob("*.ssr.json")
    (model,) = folder.glob("logs/run_evaluation/ssr/*/")
    for path in (totals, folder / "logs"):
        found = read(path)
        assert [(a.task, a.status) for a in found.attempts] == [(task, status) for task, _, status in ours]
        assert {a.solver for a in found.attempts} == {"some__m"} == {model.name}
        assert {a.repo for a in found.attempts} == {"a/b", "c/d"}


def test_several_runs_in_swe_bench_s_form_are_told_apart(tmp_path: Path) -> None:
    folder = run_folder(tmp_path / "r", outcomes("m", {"a__b-1": "ru"}))
    (folder / "results.jsonl").unlink()
    for path in (folder, folder / "logs"):
        found = {a.solver: a.resolved for a in read(path).attempts}
        assert found == {f"m ({path.name}/ssr)": True, f"m ({path.name}/ssr.2)": False}


def test_reports_of_swebench_4_and_what_was_not_handed_in(tmp_path: Path) -> None:
    old = {"total_instances": 4, "resolved_ids": ["a__b-1"], "unresolved_ids": [], "error_ids": ["a__b-2"]}
    old |= {"empty_patch_ids": ["a__b-3"], "incomplete_ids": ["a__b-4"], "schema_version": 2}
    path = tmp_path / "gpt-4.1.run.json"
    path.write_text(json.dumps(old))
    found = read(path)
    assert [(a.status, a.resolved) for a in found.attempts] == [
        ("resolved", True),
        ("error", False),
        ("empty", False),
        ("incomplete", None),
    ]
    assert {a.solver for a in found.attempts} == {"gpt-4.1"}
    path.write_text(json.dumps({**old, "ambiguous_failure_ids": ["a__b-5"]}))
    assert [a.resolved for a in read(path).attempts if a.status == "ambiguous"] == [None]
    told = {"unresolved_ids": ["a__b-5", "a__b-6"], "failure_reasons": {"a__b-5": "missing_module"}}
    told |= {"ambiguous_failure_ids": ["a__b-5"], "infra_failure_ids": ["a__b-2", "a__b-6"]}
    path.write_text(json.dumps({**old, **told}))
    found = read(path)
    labelled = {a.task: (a.status, a.resolved, a.reason) for a in found.attempts}
    assert labelled["a__b-5"] == ("unresolved", False, "missing_module")
    assert labelled["a__b-2"][:2] == labelled["a__b-6"][:2] == ("infra", None)
    path.write_text(json.dumps({**old, "unresolved_ids": ["a__b-1"]}))
    with pytest.raises(SettingsError, match="a__b-1 is both resolved and unresolved"):
        read(path)
    path.write_text(json.dumps({**old, "error_ids": [1]}))
    with pytest.raises(SettingsError, match="error_ids is no list of ids"):
        read(path)
    report = tmp_path / "logs" / "run" / "m" / "a__b-1" / "report.json"
    report.parent.mkdir(parents=True)
    report.write_text('{"a__b-1": {"resolved": "yes"}}')
    with pytest.raises(SettingsError, match="does not say whether a__b-1 is resolved"):
        read(tmp_path / "logs")


def test_what_has_ended_without_a_report_is_an_error_and_what_goes_on_is_not_there_yet(tmp_path: Path) -> None:
    model = tmp_path / "logs" / "run_evaluation" / "r" / "m"
    logs = {
        "a__b-1": "2026-01-01 - INFO - >>>>> Patch Apply Failed:\nerror: corrupt patch",
        "a__b-2": "2026-01-01 - INFO - Test timed out after 10 seconds.",
        "a__b-3": "2026-01-01 - INFO - Creating container for a__b-3...",
        "a__b-4": "2026-01-01 - INFO - Grading answer for a__b-4...",
    }
    for instance, text in logs.items():
        (model / instance).mkdir(parents=True)
        (model / instance / "run_instance.log").write_text(text)
    (model / "a__b-4" / "report.json").write_text('{"a__b-4": {"patch_exists": true, "resolved": true}}')
    found = {a.task: (a.status, a.reason) for a in read(tmp_path / "logs").attempts}
    assert {k: status for k, (status, _) in found.items()} == {
        "a__b-1": "error",
        "a__b-2": "error",
        "a__b-4": "resolved",
    }
    assert "Patch Apply Failed" in found["a__b-1"][1]
    assert "timed out after 10 seconds" in found["a__b-2"][1]


def test_a_store_of_self_play(tmp_path: Path) -> None:
    first = [episode(1, solvers={"s": "ru", "t": "i"}), episode(2, valid=False), episode(3, repeated=True)]
    second = [episode(4, order=2, parent="bug001", solvers={"s": "u"}), episode(5, operator="gpt", tokens=50)]
    root = store(tmp_path / "project" / ".ssr", first, second)
    for path in (root, root.parent):
        found = read(path)
        assert [(a.solver, a.task, a.repo, a.resolved) for a in found.attempts] == [
            ("s", "bug001", "project1", True),
            ("s", "bug001", "project1", False),
            ("t", "bug001", "project1", None),
        ]
    assert [(t.injector, t.valid, t.rewards) for t in found.tries] == [
        ("gpt", True, ()),
        ("mutation", True, (pytest.approx(0.1),)),
        ("mutation", False, (-1.0,)),
    ]
    assert {t.injector for t in read_runs([f"mine={root}"], by="run").tries} == {"mine"}
    assert {t.injector for t in read_runs([str(root)], by="operator").tries} == {"gpt", "compare"}


def test_runs_of_a_store_share_what_they_have_made(tmp_path: Path) -> None:
    bugs = [episode(1, solvers={"s": "ru"}), episode(2, valid=False, change=""), episode(3, valid=False, change="")]
    alike = [bugs[0], bugs[1], replace(bugs[1])]
    root = store(tmp_path / "s", alike)
    store(root, [bugs[0], bugs[2]], run="other")
    found = read(root)
    assert len(found.attempts) == 2
    assert sorted((t.valid, t.path) for t in found.tries) == [
        (False, "m2.py"),
        (False, "m2.py"),
        (False, "m3.py"),
        (True, "m1.py"),
    ]


def test_a_bug_that_several_runs_have_made_is_one_try(tmp_path: Path) -> None:
    first = store(tmp_path / "one", [episode(1, solvers={"s": "ruuu"}, seconds=2.0)])
    other = episode(1, artifact_id="weakened-otherwise", solvers={"t": "rrru"}, seconds=3.0)
    second = store(tmp_path / "two", [other, episode(2, strategy="removal")])
    found = read(first, second)
    assert [(t.injector, t.seconds, t.rewards) for t in found.tries] == [
        ("mutation", 5.0, (pytest.approx(((1 - 1.8 / 4) + (1 - 1.8 * 3 / 4)) / 2),)),
        ("removal", 1.0, ()),
    ]
    assert found.tries[0].artifacts == ("bug001", "weakened-otherwise")
    (mutation, _) = board(first, second).injectors
    assert (mutation["valid"], mutation["bugs_met"], mutation["solve_rate"]["value"]) == (1, 2, 0.5)


def test_a_damaged_round_is_named(tmp_path: Path) -> None:
    root = store(tmp_path / "s", [episode(1)])
    path = root / "episodes" / "abc" / "round-001-001.json"
    data = json.loads(path.read_text())
    del data["episodes"][0]["valid"]
    path.write_text(json.dumps(data))
    with pytest.raises(SettingsError, match=r"round-001-001.json is damaged: episode 1 is not whole"):
        read(root)
    path.write_text("{")
    with pytest.raises(SettingsError, match=r"round-001-001.json is damaged: it is no round of episodes"):
        read(root)
