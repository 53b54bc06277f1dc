"""Lines of files from which rollouts are read."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.exporters import files
from harness.exporters.dataset_writer import json_line
from harness.exporters.skipped import SkipCode, SkippedError


@pytest.mark.parametrize("end", [b"", b"\n", b"\nlast\n"])
def test_an_overlong_line_is_cut_and_its_end_is_not_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: bytes
) -> None:
    monkeypatch.setattr(files, "MOST_BYTES", 8)
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b"first\n" + b"0123456789abcdefXYZ" + end)
    expected = [(0, b"first\n"), (6, b"01234567")]
    assert list(files.lines_of(path)) == expected + ([(26, b"last\n")] if end == b"\nlast\n" else [])


@pytest.mark.parametrize("value", [float("nan"), [1, {"a": float("-inf")}], "\ud800", object(), {1: None}])
def test_a_row_that_json_does_not_have_is_refused(value: object) -> None:
    with pytest.raises(SkippedError) as refused:
        json_line({"column": value})
    assert refused.value.code is SkipCode.DAMAGED
    assert json_line({"column": None}) == b'{"column":null}\n'
