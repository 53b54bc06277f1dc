"""Rows whose tests only their own command can run: graded by its log."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest
from plain import plain_python
from rows import diff, git, written

from harness.datasets.environments import Environments
from harness.datasets.loading import read_instances
from harness.datasets.repositories import Repositories
from harness.evaluation.grading import Grader
from harness.records.attempt import Attempt, Status
from pytest_ssr.records.reasons import FlagCode, ReasonCode
from pytest_ssr.sandbox.docker.provider import DockerProvider
from pytest_ssr.settings import RuleSettings
from pytest_ssr.storage.store import Store

MAKEFILE = "test:\n\t@sh checks/run.sh\n"
RUN = """\
failed=0
check() {
    if [ "$(sh ./calc.sh $1)" = "$2" ]; then echo "PASS: $1"; else echo "FAIL: $1"; failed=1; fi
}
check 'add 1 2' 3
@MORE@
exit $failed
"""
CALC = """\
case $1 in
    add) echo $(($2 + $3)) ;;
    take) echo $(($2 + $3)) ;;
esac
"""
BASE = {"Makefile": MAKEFILE, "checks/run.sh": RUN.replace("@MORE@\n", ""), "calc.sh": CALC}
SOLVED = CALC.replace("take) echo $(($2 + $3))", "take) echo $(($2 - $3))")
TESTS = RUN.replace("@MORE@", "check 'take 3 1' 2\ncheck never yes")
SCRIPT = """\
#!/bin/bash
cd /testbed
git checkout HEAD checks/run.sh
: '>>>>> Start Test Output'
make test
: '>>>>> End Test Output'
git checkout HEAD checks/run.sh
"""


class Dataset:
    """A repository whose tests are a shell script, a row of it, and a grader."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.clone = folder, folder / "clones" / "acme__calc"
        for name, text in BASE.items():
            (self.clone / name).parent.mkdir(parents=True, exist_ok=True)
            (self.clone / name).write_text(text)
        git(self.clone, "init", "-q")
        git(self.clone, "add", "-A")
        git(self.clone, "commit", "-q", "-m", "first")
        self.row = {
            "repo": "acme/calc",
            "instance_id": "acme__calc-1",
            "base_commit": git(self.clone, "rev-parse", "HEAD").strip(),
            "patch": self.diff(SOLVED),
            "test_patch": diff(self.clone, {"checks/run.sh": TESTS}),
            "problem_statement": "take adds.",
            "FAIL_TO_PASS": ["take 3 1"],
            "PASS_TO_PASS": ["add 1 2", "never"],
            "eval_script": SCRIPT,
            "log_parser": "parse_log_jq",
        }
        self.store = Store(folder / "store")

    def diff(self, calc: str, **more: str) -> str:
        """Return a patch of calc.sh and of other files."""
        return diff(self.clone, {"calc.sh": calc, **more})

    def result(self, patch: str, *, sandbox: str = "process", **fields: Any) -> Attempt:
        """Return the result of a patch on the row with other fields."""
        path = written(self.folder / "rows.jsonl", [{**self.row, **fields}])
        (instance,) = read_instances(str(path))
        grader = Grader(
            self.store,
            Repositories(self.store, self.folder / "clones"),
            Environments(self.store, None if ":" in sandbox else plain_python()),
            RuleSettings(time_limit_s=60),
            sandbox=sandbox,
            images="docker" if ":" in sandbox else "",
        )
        result = grader.evaluate(instance, patch)
        grader.close()
        return result


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return Dataset(tmp_path_factory.mktemp("calc"))


def test_the_solution_is_resolved_and_the_log_is_flagged(dataset):
    result = dataset.result(dataset.row["patch"])
    assert (result.status, result.resolved, result.tests) == (Status.RESOLVED, True, True)
    assert result.fail_to_pass == {"take 3 1": "passed"}
    assert result.pass_to_pass == {"add 1 2": "passed"}
    flags = {flag.code: flag.details for flag in result.flags}
    assert flags[FlagCode.TESTS_SET_ASIDE] == ("never",)
    assert flags[FlagCode.LOG_EVIDENCE] == ("parse_log_jq",)
    assert set(flags[FlagCode.UNCHECKED]) == {"take 3 1", "add 1 2"}


def test_patches_that_repair_nothing_are_unresolved(dataset):
    assert dataset.result("").status is Status.EMPTY
    wrong = dataset.result(dataset.diff(CALC.replace("take) echo $(($2 + $3))", "take) echo 1")))
    assert (wrong.status, wrong.tests, wrong.fail_to_pass) == (Status.UNRESOLVED, False, {"take 3 1": "failed"})
    assert FlagCode.LOG_EVIDENCE in {flag.code for flag in wrong.flags}
    breaks = dataset.result(dataset.diff(SOLVED.replace("add) echo $(($2 + $3))", "add) echo 0")))
    assert (breaks.status, breaks.pass_to_pass) == (Status.UNRESOLVED, {"add 1 2": "failed"})
    silent = dataset.result(dataset.diff("kill -9 $PPID\n"))
    assert (silent.status, silent.tests) == (Status.UNRESOLVED, False)


