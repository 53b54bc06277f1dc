"""`ssr export` on handmade stores: finding, filtering, splitting, writing and reporting."""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import fsspec
import pyarrow.parquet as pq
import pytest
import zstandard
from export_parts import export, lines, report_of
from rollout_parts import AS_TOLD, add_task, keep, store

from harness.exporters import dataset_writer, licences, splits
from harness.exporters.formats import FORMATS
from harness.exporters.protocol import TEXT, Choices, Format, Group
from harness.exporters.skipped import SkipCode
from harness.records.attempt import Attempt
from harness.records.trajectory import ExitReason
from harness.selfplay.project_play import _hash
from pytest_ssr.errors import SettingsError
from pytest_ssr.records.artifact import FIVE_FILES
from pytest_ssr.records.candidate_result import CandidateResult, CandidateStatus
from pytest_ssr.storage.store import key_of


@pytest.fixture
def sample_store(tmp_path: Path) -> Path:
    """A store with tasks of two projects; the first has a resolved, an unresolved and an ungraded attempt."""
    folder = store(tmp_path / "project" / ".ssr")
    add_task(folder, "t1", "calc")
    add_task(folder, "t2", "other", "b" * 40, injector={"strategy": "removal"})
    keep(folder, "a" * 24, True, commands=("ls", "make"))
    keep(folder, "b" * 24, False, commands=("ls", "rm"), attempt=1)
    keep(folder, "c" * 24, None, commands=("ls",), attempt=2, end=ExitReason.INFRA)
    keep(folder, "d" * 24, True, task="t2", commands=("a", "b", "c"), ids=False)
    return folder


def test_a_store_is_found_by_its_path_and_by_its_project(sample_store: Path, tmp_path: Path) -> None:
    assert export(sample_store, "--format", "rollouts", "--out", tmp_path / "a") == 0
    assert export(sample_store.parent, "--format", "rollouts", "--out", tmp_path / "b") == 0
    assert (tmp_path / "a/data/train.jsonl").read_bytes() == (tmp_path / "b/data/train.jsonl").read_bytes()
    assert (tmp_path / "a/README.md").read_bytes() == (tmp_path / "b/README.md").read_bytes()


def test_the_canonical_record_is_a_source_for_every_format(sample_store: Path, tmp_path: Path) -> None:
    export(sample_store, "--format", "rollouts", "--out", tmp_path / "all.jsonl")
    for name in ("rollouts", "sft", "sft-tokens", "bc", "dpo", "kto", "grpo", "slime-samples"):
        assert export(sample_store, "--format", name, "--out", tmp_path / "from-store" / name) == 0
        assert export(tmp_path / "all.jsonl", "--format", name, "--out", tmp_path / "from-file" / name) == 0
        one, other = (tmp_path / at / name / "data/train.jsonl" for at in ("from-store", "from-file"))
        assert one.read_bytes() == other.read_bytes()


def test_a_failure_of_the_machine_has_no_reward_and_no_effect_on_the_solve_rate(
    sample_store: Path, tmp_path: Path
) -> None:
    export(sample_store, "--format", "rollouts", "--out", tmp_path / "all.jsonl")
    records = {r["rollout_id"][0]: r for r in lines(tmp_path / "all.jsonl")}
    assert [records[n]["reward"] for n in "abcd"] == [1.0, -1.0, None, 1.0]
    assert [records[n]["status"] for n in "abcd"] == ["completed", "completed", "aborted", "completed"]
    assert (records["a"]["task"]["solve_rate"], records["a"]["task"]["graded"]) == (0.5, 2)
    expected = {
        "resolved": None,
        "tests": None,
        "rule": "strict",
        "reason": AS_TOLD.text,
        "reason_code": "tests-fail",
        "infra": True,
    }
    # All fields of the attempt's record are there, except those that the row has itself.
    assert {field.name for field in fields(Attempt)} - {"reward", "flags"} <= records["c"]["verdict"].keys()
    assert {name: records["c"]["verdict"][name] for name in expected} == expected
    assert records["a"]["task"]["strategy"] == "mutation"
    assert records["a"]["patch"] == "diff --git a/x b/x\n"


def test_a_grade_of_an_aborted_rollout_is_not_a_reward(sample_store: Path, tmp_path: Path) -> None:
    path = sample_store / "rollouts" / ("c" * 24) / "rollout.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"resolved": False, "reward": -1.0}))
    export(sample_store, "--format", "rollouts", "--out", tmp_path / "all.jsonl")
    (record,) = (r for r in lines(tmp_path / "all.jsonl") if r["rollout_id"][0] == "c")
    assert record["reward"] is None
    assert record["task"]["solve_rate"] == 0.5


