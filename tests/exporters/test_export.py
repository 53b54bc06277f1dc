"""`ssr export` over stores made by hand: what is found, kept, split, written and told."""

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
from pathlib import Path
from typing import Any

import fsspec
import pyarrow.parquet as pq
import pytest
import zstandard
from rollout_parts import AS_TOLD, add_task, keep, store

from harness.cli import main
from harness.exporters import licences, splits, writing
from harness.selfplay import _hash
from harness.trajectory import ExitReason
from pytest_ssr.artifact import FIVE_FILES
from pytest_ssr.attempt import Attempt, AttemptStatus
from pytest_ssr.errors import SettingsError
from pytest_ssr.store import key_of


def export(*words: object) -> int:
    return main(["export", *map(str, words)])


def told(capsys: pytest.CaptureFixture[str], *words: object) -> dict[str, Any]:
    capsys.readouterr()
    export(*words, "--json")
    data: dict[str, Any] = json.loads(capsys.readouterr().out)
    return data


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    """A store with two tasks of two projects; of the first one attempt is resolved, one not, one has no grade."""
    folder = store(tmp_path / "project" / ".ssr")
    add_task(folder, "t1", "calc")
    add_task(folder, "t2", "other", "b" * 40, injector={"strategy": "removal"})
    keep(folder, "a" * 24, True, commands=("ls", "make"))
    keep(folder, "b" * 24, False, commands=("ls", "rm"), attempt=1)
    keep(folder, "c" * 24, None, commands=("ls",), attempt=2, end=ExitReason.INFRA)
    keep(folder, "d" * 24, True, task="t2", commands=("a", "b", "c"), ids=False)
    return folder


def test_a_store_is_found_by_itself_and_by_the_project_that_has_it(kept: Path, tmp_path: Path) -> None:
    assert export(kept, "--format", "rollouts", "--out", tmp_path / "a") == 0
    assert export(kept.parent, "--format", "rollouts", "--out", tmp_path / "b") == 0
    assert (tmp_path / "a/data/train.jsonl").read_bytes() == (tmp_path / "b/data/train.jsonl").read_bytes()
    assert (tmp_path / "a/README.md").read_bytes() == (tmp_path / "b/README.md").read_bytes()


def test_the_canonical_record_is_a_source_for_every_format(kept: Path, tmp_path: Path) -> None:
    export(kept, "--format", "rollouts", "--out", tmp_path / "all.jsonl")
    for name in ("rollouts", "sft", "sft-tokens", "bc", "dpo", "kto", "grpo", "slime-samples"):
        assert export(kept, "--format", name, "--out", tmp_path / "from-store" / name) == 0
        assert export(tmp_path / "all.jsonl", "--format", name, "--out", tmp_path / "from-file" / name) == 0
        one, other = (tmp_path / at / name / "data/train.jsonl" for at in ("from-store", "from-file"))
        assert one.read_bytes() == other.read_bytes()


def test_a_failure_of_the_machine_has_no_reward_and_no_part_in_the_solve_rate(kept: Path, tmp_path: Path) -> None:
    export(kept, "--format", "rollouts", "--out", tmp_path / "all.jsonl")
    found = {r["rollout_id"][0]: r for r in lines(tmp_path / "all.jsonl")}
    assert [found[n]["reward"] for n in "abcd"] == [1.0, -1.0, None, 1.0]
    assert [found[n]["status"] for n in "abcd"] == ["completed", "completed", "aborted", "completed"]
    assert (found["a"]["task"]["solve_rate"], found["a"]["task"]["graded"]) == (0.5, 2)
    assert found["c"]["verdict"] == {
        "resolved": None,
        "tests": None,
        "rule": "strict",
        "reason": AS_TOLD.text,
        "reason_code": "tests-fail",
        "infra": True,
    }
    assert found["a"]["task"]["strategy"] == "mutation"
    assert found["a"]["patch"] == "diff --git a/x b/x\n"


def test_a_grade_that_an_aborted_rollout_has_all_the_same_is_no_reward(kept: Path, tmp_path: Path) -> None:
    path = kept / "rollouts" / ("c" * 24) / "rollout.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"resolved": False, "reward": -1.0}))
    export(kept, "--format", "rollouts", "--out", tmp_path / "all.jsonl")
    (found,) = (r for r in lines(tmp_path / "all.jsonl") if r["rollout_id"][0] == "c")
    assert found["reward"] is None
    assert found["task"]["solve_rate"] == 0.5


