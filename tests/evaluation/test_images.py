"""Instances run in their own images."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from images import images_of
from rows import written

from harness.cli.main import main
from pytest_ssr.sandbox.docker.provider import DockerProvider


@pytest.mark.docker
def test_each_instance_is_graded_in_its_own_image(dataset, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    provider = DockerProvider()
    with images_of(provider._engine(), "pytest-ssr-test-rows") as images:
        first, second = dataset.rows_again()
        first["image_name"], second["docker_image"] = images["plain"], images["testbed"]
        third = {**first, "instance_id": "acme__shop-3", "image_name": "localhost:1/none:1"}
        path = written(tmp_path / "rows.jsonl", [first, second, third])
        options = ["--predictions", "gold", "--out", str(tmp_path / "out"), "--images", "docker", "--json"]
        assert main(["eval", str(path), *options, *dataset.common[:2]]) == 3
    provider.close()
    results = [json.loads(line) for line in (tmp_path / "out" / "results.jsonl").read_text().splitlines()]
    assert [r["status"] for r in results] == ["resolved", "resolved", "infra"], results
    assert "localhost:1/none:1" in results[2]["reason"]["text"]
    assert main(["eval", str(path), *options, "--python", "/usr/bin/python3", *dataset.common[:2]]) == 2
    assert "--images has its own" in capsys.readouterr().err
