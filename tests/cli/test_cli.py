"""The command line `ssr`: text, JSON, exit codes, and usage errors of one line."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from plain import plain_python

from harness.cli.main import main
from pytest_ssr.grading import Grade
from pytest_ssr.patch import Patch
from pytest_ssr.records.reasons import Reason, ReasonCode
from pytest_ssr.sandbox import SANDBOXES

SANDBOX = ["--sandbox", "process", "--python", str(plain_python())]


def ssr(*arguments: str | Path, cwd: Path | None = None, stdin: bytes = b"") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "harness.cli", *map(str, arguments)]
    env = {k: v for k, v in os.environ.items() if not k.startswith(("PYTEST", "TOX", "COV", "SSR_"))}
    done = subprocess.run(command, cwd=cwd, env=env, input=stdin, capture_output=True, timeout=300, check=False)
    return subprocess.CompletedProcess(command, done.returncode, done.stdout.decode(), done.stderr.decode())


@pytest.fixture(scope="module")
def injected(tmp_path_factory: pytest.TempPathFactory, calculator: dict[str, str]) -> tuple[Path, dict[str, Any]]:
    """Return a project with three artifacts created by two jobs, and the output of `ssr inject --json`."""
    project = tmp_path_factory.mktemp("made") / "project"
    (project / "tests").mkdir(parents=True)
    for name, text in calculator.items():
        (project / name).write_text(text)
    done = ssr("inject", project, "--count", "3", "--jobs", "2", "--json", *SANDBOX)
    assert done.returncode == 0, done.stderr
    return project, json.loads(done.stdout)


@pytest.mark.long
def test_inject_reports_its_results_and_continues_from_the_store(injected: tuple[Path, dict[str, Any]]) -> None:
    project, report = injected
    assert len(report["valid"]) == 3
    assert sorted(report["valid"]) == sorted(p.name for p in (project / ".ssr" / "artifacts").iterdir())
    assert report["baseline"]["stable"] == 7
    assert [a["id"] for a in report["artifacts"]] == report["valid"]
    assert 0 <= report["score"]["noticed"] <= report["score"]["tried"]
    assert {a["status"] for a in report["attempts"]} <= {"valid", "survived", "rejected", "timed-out"}
    again = ssr("inject", project, "--count", "3", *SANDBOX)
    assert again.returncode == 0
    assert "valid artifacts: 3" in again.stdout
    assert "\033[" not in again.stdout
    gate = ssr("inject", project, "--fail-under", "100", "--changes", "2", "--injector", "mutation", "--json", *SANDBOX)
    assert json.loads(gate.stdout)["score"]["gate"] in ("passed", "under")
    assert gate.returncode == (json.loads(gate.stdout)["score"]["gate"] == "under")
    fewer = ssr("inject", project, "--count", "2", "--json", *SANDBOX, "--store", project.parent / "fewer")
    assert json.loads(fewer.stdout)["valid"] == report["valid"][:2]


def test_list_and_show(injected: tuple[Path, dict[str, Any]]) -> None:
    project, report = injected
    listed = ssr("list", project / ".ssr")
    assert listed.returncode == 0
    assert listed.stdout.splitlines()[-1] == "3 artifacts"
    name = report["valid"][0]
    shown = ssr("show", name[:6], cwd=project)
    assert shown.returncode == 0
    assert "inverse-mutation  passed" in shown.stdout
    assert "diff --git a/calc.py b/calc.py" in shown.stdout
    data = json.loads(ssr("show", name, "--json", cwd=project).stdout)
    assert data["info"]["id"] == name
    assert data["info"]["verdict"]["valid"] is True


@pytest.mark.long
def test_artifacts_are_valid_from_their_five_files_elsewhere(
    injected: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    project, report = injected
    shutil.copytree(project / ".ssr" / "artifacts", tmp_path / "far")
    for info in (tmp_path / "far").glob("*/artifact.json"):
        info.unlink()
    done = ssr("validate", tmp_path / "far", "--repo", project, "--json", *SANDBOX)
    artifacts = json.loads(done.stdout)["artifacts"]
    assert done.returncode == 0
    assert [a["id"] for a in artifacts] == sorted(report["valid"])
    assert all(a["valid"] and len(a["checks"]) == 7 and a["fail_to_pass"] for a in artifacts)
    assert {c["name"] for a in artifacts for c in a["controls"]} == {"empty-patch", "reverse-patch", "weakening-only"}
    (tmp_path / "far" / report["valid"][0] / "bug_inject.diff").write_bytes(b"")
    bad = ssr("validate", tmp_path / "far" / report["valid"][0], "--repo", project, *SANDBOX)
    assert bad.returncode == 1
    assert "bug-scope: bug_inject.diff changes 0 files, 1 are required" in bad.stdout


@pytest.mark.long
def test_grades(injected: tuple[Path, dict[str, Any]], tmp_path: Path) -> None:
    project, report = injected
    directory = project / ".ssr" / "artifacts" / report["valid"][0]
    bug = Patch.parse((directory / "bug_inject.diff").read_bytes())
    weaken = Patch.parse((directory / "test_weaken.diff").read_bytes())
    (tmp_path / "fix.diff").write_bytes(bug.reverse().data)
    done = ssr("grade", report["valid"][0], "--repo", project, "--patch", tmp_path / "fix.diff", "--json", *SANDBOX)
    grade = json.loads(done.stdout)
    assert done.returncode == 0, done.stderr
    assert grade["resolved"] is True
    assert set(grade["fail_to_pass"].values()) == {"passed"}
    kept = [json.loads(path.read_bytes()) for path in (project / ".ssr" / "blind").rglob("*.json")]
    assert any("suite" in record for record in kept), "the next grade measures the reference again"
    # The artifact's own record is not trusted: without our verdict it is validated again, with the same result.
    elsewhere = ssr(
        "grade", directory, "--repo", project, "--patch", "-", "--store", tmp_path / "s", *SANDBOX, stdin=b""
    )
    assert elsewhere.returncode == 1
    assert elsewhere.stdout.startswith("unresolved: ")
    (tmp_path / "cheat.diff").write_bytes(weaken.reverse().data)
    cheat = ssr("grade", report["valid"][0], "--repo", project, "--patch", tmp_path / "cheat.diff", *SANDBOX)
    assert cheat.returncode == 1
    assert "flag: changed and restored: tests/test_calc.py" in cheat.stdout


def test_a_grade_is_bounded_by_the_original_and_its_exit_code_follows_the_rule(
    injected: tuple[Path, dict[str, Any]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    project, report = injected
    calls = []

    def grade(*_: object, **options: Any) -> Grade:
        calls.append(options)
        return Grade("x", False, Reason(ReasonCode.NOT_REPAIRED), tests=True)

    monkeypatch.setattr("harness.cli.commands.artifacts.grade_patch", grade)
    (tmp_path / "p.diff").write_bytes(b"")
    argv = [
        "grade",
        report["valid"][0],
        "--repo",
        str(project),
        "--patch",
        str(tmp_path / "p.diff"),
        "--json",
        *SANDBOX,
    ]
    assert [main([*argv, *more]) for more in ([], ["--rule", "tests", "--full"])] == [1, 0]
    assert [options["full"] for options in calls] == [False, True]
    assert 0 < calls[0]["like_s"] < 60
    assert json.loads(capsys.readouterr().out.partition("}\n{")[0] + "}")["reason"]["code"] == "not-repaired"


@pytest.mark.long
def test_untrusted_code_is_not_run_without_isolation(
    injected: tuple[Path, dict[str, Any]],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    project, report = injected
    directory = project / ".ssr" / "artifacts" / report["valid"][0]
    shutil.copytree(directory, tmp_path / directory.name)
    (tmp_path / "empty.diff").write_bytes(b"")
    monkeypatch.setattr("pytest_ssr.sandbox._STRENGTH", ())
    common = ["--repo", str(project), "--python", str(plain_python())]
    grading = [directory.name, "--patch", str(tmp_path / "empty.diff")]
    for argv in (["validate", str(tmp_path)], ["grade", *grading]):
        assert main([*argv, *common]) == 3
        assert "wrote is not run without one" in capsys.readouterr().err
        assert main([*argv, *common, "--sandbox", "process"]) == int(argv[0] == "grade")
    monkeypatch.chdir(project / ".ssr" / "artifacts")
    assert main(["validate", directory.name, *common]) == 0


@pytest.mark.long
def test_a_relative_interpreter_is_resolved_from_the_current_directory(
    injected: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    project, _ = injected
    argv = ["validate", project / ".ssr" / "artifacts", "--repo", project, "--sandbox", "process"]
    argv += ["--store", project / ".ssr", "--python", "env/bin/python"]
    refused = ssr(*argv, cwd=tmp_path)
    assert refused.returncode == 2
    assert f"there is no interpreter at {tmp_path}/env/bin/python; name one with --python" in refused.stderr
    (tmp_path / "env").symlink_to(plain_python().parent.parent)
    assert ssr(*argv, cwd=tmp_path).returncode == 0


def test_doctor_names_every_sandbox() -> None:
    done = ssr("doctor", "--json")
    sandboxes = json.loads(done.stdout)["sandboxes"]
    assert set(sandboxes) == set(SANDBOXES)
    isolates = any(seen["works"] for name, seen in sandboxes.items() if name != "process")
    assert done.returncode == (0 if isolates else 1)
    assert sandboxes["process"]["works"] is True


@pytest.mark.long
@pytest.mark.bubblewrap
def test_doctor_runs_the_contract_suite() -> None:
    done = ssr("doctor", "--sandbox", "bubblewrap")
    assert done.returncode == 0, done.stdout
    assert "NO" not in done.stdout
    assert "  yes  Neither the network nor the host can be reached; the sandbox has its own loopback.\n" in done.stdout
    done = ssr("doctor", "--sandbox", "process", "--json")
    assert done.returncode == 1
    holds = {p["name"]: p["kept"] for p in json.loads(done.stdout)["promises"]}
    assert {n for n, k in holds.items() if not k} == {n for n in holds if n.startswith("isolates_")} != set()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["doctor", "--sandbox", "no"], "there is no sandbox 'no'"),
        (["inject", "nowhere"], "nowhere"),
        (["inject", ".", "--count", "0"], "--count must be at least 1, not 0"),
        (["inject", ".", "--jobs", "-1"], "--jobs must be at least 1, not -1"),
        (["inject", ".", "--sandbox", "no"], "there is no sandbox 'no'"),
        (["validate", "nowhere", "--repo", "."], "nowhere does not exist"),
        (["list", "nowhere"], "nowhere is not a store"),
        (["show", "abc", "--store", "nowhere"], "nowhere is not a store"),
        (["grade", "abc", "--patch", "nowhere"], "abc is neither an artifact's directory nor the id"),
    ],
)
def test_a_usage_error_is_one_line_and_exit_2(tmp_path: Path, arguments: list[str], message: str) -> None:
    done = ssr(*arguments, cwd=tmp_path)
    assert done.returncode == 2, done.stderr
    assert message in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_an_invalid_environment_variable_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSR_TRIES", "-1")
    for argv, message in (
        ([], "--tries must be at least 0, and finite, not -1 (from SSR_TRIES)\n"),
        (["--tries", "-2"], "--tries must be at least 0, and finite, not -2\n"),
        (["--tries=-3"], "--tries must be at least 0, and finite, not -3\n"),
    ):
        assert main(["solve", "x", "--repo", str(tmp_path), *argv]) == 2
        assert message in capsys.readouterr().err


def test_a_full_disk_is_reported(
    tmp_path: Path, calculator: dict[str, str], capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", "calc.py")

    (tmp_path / "calc.py").write_text(calculator["calc.py"])
    argv = ["inject", str(tmp_path), "--store", str(tmp_path / "s"), *SANDBOX]
    message = "the disk is full; free some space and run the same command again"
    with monkeypatch.context() as patch:
        patch.setattr("pytest_ssr.project.shared_files.write_entry", full)
        assert main(argv) == 3
        assert f"to {tmp_path / 's' / 'trees'}: {message} (nothing was lost)" in capfd.readouterr().err
    with monkeypatch.context() as patch:
        patch.setattr("harness.cli.commands.inject.open_campaign", lambda *_, **__: full())
        patch.setattr(os, "dup2", lambda *_: None)
        assert main(argv) == 3
        assert capfd.readouterr().err.endswith(f"ssr: calc.py: {message}\n")


def test_a_missing_artifact_error_names_the_store(
    tmp_path: Path, calculator: dict[str, str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("calc.py").write_text(calculator["calc.py"])
    assert main(["solve", "nosuch", "--store", "kept"]) == 2
    assert capsys.readouterr().err.endswith(f"nor the id of one in the store {tmp_path / 'kept'}\n")
    assert main(["show", "nosuch"]) == 2
    shown = capsys.readouterr().err
    assert f" {tmp_path / '.ssr'};" in shown
    assert "--store" in shown


def test_every_command_has_an_example_in_its_help() -> None:
    for command in ("inject", "validate", "list", "show", "grade", "solve", "play", "doctor"):
        done = ssr(command, "--help")
        assert done.returncode == 0
        assert f"example: ssr {command}" in done.stdout
        assert "--json" in done.stdout
    assert ssr().returncode == 2


@pytest.mark.bubblewrap
def test_bubblewrap_creates_the_same_artifacts_as_process(
    injected: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    project, report = injected
    done = ssr("inject", project, "--count", "1", "--json", "--store", tmp_path / "s", "--python", plain_python())
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert answer["sandbox"] == "bubblewrap"
    assert answer["valid"] == report["valid"][:1]
    name = answer["valid"][0]
    for file in (tmp_path / "s" / "artifacts" / name).iterdir():
        assert file.read_bytes() == (project / ".ssr" / "artifacts" / name / file.name).read_bytes()


def test_a_read_only_project_needs_another_store(injected: tuple[Path, dict[str, Any]], tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    done = ssr("inject", injected[0], "--store", blocked / "s", *SANDBOX)
    assert done.returncode == 3
    assert "choose another place with --store" in done.stderr


def test_a_missing_folder_is_not_created(tmp_path: Path) -> None:
    done = ssr("inject", tmp_path / "nowhere", *SANDBOX)
    assert done.returncode == 2
    assert "does not exist" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_one_damaged_artifact_does_not_hide_the_others(injected: tuple[Path, dict[str, Any]], tmp_path: Path) -> None:
    store = tmp_path / "store"
    shutil.copytree(injected[0] / ".ssr", store)
    (store / "artifacts" / "junk").mkdir()
    done = ssr("list", store, "--json")
    assert done.returncode == 1
    listing = json.loads(done.stdout)
    assert len(listing["artifacts"]) == len(injected[1]["valid"])
    assert [d["id"] for d in listing["damaged"]] == ["junk"]


@pytest.mark.parametrize("info", ['{"schema_version": 1, "injector": 3, "verdict": 7, "FAIL_TO_PASS": 5}'])
def test_an_artifact_record_may_be_invalid(injected: tuple[Path, dict[str, Any]], tmp_path: Path, info: str) -> None:
    source = injected[0] / ".ssr" / "artifacts" / injected[1]["valid"][0]
    shutil.copytree(source, tmp_path / "a")
    (tmp_path / "a" / "artifact.json").write_text(info)
    (tmp_path / "a" / "bug_inject.diff").write_text("")
    done = ssr("show", tmp_path / "a")
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr


def test_missing_tests_are_named(injected: tuple[Path, dict[str, Any]]) -> None:
    done = ssr("inject", injected[0], "--tests", "nowhere", *SANDBOX)
    assert done.returncode == 2
    assert f"nowhere: {injected[0]} has no such file or folder of tests" in done.stderr
