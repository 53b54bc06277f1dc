"""A project without Python: its artifact is validated, solved and graded by its script and its parser alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from harness.cli.main import main
from pytest_ssr.patch import FileEntry, make_patch
from pytest_ssr.records.artifact import BugArtifact, write_artifact

CALC = "add() { echo $(($1 + $2)); }\ndouble() { add $1 $1; }\nnegate() { echo $((-$1)); }\n"
BUGGY = CALC.replace("$1 + $2", "$1 - $2")
CHECKS = """\
. ./calc.sh
check() { if [ "$2" = "$3" ]; then echo "ok $1"; else echo "not ok $1"; fi; }
check add "$(add 1 2)" 3
check double "$(double 2)" 4
check negate "$(negate 3)" -3
check nothing "$(negate 0)" 0
check zero "$(add 0 0)" 0
"""
SCRIPT = b"# The checks print TAP; the status of a pipe is always 0.\nbash checks/calc.sh | tee /dev/null\n"
PARSER = b"""\
import json, sys
words = {"ok": "passed", "not ok": "failed"}
pairs = [line.strip().rpartition(" ") for line in sys.stdin]
print(json.dumps({name: words[word] for word, _, name in pairs if word in words}))
"""


def diff(path: str, old: str, new: str) -> Any:
    return make_patch({path: (FileEntry(old.encode()), FileEntry(new.encode()))})


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "shell"
    (folder / "checks").mkdir(parents=True)
    (folder / "calc.sh").write_text(CALC)
    (folder / "checks/calc.sh").write_text(CHECKS)
    weaker = "\n".join(line for line in CHECKS.splitlines() if "check add" not in line and "check double" not in line)
    bug, weaken = diff("calc.sh", CALC, BUGGY), diff("checks/calc.sh", CHECKS, weaker + "\n")
    (tmp_path / "artifact").mkdir()
    write_artifact(tmp_path / "artifact", BugArtifact(SCRIPT, ("checks/calc.sh",), PARSER, bug, weaken))
    return folder


def ran(capsys: pytest.CaptureFixture[str], *argv: object) -> tuple[int, dict[str, Any]]:
    capsys.readouterr()
    code = main([*map(str, argv), "--sandbox", "process", "--json"])
    out, err = capsys.readouterr()
    assert out, err
    return code, json.loads(out)


@pytest.mark.long
def test_a_shell_project(project: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    artifact, store = tmp_path / "artifact", tmp_path / "store"
    assert main(["validate", str(artifact), "--repo", str(project)]) == 2, "a project without Python"
    code, data = ran(capsys, "validate", artifact, "--repo", project, "--by-script")
    (verdict,) = data["artifacts"]
    assert code == 0, verdict["reason"]
    assert verdict["fail_to_pass"] == ["add", "double"]
    assert verdict["pass_to_pass"] == ["negate", "nothing", "zero"]
    assert verdict["certified"] == "script"

    env = {k: v for k, v in os.environ.items() if not k.startswith(("PYTEST", "TOX", "COV", "SSR_"))}
    session = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "no:anyio",
        "-p",
        "no:hypothesispytest",
        "--ssr-sandbox",
        "process",
    ]
    session += ["--ssr-validate", str(artifact), "--ssr-by-script", "-q"]
    done = subprocess.run(session, cwd=project, env=env, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "7 passed" in done.stdout

    patch = tmp_path / "fix.diff"
    grade = ["grade", artifact, "--repo", project, "--by-script", "--patch", patch]
    for text, resolved in ((CALC, True), (BUGGY + "# a comment\n", False)):
        patch.write_bytes(diff("calc.sh", BUGGY, text).data)
        code, data = ran(capsys, *grade)
        assert (code, data["resolved"], data["tests"]) == (0 if resolved else 1, resolved, resolved)
    patch.write_bytes(diff("calc.sh", BUGGY, CALC).data)
    _, data = ran(capsys, *grade)
    assert "log-evidence" in data["flags"], "the grade shows that nothing else confirms it"

    command = "sed -i 's/$1 - $2/$1 + $2/' calc.sh"
    calls = [("bash", {"command": command}), ("submit", {})]
    replies = tmp_path / "replies.json"
    replies.write_text(json.dumps([{"tool_calls": [{"name": n, "arguments": a}]} for n, a in calls]))
    solve = ["solve", artifact, "--repo", project, "--by-script", "--store", store, "--attempts", 1]
    code, data = ran(capsys, *solve, "--solver", f"scripted:{replies}")
    assert (code, data.get("solved")) == (0, 1), data
    (path,) = store.rglob("trajectory.jsonl")
    assert (
        "bash checks/calc.sh | tee /dev/null` runs its tests" in json.loads(path.read_text().splitlines()[2])["content"]
    )
    code, data = ran(capsys, *solve, "--solver", "search")
    assert data["attempts"][0]["exit_reason"] == "unable"
    assert main(["play", str(project), "--by-script", "--injector", "mutation"]) == 2
    assert "--by-script is for a model that injects" in capsys.readouterr().err
