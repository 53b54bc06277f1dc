"""The commands `ssr eval` and `ssr run`: grades, files, and continuing an earlier run."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import venv
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from plain import plain_python
from rows import BASE, FIXED, git, written

from harness.datasets.environments import Environments
from harness.datasets.loading import read_instances
from harness.datasets.repositories import Repositories
from harness.evaluation import grading as grading_module
from harness.evaluation.grading import Grader
from pytest_ssr.errors import ProjectError
from pytest_ssr.grading import MIN_DURATION_S, Grade
from pytest_ssr.records.reasons import Reason, ReasonCode, Rule
from pytest_ssr.settings import RuleSettings
from pytest_ssr.storage.store import Store

pytestmark = pytest.mark.long

SHOP = "acme__shop-1"


def ssr(*arguments: object, **more: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command(*arguments), env=env(), capture_output=True, text=True, timeout=300, check=False)


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "harness.cli", *map(str, arguments)]


def env() -> dict[str, str]:
    return {k: v for k, v in os.environ.items() if not k.startswith(("PYTEST", "TOX", "COV", "SSR_"))}


def results(folder: Path) -> list[dict]:
    return [json.loads(line) for line in (folder / "results.jsonl").read_text().splitlines()]


def diff(dataset, text: str) -> str:
    """Return a patch of shop.py as a solver would submit it."""
    repository = Path(dataset.common[1]) / "acme__shop"
    (repository / "shop.py").write_text(text)
    patch = git(repository, "diff")
    git(repository, "checkout", "-q", "shop.py")
    return patch


def test_gold_resolves_all_and_empty_none(dataset, tmp_path: Path):
    done = ssr("eval", dataset.path, "--predictions", "gold", "--out", tmp_path / "gold", *dataset.common)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 of 2 graded are resolved (100.0%)" in done.stdout
    none = ssr("eval", dataset.path, "--predictions", "empty", "--out", tmp_path / "empty", *dataset.common, "--json")
    assert none.returncode == 1
    summary = json.loads(none.stdout)
    assert (summary["total"], summary["resolved"], summary["empty"], summary["resolve_rate"]) == (2, 0, 2, 0.0)


def test_a_run_writes_swe_bench_s_files(dataset, tmp_path: Path):
    out = tmp_path / "run"
    done = ssr("eval", dataset.path, "--predictions", "gold", "--out", out, "--run-id", "mine", *dataset.common)
    assert done.returncode == 0, done.stdout + done.stderr
    folder = out / "logs" / "run_evaluation" / "mine" / "gold" / SHOP
    assert {p.name for p in folder.iterdir()} == {"report.json", "patch.diff", "meta.json", "test_output.txt"}
    run = json.loads((folder.parents[1] / "run.json").read_text())
    assert run.pop("created_at") < datetime.now(UTC).isoformat()
    assert run == {"dataset": str(dataset.path), "split": "test", "task_repo": None}
    report = json.loads((folder / "report.json").read_text())[SHOP]
    added = [f"tests/test_shop.py::{name}" for name in ("test_add", "test_add_more")]
    assert report["resolved"] is True
    assert report["patch_successfully_applied"] is True
    assert report["tests_status"]["FAIL_TO_PASS"] == {"success": added, "failure": []}
    assert report["tests_status"]["PASS_TO_PASS"] == {"success": ["tests/test_shop.py::test_shout"], "failure": []}
    log = (folder / "test_output.txt").read_text()
    assert f"PASSED {added[0]}" in log.partition(">>>>> Start Test Output")[2].partition(">>>>> End Test Output")[0]
    totals = json.loads((out / "gold.mine.json").read_text())
    assert totals["resolved_ids"] == [SHOP, "acme__shop-2"]
    assert (totals["schema_version"], totals["total_instances"]) == (2, 2)
    prediction = json.loads((out / "predictions.jsonl").read_text().splitlines()[0])
    assert prediction == {
        "instance_id": SHOP,
        "model_name_or_path": "gold",
        "model_patch": dataset.rows[0]["patch"],
    }
    again = ssr(
        "eval", dataset.path, "--predictions", out / "predictions.jsonl", "--out", tmp_path / "b", *dataset.common
    )
    assert "2 of 2 are from an earlier run" in again.stdout


@pytest.mark.long
def test_outdated_results_are_reported_and_archived(dataset, tmp_path: Path):
    out = tmp_path / "out"
    predictions = [{"instance_id": r["instance_id"], "model_name_or_path": "m"} for r in dataset.rows]

    def graded(first: str, *more: object) -> str:
        texts = [first, "no diff", *("" for _ in predictions[2:])]
        rows = [{**p, "model_patch": t} for p, t in zip(predictions, texts, strict=True)]
        path = written(tmp_path / "predictions.jsonl", rows)
        return ssr("eval", dataset.path, "--predictions", path, "--out", out, *dataset.common, *more).stdout

    output = graded(dataset.rows[0]["patch"])
    before = (out / "results.jsonl").read_text()
    assert "no longer apply" not in output + graded(dataset.rows[0]["patch"])
    assert not (out / "results.earlier.jsonl").exists()
    with (out / "results.jsonl").open("a") as file:
        file.write('{"half')
    output = graded(dataset.rows[0]["patch"] + "\n")
    assert "no longer apply (another patch, row, environment or version of ours): 1, kept in" in output
    assert (out / "results.earlier.jsonl").read_text() == before + '{"half'


@pytest.mark.long
def test_each_failure_has_its_status(dataset, tmp_path: Path):
    rows = dataset.rows_again()
    wrong = diff(dataset, BASE["shop.py"].replace("a - b", "a * b"))
    slow = diff(dataset, BASE["shop.py"].replace("return a - b", "while True:\n        pass"))
    cheat = diff(dataset, BASE["shop.py"].replace("return a - b", "import os\n    os._exit(0)"))
    good = diff(dataset, FIXED.replace("a + b", "b + a"))
    patches = {"good": good, "wrong": wrong, "slow": slow, "cheat": cheat, "none": "", "garbage": "no diff"}
    patches["elsewhere"] = wrong.replace("-    return a - b", "-    return a / b")
    rows = [{**rows[0], "instance_id": f"{SHOP}-{name}"} for name in patches]
    bad = {**rows[0], "instance_id": "broken-1", "base_commit": "0" * 40}
    unknown_test = {**rows[0], "instance_id": "broken-2", "FAIL_TO_PASS": '["tests/test_shop.py::test_no_such"]'}
    path = written(tmp_path / "rows.jsonl", [*rows, bad, unknown_test])
    records = {f"{SHOP}-{name}": {"model_name_or_path": "m/1", "model_patch": p} for name, p in patches.items()}
    records |= {name: {"model_name_or_path": "m/1", "model_patch": good} for name in ("broken-1", "broken-2")}
    (tmp_path / "preds.json").write_text(json.dumps(records))
    out = tmp_path / "out"
    options = ["--predictions", tmp_path / "preds.json", "--out", out, *dataset.common, "--time-limit", "8", "-n", "2"]
    done = ssr("eval", path, *options)
    assert done.returncode == 3, done.stdout + done.stderr
    by_name = {r["task"].removeprefix(f"{SHOP}-"): r for r in results(out)}
    assert {name: r["status"] for name, r in by_name.items()} == {
        "good": "resolved",
        "wrong": "unresolved",
        "slow": "timed-out",
        "cheat": "unresolved",
        "none": "empty",
        "garbage": "error",
        "elsewhere": "error",
        "broken-1": "infra",
        "broken-2": "infra",
    }, done.stdout
    assert by_name["broken-2"]["reason"]["code"] == "instance-unusable"
    assert by_name["wrong"]["fail_to_pass"]["tests/test_shop.py::test_add"] == "failed"
    summary = json.loads((out / "summary.json").read_text())
    assert (summary["total"], summary["graded"], summary["resolved"], summary["infra"]) == (9, 7, 1, 2)
    assert summary["resolve_rate"] == pytest.approx(1 / 7)
    report = out / "logs" / "run_evaluation" / "ssr" / "m__1" / "broken-1" / "report.json"
    assert json.loads(report.read_text())["broken-1"]["infra_failure"] is True
    refused = report.parents[1] / f"{SHOP}-garbage"
    assert not (refused / "report.json").exists()
    assert ">>>>> Patch Apply Failed:\nthe patch cannot be read" in (refused / "run_instance.log").read_text()
    late = (report.parents[1] / f"{SHOP}-slow" / "test_output.txt").read_text()
    assert late.endswith("Timeout error: 8 seconds exceeded.\n")
    assert ">>>>> End Test Output" not in late


def test_a_grade_is_bounded_by_the_reference_and_complete_with_logs(dataset, tmp_path: Path, monkeypatch):
    """The time limits of the grade depend on the tests' time with the reference solution."""
    calls = []

    def grade(*_, **options):
        calls.append(options)
        return Grade("x", False, Reason(ReasonCode.NOT_REPAIRED, "it rounds"), tests=True)

    monkeypatch.setattr(grading_module, "grade_patch", grade)
    store = Store(tmp_path / "store")
    repositories = Repositories(store, Path(dataset.common[1]))
    environments = Environments(store, plain_python())
    instance = read_instances(str(dataset.path))[0]
    results_by_run = []
    for rule, logs in ((Rule.STRICT, True), (Rule.STRICT, False), (Rule.TESTS, False)):
        grader = Grader(store, repositories, environments, RuleSettings(), "process", logs=logs, rule=rule)
        results_by_run.append(grader.evaluate(instance, diff(dataset, FIXED)))
        grader.close()
    assert [(call["verbose"], call["like_s"]) for call in calls] == [(True, MIN_DURATION_S), (False, MIN_DURATION_S)]
    assert [o.status for o in results_by_run] == ["unresolved", "unresolved", "resolved"]
    assert {(o.resolved, o.tests) for o in results_by_run} == {(False, True)}


