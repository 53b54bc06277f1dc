"""Instances run in their own images."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from images import images_of, write_folder_image, write_testbed
from rows import git, written

from harness.cli.main import main
from pytest_ssr.sandbox.docker.provider import DockerProvider
from pytest_ssr.sandbox.protocol import Limits


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


def built_row(commit: str) -> dict[str, str]:
    """Return a row on the project that images have built; its tests need what the build has left."""
    test = (
        "from pathlib import Path\n\nfrom shop import version\nfrom shop.core import add\n\n\n"
        "def test_add():\n    assert add(1, 2) == 3\n\n\n"
        "def test_built():\n    assert version == '1.2'\n    top = Path(__file__).parent\n"
        "    assert (top / 'shop' / 'fast.so').exists()\n    assert (top / 'shop.egg-info' / 'PKG-INFO').exists()\n"
        "    assert not (top / 'shop' / 'old.py').exists()\n    assert not (top / '.git').exists()\n"
    )
    added = "".join(f"+{line}\n" for line in test.splitlines())
    return {
        "repo": "acme/built",
        "instance_id": "acme__built-1",
        "base_commit": commit,
        "patch": (
            "--- a/shop/core.py\n+++ b/shop/core.py\n@@ -1,2 +1,2 @@\n def add(a, b):\n-    return a - b\n+    return a + b\n"
            "--- a/shop/old.py\n+++ /dev/null\n@@ -1,2 +0,0 @@\n-def old():\n-    return 1\n"
        ),
        "test_patch": f"--- /dev/null\n+++ b/test_core.py\n@@ -0,0 +1,{len(test.splitlines())} @@\n{added}",
        "FAIL_TO_PASS": json.dumps(["test_core.py::test_add", "test_core.py::test_built"]),
        "PASS_TO_PASS": "[]",
    }


def graded(rows: Path, out: Path, engine: str, predictions: str) -> list[dict]:
    main(["eval", str(rows), "--predictions", predictions, "--out", str(out), "--images", engine, "--json"])
    return [json.loads(line) for line in (out / "results.jsonl").read_text().splitlines()]


@pytest.mark.docker
def test_an_image_alone_is_enough_for_a_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """It has the repository, the environment, and what was built in place."""
    # Nothing is cloned.
    monkeypatch.setenv("GIT_ALLOW_PROTOCOL", "file")
    provider = DockerProvider()
    with images_of(provider._engine(), "pytest-ssr-test-alone") as images:
        image = DockerProvider(images["conda"])
        command = ["git", "-c", "safe.directory=*", "-C", "/testbed", "rev-parse", "HEAD"]
        commit = image.exec_in_image(command, limits=Limits()).stdout.decode().strip()
        image.close()
        row = {**built_row(commit), "image_name": images["conda"]}
        unknown = {**row, "instance_id": "acme__built-2", "base_commit": "1" * 40}
        path = written(tmp_path / "rows.jsonl", [row, unknown])
        gold = graded(path, tmp_path / "out", "docker", "gold")
        assert [r["status"] for r in gold] == ["resolved", "infra"], gold
        assert "no commit 111111111111" in gold[1]["reason"]["text"]
        assert [r["status"] for r in graded(path, tmp_path / "empty", "docker", "empty")] == ["empty", "empty"]
    provider.close()


@pytest.mark.apptainer
def test_a_folder_is_the_image_of_a_row(tmp_path: Path):
    programs = ("find", "tar", "wc", "cut", "git")
    image = write_folder_image(tmp_path / "image", programs)
    write_testbed(image / "testbed")
    commit = git(image / "testbed", "rev-parse", "HEAD").strip()
    path = written(tmp_path / "rows.jsonl", [{**built_row(commit), "image_name": str(image)}])
    gold = graded(path, tmp_path / "out", "apptainer", "gold")
    assert [r["status"] for r in gold] == ["resolved"], gold
