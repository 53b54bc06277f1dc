"""Instances in images of their own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from images import images_of
from rows import written

from harness.cli import main
from pytest_ssr.sandbox.docker import DockerProvider


@pytest.mark.docker
def test_each_instance_is_graded_in_its_own_image(dataset, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    provider = DockerProvider()
    with images_of(provider._engine(), "pytest-ssr-test-rows") as made:
        first, second = dataset.rows_again()
        first["image_name"], second["docker_image"] = made["plain"], made["testbed"]
        third = {**first, "instance_id": "acme__shop-3", "image_name": "localhost:1/none:1"}
        path = written(tmp_path / "rows.jsonl", [first, second, third])
        words = ["--predictions", "gold", "--out", str(tmp_path / "out"), "--images", "docker", "--json"]
        assert main(["eval", str(path), *words, *dataset.common[:2]]) == 3
    provider.close()
    found = [json.loads(line) for line in (tmp_path / "out" / "results.jsonl").read_text().splitlines()]
    assert [r["status"] for r in found] == ["resolved", "resolved", "infra"], found
    assert "localhost:1/none:1" in found[2]["reason"]["text"]
    assert main(["eval", str(path), *words, "--python", "/usr/bin/python3", *dataset.common[:2]]) == 2
    assert "--images has its own" in capsys.readouterr().err