@pytest.mark.long
def test_a_changed_patch_is_graded_and_an_old_one_is_cached(dataset, tmp_path: Path):
    def graded(patch: str) -> tuple[str, bool]:
        row = {"instance_id": SHOP, "model_name_or_path": "m", "model_patch": patch}
        options = ["--predictions", written(tmp_path / "p.jsonl", [row]), "--out", tmp_path / "out", *dataset.common]
        done = ssr("eval", dataset.path, *options)
        return results(tmp_path / "out")[0]["status"], "1 of 1 are from" in done.stdout

    wrong, good = diff(dataset, BASE["shop.py"].replace("a - b", "a % b")), diff(dataset, FIXED)
    assert graded(wrong) == ("unresolved", False)
    assert graded(good)[0] == "resolved"
    assert graded(wrong) == ("unresolved", True)


def test_files_of_an_earlier_patch_are_removed(dataset, tmp_path: Path):
    def graded(model: str, patch: str) -> set[str]:
        row = {"instance_id": SHOP, "model_name_or_path": model, "model_patch": patch}
        options = ["--predictions", written(tmp_path / "p.jsonl", [row]), "--out", tmp_path / "out", *dataset.common]
        assert ssr("eval", dataset.path, *options).returncode == 1
        return {str(p.relative_to(tmp_path / "out")) for p in (tmp_path / "out").rglob("*") if p.is_file()}

    folder = f"logs/run_evaluation/ssr/m__1/{SHOP}"
    (tmp_path / "out").mkdir()
    foreign = {"theirs.json", "theirs.ssr.json", "predictions.2.jsonl"}
    for name in foreign:
        (tmp_path / "out" / name).write_text("{}")
    assert {f"{folder}/test_output.txt", "m__1.ssr.json"} <= graded("m/1", diff(dataset, FIXED))
    files = graded("m/1", "no diff")
    assert f"{folder}/test_output.txt" not in files
    assert f"{folder}/run_instance.log" in files
    files = graded("n", "no diff")
    assert not [p for p in files if "m__1" in p]
    assert foreign | {"n.ssr.json"} <= files


