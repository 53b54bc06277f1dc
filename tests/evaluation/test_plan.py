"""What rows need is known before they run, and a row that cannot run is reported at once."""

from __future__ import annotations

import json
import os
import shutil
import time
from pathlib import Path
from typing import Any

import pytest
from images import images_of
from rows import BASE, written

from harness.cli.main import main
from harness.datasets.environments import Environments
from harness.datasets.families import read_row
from harness.datasets.instance import InstanceError
from harness.datasets.repositories import Repositories
from harness.evaluation.grading import Grader
from harness.evaluation.plan import EnvironmentKind, Obstacle, Planner
from pytest_ssr.sandbox.docker.provider import DockerProvider
from pytest_ssr.sandbox.mirrors import VARIABLE
from pytest_ssr.settings import RuleSettings
from pytest_ssr.storage.store import Store


def planned(path: Path, out: Path, capsys: pytest.CaptureFixture[str], *options: str) -> tuple[int, dict[str, Any]]:
    """Return the exit code of a dry run, and its output."""
    command = ["eval", str(path), "--predictions", "gold", "--out", str(out), "--dry-run", "--json", *options]
    code = main(command)
    return code, json.loads(capsys.readouterr().out)


def obstacles(plan: dict[str, Any]) -> list[str | None]:
    return [row["blocked"] and row["blocked"]["obstacle"] for row in plan["rows"]]


def only_git(folder: Path) -> str:
    """Return a PATH with no other program than git."""
    (folder / "bin").mkdir()
    (folder / "bin" / "git").symlink_to(str(shutil.which("git")))
    return str(folder / "bin")


