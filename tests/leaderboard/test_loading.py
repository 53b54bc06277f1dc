"""Loading three kinds of runs, each attempt once; damage is reported with file and line."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from board_parts import board, episode, outcomes, results_only, run_folder, store

from harness.leaderboard.loading import read_runs
from harness.leaderboard.records import Results
from pytest_ssr.errors import SettingsError

LETTERS = {"a__b-1": "ru", "a__b-2": "ri"}


def read(*paths: Path | str) -> Results:
    return read_runs([str(p) for p in paths])


def test_a_folder_of_a_run(tmp_path: Path) -> None:
    loaded = read(run_folder(tmp_path / "mine", outcomes("m", LETTERS), wanted=9))
    assert [(a.task, a.number, a.resolved) for a in loaded.attempts] == [
        ("a__b-1", 0, True),
        ("a__b-1", 1, False),
        ("a__b-2", 0, True),
        ("a__b-2", 1, None),
    ]
    assert [(r.label, r.kind, r.attempts, r.absent) for r in loaded.runs] == [("mine", "results", 4, 5)]
    first = loaded.attempts[0]
    assert (first.cost_usd, first.tokens, first.steps, first.seconds) == (0.5, 1000, 10, 30.0)


def test_the_usage_of_predictions_is_unknown(tmp_path: Path) -> None:
    loaded = read(results_only(tmp_path / "r", outcomes("m", LETTERS, id="")))
    assert {(a.cost_usd, a.tokens, a.steps, a.seconds) for a in loaded.attempts} == {(-1, -1, -1, -1)}
    unpriced = read(results_only(tmp_path / "u", outcomes("m", LETTERS, unpriced=2)))
    assert {a.cost_usd for a in unpriced.attempts} == {-1}


def test_unknown_fields_are_ignored(tmp_path: Path) -> None:
    folder = results_only(tmp_path / "r", outcomes("m", LETTERS))
    path = folder / "results.jsonl"
    rows = [
        {**json.loads(line), "later": [1], "created_at": "2026-01-02T03:04:05Z"}
        for line in path.read_text().splitlines()
    ]
    path.write_text("\n\n".join(map(json.dumps, rows)))
    assert {a.created_at for a in read(folder).attempts} == {"2026-01-02T03:04:05Z"}


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"task": ', "it is not JSON"),
        ("[" * 100_000, "it is not JSON"),
        ("\ufeff\udcff", "it is not JSON"),
        ("[]", "it is not an object"),
        ("{}", ".*schema version 4"),
        ('{"cost_usd": "x"}', r".*`\$\.cost_usd`"),
        ('{"cost_usd": NaN}', r".*`\$\.cost_usd`"),
        ('{"steps": true}', r".*`\$\.steps`"),
        ('{"fail_to_pass": {"t": 5}}', r".*`\$\.fail_to_pass"),
        ('{"flags": [1]}', ".*flag"),
        ('{"rule": "lenient"}', ".*lenient"),
        ('{"solver": ""}', "it names no instance or no model"),
    ],
)
def test_a_damaged_line_is_reported(tmp_path: Path, line: str, message: str) -> None:
    good = outcomes("m", {"a__b-1": "r"})[0].to_json()
    if line.startswith("{") and line.endswith("}") and line != "{}":
        line = json.dumps({**good, **json.loads(line)})
    path = tmp_path / "results.jsonl"
    path.write_bytes(f"{json.dumps(good)}\n{line}\n".encode("utf-8", "surrogateescape"))
    with pytest.raises(SettingsError, match=rf"results.jsonl: line 2 is damaged: {message}"):
        read(tmp_path)


def test_a_result_of_an_earlier_release_is_rejected_with_advice(tmp_path: Path) -> None:
    good = outcomes("m", {"a__b-1": "r"})[0].to_json()
    (tmp_path / "results.jsonl").write_text(json.dumps({**good, "schema_version": 1}))
    with pytest.raises(SettingsError, match="line 1 is a result of an earlier release; run the same command again"):
        read(tmp_path)


def test_finished_results_of_a_killed_run_are_read(tmp_path: Path) -> None:
    path = results_only(tmp_path / "run", outcomes("m", {"a__b-1": "r", "a__b-2": "u"})) / "results.jsonl"
    whole = path.read_bytes()
    path.write_bytes(whole[:-20])
    loaded = read(path.parent)
    assert [(a.task, a.status) for a in loaded.attempts] == [("a__b-1", "resolved")]
    assert [r.absent for r in loaded.runs] == [1]
    path.write_bytes(whole[:-1])
    assert [a.task for a in read(path.parent).attempts] == ["a__b-1", "a__b-2"]
    assert [r.absent for r in read(path.parent).runs] == [0]


def test_lone_surrogates_are_replaced(tmp_path: Path) -> None:
    folder = results_only(tmp_path / "r", outcomes("m\ud800", {"a\udfff": "r"}))
    (loaded,) = read(folder).attempts
    assert (loaded.solver, loaded.task) == ("m\ufffd", "a\ufffd")


def test_the_order_of_runs_and_lines_is_irrelevant(tmp_path: Path) -> None:
    one, two = outcomes("m", LETTERS), outcomes("n", LETTERS)
    first = results_only(tmp_path / "x" / "one", one), results_only(tmp_path / "x" / "two", two)
    second = results_only(tmp_path / "y" / "one", one[::-1]), results_only(tmp_path / "y" / "two", two[::-1])
    straight, reordered = board(*first), board(*reversed(second))
    assert json.dumps(straight.to_json()) == json.dumps(reordered.to_json())


def test_equal_results_count_once_and_parts_of_a_run_are_merged(tmp_path: Path) -> None:
    results = outcomes("m", LETTERS)
    folder, again = results_only(tmp_path / "r", results), results_only(tmp_path / "copy", results)
    assert len(read(folder, folder, tmp_path / "copy" / ".." / "r").attempts) == 4
    assert len(read(folder, again).attempts) == 4
    part = results_only(tmp_path / "part", outcomes("m", {"a__b-3": "r"}))
    assert {a.solver for a in read(folder, part).attempts} == {"m"}


def test_a_solver_with_different_results_is_separated_by_run(tmp_path: Path) -> None:
    first = results_only(tmp_path / "low" / "run", outcomes("m", LETTERS))
    second = results_only(tmp_path / "high" / "run", outcomes("m", LETTERS, seed="other"))
    loaded = read(first, f"best={second}")
    assert {a.solver for a in loaded.attempts} == {"m (run)", "m (best)"}
    assert {a.solver for a in read(first, second).attempts} == {"m (low/run)", "m (high/run)"}
    with pytest.raises(SettingsError, match="two runs are called run; give each a name with NAME=PATH"):
        read(f"run={first}", f"run={second}")


def test_two_results_for_one_attempt_in_a_run_are_rejected(tmp_path: Path) -> None:
    results = outcomes("m", {"a__b-1": "r"})
    folder = results_only(tmp_path / "r", [*results, replace(results[0], id="other")])
    with pytest.raises(SettingsError, match="r has two results for attempt 1 of m at a__b-1"):
        read(folder)
    assert len(read(results_only(tmp_path / "twice", results * 2)).attempts) == 1


def test_instances_without_a_prediction_are_missing(tmp_path: Path) -> None:
    """As in reports of SWE-bench; another file of the solver's predictions may contain what one lacks."""
    one = run_folder(tmp_path / "one", outcomes("m", {"a__b-1": "r"}), instances=["a__b-1", "c__d-2"])
    resolved, missing = read(one).attempts
    assert (resolved.task, resolved.resolved) == ("a__b-1", True)
    assert (missing.task, missing.repo, missing.status, missing.resolved) == ("c__d-2", "c/d", "incomplete", None)
    two = run_folder(tmp_path / "two", outcomes("m", {"c__d-2": "u"}), instances=["a__b-1", "c__d-2"])
    both = read(one, two).attempts
    assert [(a.solver, a.task, a.status) for a in both] == [("m", "a__b-1", "resolved"), ("m", "c__d-2", "unresolved")]
    going_on = run_folder(
        tmp_path / "three", outcomes("m", LETTERS), wanted=9, instances=["a__b-1", "a__b-2", "a__b-3"]
    )
    assert "a__b-3" not in {a.task for a in read(going_on).attempts}


