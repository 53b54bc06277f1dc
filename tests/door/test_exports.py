"""Rollouts with odd contents, as `datasets` and pyarrow load them after an export: complete, or left out by name."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import datasets
import pyarrow.parquet as pq
import pytest
from rollout_parts import add_task, keep, store

from harness.cli.main import main
from harness.exporters.formats import FORMATS
from harness.exporters.skipped import SkipCode

Change = Callable[[dict[str, Any]], None]


@pytest.fixture(autouse=True)
def offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(datasets.config, "HF_DATASETS_OFFLINE", True)
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A store with a task and no rollout."""
    folder = store(tmp_path / "project" / ".ssr")
    add_task(folder, "t1", "calc")
    return folder


def edit(folder: Path, rollout_id: str, change: Callable[[dict[str, Any]], None]) -> None:
    """Change the lines of a stored trajectory as they are in the file."""
    path = folder / "rollouts" / rollout_id / "trajectory.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    for line in lines:
        change(line)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def arguments(value: dict[str, Any]) -> Change:
    """Return a change of the arguments of every tool call."""

    def change(line: dict[str, Any]) -> None:
        for call in line.get("tool_calls", ()):
            call.update(arguments=value, raw=json.dumps(value))

    return change


def content(text: str, role: str = "tool") -> Change:
    """Return a change of the content of every message of a role."""

    def change(line: dict[str, Any]) -> None:
        if line.get("role") == role and line["event"] == "message":
            line["content"] = text

    return change


def export(source: Path, out: Path, name: str, *argv: object) -> int:
    return main(["export", str(source), "--format", name, "--out", str(out), *map(str, argv)])


def loaded(path: Path) -> list[dict[str, Any]]:
    return list(datasets.load_dataset(str(path))["train"])


CONTENTS: dict[str, tuple[Change, Change]] = {
    "no output, then output": (content(""), content("text")),
    "an empty reply beside a call, then text": (content("", "assistant"), content("text", "assistant")),
    "other keys in the arguments": (arguments({"x": 0, "y": 1}), arguments({"command": "ls"})),
    "a number, then text": (arguments({"n": 1}), arguments({"n": "Nan"})),
    "true, then a number": (arguments({"n": True}), arguments({"n": 1.5})),
    "null, then an object": (arguments({"n": None}), arguments({"n": {"a": []}})),
    "an empty list, then a list of objects": (arguments({"n": []}), arguments({"n": [{"type": "A", "start": 0}]})),
    "a list of several types": (arguments({"n": [1, "a", None, {}]}), arguments({"n": [[[]]]})),
    "no arguments, then some": (arguments({}), arguments({"command": "ls"})),
    "the largest integers": (arguments({"n": 2**63 - 1}), arguments({"n": 1 - 2**63})),
    "text that looks like a date": (arguments({"n": "2023-09-01T00:00:00Z"}), arguments({"n": "soon"})),
    "keys of columns, dots and nothing": (arguments({"_type": "Value", "a.b": 1, "": 2}), arguments({"dtype": "x"})),
    "separators of lines": (content("a\u2028b\u2029c\x85d\re\x0bf\x1cg"), content("\ufeffx")),
    "a character of zero": (content("a\0b"), arguments({"n": "\0"})),
    "more than a block of the reader": (content("x" * (11 << 20)), content("y")),
    "emoji and combined characters": (
        content("\U0001f468\u200d\U0001f469 e\u0301"),
        arguments({"\u00fc": "\U0001f600"}),
    ),
}


@pytest.mark.parametrize("container", ["jsonl", "parquet"])
@pytest.mark.parametrize("name", CONTENTS)
def test_contents_arrive_as_they_were(folder: Path, tmp_path: Path, name: str, container: str) -> None:
    for rollout_id, change in zip("ab", CONTENTS[name], strict=True):
        keep(folder, rollout_id * 24, attempt=ord(rollout_id))
        edit(folder, rollout_id * 24, change)
    out = tmp_path / "out"
    assert export(folder, out, "sft", "--as", container) == 0
    rows = loaded(out)
    assert len(rows) == 2
    assert list(rows[0]) == list(FORMATS["sft"].columns)
    for row in rows:
        stored = (folder / "rollouts" / row["rollout_id"] / "trajectory.jsonl").read_text().splitlines()
        # A conversation ends with a reply.
        *expected, _ = (line for line in map(json.loads, stored) if line["event"] == "message")
        assert [m["content"] for m in row["messages"]] == [m["content"] for m in expected]
        calls = [c["function"]["arguments"] for m in row["messages"] for c in m.get("tool_calls") or ()]
        assert calls == [c["arguments"] for m in expected for c in m.get("tool_calls", ())]


