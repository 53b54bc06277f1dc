"""A store of artifacts as a dataset, self-play on a dataset, and the assets of a dataset."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import pytest
from images import images_of
from plain import plain_python
from proven import project, proven
from rows import written

from harness.cli.main import main
from harness.datasets.families import read_row, row_of
from pytest_ssr.sandbox.docker.provider import DockerProvider

pytestmark = pytest.mark.long

__all__ = ["project", "proven"]
RUNNING = ["--python", str(plain_python()), "--sandbox", "process"]


def test_the_artifacts_of_a_store_are_instances(project, tmp_path: Path, capsys):
    store, out = tmp_path / "store", tmp_path / "out"
    argv = ["--count", "1", "--injector", "mutation", "--store", str(store), "--json", *RUNNING]
    assert main(["inject", str(project), *argv]) == 0
    (attempt,) = [a for a in json.loads(capsys.readouterr().out)["attempts"] if a["status"] == "valid"]
    argv = ["--predictions", "gold", "--out", str(out), "--json", *RUNNING]
    assert main(["eval", str(store), *argv]) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["dataset"], report["resolved"]) == (str(store), 1)
    assert main(["eval", str(store), *[w.replace("gold", "empty") for w in argv], "--jobs", "2"]) == 1
    (result,) = [json.loads(line) for line in (out / "results.jsonl").read_text().splitlines()]
    assert result["task"] == f"ssr__calculator-{attempt['artifact_id']}"


def test_an_artifact_that_cannot_be_graded_is_reported(proven, tmp_path: Path, capsys):
    argv = ["--predictions", "gold", "--out", str(tmp_path / "out"), *RUNNING]
    assert main(["eval", str(proven.store.root), *argv]) == 2
    assert f"(artifact {proven.verdict.artifact_id}: " in capsys.readouterr().err


def test_an_empty_store_is_reported(tmp_path: Path, capsys):
    (tmp_path / "st").mkdir()
    (tmp_path / "st" / "ssr-store.json").write_text("{}")
    assert main(["eval", str(tmp_path / "st"), "--predictions", "gold", "--out", str(tmp_path / "out")]) == 2
    assert "contains no artifact that can be graded" in capsys.readouterr().err
    assert main(["assets", str(tmp_path / "st"), "--out", str(tmp_path / "out")]) == 2
    assert "is a store" in capsys.readouterr().err


@pytest.mark.bubblewrap
def test_self_play_starts_from_the_solved_repository_of_an_instance(dataset, tmp_path: Path, capsys):
    argv = ["--count", "1", "--attempts", "1", "--tries", "20", "--higher-order", "0", "--injector", "mutation"]
    argv += ["--store", str(tmp_path / "store"), "--json", "--slice", ":1", "--python", str(plain_python())]
    assert main(["play", str(dataset.path), *dataset.common[:2], *argv]) == 0
    (episode,) = [e for e in json.loads(capsys.readouterr().out)["episodes"] if e["valid"]]
    assert episode["project"] == "acme__shop"
    (tree,) = (tmp_path / "store" / "instances").glob("*/acme__shop")
    assert "return a + b" in (tree / "shop.py").read_text()
    assert "test_add_more" in (tree / "tests" / "test_shop.py").read_text()


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        ([".", "--slice", ":1"], "--slice is for instances of a dataset"),
        (["rows.jsonl", "--images", "docker", "--sandbox", "process"], "--images has its own"),
        (["rows.jsonl", "--images", "docker", "--sandbox", "remote:http://a:1"], "--sandbox docker:IMAGE"),
        (["rows.jsonl", "--only", "nothing-like-it"], "none of the 2 instances"),
        (["absent"], "absent"),
    ],
)
def test_a_mistake_in_the_input_of_play_is_one_line(dataset, tmp_path, monkeypatch, capsys, argv, message):
    monkeypatch.chdir(tmp_path)
    written(tmp_path / "rows.jsonl", dataset.rows)
    assert main(["play", *argv]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert "Traceback" not in error


def test_rows_round_trip_as_instances(dataset):
    smith = {**dataset.rows_again()[0], "repo": "swesmith/acme__shop.1a2b3c4d", "base_commit": "", "test_patch": ""}
    rebench = {**dataset.rows_again()[1], "install_config": {"python": "3.9"}, "license": "MIT", "docker_image": "a:1"}
    for row in (*dataset.rows_again(), smith, rebench):
        instance = read_row(row, "here")
        again = read_row(json.loads(json.dumps(row_of(instance))), "there")
        assert asdict(again) == {**asdict(instance), "named_image": instance.image}


def test_assets_of_a_dataset_are_listed(dataset, tmp_path: Path, capsys):
    assert main(["assets", str(dataset.path), "--out", str(tmp_path), "--no-pull", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    names = [f"swebench/sweb.eval.x86_64.acme_1776_shop-{n}:latest" for n in (1, 2)]
    assert (report["instances"], report["images"]) == (2, names)
    assert (tmp_path / "instance_ids.txt").read_text() == "acme__shop-1\nacme__shop-2\n"
    assert (tmp_path / "docker_images.txt").read_text().split() == names
    rows = [json.loads(line) for line in (tmp_path / "evaluation.jsonl").read_text().splitlines()]
    assert [r["patch"] for r in rows] == [r["patch"] for r in dataset.rows]


def test_a_bug_that_names_no_image_has_none(dataset, tmp_path: Path, capsys):
    first, second = dataset.rows_again()
    first["artifact_id"], second["artifact_id"], second["image_name"] = "a" * 20, "b" * 20, "shop:1"
    path = written(tmp_path / "rows.jsonl", [first, second])
    assert main(["assets", str(path), "--out", str(tmp_path / "out"), "--no-pull", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["images"], report["without_image"]) == (["shop:1"], ["acme__shop-1"])
    assert (tmp_path / "out" / "docker_images.txt").read_text() == "shop:1\n"
    again = [
        read_row(json.loads(line), "row") for line in (tmp_path / "out" / "evaluation.jsonl").read_text().splitlines()
    ]
    assert [instance.image for instance in again] == ["", "shop:1"]


@pytest.mark.docker
def test_images_that_cannot_be_pulled_are_reported(dataset, tmp_path: Path, capsys):
    provider = DockerProvider()
    with images_of(provider._engine(), "pytest-ssr-test-assets") as images:
        first, second = dataset.rows_again()
        first["image_name"], second["image_name"] = images["plain"], "localhost:1/none:1"
        path = written(tmp_path / "rows.jsonl", [first, second])
        assert main(["assets", str(path), "--out", str(tmp_path / "out"), "--json"]) == 3
    provider.close()
    assert list(json.loads(capsys.readouterr().out)["failed"]) == ["localhost:1/none:1"]
