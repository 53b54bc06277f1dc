"""`ssr export` from datasets: rows of the SWE-bench family become prompts whose ids open as tasks."""

from __future__ import annotations

import json
import os
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
from plain import plain_python
from replies import FIX
from rollout_parts import add_task, keep, store
from rows import write_project, written

from harness.cli.app import parse
from harness.cli.main import main
from harness.datasets.loading import read_instances
from harness.environments import DatasetTasks
from harness.environments.episodes import EnvironmentSettings, Episodes
from harness.exporters.formats import FORMATS
from harness.exporters.skipped import SkipCode
from pytest_ssr.errors import SettingsError

OF_DATASETS = [name for name, form in FORMATS.items() if form.instance_row is not None and form.columns]
TASK = {
    "swe-rl": lambda row: row["metadata"]["instance"]["instance_id"],
    "grpo": lambda row: row["task_id"],
    "slime-prompts": lambda row: row["label"],
    "verl-prompts": lambda row: row["extra_info"]["task"],
    "skyrl-prompts": lambda row: row["task"],
}


def export(*argv: object) -> int:
    return main(["export", *map(str, argv)])


def exported(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def left_out(capsys: pytest.CaptureFixture[str], *argv: object) -> dict[str, list[str]]:
    """Export, and return the names of what yields no row, by the reason's code."""
    capsys.readouterr()
    export(*argv, "--json")
    report = json.loads(capsys.readouterr().out)
    return {one["code"]: [text.partition(":")[0] for text in one["examples"]] for one in report["left_out"]}


@pytest.fixture(scope="module")
def clones(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[dict[str, Any]]]:
    return write_project(tmp_path_factory.mktemp("instances"))


@pytest.fixture
def dataset(clones: tuple[Path, list[dict[str, Any]]], tmp_path: Path) -> Path:
    return written(tmp_path / "rows.jsonl", clones[1])


@pytest.mark.parametrize("name", OF_DATASETS)
def test_each_row_names_its_task(dataset: Path, tmp_path: Path, name: str) -> None:
    assert export(dataset, "--format", name, "--out", tmp_path / "out.jsonl") == 0
    rows = exported(tmp_path / "out.jsonl")
    assert [TASK[name](row) for row in rows] == [instance.id for instance in read_instances(str(dataset))]
    assert all(list(row) == list(FORMATS[name].columns) for row in rows)


@pytest.mark.long
def test_an_exported_id_is_a_task_that_is_played_and_graded(
    clones: tuple[Path, list[dict[str, Any]]], dataset: Path, tmp_path: Path
) -> None:
    fix = FIX.replace("calc.py", "shop.py")
    # The rows of swe-rl hold the whole task, so they are a dataset themselves.
    for name, source in (*((n, None) for n in OF_DATASETS if n != "swe-rl"), ("swe-rl", "again.jsonl")):
        out = tmp_path / f"{name}.jsonl"
        assert export(dataset, "--format", name, "--only", "shop-1$", "--out", out) == 0
        [row] = exported(out)
        if source is not None:
            dataset = written(tmp_path / source, [row["metadata"]["instance"]])
        tasks = DatasetTasks(
            str(dataset), tmp_path / "store", repos=clones[0], python=plain_python(), sandbox="process"
        )
        episodes = Episodes(tasks, EnvironmentSettings())
        try:
            begun = episodes.begin(task=TASK[name](row))
            assert clones[1][0]["problem_statement"] in begun.prompt
            episodes.write(fix)
            turn = episodes.call("submit", {})
        finally:
            episodes.close()
        assert (turn.known_reward(), turn.outcome is not None and turn.outcome.success) == (1.0, True)


def test_the_row_of_swe_rl_is_the_same_task(dataset: Path, tmp_path: Path) -> None:
    export(dataset, "--format", "swe-rl", "--out", tmp_path / "out.jsonl")
    rows = exported(tmp_path / "out.jsonl")
    again = written(tmp_path / "again.jsonl", [row["metadata"]["instance"] for row in rows])
    assert [i.key for i in read_instances(str(again))] == [i.key for i in read_instances(str(dataset))]
    assert isinstance(rows[0]["metadata"]["instance"]["FAIL_TO_PASS"], list)


def test_swe_rl_keeps_every_column_and_the_source(clones: tuple[Path, list[dict[str, Any]]], tmp_path: Path) -> None:
    more = {"hints_text": "Look at add().", "environment_setup_commit": "1a2b3c4d", "own": {"difficulty": [1, None]}}
    source = written(tmp_path / "rows.jsonl", [{**clones[1][0], **more}])
    families = [read_instances(str(source))[0].family]
    for name in ("once.jsonl", "twice.jsonl"):
        assert export(source, "--format", "swe-rl", "--out", tmp_path / name) == 0
        source = tmp_path / name
        families.append(read_instances(str(source))[0].family)
    once, twice = exported(tmp_path / "once.jsonl"), exported(tmp_path / "twice.jsonl")
    assert once == twice
    assert families == ["swe-bench"] * 3
    assert once[0]["metadata"]["instance"].items() >= more.items()
    once[0]["metadata"]["data_source"] = "acme/rows"
    export(written(tmp_path / "named.jsonl", once), "--format", "swe-rl", "--out", tmp_path / "again.jsonl")
    assert exported(tmp_path / "again.jsonl") == once


def test_slime_has_the_image_of_the_row_and_not_the_answer(dataset: Path, tmp_path: Path) -> None:
    (instance, _) = read_instances(str(dataset))
    for options, image in (([], instance.image), (["--image", "mine:1"], "mine:1")):
        out = tmp_path / f"{len(options)}.jsonl"
        export(dataset, "--format", "slime-prompts", *options, "--out", out)
        metadata = exported(out)[0]["metadata"]
        assert metadata["image"] == metadata["remote_env_info"]["image"] == image
        assert metadata["remote_env_info"]["test_patch"] == instance.test_patch.data.decode()
        assert "patch" not in metadata["remote_env_info"]


def test_a_row_without_a_task_is_named(
    clones: tuple[Path, list[dict[str, Any]]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good, other = clones[1]
    rows = [
        good,
        {name: value for name, value in other.items() if name != "FAIL_TO_PASS"},
        {**other, "instance_id": "acme__shop-3", "FAIL_TO_PASS": "[]"},
        {**other, "instance_id": "acme__shop-4", "problem_statement": " "},
    ]
    dataset = written(tmp_path / "rows.jsonl", rows)
    dataset.write_text(dataset.read_text() + "{\n")
    out = tmp_path / "out.jsonl"
    assert left_out(capsys, dataset, "--format", "grpo", "--out", out) == {
        SkipCode.INVALID_ROW: ["acme__shop-2", "rows.jsonl-line-5"],
        SkipCode.NO_TESTS: ["acme__shop-3"],
        SkipCode.NO_STATEMENT: ["acme__shop-4"],
    }
    assert [row["task_id"] for row in exported(out)] == ["acme__shop-1"]
    # The episode shows the tests of a row without a statement.
    assert SkipCode.NO_STATEMENT not in left_out(capsys, dataset, "--format", "verl-prompts", "--out", out)


def test_stores_and_datasets_are_merged(
    clones: tuple[Path, list[dict[str, Any]]], dataset: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = store(tmp_path / "project" / ".ssr")
    add_task(folder, "t1", "calc")
    keep(folder, "a" * 24, True)
    twice = written(tmp_path / "twice.jsonl", clones[1][:1])
    out = tmp_path / "out"
    skipped = left_out(capsys, dataset, folder, twice, "--format", "grpo", "--out", out)
    assert skipped == {SkipCode.DUPLICATE: ["acme__shop-1"]}
    rows = exported(out / "data" / "train.jsonl")
    assert [row["task_id"] for row in rows] == ["t1", "acme__shop-1", "acme__shop-2"]
    assert {row["repository"] for row in rows} == {"calc", "acme/shop"}
    card = (out / "README.md").read_text()
    assert dataset.name in card
    assert str(tmp_path) not in card


def test_datasets_in_folders_and_tables(dataset: Path, tmp_path: Path) -> None:
    folder = tmp_path / "rows"
    folder.mkdir()
    rows = exported(dataset)
    (folder / "a.json").write_text(json.dumps(rows))
    for source in (folder, folder / "a.json"):
        assert export(source, "--format", "verl-prompts", "--slice", ":1", "--out", tmp_path / "out.jsonl") == 0
        assert [TASK["verl-prompts"](row) for row in exported(tmp_path / "out.jsonl")] == ["acme__shop-1"]


@pytest.mark.parametrize(
    ("options", "mistake"),
    [
        (["--format", "sft"], "format"),
        (["--format", "dpo"], "format"),
        (["--format", "swe-smith"], "format"),
        (["--format", "grpo", "--min-reward", "0"], "min-reward"),
        (["--format", "swe-rl", "--repos", "repos"], "repos"),
        (["--format", "swe-rl", "--owner", "me"], "owner"),
    ],
)
def test_what_a_dataset_cannot_give_is_one_error(
    dataset: Path, tmp_path: Path, options: list[str], mistake: str
) -> None:
    parsed = parse(["export", str(dataset), *options, "--out", str(tmp_path / "out")])
    assert parsed is not None
    with pytest.raises(SettingsError) as raised:
        parsed.run(parsed.settings)
    assert raised.value.option == mistake
    assert not (tmp_path / "out").exists()


def test_a_selection_needs_a_dataset(tmp_path: Path) -> None:
    folder = store(tmp_path / ".ssr")
    add_task(folder, "t1", "calc")
    keep(folder, "a" * 24, True)
    assert export(folder, "--format", "grpo", "--out", tmp_path / "a.jsonl") == 0
    assert export(folder, "--format", "grpo", "--only", "t", "--out", tmp_path / "b.jsonl") == 2


def test_a_dataset_without_a_valid_row_is_one_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    dataset = written(tmp_path / "rows.jsonl", [{"text": "a"}] * 3)
    assert export(dataset, "--format", "grpo", "--out", tmp_path / "out") == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_a_strategy_selects_no_row_of_a_dataset(
    dataset: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    argv = (dataset, "--format", "verl-prompts", "--strategy", "mutation", "--out", tmp_path / "out")
    assert list(left_out(capsys, *argv)) == [SkipCode.OTHER_STRATEGY]


def test_a_row_becomes_a_plain_harbor_task(
    dataset: Path, clones: tuple[Path, list[dict[str, Any]]], tmp_path: Path
) -> None:
    assert export(dataset, "--format", "harbor", "--out", tmp_path / "tasks") == 0
    rows = {row["instance_id"]: row for row in exported(dataset)}
    tasks = {path.name: path for path in (tmp_path / "tasks" / "train").iterdir()}
    assert tasks.keys() <= rows.keys()
    name, task = next(iter(tasks.items()))
    described = tomllib.loads((task / "task.toml").read_text())
    assert described["verifier"]["environment_mode"] == "separate"
    assert described["metadata"]["base_commit"] == rows[name]["base_commit"]
    tree = tmp_path / "tree"
    subprocess.run(["git", "clone", "-q", str(next(clones[0].iterdir())), str(tree)], check=True)
    subprocess.run(["git", "-C", str(tree), "checkout", "-q", rows[name]["base_commit"]], check=True)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python").write_text(f'#!/bin/sh\nexec "{plain_python()}" "$@"\n')
    (tmp_path / "bin" / "python").chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}", "HOME": str(tmp_path)}
    command = ["python3", str(task / "tests/grade.py"), str(task / "tests/told.json")]
    graded = [subprocess.run(command, cwd=tree, env=environment, check=False).returncode]
    subprocess.run(["git", "-C", str(tree), "checkout", "-q", "-f", rows[name]["base_commit"]], check=True)
    subprocess.run(["git", "-C", str(tree), "clean", "-qfd"], check=True)
    subprocess.run(["git", "-C", str(tree), "apply", str(task / "solution/repair.diff")], check=True)
    graded.append(subprocess.run(command, cwd=tree, env=environment, check=False).returncode)
    assert graded == [1, 0]


def test_a_row_that_harbor_cannot_hold_is_left_out_by_name(
    dataset: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = exported(dataset)
    rows[0] |= {"instance_id": "acme__shop+1", "created_at": "\ud800"}
    rows[1] |= {"instance_id": "acme__shop+2", "test_cmd": "", "FAIL_TO_PASS": json.dumps(["test_double (tests)"])}
    found = left_out(capsys, written(tmp_path / "b.jsonl", rows), "--format", "harbor", "--out", tmp_path / "tasks")
    assert found == {SkipCode.DAMAGED: ["acme__shop+1"], SkipCode.NOT_PYTEST: ["acme__shop+2"]}
    rows[0] |= {"created_at": ""}
    assert export(written(tmp_path / "c.jsonl", rows), "--format", "harbor", "--out", tmp_path / "tasks") == 0
    described = tomllib.loads((tmp_path / "tasks/train/acme__shop+1/task.toml").read_text())
    assert described["task"]["name"] == "ssr/acme__shop-1"
