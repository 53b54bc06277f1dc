"""Published rows with columns of their own, made by hand: Pro, Live, Extra, SWE-rebench V2, Multilingual.

Their columns are those that the datasets' own harnesses read, and those of the cards: scaleapi/SWE-bench_Pro-os,
microsoft/SWE-bench-Live (evaluation/evaluation.py), nebius/SWE-bench-extra, SWE-rebench/SWE-rebench-V2
(scripts/eval.py).
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from harness.cli.main import main
from harness.datasets.families import read_row
from harness.datasets.instance import RowError
from harness.datasets.languages import OtherLanguageError
from harness.datasets.loading import read_dataset
from harness.datasets.test_runners import choose_runner
from harness.exporters.skipped import SkipCode
from pytest_ssr.execution.command_runner import CommandRunner
from pytest_ssr.execution.test_runners import PYTEST, PytestRunner
from pytest_ssr.records.reasons import ReasonCode

PATCH = "diff --git a/{0} b/{0}\n--- a/{0}\n+++ b/{0}\n@@ -1 +1 @@\n-a\n+b\n"
ADD = "tests/test_shop.py::test_add"
COMMON = {
    "instance_id": "acme__shop-1",
    "repo": "acme/shop",
    "base_commit": "1a2b3c4d",
    "patch": PATCH.format("shop.py"),
    "test_patch": PATCH.format("tests/test_shop.py"),
    "problem_statement": "It subtracts.",
}
LISTS = {"FAIL_TO_PASS": [ADD], "PASS_TO_PASS": []}
GO = {"patch": PATCH.format("shop.go"), "test_patch": PATCH.format("shop_test.go")}
PRO = {
    **COMMON,
    "instance_id": "instance_acme__shop-1a2b3c4d-v0",
    "fail_to_pass": repr([ADD]),
    "pass_to_pass": "[]",
    "requirements": "- add must add",
    "interface": "No new interfaces",
    "repo_language": "python",
    "issue_specificity": "['core_feat']",
    "issue_categories": "['back_end']",
    "before_repo_set_cmd": "git reset --hard 1a2b3c4d\ngit checkout 5e6f -- tests/test_shop.py",
    "selected_test_files_to_run": "['tests/test_shop.py']",
    "dockerhub_tag": "acme.shop-acme__shop-1a2b3c4d-v0",
}
LIVE = {
    **COMMON,
    **LISTS,
    "instance_id": "Acme__shop-1",
    "created_at": "2025-01-02T00:00:00Z",
    "hints_text": "",
    "test_cmds": ["pytest -rA -W error::UserWarning"],
    "log_parser": "pytest",
}
EXTRA = {
    **COMMON,
    **LISTS,
    "hints_text": "",
    "version": 2,
    "environment_setup_commit": "1a2b3c4d",
    "meta": {"failed_lite_validators": [], "has_test_patch": True, "is_lite": True},
    "created_at": "2023-05-06T00:00:00Z",
    "license": "mit",
}
V2 = {
    **COMMON,
    **LISTS,
    "created_at": 1609298073000,
    "image_name": "swerebenchv2/acme-shop:1",
    "language": "python",
    "license": "MIT",
    "install_config": {
        "test_cmd": "pytest --no-header -rA",
        "log_parser": "parse_log_pytest",
        "install": "pip install .",
    },
}
V2_GO = {
    **V2,
    **GO,
    "language": "go",
    "FAIL_TO_PASS": ["TestAdd"],
    "install_config": {"test_cmd": "go test -v ./...", "log_parser": "parse_log_gotest"},
}
MULTILINGUAL = {**COMMON, **GO, "FAIL_TO_PASS": json.dumps(["TestAdd"]), "PASS_TO_PASS": "[]", "version": "1.0"}


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_shop.py").touch()
    return tmp_path


@pytest.mark.parametrize(
    ("row", "family", "image", "folder"),
    [
        (PRO, "swe-bench-pro", "jefzda/sweap-images:acme.shop-acme__shop-1a2b3c4d-v0", "/app"),
        (LIVE, "swe-bench-live", "starryzhang/sweb.eval.x86_64.acme_1776_shop-1", "/testbed"),
        ({**LIVE, "docker_image": "mine:1"}, "swe-bench-live", "mine:1", "/testbed"),
        (EXTRA, "swe-bench-extra", "", "/testbed"),
        (V2, "swe-rebench-v2", "swerebenchv2/acme-shop:1", "/shop"),
    ],
)
def test_rows_are_known_by_their_columns(row: dict[str, Any], family: str, image: str, folder: str, tree: Path) -> None:
    instance = read_row(row, "here")
    assert (instance.family, instance.image, instance.folder_in_image) == (family, image, folder)
    assert (instance.fail_to_pass, instance.pass_to_pass) == ((ADD,), ())
    assert isinstance(choose_runner(instance, tree), PytestRunner)


def test_pro_adds_requirements_and_interface_to_its_statement() -> None:
    parts = ["It subtracts.", "Requirements:\n- add must add", "New interfaces introduced:\nNo new interfaces"]
    assert read_row(PRO, "here").statement == "\n\n".join(parts)
    assert read_row({**PRO, "requirements": None, "interface": ""}, "here").statement == "It subtracts."


def test_live_has_its_command_and_its_parser(tree: Path) -> None:
    instance = read_row(LIVE, "here")
    assert instance.log_parser == "parse_log_pytest"
    runner = choose_runner(instance, tree)
    assert isinstance(runner, PytestRunner)
    assert runner.environment != PYTEST.environment
    make = {**LIVE, "rebuild_cmds": ["make build"], "test_cmds": ["make test > log"], "print_cmds": ["cat log"]}
    own = choose_runner(read_row({**make, "FAIL_TO_PASS": ["adds two"]}, "here"), tree)
    assert isinstance(own, CommandRunner)
    assert (own.command, own.log_parser) == ("make build\nmake test > log\ncat log", "parse_log_pytest")
    with pytest.raises(RowError):
        read_row({**LIVE, "test_cmds": 3}, "here")


def test_versions_of_extra_are_numbers() -> None:
    assert read_row(EXTRA, "here").version == "2"


@pytest.mark.parametrize(
    ("row", "language"),
    [
        ({**PRO, **GO, "repo_language": "go", "fail_to_pass": "['TestAdd']"}, "Go"),
        ({**PRO, "repo_language": "ts", "fail_to_pass": "['test/a.ts | adds']"}, "TypeScript"),
        # Its parser is a program, which is not run.
        ({**LIVE, **GO, "FAIL_TO_PASS": ["TestAdd"], "log_parser": "def parser(log):\n    return {}"}, "Go"),
        ({**V2_GO, "install_config": {"test_cmd": "go test", "log_parser": "parse_log_unheard_of"}}, "Go"),
        (MULTILINGUAL, "Go"),
        ({**MULTILINGUAL, "patch": PATCH.format("lib/shop.rb"), "test_patch": PATCH.format("t/shop.rb")}, "Ruby"),
    ],
)
def test_a_row_of_another_language_is_refused_with_its_language(row: dict[str, Any], language: str) -> None:
    with pytest.raises(OtherLanguageError) as error:
        read_row(row, "here")
    assert error.value.code is ReasonCode.OTHER_LANGUAGE
    assert f" {language}," in str(error.value)
    assert row["instance_id"] in str(error.value)


@pytest.mark.parametrize(
    "row",
    [
        V2_GO,
        {**MULTILINGUAL, "eval_script": "go test -v ./...", "log_parser": "parse_log_gotest"},
        {**MULTILINGUAL, **LISTS},
        {**COMMON, **LISTS, "patch": PATCH.format("src/shop.c")},
        {**COMMON, **LISTS, "language": "en"},
        {**MULTILINGUAL, "patch": PATCH.format("Makefile"), "test_patch": PATCH.format("check.sh")},
    ],
    ids=["own command", "script", "node ids", "extension", "another column", "unknown"],
)
def test_a_row_that_may_run_is_not_refused(row: dict[str, Any]) -> None:
    read_row(row, "here")


@pytest.fixture
def mixed(tmp_path: Path) -> Path:
    path = tmp_path / "rows.jsonl"
    path.write_text(
        "".join(json.dumps({**r, "instance_id": f"r-{n}"}) + "\n" for n, r in enumerate((EXTRA, MULTILINGUAL)))
    )
    return path


def test_only_that_row_of_a_dataset_is_refused(mixed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert [bool(instance.invalid) for instance in read_dataset(str(mixed))] == [False, True]
    out = mixed.with_name("prompts.jsonl")
    assert main(["export", str(mixed), "--format", "grpo", "--out", str(out), "--json"]) == 0
    (left,) = json.loads(capsys.readouterr().out)["left_out"]
    assert (left["code"], left["count"]) == (SkipCode.OTHER_LANGUAGE, 1)
    assert left["examples"][0].startswith("r-1: ")


def test_a_dry_run_names_the_obstacle(mixed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["eval", str(mixed), "--predictions", "gold", "--dry-run", "--json", "--python", sys.executable]
    assert main([*arguments, "--out", str(mixed.parent / "out"), "--repos", str(mixed.parent)]) == 1
    report = json.loads(capsys.readouterr().out)
    assert report["rows"][1]["blocked"]["obstacle"] == "other-language"