def test_solvers_of_one_run_are_missing_at_each_other_s_tasks(tmp_path: Path) -> None:
    some = [*outcomes("m", {"a__b-1": "r"}), *outcomes("n", {"a__b-2": "r"})]
    loaded = read(run_folder(tmp_path / "r", some)).attempts
    incomplete = [(a.solver, a.task, a.status) for a in loaded if a.status == "incomplete"]
    assert sorted(incomplete) == [("m", "a__b-2", "incomplete"), ("n", "a__b-1", "incomplete")]


def test_an_invalid_run_is_reported(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(SettingsError, match=r"gone does not exist; name a folder with results.jsonl"):
        read(tmp_path / "gone")
    with pytest.raises(SettingsError, match="empty is not a run"):
        read(tmp_path / "empty")
    with pytest.raises(SettingsError, match="none contains no results"):
        read(results_only(tmp_path / "none", []))
    (tmp_path / "odd.json").write_text("{}")
    with pytest.raises(SettingsError, match=r"odd\.json is not a run"):
        read(tmp_path / "odd.json")


def test_our_own_swe_bench_reports_give_the_same_results(tmp_path: Path) -> None:
    letters = {"a__b-1": "r", "a__b-2": "u", "c__d-3": "i", "c__d-4": "e"}
    folder = run_folder(tmp_path / "r", outcomes("some/m", letters))
    ours = [(a.task, a.repo, a.status) for a in read(folder).attempts]
    (totals,) = folder.glob("*.ssr.json")
    (model,) = folder.glob("logs/run_evaluation/ssr/*/")
    for path in (totals, folder / "logs"):
        loaded = read(path)
        assert [(a.task, a.status) for a in loaded.attempts] == [(task, status) for task, _, status in ours]
        assert {a.solver for a in loaded.attempts} == {"some__m"} == {model.name}
        assert {a.repo for a in loaded.attempts} == {"a/b", "c/d"}


def test_several_runs_in_swe_bench_reports_are_separated(tmp_path: Path) -> None:
    folder = run_folder(tmp_path / "r", outcomes("m", {"a__b-1": "ru"}))
    (folder / "results.jsonl").unlink()
    for path in (folder, folder / "logs"):
        loaded = {a.solver: a.resolved for a in read(path).attempts}
        assert loaded == {f"m ({path.name}/ssr)": True, f"m ({path.name}/ssr.2)": False}


def test_reports_of_swebench_4_with_incomplete_instances(tmp_path: Path) -> None:
    old = {"total_instances": 4, "resolved_ids": ["a__b-1"], "unresolved_ids": [], "error_ids": ["a__b-2"]}
    old |= {"empty_patch_ids": ["a__b-3"], "incomplete_ids": ["a__b-4"], "schema_version": 2}
    path = tmp_path / "gpt-4.1.run.json"
    path.write_text(json.dumps(old))
    loaded = read(path)
    assert [(a.status, a.resolved) for a in loaded.attempts] == [
        ("resolved", True),
        ("error", False),
        ("empty", False),
        ("incomplete", None),
    ]
    assert {a.solver for a in loaded.attempts} == {"gpt-4.1"}
    path.write_text(json.dumps({**old, "ambiguous_failure_ids": ["a__b-5"]}))
    assert [a.resolved for a in read(path).attempts if a.status == "ambiguous"] == [None]
    extra = {"unresolved_ids": ["a__b-5", "a__b-6"], "failure_reasons": {"a__b-5": "missing_module"}}
    extra |= {"ambiguous_failure_ids": ["a__b-5"], "infra_failure_ids": ["a__b-2", "a__b-6"]}
    path.write_text(json.dumps({**old, **extra}))
    loaded = read(path)
    labelled = {a.task: (a.status, a.resolved, a.reason) for a in loaded.attempts}
    assert labelled["a__b-5"] == ("unresolved", False, "missing_module")
    assert labelled["a__b-2"][:2] == labelled["a__b-6"][:2] == ("infra", None)
    path.write_text(json.dumps({**old, "unresolved_ids": ["a__b-1"]}))
    with pytest.raises(SettingsError, match="a__b-1 is both resolved and unresolved"):
        read(path)
    path.write_text(json.dumps({**old, "error_ids": [1]}))
    with pytest.raises(SettingsError, match="error_ids is not a list of ids"):
        read(path)
    report = tmp_path / "logs" / "run" / "m" / "a__b-1" / "report.json"
    report.parent.mkdir(parents=True)
    report.write_text('{"a__b-1": {"resolved": "yes"}}')
    with pytest.raises(SettingsError, match="has no boolean `resolved` for a__b-1"):
        read(tmp_path / "logs")


def test_instances_that_ended_without_a_report_are_errors(tmp_path: Path) -> None:
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
    loaded = {a.task: (a.status, a.reason) for a in read(tmp_path / "logs").attempts}
    assert {k: status for k, (status, _) in loaded.items()} == {
        "a__b-1": "error",
        "a__b-2": "error",
        "a__b-4": "resolved",
    }
    assert "Patch Apply Failed" in loaded["a__b-1"][1]
    assert "timed out after 10 seconds" in loaded["a__b-2"][1]


def test_a_store_of_self_play(tmp_path: Path) -> None:
    first = [episode(1, solvers={"s": "ru", "t": "i"}), episode(2, valid=False), episode(3, repeated=True)]
    second = [episode(4, order=2, parent="bug001", solvers={"s": "u"}), episode(5, operator="gpt", tokens=50)]
    root = store(tmp_path / "project" / ".ssr", first, second)
    for path in (root, root.parent):
        loaded = read(path)
        assert [(a.solver, a.task, a.repo, a.resolved) for a in loaded.attempts] == [
            ("s", "bug001", "project1", True),
            ("s", "bug001", "project1", False),
            ("t", "bug001", "project1", None),
        ]
    assert [(t.injector, t.valid, t.rewards) for t in loaded.tries] == [
        ("gpt", True, ()),
        ("mutation", True, (pytest.approx(0.1),)),
        ("mutation", False, (-1.0,)),
    ]
    assert {t.injector for t in read_runs([f"mine={root}"], by="run").tries} == {"mine"}
    assert {t.injector for t in read_runs([str(root)], by="operator").tries} == {"gpt", "compare"}


def test_runs_of_a_store_share_results(tmp_path: Path) -> None:
    bugs = [episode(1, solvers={"s": "ru"}), episode(2, valid=False, change=""), episode(3, valid=False, change="")]
    alike = [bugs[0], bugs[1], replace(bugs[1])]
    root = store(tmp_path / "s", alike)
    store(root, [bugs[0], bugs[2]], run="other")
    loaded = read(root)
    assert len(loaded.attempts) == 2
    assert sorted((t.valid, t.path) for t in loaded.tries) == [
        (False, "m2.py"),
        (False, "m2.py"),
        (False, "m3.py"),
        (True, "m1.py"),
    ]


def test_a_bug_made_by_several_runs_is_one_try(tmp_path: Path) -> None:
    first = store(tmp_path / "one", [episode(1, solvers={"s": "ruuu"}, seconds=2.0)])
    other = episode(1, artifact_id="weakened-otherwise", solvers={"t": "rrru"}, seconds=3.0)
    second = store(tmp_path / "two", [other, episode(2, strategy="removal")])
    loaded = read(first, second)
    assert [(t.injector, t.seconds, t.rewards) for t in loaded.tries] == [
        ("mutation", 5.0, (pytest.approx(((1 - 1.8 / 4) + (1 - 1.8 * 3 / 4)) / 2),)),
        ("removal", 1.0, ()),
    ]
    assert loaded.tries[0].artifacts == ("bug001", "weakened-otherwise")
    (mutation, _) = board(first, second).injectors
    assert (mutation["valid"], mutation["bugs_met"], mutation["solve_rate"]["value"]) == (1, 2, 0.5)


def test_a_damaged_round_is_reported(tmp_path: Path) -> None:
    root = store(tmp_path / "s", [episode(1)])
    path = root / "episodes" / "abc" / "round-001-001.json"
    data = json.loads(path.read_text())
    del data["episodes"][0]["valid"]
    path.write_text(json.dumps(data))
    with pytest.raises(SettingsError, match=r"round-001-001.json is damaged: episode 1 is incomplete"):
        read(root)
    path.write_text("{")
    with pytest.raises(SettingsError, match=r"round-001-001.json is damaged: it is not a round of episodes"):
        read(root)


@pytest.mark.parametrize(("letters", "absent"), [({}, 4), ({"a__b-2": "r"}, 3), ({"a__b-2": "ru", "a__b-3": "ri"}, 0)])
def test_attempts_that_another_run_holds_are_not_absent(letters: dict[str, str], absent: int, tmp_path: Path) -> None:
    part = results_only(tmp_path / "part", outcomes("m", {"a__b-1": "rr"}))
    summary = {"wanted": 6, "attempts": 2, "without_outcome": ["a__b-2", "a__b-3"]}
    (part / "summary.json").write_text(json.dumps(summary))
    other = results_only(tmp_path / "other", outcomes("m", letters) + outcomes("n", {"a__b-2": "rr"}))
    runs = {run.label: run.absent for run in read_runs([str(part), str(other)]).runs}
    assert runs == {"part": absent, "other": 0}
