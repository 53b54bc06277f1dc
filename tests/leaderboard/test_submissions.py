"""Submissions to other leaderboards."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from board_parts import outcomes, run_folder

from harness.leaderboard.loading import read_runs, results_of
from harness.leaderboard.submissions import Submission, eval_results, file_name, metadata, read_pool, write_submissions
from pytest_ssr.errors import SettingsError

LETTERS = {"a__b-1": "ru", "a__b-2": "uu", "a__b-3": "i"}
SUBMISSION = Submission("20260131", dataset="org/set", task="resolved")


def test_a_submission_of_the_first_attempts(tmp_path: Path) -> None:
    run = run_folder(tmp_path / "run", outcomes("some/m", LETTERS))
    (folder,) = write_submissions(tmp_path / "out", results_of([str(run)]), SUBMISSION)
    assert folder == tmp_path / "out" / "evaluation" / "verified" / "20260131_some__m"
    rows = [json.loads(line) for line in (folder / "all_preds.jsonl").read_text().splitlines()]
    assert [r["instance_id"] for r in rows] == sorted(LETTERS)
    assert rows[0] == {
        "instance_id": "a__b-1",
        "model_name_or_path": "some/m",
        "model_patch": "diff of a__b-1 0\n",
    }
    files = {str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file()}
    logs = {f"logs/{i}/{n}" for i in LETTERS for n in ("patch.diff", "report.json", "test_output.txt")}
    assert files == {"all_preds.jsonl", "metadata.yaml", "README.md", *logs, *(f"trajs/{i}.json" for i in LETTERS)}
    assert json.loads((folder / "logs/a__b-2/report.json").read_text())["a__b-2"]["resolved"] is False
    # The logs give the same results.
    assert [a.resolved for a in read_runs([str(folder / "logs")]).attempts] == [True, False, None]
    metadata_yaml = yaml.safe_load((folder / "metadata.yaml").read_text())
    assert metadata_yaml["info"]["name"] == "some/m"
    assert metadata_yaml["tags"]["system"] == {"attempts": "1"}
    assert metadata_yaml["tags"]["os_model"] is None, "only its authors know this"
    assert "| resolved | 1 |" in (folder / "README.md").read_text()


def test_eval_results_of_hugging_face(tmp_path: Path) -> None:
    run = run_folder(tmp_path / "run", outcomes("some/m", LETTERS))
    write_submissions(tmp_path / "out", results_of([str(run)]), SUBMISSION)
    (path,) = (tmp_path / "out" / ".eval_results").rglob("*.yaml")
    assert path.parent.name == "some__m"
    (entry,) = yaml.safe_load(path.read_text())
    assert entry == {
        "dataset": {"id": "org/set", "task_id": "resolved"},
        "value": 50.0,
        "date": "2026-01-31",
        "notes": "resolved 1 of 2 graded instances; 1 without a grade after faults of the machine",
    }
    with pytest.raises(SettingsError, match="a submission needs graded attempts"):
        eval_results(outcomes("m", {"a__b-1": "i"}), SUBMISSION)


@pytest.mark.parametrize("name", ["a: b\n- c", "'\"#{}", "../../x", "\u2028 \u0000 x", "- &a *b !c"])
def test_a_hostile_name_is_escaped(name: str) -> None:
    assert yaml.safe_load(metadata(name))["info"]["name"] == name
    folder = file_name(name)
    assert "/" not in folder
    assert not folder.startswith(".")


def test_an_invalid_submission_is_rejected(tmp_path: Path) -> None:
    one = run_folder(tmp_path / "one", outcomes("m", LETTERS))
    two = run_folder(tmp_path / "two", outcomes("m", LETTERS, seed="x"))
    with pytest.raises(SettingsError, match="one and two would both be submitted as 20260131_m"):
        write_submissions(tmp_path / "out", results_of([str(one), str(two)]), SUBMISSION)
    (two / "predictions.jsonl").unlink()
    with pytest.raises(SettingsError, match=r"predictions\.jsonl does not exist"):
        write_submissions(tmp_path / "out", results_of([str(two)]), SUBMISSION)
    (one / "predictions.jsonl").write_text("")
    with pytest.raises(SettingsError, match="has no prediction of m for a__b-1"):
        write_submissions(tmp_path / "out", results_of([str(one)]), SUBMISSION)
    for values, message in (
        ({"day": "today"}, "--date today is not a date"),
        ({"day": "20260131", "split": "../x"}, "--split '../x' cannot be a folder name"),
        ({"day": "20260131", "dataset": "x"}, "--dataset x is not an owner/name"),
        ({"day": "20260131", "dataset": "x/y"}, "--dataset x/y needs --task"),
    ):
        with pytest.raises(SettingsError, match=message):
            Submission(**values)


@pytest.mark.parametrize(
    "text", ["{}", '{"pool": {}}', '{"pool": {"a": "x"}}', '{"pool": {"a": true}}', '{"pool": {"a": NaN}}']
)
def test_an_invalid_pool_file_is_rejected(tmp_path: Path, text: str) -> None:
    path = tmp_path / "pool.json"
    path.write_text(text)
    with pytest.raises(SettingsError, match=r"pool\.json is not a frozen pool; --save-pool writes one"):
        read_pool(path)