def test_unmatched_instances_and_predictions_are_reported(dataset, tmp_path: Path):
    rows = [{"instance_id": i, "model_name_or_path": "m", "model_patch": diff(dataset, FIXED)} for i in (SHOP, "typo")]
    options = ["--predictions", written(tmp_path / "p.jsonl", rows), "--out", tmp_path / "out", *dataset.common]
    done = ssr("eval", dataset.path, *options)
    assert done.returncode == 1
    assert "1 of 2 instances have no prediction" in done.stdout
    assert "1 of 2 predictions" in done.stdout
    assert "are for none of the instances: typo" in done.stdout
    assert "1 of 2 instances have no result" in done.stdout
    totals = json.loads((tmp_path / "out" / "m.ssr.json").read_text())
    assert (totals["total_instances"], totals["incomplete_ids"]) == (2, ["acme__shop-2"])
    assert json.loads((tmp_path / "out" / "summary.json").read_text())["without_outcome"] == ["acme__shop-2"]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ({"model_patch": "a\ud83d"}, "model_patch holds \\ud83d, which is half a character"),
        ({"model_name_or_path": "a\0b"}, "model_name_or_path 'a\\x00b' cannot name a folder"),
        ({"model_name_or_path": "m" * 300}, "cannot name a folder"),
    ],
)
def test_an_invalid_prediction_is_named(dataset, tmp_path: Path, line: dict, message: str):
    row = {"instance_id": SHOP, "model_name_or_path": "m", "model_patch": "", **line}
    options = ["--predictions", written(tmp_path / "p.jsonl", [row]), "--out", tmp_path / "out", *dataset.common]
    done = ssr("eval", dataset.path, *options)
    assert done.returncode == 2
    assert f"p.jsonl: line 1: {message}" in done.stderr or message in done.stderr
    assert "Traceback" not in done.stderr