def test_what_is_left_out_is_told_with_its_reason(
    kept: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = told(capsys, kept, "--format", "sft", "--out", tmp_path / "sft")
    assert data["rows"] == 2
    assert {(e["reason"].split(":")[0], e["count"]) for e in data["left_out"]} == {
        ("it has no reward", 1),
        ("its reward is not above 0, and it would be imitated (--min-reward)", 1),
    }
    assert data["left_out"][0]["examples"] == ["c" * 24 + f": {AS_TOLD.text}"]
    card = (tmp_path / "sft/README.md").read_text()
    assert "| it has no reward: the machine or a server was at fault, which is no failure of its own | 1 |" in card
    assert "as told" not in card


@pytest.mark.parametrize(
    ("words", "wanted"),
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
def test_filters(kept: Path, tmp_path: Path, words: list[str], wanted: str) -> None:
    path = kept / "rollouts" / ("b" * 24) / "rollout.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"flags": ["tests-restored"]}))
    code = export(kept, "--format", "rollouts", "--out", tmp_path / "all.jsonl", *words)
    assert code == (0 if wanted else 1)
    found = lines(tmp_path / "all.jsonl") if wanted else []
    assert "".join(sorted(r["rollout_id"][0] for r in found)) == wanted


def test_failures_are_imitated_only_when_that_is_asked_for(kept: Path, tmp_path: Path) -> None:
    export(kept, "--format", "sft", "--out", tmp_path / "sft.jsonl", "--min-reward", "-1")
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
    # Another project does not move those that were there.
    add_task(folder, "new", "a-new-one", "f" * 40)
    keep(folder, "f" * 24, True, task="new")
    export(folder, "--format", "sft", "--out", tmp_path / "sft", "--splits", "train=0.5,test=0.5")
    again = {p.stem: {r["repository"] for r in lines(p)} for p in (tmp_path / "sft/data").iterdir()}
    assert {p: names - {"a-new-one"} for p, names in again.items()} == parts


def test_projects_that_share_a_tree_are_one() -> None:
    for seed in range(20):
        found = splits.Splits.parse("train=0.5,test=0.5", seed)
        found.learn([("a", "1"), ("b", "1"), ("b", "2"), ("c", "2"), ("d", "3")])
        assert found.of("a") == found.of("b") == found.of("c")
    assert found.of("") is None
    assert splits.Splits.parse("").of("") == "train"
    shares = [splits.Splits.parse("train=0.8,test=0.2").of(f"p{n}") for n in range(2000)]
    assert 0.77 < shares.count("train") / 2000 < 0.83


@pytest.mark.parametrize("text", ["train", "train=x", "train=0.5", "a=0.5,a=0.5", "a=2,b=-1", "a/b=1", "a=nan,b=1"])
def test_splits_that_are_none(text: str) -> None:
    with pytest.raises(SettingsError, match="--splits"):
        splits.Splits.parse(text)


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--format", "sft", "--out", "x", "--role", "judge"], "--role is injector or solver, not 'judge'"),
        (["--format", "sft", "--out", "x", "--min-reward", "1", "--max-reward", "0"], "--min-reward 1 is more than"),
        (["--format", "sft", "--out", "x", "--min-solve-rate", "2"], "--min-solve-rate must lie in [0, 1], not 2"),
        (["--format", "sft", "--out", "x", "--max-calls", "-1"], "--max-calls must be at least 0, not -1"),
        (["--format", "sft", "--out", "x", "--min-reward", "nan"], "--min-reward must be a number"),
        (["--format", "swe-bench", "--out", "x", "--on-policy"], "--on-policy is for rollouts"),
        (["--format", "slime-prompts", "--out", "x"], "--image is needed for slime-prompts"),
        (["--format", "sft", "--out", "x", "--image", "y"], "--image says nothing about sft"),
        (["--format", "bc", "--out", "x", "--samples", "segment"], "--samples says nothing about bc"),
        (["--format", "swe-bench", "--out", "x", "--owner", "a/b"], "--owner 'a/b' cannot be the owner"),
        (["--format", "sft", "--out", "x.jsonl", "--as", "parquet"], "say different things"),
        (["--format", "sft", "--out", "x.tar"], "this format is written as jsonl, jsonl.zst, parquet, not as tar"),
        (["--format", "artifacts", "--out", "x.jsonl"], "this format is written as tar, tar.zst, not as jsonl"),
        (["--format", "sft", "--out", "x.jsonl", "--splits", "a=0.5,b=0.5"], "--splits makes several files"),
        (["--format", "sft", "--out", "x", "--licence", "MIT"], "--licence 'MIT' is none; write PROJECT=MIT"),
        (["--format", "sft", "--out", ""], "--out '' is no place for an export"),
        (["--format", "sft", "--out", "nowhere://x/y"], "--out nowhere://x/y"),
    ],
)
def test_a_mistake_is_one_sentence(
    kept: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: list[str],
    why: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    keep(kept, "e" * 24, True)
    (kept / "artifacts/t1/bug_inject.diff").write_text("")
    assert export(kept, *words) == 2
    said = capsys.readouterr().err
    assert why in said
    assert said.count("\n") == 1
    assert sorted(p.name for p in tmp_path.iterdir()) == ["project"]


def test_what_is_no_source_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "x.txt").write_text("")
    for source, why in (
        (tmp_path, "is no store, and holds none"),
        ("gone", "does not exist"),
        ("s3://bucket/rollouts.jsonl", "is not on this machine"),
        (tmp_path / "x.txt", ".jsonl"),
    ):
        assert export(source, "--format", "sft", "--out", tmp_path / "out") == 2
        assert why in capsys.readouterr().err


