"""`ssr inject`, `play`, `validate`, `solve` and `grade` on rows whose tests do not run with pytest."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from plain import plain_python
from program_projects import SCOPES, TREES, row_of, write_tree
from rows import written

from harness.cli.main import main
from pytest_ssr.execution.script_template import runner_of_artifact
from pytest_ssr.patch import Patch

pytestmark = pytest.mark.long

SANDBOX = ["--sandbox", "process", "--python", str(plain_python())]
RULE = ["--min-passing-tests", "1"]


@pytest.mark.parametrize(
    "name", ["unittest", pytest.param("django", marks=pytest.mark.long), pytest.param("sympy", marks=pytest.mark.long)]
)
def test_a_bug_in_a_row_can_be_validated_solved_and_graded_later(
    tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    row = row_of(tmp_path, name)
    dataset, store = written(tmp_path / "rows.jsonl", [row]), tmp_path / "store"
    common = [*SANDBOX, *RULE]
    argv = ["inject", dataset, "--repos", tmp_path / "clones", "--store", store, "--injector", "mutation"]
    assert ssr(*argv, *common, "--json") == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["test_runner"], report["scope"]) == (name, list(SCOPES[name]))
    assert report["baseline"]["stable"] == 4
    artifact = store / "artifacts" / report["valid"][0]
    assert runner_of_artifact(artifact).name == name
    (project,) = store.glob(f"instances/*/{row['repo'].replace('/', '__')}")
    assert ssr("validate", artifact, "--repo", project, *common) == 0
    fix = tmp_path / "fix.diff"
    fix.write_bytes(reverse((artifact / "bug_inject.diff").read_bytes()))
    assert ssr("grade", artifact, "--patch", fix, "--repo", project, *common) == 0
    fix.write_bytes(b"")
    assert ssr("grade", artifact, "--patch", fix, "--repo", project, *common) == 1


@pytest.mark.long
@pytest.mark.parametrize("name", ["unittest", "django", "sympy"])
def test_an_exported_row_is_graded_by_its_own_runner(
    tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    row = row_of(tmp_path, name)
    dataset, store = written(tmp_path / "rows.jsonl", [row]), tmp_path / "store"
    argv = ["inject", dataset, "--repos", tmp_path / "clones", "--store", store, "--injector", "mutation"]
    assert ssr(*argv, *SANDBOX, *RULE, "--count", "1") == 0
    exported, repositories = tmp_path / "exported.jsonl", tmp_path / "exported-repos"
    assert ssr("export", store, "--format", "swe-bench", "--out", exported, "--repos", repositories) == 0
    capsys.readouterr()
    options = ["--repos", repositories, "--store", tmp_path / "other", *SANDBOX]
    argv = ["eval", exported, "--predictions", "gold", "--out", tmp_path / "out", *options]
    assert ssr(*argv, "--dry-run", "--json") == 0
    assert [r["runner"] for r in json.loads(capsys.readouterr().out)["rows"]] == [name]
    assert ssr(*argv) == 0
    results = [json.loads(line) for line in (tmp_path / "out" / "results.jsonl").read_text().splitlines()]
    assert [r["status"] for r in results] == ["resolved"]


def reverse(data: bytes) -> bytes:
    return Patch.parse(data).reverse().data


@pytest.mark.long
@pytest.mark.parametrize("name", ["unittest", "django", "sympy"])
def test_rows_are_played(tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    row = row_of(tmp_path, name)
    dataset, store = written(tmp_path / "rows.jsonl", [row]), tmp_path / "store"
    argv = ["play", dataset, "--repos", tmp_path / "clones", "--store", store, "--injector", "mutation", *SANDBOX]
    assert ssr(*argv, "--count", "1", "--attempts", "1", "--higher-order", "0", "--json") == 0
    episodes = json.loads(capsys.readouterr().out)["episodes"]
    assert [r["resolved"] for e in episodes if e["valid"] for r in e["rollouts"]] in ([True], [False])


def test_one_of_several_instances_has_to_be_selected(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    row = row_of(tmp_path, "unittest")
    dataset = written(tmp_path / "rows.jsonl", [row, {**row, "instance_id": "acme__calc-2"}])
    argv = ["inject", dataset, "--repos", tmp_path / "clones", "--store", tmp_path / "store", *SANDBOX, *RULE]
    assert ssr(*argv) == 2
    assert "--only" in capsys.readouterr().err


def test_options_for_instances_need_a_dataset(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert ssr("inject", write_tree(tmp_path / "p", TREES["unittest"]), "--slice", ":1", *SANDBOX) == 2
    assert "--slice" in capsys.readouterr().err


def ssr(*arguments: str | Path) -> int:
    return main([*map(str, arguments)])