def test_skipped_rollouts_are_reported_with_a_reason(
    sample_store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = report_of(capsys, sample_store, "--format", "sft", "--out", tmp_path / "sft")
    assert data["rows"] == 2
    assert {(e["reason"].split(":")[0], e["count"]) for e in data["left_out"]} == {
        ("it has no reward", 1),
        ("its reward is not above 0, and training would imitate it (--min-reward)", 1),
    }
    assert data["left_out"][0]["examples"] == ["c" * 24 + f": {AS_TOLD.text}"]
    card = (tmp_path / "sft/README.md").read_text()
    assert f"| {SkipCode.NO_GRADE.text} | 1 |" in card
    assert "as told" not in card


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        (["--role", "solver"], "abcd"),
        (["--role", "injector"], ""),
        (["--model", "m"], "abcd"),
        (["--model", "another"], ""),
        (["--strategy", "removal,history"], "d"),
        (["--min-reward", "0"], "ad"),
        (["--max-reward", "0"], "b"),
        (["--min-solve-rate", "0.6"], "d"),
        (["--max-solve-rate", "0.6"], "abc"),
        (["--min-calls", "3"], "d"),
        (["--max-calls", "1"], "c"),
        (["--max-tokens", "95"], "c"),
        (["--on-policy"], "abc"),
        (["--no-flags"], "acd"),
    ],
)
def test_filters(sample_store: Path, tmp_path: Path, argv: list[str], expected: str) -> None:
    path = sample_store / "rollouts" / ("b" * 24) / "rollout.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"flags": ["tests-restored"]}))
    code = export(sample_store, "--format", "rollouts", "--out", tmp_path / "all.jsonl", *argv)
    assert code == (0 if expected else 1)
    records = lines(tmp_path / "all.jsonl") if expected else []
    assert "".join(sorted(r["rollout_id"][0] for r in records)) == expected


def test_failures_are_exported_for_imitation_only_on_request(sample_store: Path, tmp_path: Path) -> None:
    export(sample_store, "--format", "sft", "--out", tmp_path / "sft.jsonl", "--min-reward", "-1")
    assert sorted(r["reward"] for r in lines(tmp_path / "sft.jsonl")) == [-1.0, 1.0, 1.0]


def test_all_rows_of_a_project_are_in_one_part(tmp_path: Path) -> None:
    folder = store(tmp_path / "s")
    for n in range(12):
        add_task(folder, f"t{n}", f"project-{n % 6}", f"{n:040x}")
        keep(folder, f"{n:024x}", True, task=f"t{n}")
    assert export(folder, "--format", "sft", "--out", tmp_path / "sft", "--splits", "train=0.5,test=0.5") == 0
    parts = {p.stem: {r["repository"] for r in lines(p)} for p in (tmp_path / "sft/data").iterdir()}
    assert set(parts) == {"train", "test"}
    assert not parts["train"] & parts["test"]
    assert len(parts["train"] | parts["test"]) == 6
    # A new project does not move the others.
    add_task(folder, "new", "a-new-one", "f" * 40)
    keep(folder, "f" * 24, True, task="new")
    export(folder, "--format", "sft", "--out", tmp_path / "sft", "--splits", "train=0.5,test=0.5")
    again = {p.stem: {r["repository"] for r in lines(p)} for p in (tmp_path / "sft/data").iterdir()}
    assert {p: names - {"a-new-one"} for p, names in again.items()} == parts


def test_projects_that_share_a_tree_count_as_one() -> None:
    for seed in range(20):
        parts = splits.Splits.parse("train=0.5,test=0.5", seed)
        parts.learn([("a", "1"), ("b", "1"), ("b", "2"), ("c", "2"), ("d", "3")])
        assert parts.of("a") == parts.of("b") == parts.of("c")
    assert parts.of("") is None
    assert splits.Splits.parse("").of("") == "train"
    shares = [splits.Splits.parse("train=0.8,test=0.2").of(f"p{n}") for n in range(2000)]
    assert 0.77 < shares.count("train") / 2000 < 0.83


@pytest.mark.parametrize("text", ["train", "train=x", "train=0.5", "a=0.5,a=0.5", "a=2,b=-1", "a/b=1", "a=nan,b=1"])
def test_invalid_splits_are_rejected(text: str) -> None:
    with pytest.raises(SettingsError, match="--splits"):
        splits.Splits.parse(text)


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--format", "sft", "--out", "x", "--role", "judge"], "--role must be injector or solver, not 'judge'"),
        (["--format", "sft", "--out", "x", "--min-reward", "1", "--max-reward", "0"], "--min-reward 1 is more than"),
        (["--format", "sft", "--out", "x", "--min-solve-rate", "2"], "--min-solve-rate must lie in [0, 1], not 2"),
        (["--format", "sft", "--out", "x", "--max-calls", "-1"], "--max-calls must be at least 0, not -1"),
        (["--format", "sft", "--out", "x", "--min-reward", "nan"], "--min-reward must be a number"),
        (["--format", "swe-bench", "--out", "x", "--on-policy"], "--on-policy is for rollouts"),
        (["--format", "slime-prompts", "--out", "x"], "slime-prompts needs --image"),
        (["--format", "sft", "--out", "x", "--image", "y"], "--image has no effect on sft"),
        (["--format", "bc", "--out", "x", "--samples", "segment"], "--samples has no effect on bc"),
        (["--format", "swe-bench", "--out", "x", "--owner", "a/b"], "--owner 'a/b' is not a valid repository owner"),
        (["--format", "sft", "--out", "x.jsonl", "--as", "parquet"], "contradict each other"),
        (["--format", "sft", "--out", "x.tar"], "this format is written as jsonl, jsonl.zst, parquet, not as tar"),
        (["--format", "artifacts", "--out", "x.jsonl"], "this format is written as tar, tar.zst, not as jsonl"),
        (["--format", "sft", "--out", "x.jsonl", "--splits", "a=0.5,b=0.5"], "--splits writes several files"),
        (
            ["--format", "sft", "--out", "x", "--licence", "MIT"],
            "--licence 'MIT' is not PROJECT=LICENCE; use PROJECT=MIT",
        ),
        (["--format", "sft", "--out", ""], "--out '' is not a path"),
        (["--format", "sft", "--out", "nowhere://x/y"], "--out nowhere://x/y"),
    ],
)
def test_a_usage_error_is_one_line(
    sample_store: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    argv: list[str],
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    keep(sample_store, "e" * 24, True)
    (sample_store / "artifacts/t1/bug_inject.diff").write_text("")
    assert export(sample_store, *argv) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert sorted(p.name for p in tmp_path.iterdir()) == ["project"]


def test_an_invalid_source_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "x.txt").write_text("")
    for source, message in (
        (tmp_path, "is not a store and contains none"),
        ("gone", "does not exist"),
        ("s3://bucket/rollouts.jsonl", "is not on this machine"),
        (tmp_path / "x.txt", ".jsonl"),
    ):
        assert export(source, "--format", "sft", "--out", tmp_path / "out") == 2
        assert message in capsys.readouterr().err