def test_two_models_with_one_folder_are_rejected(dataset, tmp_path: Path):
    ids = [SHOP, "acme__shop-2"]
    rows = [
        {"instance_id": i, "model_name_or_path": m, "model_patch": ""}
        for i, m in zip(ids, ("a/b", "a__b"), strict=True)
    ]
    options = ["--predictions", written(tmp_path / "p.jsonl", rows), "--out", tmp_path / "out", *dataset.common]
    done = ssr("eval", dataset.path, *options)
    assert done.returncode == 2
    assert "the models a/b and a__b would share one folder" in done.stderr


def test_a_patch_may_contain_every_kind_of_line_end(dataset, tmp_path: Path):
    patch = diff(dataset, FIXED.replace("a + b", "a + b  # \u2028 \x85 \u2029"))
    row = {"instance_id": SHOP, "model_name_or_path": "m", "model_patch": patch}
    path = tmp_path / "p.jsonl"
    path.write_text(json.dumps(row, ensure_ascii=False) + "\n")
    done = ssr("eval", dataset.path, "--predictions", path, "--out", tmp_path / "out", *dataset.common)
    assert [r["status"] for r in results(tmp_path / "out")] == ["resolved"], done.stdout + done.stderr


def test_another_environment_has_another_key(dataset, tmp_path: Path):
    """It depends on the specification, or on the installed packages of a given interpreter."""
    (row,) = read_instances(str(written(tmp_path / "rows.jsonl", dataset.rows[:1])))
    store = Store(tmp_path / "store")
    built = Environments(store)
    assert built.environment_key(row) == built.environment_key(replace(row, statement="other"))
    assert len({built.environment_key(replace(row, install={"python": v})) for v in ("", "3.12", "3.13")}) == 3
    python = tmp_path / "env" / "bin" / "python"
    venv.create(python.parents[1], symlinks=True)
    (site,) = (python.parents[1] / "lib").glob("python*/site-packages")

    def install(name: str) -> None:
        (site / f"{name}-1.0.dist-info").mkdir()
        text = f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n"
        (site / f"{name}-1.0.dist-info" / "METADATA").write_text(text)

    install("pytest")
    before = Environments(store, python).environment_key(row)
    assert Environments(store, python).environment_key(row) == before
    install("six")
    assert Environments(store, python).environment_key(row) != before


