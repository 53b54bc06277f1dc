"""Several processes make the rows of an export: the files and the report do not depend on their number."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from export_parts import lines, report_of
from rollout_parts import add_task, keep, played, record, store

from harness.cli.app import parse
from harness.cli.commands import export as export_command
from harness.cli.commands import export_rows
from harness.cli.commands.export_rows import row_blocks
from harness.exporters.index import Index
from harness.exporters.library import Library
from harness.exporters.sources import Source, index_sources
from harness.settings.results import ExportSettings
from pytest_ssr.errors import SsrError, StoreError

TASKS = 70
"""More than two chunks."""


@pytest.fixture
def many(tmp_path: Path) -> Path:
    """A file of records of many tasks in several projects; some have no reward, and one is larger than a block."""
    path = tmp_path / "many.jsonl"
    with path.open("w") as file:
        for number in range(TASKS):
            said = "é" * 2**20 if number == 40 else "Hm."
            rollout = played(f"r{number:03}", ("ls",), task=f"t{number:03}", said=said, ids=number != 40)
            reward = None if number % 10 == 3 else 1.0
            task = {"repository": f"p{number % 7}", "tree_hash": f"{number % 7:040x}"}
            data = record(rollout, reward, task=task, verdict={"resolved": reward is not None, "infra": reward is None})
            file.write(json.dumps(dict(data.data)) + "\n")
        file.write("{damaged\n")
    return path


@pytest.fixture
def bugs(tmp_path: Path) -> Path:
    """A store with two bugs that are the same, and attempts at them."""
    folder = store(tmp_path / ".ssr")
    for name in ("t1", "t2"):
        (add_task(folder, name) / "bug_inject.diff").write_text("-return a\n+return b\n")
        keep(folder, name * 12, task=name)
    return folder


def outcome(capsys: pytest.CaptureFixture[str], source: Path, out: Path, *argv: object) -> tuple[Any, dict[str, bytes]]:
    report = report_of(capsys, source, *argv, "--out", out)
    return {**report, "out": ""}, {str(p.relative_to(out)): p.read_bytes() for p in out.rglob("*") if p.is_file()}


@pytest.mark.parametrize(("name", "container"), [("rollouts", "jsonl"), ("sft-tokens", "jsonl.zst"), ("dpo", "jsonl")])
def test_files_and_reports_are_the_same(
    many: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    container: str,
) -> None:
    argv = ("--format", name, "--as", container, "--splits", "train=0.6,test=0.4")
    one = outcome(capsys, many, tmp_path / "one", *argv)
    monkeypatch.setattr(export_command, "FEWEST_ROLLOUTS", 1)
    assert outcome(capsys, many, tmp_path / "several", *argv, "-n", "3") == one
    assert one[0]["left_out"]


def test_near_duplicates_are_found(
    bugs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    argv = ("--format", "sft")
    one = outcome(capsys, bugs, tmp_path / "one", *argv)
    monkeypatch.setattr(export_command, "FEWEST_ROLLOUTS", 1)
    several = outcome(capsys, bugs, tmp_path / "several", *argv)
    assert several == one
    assert [(e["id"], e["original"]) for e in several[0]["near_duplicates"]["found"]] == [("t2", "t1")]


@pytest.mark.parametrize("argv", [["--near-duplicates", "drop"], ["--most-per", "repository=1"]])
def test_one_process_decides_which_bugs_are_taken(
    bugs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, argv: list[str]
) -> None:
    monkeypatch.setattr(export_command, "FEWEST_ROLLOUTS", 1)
    report_of(capsys, bugs, "--format", "rollouts", *argv, "--out", tmp_path / "out.jsonl")
    assert [row["task_id"] for row in lines(tmp_path / "out.jsonl")] == ["t1"]


def blocks_of(path: Path, *, keep_file: bool = True) -> list[export_rows.Block]:
    """Return the blocks of a file that may have been removed since it was indexed."""
    parsed = parse(["export", str(path), "--format", "rollouts", "--out", "out"])
    assert parsed is not None
    settings = parsed.settings
    assert isinstance(settings, ExportSettings)
    sources = [Source(path, is_store=False)]
    with Index() as index:
        index_sources(index, sources, lambda name, error: None)
        if not keep_file:
            path.unlink()
        return list(row_blocks(settings, Library(sources, index)))


def test_blocks_are_limited_in_size_and_in_order(many: Path) -> None:
    blocks = blocks_of(many)
    rows = [json.loads(line) for block in blocks for line in block.lines.get("train", b"").splitlines()]
    # The order is that of one process: project by project.
    assert [row["task_id"] for row in rows] == [f"t{n:03}" for p in range(7) for n in range(TASKS) if n % 7 == p]
    assert len(blocks) > -(-TASKS // 32)


def test_an_error_of_a_process_ends_the_export(many: Path) -> None:
    with pytest.raises(StoreError):
        blocks_of(many, keep_file=False)


def test_a_process_that_ends_early_is_an_error(many: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(export_rows, "_work", os._exit)
    with pytest.raises(SsrError) as ended:
        blocks_of(many)
    assert type(ended.value) is SsrError