def test_nothing_to_export_exits_with_1(sample_store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert export(sample_store, "--format", "sft", "--out", tmp_path / "out", "--model", "none") == 1
    assert "nothing to export as sft; nothing is written" in capsys.readouterr().out
    assert not (tmp_path / "out").exists()


def test_damaged_rollouts_are_reported_and_the_rest_is_exported(
    sample_store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, text in (
        ("empty", ""),
        ("half", '{"event": "rollout", "schema": "ssr'),
        ("binary", "\0\1"),
        ("list", "[]\n"),
        ("other", '{"event": "rollout", "schema": "ssr.rollout/9"}\n'),
        ("big", '{"event": "rollout", "schema": "ssr.rollout/1", "rollout_id": ' + "9" * 5000 + "}\n"),
        ("deep", "[" * 100_000),
    ):
        (sample_store / "rollouts" / name).mkdir()
        (sample_store / "rollouts" / name / "trajectory.jsonl").write_text(text)
    path = sample_store / "rollouts" / ("b" * 24) / "trajectory.jsonl"
    whole = path.read_text().splitlines()
    path.write_text("\n".join([*whole[:2], "nonsense", *whole[2:]]))
    spoilt = sample_store / "rollouts" / ("d" * 24) / "trajectory.jsonl"
    spoilt.write_text(spoilt.read_text().replace("output of a", "\\ud800"))
    (sample_store / "artifacts/t2/artifact.json").write_text('{"repository": ["x"]}')
    (sample_store / "episodes/run").mkdir(parents=True)
    (sample_store / "episodes/run/round-001-001.json").write_text('{"episodes": [1, {"schema_version": 3}]}')
    data = report_of(capsys, sample_store, "--format", "rollouts", "--out", tmp_path / "all.jsonl")
    assert [r["rollout_id"][0] for r in lines(tmp_path / "all.jsonl")] == ["a", "c"]
    (damaged,) = (e for e in data["left_out"] if e["reason"] == "the record is damaged")
    assert damaged["count"] == 7 + 2 + 1 + 2


def test_hostile_records_are_reported_as_damaged(
    sample_store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    export(sample_store, "--format", "rollouts", "--out", tmp_path / "all.jsonl")
    (good, *_) = lines(tmp_path / "all.jsonl")
    hostile = [
        good | {"rollout_id": "h1", "policy": {"model": "\udc80"}},
        good | {"rollout_id": "h2", "policy": 5},
        good | {"rollout_id": "h3", "task": {"repository": "\udc80"}},
        good | {"rollout_id": "h4", "attempt": 10**30},
        good | {"rollout_id": "h5", "messages": 1},
        good | {"rollout_id": "h6", "reward": 10**400},
        good | {"rollout_id": "h7", "task": {**good["task"], "solve_rate": "x"}},
    ]
    text = "".join(json.dumps(h) + "\n" for h in hostile) + "[1]\n{\n" + "[" * 100_000 + "\n"
    (tmp_path / "hostile.jsonl").write_text(text)
    os.mkdir(os.fsencode(sample_store / "rollouts") + b"/\xff")
    (sample_store / "rollouts" / os.fsdecode(b"\xff") / "trajectory.jsonl").write_text("x")
    _injection(sample_store, 0, operator="\udc80")
    _episodes(sample_store, [{"artifact_id": "t1", "change": "\udc80"}])
    for name in ("rollouts", "sft", "dpo", "grpo"):
        data = report_of(capsys, sample_store, tmp_path / "hostile.jsonl", "--format", name, "--out", tmp_path / name)
        (damaged,) = (e for e in data["left_out"] if e["reason"] == "the record is damaged")
        assert damaged["count"] == 12
    assert [r["rollout_id"][0] for r in lines(tmp_path / "rollouts/data/train.jsonl")][1:] == [*"abcd"]


def test_a_truncated_trajectory_is_interrupted(sample_store: Path, tmp_path: Path) -> None:
    path = sample_store / "rollouts" / ("a" * 24) / "trajectory.jsonl"
    path.write_bytes(path.read_bytes()[:-100])
    export(sample_store, "--format", "rollouts", "--out", tmp_path / "all.jsonl")
    (record,) = (r for r in lines(tmp_path / "all.jsonl") if r["rollout_id"][0] == "a")
    assert (record["status"], record["exit_reason"], record["reward"]) == ("aborted", "interrupted", None)


def test_a_duplicate_rollout_is_exported_once(
    sample_store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = store(tmp_path / "twin")
    keep(other, "a" * 24, False)
    # A replay is in another folder than its rollout, which takes precedence whatever the names.
    shutil.copytree(sample_store / "rollouts" / ("b" * 24), sample_store / "rollouts" / "0replay")
    path = sample_store / "rollouts/0replay/rollout.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"resolved": True, "reward": 1.0}))
    data = report_of(capsys, sample_store, other, "--format", "rollouts", "--out", tmp_path / "all.jsonl")
    records = lines(tmp_path / "all.jsonl")
    assert [(r["rollout_id"][0], r["reward"]) for r in records] == [("a", 1.0), ("b", -1.0), ("c", None), ("d", 1.0)]
    assert data["left_out"][0]["count"] == 2


def test_a_judge_s_reward_comes_from_the_episode(sample_store: Path, tmp_path: Path) -> None:
    path = sample_store / "rollouts" / ("a" * 24) / "rollout.json"
    judged = json.loads(path.read_text()) | {"reward": 1.25, "score": 0.25}
    _episodes(sample_store, [{"artifact_id": "t1", "valid": True, "rollouts": [judged]}])
    export(sample_store, "--format", "rollouts", "--out", tmp_path / "all.jsonl")
    (record,) = (r for r in lines(tmp_path / "all.jsonl") if r["rollout_id"][0] == "a")
    assert record["reward"] == 1.25
    assert record["reward_components"] == {"resolved": 1.0, "judge": 0.25}


def test_a_judge_s_reward_comes_from_the_rollout_without_an_episode(sample_store: Path, tmp_path: Path) -> None:
    path = sample_store / "rollouts" / ("a" * 24) / "rollout.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"reward": 1.25, "score": 0.25}))
    export(sample_store, "--format", "rollouts", "--out", tmp_path / "all.jsonl")
    (record,) = (r for r in lines(tmp_path / "all.jsonl") if r["rollout_id"][0] == "a")
    assert (record["reward"], record["reward_components"]) == (1.25, {"resolved": 1.0, "judge": 0.25})


def _episodes(folder: Path, several: list[dict[str, Any]], run: str = "run") -> None:
    whole = {
        "schema_version": 3,
        "project": "calc (/home/somebody/calc)",
        "artifact_id": "",
        "round": 1,
        "order": 1,
        "parent": "",
        "strategy": "removal",
        "operator": "m",
        "path": "calc.py",
        "scope": "",
        "lines": 2,
        "fail_to_pass": 1,
        "valid": False,
        "reason": "",
        "change": "",
        "rollouts": [],
    }
    (folder / "episodes" / run).mkdir(parents=True)
    text = json.dumps({"episodes": [{**whole, **e} for e in several]})
    (folder / "episodes" / run / "round-001-001.json").write_text(text)


def _injection(folder: Path, index: int, **fields: Any) -> str:
    """Store a candidate result of a model's campaign and its rollout; return the rollout's id."""
    name = key_of("campaign", index)
    attempt = CandidateResult(
        index, CandidateStatus.REJECTED, "removal", "m", "calc.py", 1, "", "submitted", f"diff {index}"
    )
    attempts = folder / "attempts/model-campaign"
    attempts.mkdir(parents=True, exist_ok=True)
    (attempts / f"{index:05}.json").write_text(json.dumps({**attempt.to_json(), **fields, "spent": {}}))
    keep(folder, name, None, role="injector", task="a" * 40)
    (folder / "rollouts" / name / "rollout.json").unlink()
    return name


def test_an_injector_s_reward_is_its_episode_s_or_minus_one_for_a_rejected_bug(
    sample_store: Path, tmp_path: Path
) -> None:
    rejected = _injection(sample_store, 0, check="bug-scope", reason="nothing")
    valid = _injection(sample_store, 1, status="valid", artifact_id="t1")
    again = _injection(sample_store, 2, status="valid", artifact_id="t1")
    unplayed = _injection(sample_store, 3, status="valid", artifact_id="t2")
    path = sample_store / "artifacts/t1/artifact.json"
    info = json.loads(path.read_text())
    path.write_text(json.dumps(info | {"injector": {"strategy": "removal", "rollout": valid}}))
    shutil.rmtree(sample_store / "artifacts/t2")
    _episodes(
        sample_store,
        [
            {"artifact_id": "t1", "valid": True, "change": _hash("diff 1"), "injector_reward": 0.1},
            {"artifact_id": "t1", "valid": True, "change": _hash("diff 2"), "repeated": True, "injector_reward": None},
            {"change": _hash("diff 0"), "injector_reward": -1.0},
        ],
    )
    export(sample_store, "--format", "rollouts", "--role", "injector", "--out", tmp_path / "all.jsonl")
    records = {r["rollout_id"]: r for r in lines(tmp_path / "all.jsonl")}
    assert {n: records[n]["reward"] for n in records} == {rejected: -1.0, valid: 0.1, again: None, unplayed: None}
    assert records[rejected]["verdict"] == {"valid": False, "reason": "bug-scope: nothing", "infra": False}
    assert records[again]["flags"] == ["made-before"]
    assert {r["task"]["repository"] for r in records.values()} == {"calc"}
    # A run with other settings gives another reward: neither can be preferred.
    _episodes(
        sample_store,
        [{"artifact_id": "t1", "valid": True, "change": _hash("diff 1"), "injector_reward": 0.5}],
        run="second",
    )
    export(sample_store, "--format", "rollouts", "--role", "injector", "--out", tmp_path / "all.jsonl")
    (updated,) = (r for r in lines(tmp_path / "all.jsonl") if r["rollout_id"] == valid)
    assert (updated["reward"], updated["flags"]) == (None, ["rewards-differ"])


def test_the_project_of_a_rejected_bug_comes_from_the_episodes(tmp_path: Path) -> None:
    folder = store(tmp_path / "s")
    _injection(folder, 0)
    _episodes(folder, [{"change": _hash("diff 0")}])
    export(folder, "--format", "rollouts", "--out", tmp_path / "all.jsonl")
    (record,) = lines(tmp_path / "all.jsonl")
    assert record["task"]["repository"] == "calc"
    assert "somebody" not in (tmp_path / "all.jsonl").read_text()


def test_the_project_comes_from_the_rollout_if_no_artifact_names_it(tmp_path: Path) -> None:
    folder = store(tmp_path / "s")
    for n, name in enumerate(("owner/name", "")):
        path = keep(folder, f"{n:024x}", True) / "trajectory.jsonl"
        path.write_text(
            path.read_text().replace('"provenance": {}', json.dumps({"provenance": {"repository": name}})[1:-1])
        )
    argv = ["--format", "sft", "--out", tmp_path / "out", "--splits", "train=0.5,test=0.5"]
    assert export(folder, *argv) == 0
    (part,) = (tmp_path / "out/data").iterdir()
    # The project of the other rollout is unknown: it must be in neither part.
    assert [r["repository"] for r in lines(part)] == ["owner/name"]
    assert "| its project is unknown, so it belongs to no split | 1 |" in (tmp_path / "out/README.md").read_text()


def test_rows_that_name_no_project_are_split_by_that_of_their_rollout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def rows(group: Group, choices: Choices) -> Iterator[dict[str, Any]]:
        for record in group.records():
            yield {"id": record.id}

    monkeypatch.setitem(FORMATS, "bare", Format("bare", "nobody", {"id": TEXT}, rows))  # type: ignore[arg-type]
    folder = store(tmp_path / "s")
    for n, name in enumerate(("owner/name", "")):
        path = keep(folder, f"{n:024x}", True) / "trajectory.jsonl"
        path.write_text(
            path.read_text().replace('"provenance": {}', json.dumps({"provenance": {"repository": name}})[1:-1])
        )
    assert export(folder, "--format", "bare", "--out", tmp_path / "out", "--splits", "train=0.5,test=0.5") == 0
    (part,) = (tmp_path / "out/data").iterdir()
    assert lines(part) == [{"id": f"{0:024x}"}]


def test_zstandard_and_parquet_contain_the_same_rows(sample_store: Path, tmp_path: Path) -> None:
    for name in ("jsonl", "jsonl.zst", "parquet"):
        assert export(sample_store, "--format", "bc", "--out", tmp_path / name, "--as", name) == 0
        assert export(sample_store, "--format", "bc", "--out", tmp_path / f"again.{name}") == 0
        once, again = tmp_path / name / f"data/train.{name}", tmp_path / f"again.{name}"
        assert once.read_bytes() == again.read_bytes()
    expected = lines(tmp_path / "jsonl/data/train.jsonl")
    with zstandard.open(tmp_path / "jsonl.zst/data/train.jsonl.zst", "rt", encoding="utf-8") as file:
        assert [json.loads(line) for line in file] == expected
    table = pq.read_table(tmp_path / "parquet/data/train.parquet").to_pylist()
    texts = ("prompt", "completion", "tools")
    assert [{k: [json.loads(i) for i in v] if k in texts else v for k, v in row.items()} for row in table] == expected


def test_an_export_can_be_written_to_fsspec_urls(sample_store: Path, tmp_path: Path) -> None:
    export(sample_store, "--format", "sft", "--out", tmp_path / "sft")
    assert export(sample_store, "--format", "sft", "--out", "memory://bucket/sft") == 0
    assert export(sample_store, "--format", "sft", "--out", "memory://bucket/rows.jsonl") == 0
    system = fsspec.filesystem("memory")
    assert sorted(system.find("/bucket")) == [
        "/bucket/rows.jsonl",
        "/bucket/rows.jsonl.md",
        "/bucket/sft/README.md",
        "/bucket/sft/SHA256SUMS",
        "/bucket/sft/data/train.jsonl",
    ]
    assert system.cat("/bucket/sft/data/train.jsonl") == (tmp_path / "sft/data/train.jsonl").read_bytes()
    assert system.cat("/bucket/sft/README.md") == (tmp_path / "sft/README.md").read_bytes()


def test_a_missing_package_is_reported(
    sample_store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    find = dataset_writer.importlib.util.find_spec
    missing = ("pyarrow", "zstandard", "fsspec")
    monkeypatch.setattr(dataset_writer.importlib.util, "find_spec", lambda n: None if n in missing else find(n))
    for out, extra in (("x.parquet", "parquet"), ("x.jsonl.zst", "export"), ("memory://x/y", "export")):
        assert export(sample_store, "--format", "sft", "--out", out if "://" in out else tmp_path / out) == 2
        assert f"pip install 'pytest-ssr[{extra}]'" in capsys.readouterr().err


def test_only_an_export_is_overwritten(sample_store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    assert export(sample_store, "--format", "sft", "--out", out, "--as", "parquet") == 0
    assert export(sample_store, "--format", "sft", "--out", out) == 0
    assert sorted(str(p.relative_to(out)) for p in out.rglob("*")) == [
        "README.md",
        "SHA256SUMS",
        "data",
        "data/train.jsonl",
    ]
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/notes.txt").write_text("x")
    (tmp_path / "mine/README.md").write_text("# mine")
    assert export(sample_store, "--format", "sft", "--out", tmp_path / "mine") == 2
    assert "exists and is not an export; choose another path, or remove it" in capsys.readouterr().err
    assert (tmp_path / "mine/notes.txt").read_text() == "x"
    (tmp_path / "x.jsonl").mkdir()
    assert export(sample_store, "--format", "sft", "--out", tmp_path / "x.jsonl") == 2
    assert export(sample_store, "--format", "sft", "--out", tmp_path / "mine/notes.txt") == 2


@pytest.mark.parametrize("container", ["jsonl", "jsonl.zst", "parquet", "tar", "tar.zst"])
def test_a_full_disk_leaves_the_destination_unchanged(sample_store: Path, tmp_path: Path, container: str) -> None:
    """A limit on the size of a process's files simulates the full disk."""
    is_tar = container.startswith("tar")
    for name in ("t1", "t2"):
        for file in FIVE_FILES:
            text = random.Random(name).randbytes(4000).hex() if file.endswith(".sh") else ""
            (sample_store / "artifacts" / name / file).write_text("tests/t.py\n" if file.endswith("txt") else text)
    for n in range(30):
        reply = random.Random(n).randbytes(200).hex()
        keep(sample_store, f"{n:024x}", True, commands=["ls"] * 3, said=reply)
    out = tmp_path / "out"
    argv = ["--format", "artifacts" if is_tar else "bc", "--out", str(out), "--as", container]
    assert export(sample_store, *argv) == 0
    before = {p.name: p.read_bytes() for p in out.rglob("*") if p.is_file()}
    program = (
        "import resource, sys; from harness.cli.main import main; "
        "resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096)); sys.exit(main(sys.argv[1:]))"
    )
    for target in (out, tmp_path / f"new.{container}"):
        argv[3] = str(target)
        # A later import would read truncated compiled files.
        command = [sys.executable, "-B", "-W", "error", "-c", program, "export", str(sample_store), *argv]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        # On a busy machine, lines of progress come before.
        assert (done.returncode, "Traceback" in done.stderr) == (3, False), done.stderr
        assert "cannot write" in done.stderr.splitlines()[-1]
    assert {p.name: p.read_bytes() for p in out.rglob("*") if p.is_file()} == before
    assert sorted(p.name for p in tmp_path.iterdir()) == ["out", "project"]


@pytest.mark.long
def test_a_kill_leaves_no_destination_and_the_next_export_cleans_up(sample_store: Path, tmp_path: Path) -> None:
    for n in range(300):
        keep(sample_store, f"{n:024x}", True, task="t1", commands=["ls"] * 20)
    out = tmp_path / "out"
    command = [sys.executable, "-m", "harness.cli", "export", str(sample_store), "--format", "bc", "--out", str(out)]
    running = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        begun = [p for p in tmp_path.glob(".out.*/data/train.jsonl") if p.stat().st_size]
        if begun:
            break
        time.sleep(0.01)
    running.send_signal(signal.SIGKILL)
    assert running.wait(20) == -signal.SIGKILL
    assert begun
    assert not out.exists()
    assert len(list(tmp_path.glob(".out.*"))) == 1
    assert export(sample_store, "--format", "sft", "--out", out, "--model", "m", "--min-calls", "20") == 0
    assert sorted(p.name for p in tmp_path.iterdir()) == ["out", "project"]


def test_the_card_lists_the_origin_of_the_rows(sample_store: Path, tmp_path: Path) -> None:
    tree = sample_store / "trees" / ("a" * 40) / "tree"
    tree.mkdir(parents=True)
    (tree / "LICENSE").write_text("MIT License\n\nPermission is hereby granted, free of charge, to any person")
    out = tmp_path / "out"
    export(sample_store, "--format", "sft", "--out", out, "--licence", "other=Apache-2.0")
    card = (out / "README.md").read_text()
    assert "| calc | MIT | train 1 |" in card
    assert "| other | Apache-2.0 | train 1 |" in card
    assert "license: other\n" in card
    digest = hashlib.sha256((out / "data/train.jsonl").read_bytes()).hexdigest()
    assert f"| `data/train.jsonl` | 2 | {(out / 'data/train.jsonl').stat().st_size} | `{digest}` |" in card
    assert "On-policy (token ids and log-probabilities of every sampled reply are there): 1 of 2 rows." in card
    assert str(tmp_path) not in card


def test_a_hostile_name_cannot_change_the_card(tmp_path: Path) -> None:
    folder = store(tmp_path / "s")
    add_task(folder, "t1", "x | y <script>\n---\nlicense: mit")
    keep(folder, "a" * 24, True)
    export(folder, "--format", "sft", "--out", tmp_path / "out")
    card = (tmp_path / "out/README.md").read_text()
    assert "| x \\| y &lt;script> --- license: mit | unknown | train 1 |" in card
    assert card.count("\n---\n") == 1


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"pyproject.toml": '[project]\nlicense = "BSD-3-Clause"'}, "BSD-3-Clause"),
        ({"pyproject.toml": '[project]\nlicense = {text = "MIT"}'}, "MIT"),
        ({"pyproject.toml": '[project]\nlicense = {file = "LICENSE"}', "LICENSE": "MIT License"}, "MIT"),
        ({"pyproject.toml": "nonsense", "COPYING": "GNU GENERAL PUBLIC LICENSE\n  Version 3"}, "GPL-3.0"),
        ({"LICENSE.rst": "Apache License\n   Version 2.0, January 2004"}, "Apache-2.0"),
        ({"LICENSE": "Redistribution and use in source and binary forms ... Neither the name of"}, "BSD-3-Clause"),
        ({"LICENSE": "all mine"}, "unknown"),
        ({}, "unknown"),
    ],
)
def test_licences(tmp_path: Path, files: dict[str, str], expected: str) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    assert licences.licence_of([tmp_path / "gone", tmp_path]) == expected


def test_sources_are_only_read(sample_store: Path, tmp_path: Path) -> None:
    def seen() -> list[tuple[str, int]]:
        return sorted((str(p), p.stat().st_mtime_ns) for p in sample_store.rglob("*"))

    before = seen()
    for name in ("rollouts", "sft", "dpo"):
        export(sample_store, "--format", name, "--out", tmp_path / name)
    assert seen() == before


def test_an_artifact_with_a_path_as_tree_hash_is_skipped(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = store(tmp_path / "s")
    add_task(folder, "t1", "calc", "../../../etc")
    assert export(folder, "--format", "swe-bench", "--out", tmp_path / "out") == 1
    assert "tree_hash of the artifact is not a hash" in capsys.readouterr().out


def test_tars_are_reproducible(tmp_path: Path, sample_store: Path) -> None:
    shutil.rmtree(sample_store / "artifacts/t2")
    for name in FIVE_FILES:
        (sample_store / "artifacts/t1" / name).write_text("tests/test_x.py\n" if name.endswith("txt") else "")
    for name in ("a", "b"):
        assert export(sample_store, "--format", "artifacts", "--out", tmp_path / f"{name}.tar") == 0
        os.utime(sample_store / "artifacts/t1/test_script.sh", (1, 1))
    assert (tmp_path / "a.tar").read_bytes() == (tmp_path / "b.tar").read_bytes()
    with tarfile.open(tmp_path / "a.tar") as tar:
        assert tar.getnames() == [f"t1/{n}" for n in (*FIVE_FILES, "artifact.json")]
        assert {m.mtime for m in tar} == {0}


@pytest.mark.parametrize(
    ("source", "out"),
    [
        ("all.jsonl", "all.jsonl"),
        ("d/data/train.jsonl", "d"),
        ("project/.ssr", "project"),
        ("project", "project/.ssr/x"),
    ],
)
def test_a_source_is_not_overwritten(
    sample_store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], source: str, out: str
) -> None:
    for first in ("all.jsonl", "d"):
        assert export(sample_store, "--format", "rollouts", "--out", tmp_path / first) == 0
    before = {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()}
    assert export(tmp_path / source, "--format", "sft", "--out", tmp_path / out) == 2
    assert " overlap; " in capsys.readouterr().err
    assert {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()} == before


def test_a_source_is_not_overwritten_by_a_local_url(
    sample_store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for first in ("all.jsonl", "d"):
        assert export(sample_store, "--format", "rollouts", "--out", tmp_path / first) == 0
    before = {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()}
    for source, out in (
        ("all.jsonl", f"file://{tmp_path}/all.jsonl"),
        ("d/data/train.jsonl", f"file://{tmp_path}/x/../d"),
        ("d/data/train.jsonl", f"local://{tmp_path}/d"),
        ("d/data/train.jsonl", f"simplecache::file://{tmp_path}/d"),
        ("project", f"file://{tmp_path}/project/.ssr/x"),
    ):
        assert export(tmp_path / source, "--format", "sft", "--out", out) == 2
        assert " overlap; " in capsys.readouterr().err
    assert {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()} == before


@pytest.mark.parametrize("theirs", ["sft.jsonl", "sft.jsonl.md"])
def test_a_foreign_file_is_not_overwritten(
    sample_store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], theirs: str
) -> None:
    out = tmp_path / "sft.jsonl"
    assert export(sample_store, "--format", "sft", "--out", out) == 0
    assert export(sample_store, "--format", "bc", "--out", out) == 0
    for path in (out, tmp_path / "sft.jsonl.md"):
        path.unlink()
    (tmp_path / theirs).write_text("my notes")
    assert export(sample_store, "--format", "sft", "--out", out) == 2
    assert "exists and is not an export" in capsys.readouterr().err
    assert (tmp_path / theirs).read_text() == "my notes"


def test_only_folders_of_killed_exports_are_removed(sample_store: Path, tmp_path: Path) -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    theirs = [".sft.2025-backup", f".sft.2025-01-31.{os.getpid()}-deadbeef", f".sft.{os.getpid()}-deadbeef"]
    ours = f".sft.{gone.pid}-deadbeef"
    for name in (*theirs, ours):
        (tmp_path / name).mkdir()
    assert export(sample_store, "--format", "sft", "--out", tmp_path / "sft") == 0
    assert [(tmp_path / name).is_dir() for name in (*theirs, ours)] == [True, True, True, False]


def test_a_link_is_replaced_and_its_target_stays(sample_store: Path, tmp_path: Path) -> None:
    assert export(sample_store, "--format", "sft", "--out", tmp_path / "real") == 0
    before = {p: p.read_bytes() for p in (tmp_path / "real").rglob("*") if p.is_file()}
    (tmp_path / "link").symlink_to(tmp_path / "real")
    assert export(sample_store, "--format", "bc", "--out", tmp_path / "link") == 0
    assert sorted(p.name for p in tmp_path.iterdir()) == ["link", "project", "real"]
    assert not (tmp_path / "link").is_symlink()
    assert {p: p.read_bytes() for p in (tmp_path / "real").rglob("*") if p.is_file()} == before


def test_the_order_of_sources_is_irrelevant(tmp_path: Path) -> None:
    for number, project in enumerate(("calc", "calc-checkout")):
        folder = store(tmp_path / f"s{number}")
        add_task(folder, "t1", project)
        keep(folder, "ab"[number] * 24, True, attempt=number)
    for name in ("sft", "rollouts", "swe-smith", "grpo"):
        exports = []
        for order in ((0, 1), (1, 0)):
            out = tmp_path / f"{name}{order[0]}"
            sources = [tmp_path / f"s{number}" for number in order]
            export(*sources, "--format", name, "--out", out, "--splits", "train=0.5,test=0.5", "--seed", "3")
            exports.append({p.name: p.read_bytes() for p in out.glob("data/*")})
        assert exports[0] == exports[1]
        assert all(b'"calc-checkout"' not in data for data in exports[0].values())


def test_a_prompt_has_the_solve_rate_of_the_first_model_after_filtering(sample_store: Path, tmp_path: Path) -> None:
    for attempt in range(2):
        keep(sample_store, f"{attempt}" * 24, True, model="n", attempt=attempt)
    assert export(sample_store, "--format", "rollouts", "--out", tmp_path / "all.jsonl") == 0
    for number, source in enumerate((sample_store, tmp_path / "all.jsonl")):
        for argv, rate in (((), (0.5, 2)), (("--model", "n"), (1.0, 2))):
            out = tmp_path / f"{number}{len(argv)}.jsonl"
            assert export(source, "--format", "grpo", "--out", out, *argv) == 0
            assert (lines(out)[0]["solve_rate"], lines(out)[0]["graded"]) == rate


def test_which_duplicate_counts_does_not_depend_on_the_order_of_sources(
    sample_store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = store(tmp_path / "other")
    add_task(other, "t1", "calc")
    keep(other, "a" * 24, True, commands=("pwd",))
    changed = tmp_path / "changed.jsonl"
    export(other, "--format", "rollouts", "--out", changed)
    changed.write_text(changed.read_text().replace("be brief", "be quick"))
    exports = []
    for sources in ((sample_store, other, changed), (changed, other, sample_store), (other, sample_store, changed)):
        report = report_of(capsys, *sources, "--format", "rollouts", "--out", tmp_path / "all")
        exports.append((report, {p: p.read_bytes() for p in sorted((tmp_path / "all").rglob("*")) if p.is_file()}))
    assert report["left_out"][0]["count"] == 2
    assert exports[0] == exports[1] == exports[2]


def test_an_export_to_a_url_removes_an_earlier_one(sample_store: Path, tmp_path: Path) -> None:
    url = f"file://{tmp_path}/out"
    assert export(sample_store, "--format", "sft", "--out", url, "--splits", "train=0.5,test=0.5", "--seed", "1") == 0
    assert {p.name for p in (tmp_path / "out" / "data").iterdir()} == {"test.jsonl"}
    assert export(sample_store, "--format", "sft", "--out", url) == 0
    assert {p.name for p in (tmp_path / "out" / "data").iterdir()} == {"train.jsonl"}
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs" / "notes.txt").write_text("my notes")
    assert export(sample_store, "--format", "sft", "--out", f"file://{tmp_path}/theirs") == 2
    (tmp_path / "notes.jsonl").write_text("my notes")
    assert export(sample_store, "--format", "sft", "--out", f"file://{tmp_path}/notes.jsonl") == 2
    assert (tmp_path / "notes.jsonl").read_text() == "my notes"


def test_a_fault_of_the_machine_never_counts_in_the_solve_rate(sample_store: Path, tmp_path: Path) -> None:
    export(sample_store, "--format", "rollouts", "--out", tmp_path / "all.jsonl")
    record = lines(tmp_path / "all.jsonl")[0]
    other = {**record, "rollout_id": "x", "reward": None, "verdict": {"resolved": False, "infra": True}}
    path = tmp_path / "changed.jsonl"
    path.write_text("".join(json.dumps(r) + "\n" for r in (record, other)))
    assert export(path, "--format", "rollouts", "--out", tmp_path / "again.jsonl") == 0
    assert [(r["task"]["solve_rate"], r["task"]["graded"]) for r in lines(tmp_path / "again.jsonl")] == [(1.0, 1)] * 2


@pytest.mark.parametrize(
    "verdict", [{"resolved": None, "infra": True}, {"resolved": None}, {"resolved": True, "infra": True}]
)
def test_a_reward_without_a_grade_is_damaged(
    sample_store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], verdict: dict[str, Any]
) -> None:
    export(sample_store, "--format", "rollouts", "--out", tmp_path / "all.jsonl")
    records = [r for r in lines(tmp_path / "all.jsonl") if r["rollout_id"][0] == "b"]
    path = tmp_path / "changed.jsonl"
    path.write_text(json.dumps({**records[0], "verdict": verdict, "reward": 0.0}) + "\n")
    assert export(path, "--format", "slime-samples", "--out", tmp_path / "x") == 1
    assert "it has a reward but no grade" in capsys.readouterr().out