UNREADABLE: dict[str, Change] = {
    # The reader of JSON in `datasets` gives up the whole file for each of them.
    "an integer beyond 64 bits": arguments({"n": 2**64}),
    "a negative one": arguments({"n": -(2**64)}),
    "a number that is not one": arguments({"n": float("nan")}),
    "half a surrogate pair in an output": content("half \ud835"),
    "half a surrogate pair in an argument": arguments({"n": "\ud835"}),
}


@pytest.mark.parametrize("container", ["jsonl", "parquet"])
@pytest.mark.parametrize("name", UNREADABLE)
def test_what_readers_refuse_is_left_out_by_name(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, container: str
) -> None:
    keep(folder, "a" * 24)
    keep(folder, "b" * 24, attempt=1)
    edit(folder, "a" * 24, UNREADABLE[name])
    out = tmp_path / "out"
    assert export(folder, out, "sft", "--as", container, "--json") == 0
    report = json.loads(capsys.readouterr().out)
    assert report["rows"] == 1
    assert [(entry["code"], entry["count"], entry["examples"][0][:24]) for entry in report["left_out"]] == [
        (SkipCode.DAMAGED, 1, "a" * 24)
    ]
    (row,) = loaded(out)
    assert row["rollout_id"] == "b" * 24


def test_a_column_that_is_empty_at_first_keeps_its_type(folder: Path, tmp_path: Path) -> None:
    for number, resolved in enumerate((None, None, True, False)):
        keep(folder, f"{number}" * 24, resolved, attempt=number, commands=("ls",))
    for container in ("jsonl", "parquet"):
        out = tmp_path / container
        assert export(folder, out, "rollouts", "--as", container) == 0
        assert [row["reward"] for row in loaded(out)] == [None, None, 1.0, -1.0]


def test_a_split_without_rows_has_no_file(folder: Path, tmp_path: Path) -> None:
    keep(folder, "a" * 24)
    out = tmp_path / "out"
    assert export(folder, out, "sft", "--as", "parquet", "--splits", "train=0.5,test=0.5") == 0
    (file,) = (out / "data").iterdir()
    dataset = datasets.load_dataset(str(out))
    assert {name: part.num_rows for name, part in dataset.items()} == {file.stem: 1}


@pytest.mark.parametrize("container", ["jsonl", "parquet"])
def test_another_export_is_not_read_from_the_cache_of_the_first(folder: Path, tmp_path: Path, container: str) -> None:
    out = tmp_path / "out"
    for count, rollout_id in enumerate("ab", start=1):
        keep(folder, rollout_id * 24, attempt=count)
        assert export(folder, out, "rollouts", "--as", container) == 0
        assert [row["reward"] for row in loaded(out)] == [1.0] * count
    grade = folder / "rollouts" / ("b" * 24) / "rollout.json"
    grade.write_text(json.dumps(json.loads(grade.read_text()) | {"resolved": False, "tests": False, "reward": -1.0}))
    assert export(folder, out, "rollouts", "--as", container) == 0
    assert [row["reward"] for row in loaded(out)] == [1.0, -1.0]


def test_a_trajectory_whose_last_line_is_cut_is_left_out(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    keep(folder, "a" * 24)
    keep(folder, "b" * 24, attempt=1)
    path = folder / "rollouts" / ("a" * 24) / "trajectory.jsonl"
    path.write_bytes(path.read_bytes()[:-40])
    out = tmp_path / "out"
    assert export(folder, out, "sft", "--json") == 0
    assert json.loads(capsys.readouterr().out)["left_out"][0]["examples"][0].startswith("a" * 24)
    assert [row["rollout_id"] for row in loaded(out)] == ["b" * 24]


def test_pyarrow_alone_reads_json_columns_as_text(folder: Path, tmp_path: Path) -> None:
    keep(folder, "a" * 24)
    out = tmp_path / "rows.parquet"
    assert export(folder, out, "sft") == 0
    (row,) = pq.read_table(out).to_pylist()
    assert [json.loads(text)["role"] for text in row["messages"]][:2] == ["system", "user"]