def test_nothing_to_export_is_the_answer_no(kept: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert export(kept, "--format", "sft", "--out", tmp_path / "out", "--model", "none") == 1
    assert "nothing to export as sft; nothing is written" in capsys.readouterr().out
    assert not (tmp_path / "out").exists()


def test_damaged_rollouts_are_told_and_the_rest_is_exported(
    kept: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
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
        (kept / "rollouts" / name).mkdir()
        (kept / "rollouts" / name / "trajectory.jsonl").write_text(text)
    path = kept / "rollouts" / ("b" * 24) / "trajectory.jsonl"
    whole = path.read_text().splitlines()
    path.write_text("\n".join([*whole[:2], "nonsense", *whole[2:]]))
    spoilt = kept / "rollouts" / ("d" * 24) / "trajectory.jsonl"
    spoilt.write_text(spoilt.read_text().replace("output of a", "\\ud800"))
    (kept / "artifacts/t2/artifact.json").write_text('{"repository": ["x"]}')
    (kept / "episodes/run").mkdir(parents=True)
    (kept / "episodes/run/round-001-001.json").write_text('{"episodes": [1, {"schema_version": 3}]}')
    data = told(capsys, kept, "--format", "rollouts", "--out", tmp_path / "all.jsonl")
    assert [r["rollout_id"][0] for r in lines(tmp_path / "all.jsonl")] == ["a", "c"]
    (damaged,) = (e for e in data["left_out"] if e["reason"] == "the record is damaged")
    assert damaged["count"] == 7 + 2 + 1 + 2


def test_hostile_records_are_told_and_no_crash(kept: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    export(kept, "--format", "rollouts", "--out", tmp_path / "all.jsonl")
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
    os.mkdir(os.fsencode(kept / "rollouts") + b"/\xff")
    (kept / "rollouts" / os.fsdecode(b"\xff") / "trajectory.jsonl").write_text("x")
    _injection(kept, 0, operator="\udc80")
    _episodes(kept, [{"artifact_id": "t1", "change": "\udc80"}])
    for name in ("rollouts", "sft", "dpo", "grpo"):
        data = told(capsys, kept, tmp_path / "hostile.jsonl", "--format", name, "--out", tmp_path / name)
        (damaged,) = (e for e in data["left_out"] if e["reason"] == "the record is damaged")
        assert damaged["count"] == 12
    assert [r["rollout_id"][0] for r in lines(tmp_path / "rollouts/data/train.jsonl")][1:] == [*"abcd"]


def test_a_line_that_was_cut_off_ends_a_rollout_as_interrupted(kept: Path, tmp_path: Path) -> None:
    path = kept / "rollouts" / ("a" * 24) / "trajectory.jsonl"
    path.write_bytes(path.read_bytes()[:-100])
    export(kept, "--format", "rollouts", "--out", tmp_path / "all.jsonl")
    (found,) = (r for r in lines(tmp_path / "all.jsonl") if r["rollout_id"][0] == "a")
    assert (found["status"], found["exit_reason"], found["reward"]) == ("aborted", "interrupted", None)


def test_a_rollout_that_is_there_twice_is_exported_once(
    kept: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = store(tmp_path / "twin")
    keep(other, "a" * 24, False)
    # A replay has another folder than its rollout, and comes after it whatever its name.
    shutil.copytree(kept / "rollouts" / ("b" * 24), kept / "rollouts" / "0replay")
    path = kept / "rollouts/0replay/rollout.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"resolved": True, "reward": 1.0}))
    data = told(capsys, kept, other, "--format", "rollouts", "--out", tmp_path / "all.jsonl")
    found = lines(tmp_path / "all.jsonl")
    assert [(r["rollout_id"][0], r["reward"]) for r in found] == [("a", 1.0), ("b", -1.0), ("c", None), ("d", 1.0)]
    assert data["left_out"][0]["count"] == 2


def test_the_reward_of_a_judge_is_the_episodes(kept: Path, tmp_path: Path) -> None:
    path = kept / "rollouts" / ("a" * 24) / "rollout.json"
    judged = json.loads(path.read_text()) | {"reward": 1.25, "score": 0.25}
    _episodes(kept, [{"artifact_id": "t1", "valid": True, "rollouts": [judged]}])
    export(kept, "--format", "rollouts", "--out", tmp_path / "all.jsonl")
    (found,) = (r for r in lines(tmp_path / "all.jsonl") if r["rollout_id"][0] == "a")
    assert found["reward"] == 1.25
    assert found["reward_components"] == {"resolved": 1.0, "judge": 0.25}


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


def _injection(folder: Path, index: int, **how: Any) -> str:
    """Keep an attempt of a model's campaign and its rollout; returns the rollout's name."""
    name = key_of("campaign", index)
    attempt = Attempt(index, AttemptStatus.REJECTED, "removal", "m", "calc.py", 1, "", "submitted", f"diff {index}")
    place = folder / "attempts/model-campaign"
    place.mkdir(parents=True, exist_ok=True)
    (place / f"{index:05}.json").write_text(json.dumps({**attempt.to_json(), **how, "spent": {}}))
    keep(folder, name, None, role="injector", task="a" * 40)
    (folder / "rollouts" / name / "rollout.json").unlink()
    return name


def test_an_injector_is_rewarded_by_its_episode_and_a_rejected_bug_by_minus_one(kept: Path, tmp_path: Path) -> None:
    rejected = _injection(kept, 0, check="bug-scope", reason="nothing")
    valid = _injection(kept, 1, status="valid", artifact_id="t1")
    again = _injection(kept, 2, status="valid", artifact_id="t1")
    unplayed = _injection(kept, 3, status="valid", artifact_id="t2")
    path = kept / "artifacts/t1/artifact.json"
    told = json.loads(path.read_text())
    path.write_text(json.dumps(told | {"injector": {"strategy": "removal", "rollout": valid}}))
    shutil.rmtree(kept / "artifacts/t2")
    _episodes(
        kept,
        [
            {"artifact_id": "t1", "valid": True, "change": _hash("diff 1"), "injector_reward": 0.1},
            {"artifact_id": "t1", "valid": True, "change": _hash("diff 2"), "repeated": True, "injector_reward": None},
            {"change": _hash("diff 0"), "injector_reward": -1.0},
        ],
    )
    export(kept, "--format", "rollouts", "--role", "injector", "--out", tmp_path / "all.jsonl")
    found = {r["rollout_id"]: r for r in lines(tmp_path / "all.jsonl")}
    assert {n: found[n]["reward"] for n in found} == {rejected: -1.0, valid: 0.1, again: None, unplayed: None}
    assert found[rejected]["verdict"] == {"valid": False, "reason": "bug-scope: nothing", "infra": False}
    assert found[again]["flags"] == ["made-before"]
    assert {r["task"]["repository"] for r in found.values()} == {"calc"}
    # Another run of other settings gives another reward: which is meant is not known.
    _episodes(
        kept, [{"artifact_id": "t1", "valid": True, "change": _hash("diff 1"), "injector_reward": 0.5}], run="second"
    )
    export(kept, "--format", "rollouts", "--role", "injector", "--out", tmp_path / "all.jsonl")
    (found_now,) = (r for r in lines(tmp_path / "all.jsonl") if r["rollout_id"] == valid)
    assert (found_now["reward"], found_now["flags"]) == (None, ["rewards-differ"])


def test_projects_of_rejected_bugs_are_known_by_the_episodes(tmp_path: Path) -> None:
    folder = store(tmp_path / "s")
    _injection(folder, 0)
    _episodes(folder, [{"change": _hash("diff 0")}])
    export(folder, "--format", "rollouts", "--out", tmp_path / "all.jsonl")
    (found,) = lines(tmp_path / "all.jsonl")
    assert found["task"]["repository"] == "calc"
    assert "somebody" not in (tmp_path / "all.jsonl").read_text()


def test_a_project_that_no_artifact_names_is_known_by_the_rollout(tmp_path: Path) -> None:
    folder = store(tmp_path / "s")
    for n, name in enumerate(("owner/name", "")):
        path = keep(folder, f"{n:024x}", True) / "trajectory.jsonl"
        path.write_text(
            path.read_text().replace('"provenance": {}', json.dumps({"provenance": {"repository": name}})[1:-1])
        )
    words = ["--format", "sft", "--out", tmp_path / "out", "--splits", "train=0.5,test=0.5"]
    assert export(folder, *words) == 0
    (part,) = (tmp_path / "out/data").iterdir()
    # Of which project the other is, nobody knows: it may be in neither part.
    assert [r["repository"] for r in lines(part)] == ["owner/name"]
    assert "| its project is not known, and so is not its part | 1 |" in (tmp_path / "out/README.md").read_text()


def test_zstandard_and_parquet_hold_the_same_rows(kept: Path, tmp_path: Path) -> None:
    for name in ("jsonl", "jsonl.zst", "parquet"):
        assert export(kept, "--format", "bc", "--out", tmp_path / name, "--as", name) == 0
        assert export(kept, "--format", "bc", "--out", tmp_path / f"again.{name}") == 0
        once, again = tmp_path / name / f"data/train.{name}", tmp_path / f"again.{name}"
        assert once.read_bytes() == again.read_bytes()
    wanted = lines(tmp_path / "jsonl/data/train.jsonl")
    with zstandard.open(tmp_path / "jsonl.zst/data/train.jsonl.zst", "rt", encoding="utf-8") as file:
        assert [json.loads(line) for line in file] == wanted
    table = pq.read_table(tmp_path / "parquet/data/train.parquet").to_pylist()
    texts = ("prompt", "completion", "tools")
    assert [{k: [json.loads(i) for i in v] if k in texts else v for k, v in row.items()} for row in table] == wanted


def test_an_export_goes_where_fsspec_can_write(kept: Path, tmp_path: Path) -> None:
    export(kept, "--format", "sft", "--out", tmp_path / "sft")
    assert export(kept, "--format", "sft", "--out", "memory://bucket/sft") == 0
    assert export(kept, "--format", "sft", "--out", "memory://bucket/rows.jsonl") == 0
    system = fsspec.filesystem("memory")
    assert sorted(system.find("/bucket")) == [
        "/bucket/rows.jsonl",
        "/bucket/rows.jsonl.md",
        "/bucket/sft/README.md",
        "/bucket/sft/data/train.jsonl",
    ]
    assert system.cat("/bucket/sft/data/train.jsonl") == (tmp_path / "sft/data/train.jsonl").read_bytes()
    assert system.cat("/bucket/sft/README.md") == (tmp_path / "sft/README.md").read_bytes()


def test_a_package_that_is_missing_is_named(
    kept: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    find = writing.importlib.util.find_spec
    missing = ("pyarrow", "zstandard", "fsspec")
    monkeypatch.setattr(writing.importlib.util, "find_spec", lambda n: None if n in missing else find(n))
    for out, extra in (("x.parquet", "parquet"), ("x.jsonl.zst", "export"), ("memory://x/y", "export")):
        assert export(kept, "--format", "sft", "--out", out if "://" in out else tmp_path / out) == 2
        assert f"pip install 'pytest-ssr[{extra}]'" in capsys.readouterr().err


def test_an_export_is_replaced_and_nothing_else_is(
    kept: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert export(kept, "--format", "sft", "--out", out, "--as", "parquet") == 0
    assert export(kept, "--format", "sft", "--out", out) == 0
    assert sorted(str(p.relative_to(out)) for p in out.rglob("*")) == ["README.md", "data", "data/train.jsonl"]
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/notes.txt").write_text("x")
    (tmp_path / "mine/README.md").write_text("# mine")
    assert export(kept, "--format", "sft", "--out", tmp_path / "mine") == 2
    assert "is there and no export; choose another, or remove it" in capsys.readouterr().err
    assert (tmp_path / "mine/notes.txt").read_text() == "x"
    (tmp_path / "x.jsonl").mkdir()
    assert export(kept, "--format", "sft", "--out", tmp_path / "x.jsonl") == 2
    assert export(kept, "--format", "sft", "--out", tmp_path / "mine/notes.txt") == 2


@pytest.mark.parametrize("container", ["jsonl", "jsonl.zst", "parquet", "tar", "tar.zst"])
def test_a_disk_that_takes_no_more_leaves_nothing_under_the_name(kept: Path, tmp_path: Path, container: str) -> None:
    """The largest file that a process may write stands for the disk."""
    is_tar = container.startswith("tar")
    for name in ("t1", "t2"):
        for file in FIVE_FILES:
            text = random.Random(name).randbytes(4000).hex() if file.endswith(".sh") else ""
            (kept / "artifacts" / name / file).write_text("tests/t.py\n" if file.endswith("txt") else text)
    for n in range(30):
        said = random.Random(n).randbytes(200).hex()
        keep(kept, f"{n:024x}", True, commands=["ls"] * 3, said=said)
    out = tmp_path / "out"
    words = ["--format", "artifacts" if is_tar else "bc", "--out", str(out), "--as", container]
    assert export(kept, *words) == 0
    before = {p.name: p.read_bytes() for p in out.rglob("*") if p.is_file()}
    program = (
        "import resource, sys; from harness.cli import main; "
        "resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096)); sys.exit(main(sys.argv[1:]))"
    )
    for target in (out, tmp_path / f"new.{container}"):
        words[3] = str(target)
        # Compiled files that are cut off would be found by whoever imports them next.
        command = [sys.executable, "-B", "-W", "error", "-c", program, "export", str(kept), *words]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr.count("\n")) == (3, 1), done.stderr
        assert "cannot write" in done.stderr
    assert {p.name: p.read_bytes() for p in out.rglob("*") if p.is_file()} == before
    assert sorted(p.name for p in tmp_path.iterdir()) == ["out", "project"]


def test_a_kill_leaves_nothing_under_the_name_and_the_next_run_cleans_up(kept: Path, tmp_path: Path) -> None:
    for n in range(300):
        keep(kept, f"{n:024x}", True, task="t1", commands=["ls"] * 20)
    out = tmp_path / "out"
    command = [sys.executable, "-m", "harness.cli", "export", str(kept), "--format", "bc", "--out", str(out)]
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
    assert export(kept, "--format", "sft", "--out", out, "--model", "m", "--min-calls", "20") == 0
    assert sorted(p.name for p in tmp_path.iterdir()) == ["out", "project"]


def test_the_card_says_where_the_rows_come_from(kept: Path, tmp_path: Path) -> None:
    tree = kept / "trees" / ("a" * 40) / "tree"
    tree.mkdir(parents=True)
    (tree / "LICENSE").write_text("MIT License\n\nPermission is hereby granted, free of charge, to any person")
    out = tmp_path / "out"
    export(kept, "--format", "sft", "--out", out, "--licence", "other=Apache-2.0")
    card = (out / "README.md").read_text()
    assert "| calc | MIT | train 1 |" in card
    assert "| other | Apache-2.0 | train 1 |" in card
    assert "license: other\n" in card
    digest = hashlib.sha256((out / "data/train.jsonl").read_bytes()).hexdigest()
    assert f"| `data/train.jsonl` | 2 | {(out / 'data/train.jsonl').stat().st_size} | `{digest}` |" in card
    assert "On-policy (token ids and log-probabilities of every sampled reply are there): 1 of 2 rows." in card
    assert str(tmp_path) not in card


def test_a_name_from_elsewhere_cannot_change_the_card(tmp_path: Path) -> None:
    folder = store(tmp_path / "s")
    add_task(folder, "t1", "x | y <script>\n---\nlicense: mit")
    keep(folder, "a" * 24, True)
    export(folder, "--format", "sft", "--out", tmp_path / "out")
    card = (tmp_path / "out/README.md").read_text()
    assert "| x \\| y &lt;script> --- license: mit | unknown | train 1 |" in card
    assert card.count("\n---\n") == 1


@pytest.mark.parametrize(
    ("files", "wanted"),
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
def test_licences(tmp_path: Path, files: dict[str, str], wanted: str) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    assert licences.licence_of([tmp_path / "gone", tmp_path]) == wanted


def test_a_source_is_not_written_to(kept: Path, tmp_path: Path) -> None:
    def seen() -> list[tuple[str, int]]:
        return sorted((str(p), p.stat().st_mtime_ns) for p in kept.rglob("*"))

    before = seen()
    for name in ("rollouts", "sft", "dpo"):
        export(kept, "--format", name, "--out", tmp_path / name)
    assert seen() == before


def test_an_artifact_whose_tree_leads_elsewhere_is_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = store(tmp_path / "s")
    add_task(folder, "t1", "calc", "../../../etc")
    assert export(folder, "--format", "swe-bench", "--out", tmp_path / "out") == 1
    assert "tree_hash of the artifact is no hash" in capsys.readouterr().out


def test_tars_are_the_same_bytes(tmp_path: Path, kept: Path) -> None:
    shutil.rmtree(kept / "artifacts/t2")
    for name in FIVE_FILES:
        (kept / "artifacts/t1" / name).write_text("tests/test_x.py\n" if name.endswith("txt") else "")
    for name in ("a", "b"):
        assert export(kept, "--format", "artifacts", "--out", tmp_path / f"{name}.tar") == 0
        os.utime(kept / "artifacts/t1/test_script.sh", (1, 1))
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
def test_a_source_is_not_written_over(
    kept: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], source: str, out: str
) -> None:
    for first in ("all.jsonl", "d"):
        assert export(kept, "--format", "rollouts", "--out", tmp_path / first) == 0
    before = {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()}
    assert export(tmp_path / source, "--format", "sft", "--out", tmp_path / out) == 2
    assert "are in one another" in capsys.readouterr().err
    assert {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()} == before


def test_a_url_of_this_machine_is_no_way_around_that(
    kept: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for first in ("all.jsonl", "d"):
        assert export(kept, "--format", "rollouts", "--out", tmp_path / first) == 0
    before = {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()}
    for source, out in (
        ("all.jsonl", f"file://{tmp_path}/all.jsonl"),
        ("d/data/train.jsonl", f"file://{tmp_path}/x/../d"),
        ("d/data/train.jsonl", f"local://{tmp_path}/d"),
        ("d/data/train.jsonl", f"simplecache::file://{tmp_path}/d"),
        ("project", f"file://{tmp_path}/project/.ssr/x"),
    ):
        assert export(tmp_path / source, "--format", "sft", "--out", out) == 2
        assert "are in one another" in capsys.readouterr().err
    assert {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()} == before


@pytest.mark.parametrize("theirs", ["sft.jsonl", "sft.jsonl.md"])
def test_a_file_of_others_is_not_written_over(
    kept: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], theirs: str
) -> None:
    out = tmp_path / "sft.jsonl"
    assert export(kept, "--format", "sft", "--out", out) == 0
    assert export(kept, "--format", "bc", "--out", out) == 0
    for path in (out, tmp_path / "sft.jsonl.md"):
        path.unlink()
    (tmp_path / theirs).write_text("my notes")
    assert export(kept, "--format", "sft", "--out", out) == 2
    assert "is there and no export" in capsys.readouterr().err
    assert (tmp_path / theirs).read_text() == "my notes"


def test_only_what_killed_exports_left_is_swept_away(kept: Path, tmp_path: Path) -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    theirs = [".sft.2025-backup", f".sft.2025-01-31.{os.getpid()}-deadbeef", f".sft.{os.getpid()}-deadbeef"]
    ours = f".sft.{gone.pid}-deadbeef"
    for name in (*theirs, ours):
        (tmp_path / name).mkdir()
    assert export(kept, "--format", "sft", "--out", tmp_path / "sft") == 0
    assert [(tmp_path / name).is_dir() for name in (*theirs, ours)] == [True, True, True, False]


def test_a_link_is_replaced_and_what_it_leads_to_stays(kept: Path, tmp_path: Path) -> None:
    assert export(kept, "--format", "sft", "--out", tmp_path / "real") == 0
    before = {p: p.read_bytes() for p in (tmp_path / "real").rglob("*") if p.is_file()}
    (tmp_path / "link").symlink_to(tmp_path / "real")
    assert export(kept, "--format", "bc", "--out", tmp_path / "link") == 0
    assert sorted(p.name for p in tmp_path.iterdir()) == ["link", "project", "real"]
    assert not (tmp_path / "link").is_symlink()
    assert {p: p.read_bytes() for p in (tmp_path / "real").rglob("*") if p.is_file()} == before


def test_the_order_of_sources_changes_nothing(tmp_path: Path) -> None:
    for number, project in enumerate(("calc", "calc-checkout")):
        folder = store(tmp_path / f"s{number}")
        add_task(folder, "t1", project)
        keep(folder, "ab"[number] * 24, True, attempt=number)
    for name in ("sft", "rollouts", "swe-smith", "grpo"):
        found = []
        for order in ((0, 1), (1, 0)):
            out = tmp_path / f"{name}{order[0]}"
            sources = [tmp_path / f"s{number}" for number in order]
            export(*sources, "--format", name, "--out", out, "--splits", "train=0.5,test=0.5", "--seed", "3")
            found.append({p.name: p.read_bytes() for p in out.glob("data/*")})
        assert found[0] == found[1]
        assert all(b'"calc-checkout"' not in data for data in found[0].values())


def test_a_prompt_tells_the_solve_rate_of_the_first_model_that_is_left(kept: Path, tmp_path: Path) -> None:
    for attempt in range(2):
        keep(kept, f"{attempt}" * 24, True, model="n", attempt=attempt)
    assert export(kept, "--format", "rollouts", "--out", tmp_path / "all.jsonl") == 0
    for number, source in enumerate((kept, tmp_path / "all.jsonl")):
        for words, rate in (((), (0.5, 2)), (("--model", "n"), (1.0, 2))):
            out = tmp_path / f"{number}{len(words)}.jsonl"
            assert export(source, "--format", "grpo", "--out", out, *words) == 0
            assert (lines(out)[0]["solve_rate"], lines(out)[0]["graded"]) == rate


def test_of_two_rollouts_of_one_id_the_same_counts_in_any_order_of_the_sources(
    kept: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = store(tmp_path / "other")
    add_task(other, "t1", "calc")
    keep(other, "a" * 24, True, commands=("pwd",))
    changed = tmp_path / "changed.jsonl"
    export(other, "--format", "rollouts", "--out", changed)
    changed.write_text(changed.read_text().replace("be brief", "be quick"))
    found = []
    for sources in ((kept, other, changed), (changed, other, kept), (other, kept, changed)):
        report = told(capsys, *sources, "--format", "rollouts", "--out", tmp_path / "all")
        found.append((report, {p: p.read_bytes() for p in sorted((tmp_path / "all").rglob("*")) if p.is_file()}))
    assert report["left_out"][0]["count"] == 2
    assert found[0] == found[1] == found[2]


def test_an_export_to_a_url_leaves_nothing_of_an_earlier_one(kept: Path, tmp_path: Path) -> None:
    url = f"file://{tmp_path}/out"
    assert export(kept, "--format", "sft", "--out", url, "--splits", "train=0.5,test=0.5", "--seed", "1") == 0
    assert {p.name for p in (tmp_path / "out" / "data").iterdir()} == {"test.jsonl"}
    assert export(kept, "--format", "sft", "--out", url) == 0
    assert {p.name for p in (tmp_path / "out" / "data").iterdir()} == {"train.jsonl"}
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs" / "notes.txt").write_text("my notes")
    assert export(kept, "--format", "sft", "--out", f"file://{tmp_path}/theirs") == 2
    (tmp_path / "notes.jsonl").write_text("my notes")
    assert export(kept, "--format", "sft", "--out", f"file://{tmp_path}/notes.jsonl") == 2
    assert (tmp_path / "notes.jsonl").read_text() == "my notes"


def test_a_fault_of_the_machine_is_in_no_solve_rate_whatever_the_record_says_besides(
    kept: Path, tmp_path: Path
) -> None:
    export(kept, "--format", "rollouts", "--out", tmp_path / "all.jsonl")
    found = lines(tmp_path / "all.jsonl")[0]
    other = {**found, "rollout_id": "x", "reward": None, "verdict": {"resolved": False, "infra": True}}
    path = tmp_path / "changed.jsonl"
    path.write_text("".join(json.dumps(r) + "\n" for r in (found, other)))
    assert export(path, "--format", "rollouts", "--out", tmp_path / "again.jsonl") == 0
    assert [(r["task"]["solve_rate"], r["task"]["graded"]) for r in lines(tmp_path / "again.jsonl")] == [(1.0, 1)] * 2


@pytest.mark.parametrize(
    "verdict", [{"resolved": None, "infra": True}, {"resolved": None}, {"resolved": True, "infra": True}]
)
def test_a_reward_without_a_grade_is_damage(
    kept: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], verdict: dict[str, Any]
) -> None:
    export(kept, "--format", "rollouts", "--out", tmp_path / "all.jsonl")
    found = [r for r in lines(tmp_path / "all.jsonl") if r["rollout_id"][0] == "b"]
    path = tmp_path / "changed.jsonl"
    path.write_text(json.dumps({**found[0], "verdict": verdict, "reward": 0.0}) + "\n")
    assert export(path, "--format", "slime-samples", "--out", tmp_path / "x") == 1
    assert "has no grade and has a reward all the same" in capsys.readouterr().out