def test_tests_are_restored(dataset):
    patch = diff(dataset.clone, {"checks/run.sh": "echo 'PASS: take 3 1'; echo 'PASS: add 1 2'\n"})
    result = dataset.result(patch)
    assert result.status is Status.UNRESOLVED
    assert FlagCode.TESTS_RESTORED in {flag.code for flag in result.flags}


def test_printed_results_are_accepted_with_a_flag_unless_the_status_contradicts(dataset):
    """A log cannot show who printed a line; the failure that follows counts all the same."""
    forged = dataset.result(dataset.diff(f"echo 'PASS: take 3 1' >&2\n{CALC}"))
    assert (forged.status, forged.fail_to_pass) == (Status.UNRESOLVED, {"take 3 1": "failed"})
    ends = dataset.result(dataset.diff(CALC + "echo 'PASS: take 3 1' >&2\necho 'PASS: add 1 2' >&2\nkill $PPID\n"))
    assert (ends.status, ends.resolved, ends.tests) == (Status.UNRESOLVED, False, True)
    assert ends.reason.code is ReasonCode.EXIT_STATUS_CONTRADICTS


@pytest.mark.parametrize(
    ("fields", "shown"),
    [
        ({"eval_script": "no-such-tool --all"}, "exit status 127"),
        ({"eval_script": "make test; exit 3"}, ""),
        ({"eval_script": "echo PASS: take 3 1; exit 3", "PASS_TO_PASS": []}, "exit status 3"),
        ({"log_parser": "parse_log_unheard_of"}, "parse_log_gotest"),
        ({"log_parser": "parse_log_cargo"}, "parse_log_cargo finds no test"),
        ({"eval_script": "git status"}, "no test runner"),
    ],
)
def test_a_row_that_does_not_hold_here_is_infra(dataset, fields: dict[str, str], shown: str):
    result = dataset.result(dataset.row["patch"], **fields)
    if shown:
        assert (result.status, result.reason.code) == (Status.INFRA, ReasonCode.INSTANCE_UNUSABLE)
        assert shown in result.reason.text
    else:
        assert result.status is Status.RESOLVED


def test_test_cmd_runs_tests_as_well(dataset):
    install = {"test_cmd": "make test", "log_parser": "parse_log_jq", "python": "3.11"}
    fields = {"eval_script": "", "log_parser": "", "install_config": install}
    assert dataset.result(dataset.row["patch"], **fields).status is Status.RESOLVED


def test_a_mixed_dataset_goes_on_after_a_bad_row(dataset, tmp_path: Path):
    rows = [{**dataset.row, "instance_id": "acme__calc-2", "log_parser": "parse_log_unheard_of"}, dataset.row]
    path = written(tmp_path / "rows.jsonl", rows)
    command = [sys.executable, "-m", "harness.cli", "eval", str(path), "--predictions", "gold", "--json"]
    command += ["--repos", str(dataset.folder / "clones"), "--out", str(tmp_path / "out"), "--sandbox", "process"]
    command += ["--python", str(plain_python())]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    summary = json.loads(done.stdout)
    assert (done.returncode, summary["resolved"], summary["infra"]) == (3, 1, 1), done.stderr
    log = tmp_path / "out" / "logs" / "run_evaluation" / "ssr" / "gold" / "acme__calc-1" / "test_output.txt"
    assert "PASS: take 3 1" in log.read_text()


@pytest.mark.bubblewrap
def test_a_command_runs_in_bubblewrap(dataset):
    assert dataset.result(dataset.row["patch"], sandbox="bubblewrap").status is Status.RESOLVED


@pytest.mark.docker
def test_a_command_finds_the_tools_of_its_image(dataset):
    """The image's own PATH counts, behind the interpreter's folder."""
    provider = DockerProvider()
    client = provider._engine()
    base = os.environ.get("SSR_TEST_IMAGE", "python:3.12-slim")
    container = client.api.create_container(base, ["true"])["Id"]
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w") as archive:
        tool = tarfile.TarInfo("opt/tools/bin/run-checks")
        content = b"#!/bin/sh\nexec sh checks/run.sh\n"
        tool.mode, tool.size = 0o755, len(content)
        archive.addfile(tool, io.BytesIO(content))
    client.api.put_archive(container, "/", raw.getvalue())
    image = "pytest-ssr-test-command:1"
    client.api.commit(container, *image.split(":"), changes=["ENV PATH=/opt/tools/bin:/usr/local/bin:/usr/bin:/bin"])
    client.api.remove_container(container, force=True)
    try:
        fields = {"eval_script": "run-checks", "image_name": image}
        result = dataset.result(dataset.row["patch"], sandbox=f"docker:{image}", **fields)
    finally:
        client.images.remove(image, force=True)
        provider.close()
    assert result.status is Status.RESOLVED, result.reason
