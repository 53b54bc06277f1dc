"""`ssr export` leaves out rows by the cards of their tasks, and adds the sharpness if the format has room for it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from audit_cards import clean, sharpness, unaudited, unsound, write_cards
from export_parts import export, lines, report_of
from rollout_parts import add_task, keep, store
from rows import write_project, written

from harness.exporters.formats import FORMATS
from harness.exporters.skipped import SkipCode
from pytest_ssr.records.candidate_result import CandidateResult, CandidateStatus
from pytest_ssr.storage.store import key_of

BUG = "0123456789abcdef0123"
CARDS = [
    clean("t1"),
    clean("t2", sharp=sharpness(8, 2)),
    unsound("t3"),
    unaudited("t4"),
    clean("t5", sharp=None),
    unsound(f"ssr__calc-{BUG}"),
]
TASKS = ["t1", "t2", "t3", "t4", "t5", "t6", BUG]
FIRST, SECOND = "acme__shop-1", "acme__shop-2"


@pytest.fixture
def bugs(tmp_path: Path) -> Path:
    """A store with seven bugs, and two attempts at each."""
    folder = store(tmp_path / ".ssr")
    for number, name in enumerate(TASKS):
        add_task(folder, name, injector={"strategy": "mutation"})
        for attempt in range(2):
            keep(folder, f"{number}{attempt}" * 12, True, task=name, attempt=attempt)
    return folder


@pytest.fixture
def audit(tmp_path: Path) -> Path:
    return write_cards(tmp_path / "audit" / "cards.jsonl", CARDS).parent


def codes(report: dict[str, Any]) -> dict[str, int]:
    return {entry["code"]: entry["count"] for entry in report["left_out"]}


def test_rows_of_tasks_that_do_not_pass_are_left_out(
    bugs: Path, audit: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out.jsonl"
    argv = (bugs, "--format", "sft", "--out", out, "--audit", audit)
    assert codes(report_of(capsys, *argv)) == {SkipCode.NOT_SOUND: 4}
    assert {row["task_id"] for row in lines(out)} == {"t1", "t2", "t4", "t5", "t6"}
    report = report_of(capsys, *argv, "--min-sharpness", "0.81")
    left_out = {SkipCode.NOT_SOUND: 4, SkipCode.NOT_AUDITED: 4, SkipCode.SHARPNESS_UNKNOWN: 2, SkipCode.NOT_SHARP: 2}
    assert codes(report) == left_out
    assert {row["task_id"] for row in lines(out)} == {"t1"}


def test_the_sharpness_is_a_column_that_is_null_if_unknown(bugs: Path, audit: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert export(bugs, "--format", "sft", "--out", out, "--audit", audit) == 0
    found = {row["task_id"]: row["audit"] for row in lines(out / "data" / "train.jsonl")}
    assert found == {"t1": 1.0, "t2": 0.8, "t4": None, "t5": None, "t6": None}
    card = (out / "README.md").read_text()
    assert "- name: audit\n" in card
    assert export(bugs, "--format", "sft", "--out", tmp_path / "plain.jsonl") == 0
    assert all("audit" not in row for row in lines(tmp_path / "plain.jsonl"))


@pytest.mark.parametrize(
    ("form", "path"),
    [("rollouts", ("task",)), ("atif", ("extra", "task")), ("kto", ()), ("slime-samples", ("metadata",))],
)
def test_each_format_of_rollouts_has_the_sharpness_in_its_place(
    bugs: Path, audit: Path, tmp_path: Path, form: str, path: tuple[str, ...]
) -> None:
    out = tmp_path / "out.jsonl"
    keep(bugs, "ff" * 12, False, task="t2", attempt=2, commands=("rm", "rm"))
    assert export(bugs, "--format", form, "--out", out, "--audit", audit, "--min-sharpness", "0.5") == 0
    values = []
    for row in lines(out):
        for name in path:
            row = row[name]
        values.append(row["audit"])
    assert set(values) <= {1.0, 0.8}
    assert 0.8 in values


def test_exported_rollouts_with_a_sharpness_are_a_source_again(bugs: Path, audit: Path, tmp_path: Path) -> None:
    assert export(bugs, "--format", "rollouts", "--out", tmp_path / "r.jsonl", "--audit", audit) == 0
    assert export(tmp_path / "r.jsonl", "--format", "sft", "--out", tmp_path / "s.jsonl") == 0
    assert len(lines(tmp_path / "s.jsonl")) == len(lines(tmp_path / "r.jsonl")) == 10


def test_rollouts_of_injectors_count_to_their_bug_and_those_without_a_bug_stay(
    bugs: Path, audit: Path, tmp_path: Path
) -> None:
    for number, bug in enumerate(("t2", "t3", None)):
        injected(bugs, number, bug)
    out, again = tmp_path / "out.jsonl", tmp_path / "again.jsonl"
    more = ("--role", "injector", "--audit", audit, "--min-sharpness", "0.5")
    assert export(bugs, "--format", "rollouts", "--out", out, *more) == 0
    assert {row["task"].get("artifact"): row["task"]["audit"] for row in lines(out)} == {"t2": 0.8, None: None}
    assert export(out, "--format", "rollouts", "--out", again, *more) == 0
    assert lines(again) == lines(out)
    assert export(bugs, "--format", "atif", "--out", out, *more) == 0
    found = {row["extra"]["task"].get("artifact"): row["extra"]["task"]["audit"] for row in lines(out)}
    assert found == {"t2": 0.8, None: None}


def injected(folder: Path, number: int, bug: str | None) -> None:
    """Store an injector's rollout, and the result of the bug that it made, if any."""
    status = CandidateStatus.REJECTED if bug is None else CandidateStatus.VALID
    result = CandidateResult(number, status, "removal", "m", "calc.py", 1, "", "submitted", f"diff {number}")
    attempts = folder / "attempts" / "model-campaign"
    attempts.mkdir(parents=True, exist_ok=True)
    known = {"artifact_id": bug} if bug is not None else {}
    (attempts / f"{number:05}.json").write_text(json.dumps({**result.to_json(), **known, "spent": {}}))
    name = key_of("campaign", number)
    keep(folder, name, None, role="injector", task="a" * 40)
    (folder / "rollouts" / name / "rollout.json").unlink()


@pytest.mark.parametrize("name", [name for name, form in FORMATS.items() if form.instance_row is not None])
def test_datasets_are_filtered_and_their_rows_stay_readable(name: str, tmp_path: Path) -> None:
    _, rows = write_project(tmp_path / "instances")
    dataset = written(tmp_path / "rows.jsonl", rows)
    audit = write_cards(tmp_path / "cards.jsonl", [clean(FIRST, sharp=sharpness(8, 2)), unsound(SECOND)])
    out = tmp_path / ("out" if name == "harbor" else "out.jsonl")
    image = ["--image", "mine:1"] if name == "harbor" else []
    assert export(dataset, "--format", name, "--out", out, "--audit", audit, *image) == 0
    if name == "harbor":
        assert [path.parent.name for path in out.rglob("task.toml")] == [FIRST]
        return
    (row,) = lines(out)
    place = {"slime-prompts": "metadata", "verl-prompts": "extra_info", "swe-rl": "metadata"}.get(name)
    if name == "skyrl-prompts":
        assert "audit" not in json.dumps(row), "its reader takes no other column"
    else:
        assert (row[place] if place else row)["audit"] == 0.8


def test_every_format_with_columns_about_tasks_has_room() -> None:
    without = {name for name, form in FORMATS.items() if not form.facts and "solve_rate" not in form.columns}
    assert without == {"skyrl-prompts", "artifacts", "harbor"}
