"""`ssr leaderboard` as its users run it."""

from __future__ import annotations

import errno
import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from board_parts import episode, outcomes, results_only, run_folder, store
from play_parts import Told, selfplay

from harness.cli.main import main
from harness.storage import atomic_write
from pytest_ssr.storage.store import Store

LETTERS = {"a__b-1": "ru", "a__b-2": "rr", "c__d-1": "ui"}


@pytest.fixture
def runs(tmp_path: Path) -> list[str]:
    one = run_folder(tmp_path / "runs" / "one", outcomes("m", LETTERS))
    two = run_folder(tmp_path / "runs" / "two", outcomes("n", LETTERS, seed="n"))
    bugs = [episode(n, solvers={"s": "rrru", "t": "uuru"}) for n in range(4)] + [episode(9, valid=False)]
    return [str(one), str(two), str(store(tmp_path / "runs" / "bugs", bugs))]


def test_all_formats_are_the_same_bytes_in_any_order_of_runs(
    runs: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    outputs = []
    for name, argv in (("first", runs), ("second", runs[::-1])):
        out = tmp_path / name
        options = ["--html", f"{out}/b.html", "--csv", f"{out}/b.csv", "--markdown", f"{out}/b.md"]
        options += ["--plots", f"{out}/plots", "--submission", f"{out}/sub", "--date", "20260131"]
        options += ["--save-pool", f"{out}/pool.json", "--json"]
        assert main(["leaderboard", *argv, *options]) == 0
        files = {str(p.relative_to(out)): p.read_bytes() for p in sorted(out.rglob("*")) if p.is_file()}
        outputs.append((capsys.readouterr().out, files))
    assert outputs[0] == outputs[1]
    data, files = json.loads(outputs[0][0]), outputs[0][1]
    assert {r["solver"] for r in data["solvers"]} == {"m", "n", "s", "t"}
    assert {"b.html", "b.csv", "b.tasks.csv", "b.injectors.csv", "b.comparisons.csv", "b.md", "plots/cost.pdf"} <= set(
        files
    )
    assert {"sub/evaluation/verified/20260131_m/all_preds.jsonl", "plots/abilities.svg"} <= set(files)
    pool = json.loads(files["pool.json"])["pool"]
    assert set(pool) == {"s", "t"}
    assert sum(pool.values()) == pytest.approx(0, abs=1e-6)


def test_a_saved_pool_measures_another_run(runs: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pool = tmp_path / "pool.json"
    assert main(["leaderboard", runs[2], "--save-pool", str(pool)]) == 0
    other = store(tmp_path / "other", [episode(n, strategy="removal", solvers={"s": "uuur"}) for n in range(4)])
    capsys.readouterr()
    assert main(["leaderboard", str(other), "--pool", str(pool), "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["about"]["frozen"] == {"s": pytest.approx(json.loads(pool.read_text())["pool"]["s"])}
    (injector,) = data["injectors"]
    assert injector["difficulty"]["value"] > data["about"]["frozen"]["s"]


def test_the_output_on_a_terminal(runs: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["leaderboard", *runs]) == 0
    text = capsys.readouterr().out
    for heading in ("Solvers", "Injectors", "Comparisons in pairs", "Tasks: "):
        assert f"\n{heading}" in f"\n{text}"
    assert "attempts without a grade: 2; they are missing" in text
    assert "c__d-1  m 0/1 1m; n 0/1 1m" in text


def test_the_days_of_tasks_come_from_the_instances(
    runs: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [
        {"instance_id": i, "repo": "a/b", "base_commit": "0" * 40, "patch": "", "test_patch": "", "version": "1"}
        | {"FAIL_TO_PASS": ["t"], "PASS_TO_PASS": [], "problem_statement": "x", "created_at": "2024-01-01T00:00:00Z"}
        for i in LETTERS
    ]
    diff = "diff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+b\n"
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps({**r, "patch": diff, "test_patch": diff}) + "\n" for r in rows))
    assert main(["leaderboard", *runs, "--instances", str(path), "--released", "m=2025-01-01", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    flags = {t["task"]: {s: o["contaminated"] for s, o in t["outcomes"].items()} for t in data["tasks"]}
    assert flags["a__b-1"] == {"m": True, "n": False}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--released", "m"], "--released m is not NAME=VALUE"),
        (["--k", "0"], "--k 0 must be at least 1"),
        (["--pool", "gone.json"], "gone.json cannot be read: No such file or directory"),
        (["--reference", "x"], "--reference names x, which is not a solver of these runs; they have: m, n, s, t"),
        (["--seed", "-1"], "--seed must be at least 0"),
        (["--submission", "x", "--date", "x"], "--date x is not a date; write it as 20260131"),
    ],
)
def test_a_usage_error_is_one_line(
    runs: list[str],
    options: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["leaderboard", *runs, *options]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_a_store_alone_has_no_submission(runs: list[str], capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["leaderboard", runs[2], "--submission", str(tmp_path / "x")]) == 2
    assert "--submission needs a folder of ssr run or ssr eval" in capsys.readouterr().err
    assert main(["leaderboard", runs[0], "--save-pool", str(tmp_path / "x")]) == 2
    assert "--save-pool needs a store of ssr play" in capsys.readouterr().err


def test_a_full_disk_is_reported_and_leaves_the_old_file(
    runs: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "b.html"
    page.write_text("before")

    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", str(page))

    monkeypatch.setattr(atomic_write.os, "replace", full)
    assert main(["leaderboard", *runs, "--html", str(page)]) == 3
    error = capsys.readouterr().err
    assert "b.html: the disk is full; free some space and run the same command again" in error
    assert page.read_text() == "before"
    assert [p.name for p in tmp_path.iterdir() if p.name.startswith(".writing")] == []


def test_a_path_that_cannot_be_written_is_reported(
    runs: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    assert main(["leaderboard", *runs, "--html", str(tmp_path / "file" / "sub" / "b.html")]) == 3
    assert capsys.readouterr().err.endswith("a file is in the way; choose another place\n")


@pytest.mark.parametrize("package", ["pandas", "scipy", "matplotlib"])
def test_a_missing_extra_is_reported(
    package: str, runs: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *a: None if name == package else real(name, *a))
    assert main(["leaderboard", *runs]) == 2
    assert f"{package} is not installed and is needed here; run: pip install 'pytest-ssr[leaderboard]'" in (
        capsys.readouterr().err
    )


def test_ssr_starts_without_the_extra() -> None:
    code = "import harness.cli.main, sys; print([m for m in ('pandas', 'scipy', 'matplotlib', 'numpy') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "[]"


@pytest.mark.long
@pytest.mark.bubblewrap
def test_a_store_of_self_play(project: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    saved = Store(tmp_path / "store")
    (played,) = [selfplay(project, saved, Told(), count=2, attempts=3).play()]
    assert main(["leaderboard", str(tmp_path / "store"), "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert [(r["injector"], r["tried"], r["valid"]) for r in data["injectors"]] == [("mutation", 2, 2)]
    (solver,) = data["solvers"]
    assert (solver["solver"], solver["tasks"], solver["attempts"], solver["resolved"]) == ("told", 2, 6, 0)
    assert solver["tokens"]["value"] == 15
    assert {t["task"] for t in data["tasks"]} == {e.artifact_id for e in played}


def test_results_of_an_unfinished_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = results_only(tmp_path / "r", outcomes("m", LETTERS))
    (folder / "summary.json").write_text(json.dumps({"wanted": 10}))
    assert main(["leaderboard", str(folder)]) == 0
    assert "r is not finished; attempts that have not been made yet: 4" in capsys.readouterr().out