def test_a_row_that_can_run_is_listed_with_what_it_needs(dataset, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    path = written(tmp_path / "rows.jsonl", dataset.rows_again()[:1])
    options = [*dataset.common[:4], "--store", str(tmp_path / "store"), "--sandbox", "process"]
    code, plan = planned(path, tmp_path / "out", capsys, *options)
    (row,) = plan["rows"]
    assert (code, plan["total"], plan["can_run"], plan["seconds_unknown"]) == (0, 1, 1, 1)
    assert (row["instance_id"], row["runner"], row["blocked"]) == ("acme__shop-1", "pytest", None)
    assert (row["environment"], row["python"]) == (EnvironmentKind.GIVEN, dataset.common[3])
    assert (row["image"], row["image_is_here"], row["seconds"]) == ("", None, None)
    size = sum(len(text) for text in BASE.values())
    assert row["disk_bytes"] == plan["disk_bytes"] == 2 * size
    assert not (tmp_path / "out").exists()
    assert not (tmp_path / "store" / "instances").exists()
    # A run stores the time, and an evaluation removes the trees.
    assert main(["eval", str(path), "--predictions", "gold", "--out", str(tmp_path / "out"), "--json", *options]) == 0
    capsys.readouterr()
    code, plan = planned(path, tmp_path / "out", capsys, *options)
    assert (code, plan["seconds_unknown"], plan["disk_bytes"]) == (0, 0, 2 * size)
    assert plan["rows"][0]["seconds"] > 0


def test_each_row_that_cannot_run_has_its_obstacle(
    dataset, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("GIT_ALLOW_PROTOCOL", "file")
    good, commit, repository, ids, tests = (dict(dataset.rows[0], instance_id=f"acme__shop-{n}") for n in range(5))
    commit["base_commit"] = "1" * 40
    repository["repo"] = "acme/absent"
    ids["FAIL_TO_PASS"], ids["PASS_TO_PASS"] = '["no id of a runner"]', "[]"
    tests["FAIL_TO_PASS"] = "[]"
    path = written(tmp_path / "rows.jsonl", [good, commit, repository, ids, tests])
    options = [*dataset.common[:4], "--store", str(tmp_path / "store"), "--sandbox", "process"]
    code, plan = planned(path, tmp_path / "out", capsys, *options)
    expected = [None, Obstacle.NO_COMMIT, Obstacle.NO_REPOSITORY, Obstacle.NO_RUNNER, Obstacle.NO_TESTS]
    assert (code, plan["can_run"], obstacles(plan)) == (1, 1, expected)
    assert all(row["blocked"]["message"] for row in plan["rows"][1:])
    command = ["eval", str(path), "--predictions", "gold", "--out", str(tmp_path / "out"), "--json", *options]
    assert main(command) == 3
    results = [json.loads(line) for line in (tmp_path / "out" / "results.jsonl").read_text().splitlines()]
    assert [r["status"] for r in results] == ["resolved", "infra", "infra", "infra", "infra"]
    assert {r["reason"]["code"] for r in results[1:]} == {"instance-unusable"}
    assert [r["reason"]["detail"] for r in results[1:]] == [row["blocked"]["message"] for row in plan["rows"][1:]]
    capsys.readouterr()
    # Whether something was submitted does not depend on the row.
    empty = [*command[:3], "empty", *command[4:5], str(tmp_path / "empty"), *command[6:]]
    assert main(empty) == 1
    results = [json.loads(line) for line in (tmp_path / "empty" / "results.jsonl").read_text().splitlines()]
    assert {r["status"] for r in results} == {"empty"}


def test_a_missing_interpreter_blocks_every_row(dataset, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    options = [*dataset.common[:2], "--python", str(tmp_path / "python"), "--store", str(tmp_path / "store")]
    code, plan = planned(dataset.path, tmp_path / "out", capsys, *options)
    assert (code, obstacles(plan)) == (1, [Obstacle.NO_INTERPRETER] * 2)


def test_without_uv_no_environment_can_be_built(
    dataset, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    options = [*dataset.common[:2], "--store", str(tmp_path / "store")]
    code, plan = planned(dataset.path, tmp_path / "out", capsys, *options)
    assert (code, {row["environment"] for row in plan["rows"]}) == (0, {EnvironmentKind.BUILT})
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    monkeypatch.setenv("PATH", only_git(tmp_path))
    code, plan = planned(dataset.path, tmp_path / "out", capsys, *options)
    assert (code, set(obstacles(plan))) == (1, {Obstacle.NO_INTERPRETER})


@pytest.mark.parametrize("engine", ["docker", "apptainer"])
def test_images_need_an_engine(
    dataset, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, engine: str
):
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none.sock")
    monkeypatch.setenv("PATH", only_git(tmp_path))
    options = [*dataset.common[:2], "--store", str(tmp_path / "store"), "--images", engine]
    begin = time.monotonic()
    code, plan = planned(dataset.path, tmp_path / "out", capsys, *options)
    assert (code, obstacles(plan)) == (1, [Obstacle.NO_ENGINE] * 2)
    assert {row["environment"] for row in plan["rows"]} == {EnvironmentKind.IMAGE}
    command = ["eval", str(dataset.path), "--predictions", "gold", "--out", str(tmp_path / "out"), *options]
    assert main([*command, "--json"]) == 3
    assert time.monotonic() - begin < 10
    assert not (tmp_path / "store" / "instances").exists()
    results = [json.loads(line) for line in (tmp_path / "out" / "results.jsonl").read_text().splitlines()]
    assert {(r["status"], r["reason"]["code"]) for r in results} == {("infra", "sandbox-failed")}


def test_a_dry_run_shows_mirrors(
    dataset, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv(VARIABLE, "")
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none.sock")
    (tmp_path / "git" / "acme").mkdir(parents=True)
    shutil.copytree(Path(dataset.common[1]) / "acme__shop", tmp_path / "git" / "acme" / "shop.git")
    rows = dataset.rows_again()[:1]
    rows[0]["image_name"] = "team/box:1"
    path = written(tmp_path / "rows.jsonl", rows)
    mirrors = ["--mirror", "docker.io/=m.local/", "--mirror", f"https://github.com/=file://{tmp_path}/git/"]
    common = ["--store", str(tmp_path / "store"), *mirrors]
    _, plan = planned(path, tmp_path / "out", capsys, "--images", "docker", *common)
    assert [(row["image"], row["image_source"], row["clone_source"]) for row in plan["rows"]] == [
        ("team/box:1", "m.local/team/box:1", "")
    ]
    code, plan = planned(path, tmp_path / "out", capsys, *dataset.common[2:4], "--sandbox", "process", *common)
    assert (code, plan["rows"][0]["blocked"]) == (0, None), "the mirror has the repository"
    assert plan["rows"][0]["clone_source"] == f"file://{tmp_path}/git/acme/shop.git"


@pytest.mark.parametrize("elsewhere", [False, True])
def test_a_bug_without_an_image_is_blocked(dataset, tmp_path: Path, elsewhere: bool):
    rows = dataset.rows_again()
    rows[0] |= {"artifact_id": "a" * 20}
    rows[1] |= {"artifact_id": "b" * 20, "image_name": "/absent.sif"}
    instances = [read_row(row, "row") for row in rows]
    store = Store(tmp_path / "store")
    grader = Grader(store, Repositories(store, None), Environments(store, None), RuleSettings(), images="apptainer")
    blocked = Planner(grader).blocked(instances[:1], elsewhere=elsewhere)
    assert [b.obstacle for b in blocked.values()] == [Obstacle.NO_IMAGE]
    assert Planner(grader).plan(instances[:1])[0].image == ""
    with pytest.raises(InstanceError):
        grader.task(instances[0])
    assert instances[1].sandbox("apptainer") == "apptainer:/absent.sif"


def test_a_dry_run_opens_no_solver(dataset, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    absent = tmp_path / "absent.json"
    argv = ["run", str(dataset.path), "--solver", f"scripted:{absent}", "--out", str(tmp_path / "out")]
    assert main([*argv, *dataset.common, "--dry-run", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["can_run"] == 2
    assert not (tmp_path / "out").exists()


def test_an_image_file_must_exist(dataset, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch):
    (tmp_path / "apptainer").write_text("#!/bin/sh\n")
    (tmp_path / "apptainer").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    (tmp_path / "here.sif").write_bytes(b"x" * 100)
    rows = dataset.rows_again()
    rows[0]["image_name"], rows[1]["image_name"] = str(tmp_path / "here.sif"), str(tmp_path / "absent.sif")
    rows.append({**rows[0], "instance_id": "acme__shop-3", "image_name": "team/box:1"})
    path = written(tmp_path / "rows.jsonl", rows)
    code, plan = planned(path, tmp_path / "out", capsys, "--images", "apptainer", "--store", str(tmp_path / "store"))
    assert (code, obstacles(plan)) == (1, [None, Obstacle.NO_IMAGE, None])
    assert [(row["image_is_here"], row["image_bytes"]) for row in plan["rows"]] == [
        (True, 100),
        (None, None),
        (None, None),
    ]
    assert plan["rows"][2]["image"] == "docker://team/box:1"


@pytest.mark.docker
def test_images_are_here_or_to_be_pulled(dataset, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    provider = DockerProvider()
    with images_of(provider._engine(), "pytest-ssr-test-plan") as images:
        rows = dataset.rows_again()
        rows[0]["image_name"], rows[1]["image_name"] = images["built"], "localhost:1/none:1"
        path = written(tmp_path / "rows.jsonl", rows)
        code, plan = planned(path, tmp_path / "out", capsys, *dataset.common[:2], "--images", "docker")
        assert (
            main(["eval", str(path), "--predictions", "gold", "--out", str(tmp_path), "--images=docker", "--dry-run"])
            == 0
        )
        text = capsys.readouterr().out
    provider.close()
    assert (code, obstacles(plan), plan["images_to_pull"]) == (0, [None, None], 1)
    assert [row["image_is_here"] for row in plan["rows"]] == [True, False]
    assert plan["rows"][0]["image_bytes"] > 0
    assert plan["rows"][1]["image_bytes"] is None
    assert all(row["instance_id"] in text for row in plan["rows"])
