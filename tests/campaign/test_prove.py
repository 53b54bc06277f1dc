"""Changes that a gate has only judged become artifacts when they are asked for."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from plain import plain_python

CODE = "def double(x):\n    return x * 2\n\n\ndef half(x):\n    return x // 2\n"
TESTS = """import calc


def test_double():
    assert calc.double(3) == 6


def test_half():
    assert calc.half(8) == 4
"""
Run = Callable[..., tuple[int, str]]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "calc.py").write_text(CODE)
    (tmp_path / "test_calc.py").write_text(TESTS)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def ssr(run: Run, *arguments: str) -> tuple[int, dict[str, Any]]:
    code, out = run(*arguments, "--json", "--python", str(plain_python()))
    return code, json.loads(out)


def judge(run: Run) -> dict[str, Any]:
    return ssr(run, "inject", ".", "--injector", "mutation", "--fail-under", "1", "--changes", "8")[1]


def test_noticed_changes_become_artifacts(project: Path, run: Run) -> None:
    judged = judge(run)
    assert judged["valid"] == []
    _, listed = ssr(run, "prove", "--list")
    assert [change["diff"] for change in listed["noticed"]] == [
        attempt["diff"] for attempt in judged["attempts"] if attempt["status"] == "noticed"
    ]
    wanted = listed["noticed"][-1]
    code, proven = ssr(run, "prove", wanted["id"])
    assert code == 0
    (artifact,) = proven["artifacts"]
    assert artifact["diff"] == wanted["diff"]
    assert (project / ".ssr" / "artifacts" / artifact["artifact"] / "bug_inject.diff").is_file()
    code, proven = ssr(run, "prove", "--count", "2")
    assert (code, len(proven["artifacts"])) == (0, 2)
    # Reports and acceptances still show the gate.
    assert judge(run)["campaign"] == judged["campaign"]
    assert len(ssr(run, "prove", "--list")[1]["noticed"]) == len(listed["noticed"])


def test_fewer_than_wanted_is_no_success(project: Path, run: Run) -> None:
    judge(run)
    assert ssr(run, "prove", "--count", "100")[0] == 1


def test_mistakes(project: Path, run: Run) -> None:
    assert run("prove")[0] == 2
    judge(run)
    assert run("prove", "nowhere")[0] == 2
    assert run("prove", "a", "--count", "3")[0] == 2
    assert run("prove", "--list", "--count", "3")[0] == 2
    assert run("prove", "--list", "a")[0] == 2
    (project / "calc.py").write_text(CODE + "\n\nX = 1\n")
    assert run("prove")[0] == 2


def test_an_id_names_the_changes_of_all_equal_functions(project: Path, run: Run) -> None:
    (project / "twin.py").write_text(CODE)
    (project / "test_twin.py").write_text(TESTS.replace("calc", "twin"))
    ssr(run, "inject", ".", "--injector", "mutation", "--fail-under", "1", "--changes", "100")
    _, listed = ssr(run, "prove", "--list")
    wanted = next(change["id"] for change in listed["noticed"] if change["path"] == "twin.py")
    named = {change["path"] for change in listed["noticed"] if change["id"] == wanted}
    assert named == {"calc.py", "twin.py"}
    code, proven = ssr(run, "prove", wanted)
    assert (code, {artifact["path"] for artifact in proven["artifacts"]}) == (0, named)