def test_an_interpreter_of_an_image_is_not_inspected(dataset, tmp_path: Path):
    """In an image only the path of the interpreter is part of the key: its packages belong to the image."""
    (row,) = read_instances(str(written(tmp_path / "rows.jsonl", dataset.rows[:1])))
    store = Store(tmp_path / "store")

    def key(python: Path, sandbox: str, images: str = "") -> str:
        grader = Grader(store, Repositories(store), Environments(store, python), RuleSettings(), sandbox, images)
        return grader.key(row, "")

    (broken := tmp_path / "python").write_text("not one of this machine")
    (other := tmp_path / "other").write_text("not one of this machine")
    for sandbox_options in (("docker:debian:12",), ("auto", "docker")):
        assert key(broken, *sandbox_options) == key(broken, *sandbox_options) != key(other, *sandbox_options)
    with pytest.raises(ProjectError):
        key(broken, "auto")


@pytest.mark.long
def test_a_rollout_depends_on_the_statement_and_not_on_the_name(dataset, tmp_path: Path):
    calls = [("bash", {"command": "echo '# Looked at.' >> shop.py"}), ("submit", {})]
    replies = [{"tool_calls": [{"name": name, "arguments": arguments}]} for name, arguments in calls]
    (script := tmp_path / "script.json").write_text(json.dumps(replies))

    def run(statement: str, name: str) -> tuple[str, bool]:
        path = written(tmp_path / "rows.jsonl", [{**dataset.rows[0], "problem_statement": statement}])
        options = ["--solver", f"scripted:{script}", "--name", name, "--out", tmp_path / name, *dataset.common]
        done = ssr("run", path, *options)
        assert done.returncode == 1, done.stdout + done.stderr
        return results(tmp_path / name)[0]["solver"], "1 of 1 are from" in done.stdout

    assert run("Mend it.", "first") == ("first", False)
    assert run("Mend it.", "second") == ("second", True)
    assert run("Mend that.", "third") == ("third", False)


@pytest.mark.long
def test_search_runs_on_instances_and_its_results_are_stored(dataset, tmp_path: Path):
    out = tmp_path / "run"
    options = [
        "--solver",
        "search",
        "--attempts",
        "2",
        "--only",
        "shop-1$",
        "--tries",
        "200",
        "--out",
        out,
        *dataset.common,
    ]
    done = ssr("run", dataset.path, *options, "-n", "2")
    assert done.returncode == 0, done.stdout + done.stderr
    rows = results(out)
    assert [(r["attempt"], r["status"], r["exit_reason"]) for r in rows] == [
        (0, "resolved", "submitted"),
        (1, "resolved", "submitted"),
    ]
    assert all(r["seconds"] > 0 for r in rows)
    logs = out / "logs" / "run_evaluation"
    for run, name in (("ssr", "predictions.jsonl"), ("ssr.2", "predictions.2.jsonl")):
        folder = logs / run / "search" / SHOP
        assert (folder / "patch.diff").read_text() == json.loads((out / name).read_text())["model_patch"] != ""
        assert json.loads((folder / "traj.json").read_text())["exit_reason"] == "submitted"
    again = ssr("run", dataset.path, *options)
    assert "2 of 2 are from an earlier run" in again.stdout
    assert results(out) == rows


