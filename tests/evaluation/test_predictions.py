"""Files of predictions of every usual format are read; one of an unknown format is an error, not an empty answer.

The sources of the formats are in tests/door/README.md.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from harness.datasets.families import read_row
from harness.datasets.instance import Instance
from harness.evaluation.predictions import Prediction, read_predictions
from pytest_ssr.errors import SettingsError

DIFF = "diff --git a/shop.py b/shop.py\n--- a/shop.py\n+++ b/shop.py\n@@ -1 +1 @@\n-a\n+b\n"
OTHER = DIFF.replace("+b", "+gold")
IDS = ("acme__shop-1", "acme__shop-2")


def instances(*ids: str) -> list[Instance]:
    row = {"repo": "acme/shop", "base_commit": "1a2b3c4d", "patch": DIFF, "test_patch": "", "FAIL_TO_PASS": ["t.py::t"]}
    return [read_row({**row, "instance_id": name}, "row") for name in ids or IDS[:1]]


def read(path: Path, data: Any, *ids: str) -> list[Prediction]:
    text = data if isinstance(data, str) else json.dumps(data)
    path.write_text(text, encoding="utf-8")
    return read_predictions(str(path), instances(*ids))


NAME = {"instance_id": IDS[0]}
FORMATS: dict[str, tuple[dict[str, Any], str]] = {
    "swe-bench": ({**NAME, "model_name_or_path": "m", "model_patch": DIFF}, "m"),
    "swe-bench with its reply": ({**NAME, "model_name_or_path": "m", "full_output": "text", "model_patch": DIFF}, "m"),
    "documentation of swe-bench": ({**NAME, "model": "m", "prediction": DIFF}, "m"),
    "a submission with three names": ({**NAME, "model_name": "m", "model_id": "n", "prediction": DIFF}, "m"),
    "openhands": (
        {
            **NAME,
            "instance": {"patch": OTHER, "test_patch": ""},
            "metadata": {"agent_class": "CodeActAgent", "llm_config": {"model": "m"}},
            "test_result": {"git_patch": DIFF},
        },
        "m",
    ),
    "openhands without a model": ({**NAME, "test_result": {"git_patch": DIFF}, "metadata": {}}, "preds"),
    "openhands of the software agent sdk": ({**NAME, "test_result": {"git_patch": DIFF}, "metadata": {"llm": {"model": "m"}}}, "m"),
    "opendevin": ({**NAME, "git_patch": DIFF, "metadata": {"model_name": None, "model": "m"}}, "m"),
    "multi-swe-bench": ({"org": "acme", "repo": "shop", "number": 1, "fix_patch": DIFF}, "preds"),
    "swe-bench pro": ({**NAME, "patch": DIFF, "prefix": "m"}, "m"),
    "a trajectory of swe-agent": ({**NAME, "info": {"submission": DIFF, "exit_status": "submitted"}}, "preds"),
    "capital letters": ({"Instance_ID": IDS[0], "Model_Patch": DIFF, "MODEL": "m"}, "m"),
    "a row of a dataset with an answer": ({**NAME, "patch": OTHER, "test_patch": OTHER, "model_patch": DIFF}, "preds"),
    "an empty column beside another": ({**NAME, "git_patch": None, "test_result": {"git_patch": DIFF}}, "preds"),
    "an id with a blank after it": ({"instance_id": f"{IDS[0]} ", "model_patch": DIFF}, "preds"),
    "agentless": ({**NAME, "model_name_or_path": "agentless", "model_patch": DIFF, "raw_model_patch": OTHER}, "agentless"),
}  # fmt: skip


@pytest.mark.parametrize("name", FORMATS)
def test_a_prediction_of_each_format(tmp_path: Path, name: str) -> None:
    row, model = FORMATS[name]
    assert read(tmp_path / "preds.jsonl", json.dumps(row) + "\n") == [Prediction(IDS[0], model, DIFF)]
    assert read(tmp_path / "preds.json", [row]) == [Prediction(IDS[0], model, DIFF)]


@pytest.mark.parametrize(
    "data",
    [
        {IDS[0]: {"model_patch": DIFF}, IDS[1]: {"model_patch": None}},
        {IDS[0]: {"model_patch": DIFF, "instance_id": IDS[0]}, IDS[1]: {"model_patch": ""}},
        {IDS[0]: DIFF, IDS[1]: None},
        [{"instance_id": IDS[0], "model_patch": DIFF}, {"instance_id": IDS[1], "model_patch": " \n"}],
        [{"instance_id": IDS[0], "test_result": {"git_patch": DIFF}}, {"instance_id": IDS[1], "test_result": {}}],
        [{"instance_id": IDS[0], "test_result": {"git_patch": DIFF}}, {"instance_id": IDS[1], "test_result": None}],
        [{"instance_id": IDS[0], "model_patch": DIFF}, {"instance_id": IDS[1], "model_patch": float("nan")}],
    ],
)
def test_layouts_with_an_answer_and_an_empty_one(tmp_path: Path, data: Any) -> None:
    first, second = read(tmp_path / "preds.json", data, *IDS)
    assert (first.patch, second.patch.strip()) == (DIFF, "")


def test_the_layout_is_that_of_the_content_not_of_the_name(tmp_path: Path) -> None:
    rows = [{"instance_id": name, "model_patch": DIFF} for name in IDS]
    lines = "".join(f"{json.dumps(row)}\n" for row in rows)
    for name, text in {
        "lines.json": lines,
        "list.jsonl": json.dumps(rows, indent=1),
        "one line.jsonl": json.dumps(rows),
        "mark.jsonl": "\ufeff" + lines,
        "by id.jsonl": json.dumps({row["instance_id"]: row for row in rows}, indent=2),
    }.items():
        assert [p.patch for p in read(tmp_path / name, text, *IDS)] == [DIFF, DIFF], name
    (alone,) = read(tmp_path / "one.pred", rows[0])
    assert alone.patch == DIFF


@pytest.mark.parametrize("name", ["preds.json", "all_preds.jsonl", "predictions.jsonl", "output.jsonl"])
def test_a_folder_of_an_agent(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text(json.dumps({**NAME, "model_patch": DIFF}))
    assert [p.patch for p in read_predictions(str(tmp_path), instances())] == [DIFF]


def test_a_folder_without_predictions(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"none of the files preds\.json, .*output\.jsonl"):
        read_predictions(str(tmp_path), instances())


@pytest.mark.parametrize(
    ("row", "looked_for", "found"),
    [
        ({**NAME, "answer": DIFF}, "model_patch, model_prediction, prediction", "answer, instance_id"),
        ({**NAME, "test_result": {"diff_text": DIFF}}, "test_result.git_patch", "test_result.diff_text"),
        ({**NAME, "patch": OTHER, "test_patch": OTHER, "answer": DIFF}, "model_patch", "answer, instance_id"),
        ({"name": IDS[0], "model_patch": DIFF}, "instance_id, task_id", "model_patch, name"),
        ({"instance_id": 7, "model_patch": DIFF}, "instance_id", "model_patch"),
        ({"org": "acme", "number": 1, "fix_patch": DIFF}, "instance_id", "fix_patch, number, org"),
    ],
)
def test_an_unknown_format_names_the_columns(tmp_path: Path, row: dict[str, Any], looked_for: str, found: str) -> None:
    for text in (json.dumps(row) + "\n", json.dumps([{**NAME, "model_patch": DIFF}, row])):
        with pytest.raises(SettingsError) as error:
            read(tmp_path / "preds.jsonl", text)
        assert looked_for in str(error.value)
        assert found in str(error.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"instance_id": "a"\n{', "line 1 is not JSON"),
        (json.dumps(NAME | {"model_patch": DIFF}) + "\n{\n", "line 2 is not JSON"),
        ("7\n", "neither a list of predictions nor an object"),
        ("[7]", "it is int, not an object"),
        (json.dumps([{**NAME, "model_patch": [DIFF]}]), "model_patch is list, not text"),
        (json.dumps([{**NAME, "model_patch": "\ud800"}]), "half a character"),
        (json.dumps([{**NAME, "model_patch": DIFF}] * 2), "predicted twice"),
        (json.dumps([{"instance_id": "b", "model_patch": DIFF}]), "predicts none of the 1 instances"),
        ("", "predicts none of the 1 instances"),
        (json.dumps([{**NAME, "model": "a\nb", "model_patch": DIFF}]), "cannot name a folder"),
    ],
)
def test_an_invalid_file(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        read(tmp_path / "preds.jsonl", text)