def test_a_model_gets_the_statement_and_no_test_of_the_row(dataset, tmp_path: Path):
    script = tmp_path / "replies.json"
    command = "cat tests/*.py; sed -i 's/a - b/a + b/' shop.py"
    calls = [{"name": "bash", "arguments": {"command": command}}, {"name": "submit", "arguments": {}}]
    script.write_text(json.dumps([{"tool_calls": [c]} for c in calls]))
    out = tmp_path / "run"
    options = ["--solver", f"scripted:{script}", "--only", "shop-1$", "--name", "mine", "--out", out, *dataset.common]
    done = ssr("run", dataset.path, *options)
    assert done.returncode == 0, done.stdout + done.stderr
    trajectory = json.loads((out / "logs" / "run_evaluation" / "ssr" / "mine" / SHOP / "traj.json").read_text())
    messages = json.dumps(trajectory["messages"])
    assert "add() subtracts." in messages
    assert "test_shout" in messages
    assert "test_add" not in messages


@pytest.mark.long
def test_a_killed_run_continues(dataset, tmp_path: Path):
    rows = [{**dataset.rows[0], "instance_id": f"acme__shop-k{n}"} for n in range(6)]
    path = written(tmp_path / "rows.jsonl", rows)
    arguments = ["eval", path, "--predictions", "gold", "--out", tmp_path / "out", *dataset.common, "-n", "2"]
    process = subprocess.Popen(
        command(*arguments), env=env(), stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    assert process.stdout is not None
    for _ in range(2):
        assert "resolved" in process.stdout.readline()
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    process.stdout.close()
    done = ssr(*arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    stored = int(done.stdout.partition(" of 6 are from")[0].splitlines()[-1])
    assert 2 <= stored < 6
    assert [r["status"] for r in results(tmp_path / "out")] == ["resolved"] * 6


@pytest.mark.long
def test_an_interrupt_leaves_readable_results(dataset, tmp_path: Path):
    rows = [{**dataset.rows[0], "instance_id": f"acme__shop-i{n}"} for n in range(24)]
    arguments = ["eval", written(tmp_path / "rows.jsonl", rows), "--predictions", "gold", "--out", tmp_path / "out"]
    arguments += dataset.common
    process = subprocess.Popen(
        command(*arguments, "-n", "2"), env=env(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert "resolved" in process.stdout.readline()
    process.send_signal(signal.SIGINT)
    begin = time.monotonic()
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 3
    assert "interrupted; what is finished is kept" in errors
    assert time.monotonic() - begin < 30
    rows_written = results(tmp_path / "out")
    assert 1 <= len(rows_written) < 24
    assert json.loads((tmp_path / "out" / "summary.json").read_text())["wanted"] == 24


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--predictions", "none.jsonl"], "none.jsonl cannot be read"),
        (["--predictions", "gold", "--run-id", "../x"], "cannot name a folder"),
        (["--predictions", "gold", "-n", "0"], "--jobs must be at least 1"),
        (["--predictions", "gold", "--only", "nothing"], "select none of the 2 instances"),
        (["--predictions", "gold", "--repos", "none"], "is not a folder"),
    ],
)
def test_a_usage_error_is_one_line(dataset, tmp_path: Path, options: list[str], message: str):
    done = ssr("eval", dataset.path, "--out", tmp_path / "out", *dataset.common[2:], *options)
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr + done.stdout
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"instance_id": "../x"}, "cannot name a folder"),
        ({"repo": 5}, "repo is int, not text"),
        ({"patch": "\ud800"}, "patch holds \\ud800, which is half a character"),
        ({"FAIL_TO_PASS": json.dumps("tests/test_shop.py::test_add")}, "FAIL_TO_PASS is not a list of texts"),
    ],
)
def test_an_invalid_row_is_an_error_of_one_line(dataset, tmp_path: Path, change: dict, message: str):
    path = written(tmp_path / "rows.jsonl", [{**dataset.rows[0], **change}])
    done = ssr("eval", path, "--predictions", "gold", "--out", tmp_path / "out", *dataset.common)
    assert done.returncode == 2
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_only_models_have_a_budget(dataset, tmp_path: Path):
    done = ssr("run", dataset.path, "--out", tmp_path / "out", *dataset.common, "--budget-usd", "1")
    assert done.returncode == 2
    assert "--budget-usd is for a model" in done.stderr
