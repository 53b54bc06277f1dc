"""`ssr eval` on rows, predictions and diffs in other forms than SWE-bench's own."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from rows import written

from harness.cli.main import main

pytestmark = pytest.mark.long


def forms(gold: str) -> dict[str, tuple[str, str, list[str]]]:
    """Return diffs with the status and the flags of each."""
    shifted = re.sub(r"@@ -(\d+),(\d+) \+(\d+),", lambda m: f"@@ -{int(m[1]) + 3},{m[2]} +{int(m[3]) + 3},", gold)
    binary = "diff --git a/x.pyc b/x.pyc\nnew file mode 100644\nindex 0000000..1111111\n"
    binary += "Binary files /dev/null and b/x.pyc differ\n"
    return {
        "fence": (f"Here:\n```diff\n{gold}```\n", "resolved", ["patch-rewritten"]),
        "offset": (shifted, "resolved", ["patch-rewritten"]),
        "binary": (binary + gold, "resolved", ["files-left-out"]),
        "outside": (gold.replace("/shop.py", "/../shop.py"), "error", []),
        "prose": ("It is fixed.", "error", []),
        "empty": ("", "empty", []),
    }


def test_forms_of_diffs_rows_and_predictions(dataset, tmp_path: Path) -> None:
    row = dataset.rows_again()[0]
    tests = json.loads(row.pop("FAIL_TO_PASS")), json.loads(row.pop("PASS_TO_PASS"))
    other = {
        "fail_to_pass": str([f"./{t} " for t in tests[0]]),
        "pass_to_pass": str([f"/testbed/{t}" for t in tests[1]]),
    }
    rows: list[dict[str, Any]] = []
    answers: list[dict[str, Any]] = []
    for name, (text, _, _) in forms(row["patch"]).items():
        rows.append({**row, **other, "instance_id": f"acme__shop-{name}"})
        metadata = {"llm_config": {"model": "hand"}}
        answers.append({"instance_id": f"acme__shop-{name}", "test_result": {"git_patch": text}, "metadata": metadata})
    arguments = [str(written(tmp_path / "rows.jsonl", rows)), "--predictions"]
    arguments += [str(written(tmp_path / "output.jsonl", answers)), "--out", str(tmp_path / "out"), *dataset.common]
    assert main(["eval", *arguments, "--no-logs"]) == 1
    results = [json.loads(line) for line in (tmp_path / "out" / "results.jsonl").read_text().splitlines()]
    by_name = {r["task"].rpartition("-")[2]: r for r in results}
    for name, (_, status, flags) in forms(row["patch"]).items():
        result = by_name[name]
        assert (result["status"], [f for f in result["flags"] if f != "unchecked"]) == (status, flags), name
        assert result["solver"] == "hand"
    # Reports name tests as the row does.
    assert set(by_name["fence"]["fail_to_pass"]) == {f"./{t} " for t in tests[0]}
    assert set(by_name["fence"]["pass_to_pass"]) == {f"/testbed/{t}" for t in tests[1]}
    assert [by_name[n]["reason"]["code"] for n in ("outside", "prose")] == ["patch-does-not-apply", "patch-unreadable"]


@pytest.mark.parametrize("what", ["rows", "predictions"])
def test_an_unknown_form_ends_the_command_before_any_run(dataset, tmp_path: Path, what: str, capsys) -> None:
    row = dataset.rows_again()[0]
    answer = {"instance_id": row["instance_id"], "answer" if what == "predictions" else "model_patch": row["patch"]}
    if what == "rows":
        del row["FAIL_TO_PASS"]
    arguments = [str(written(tmp_path / "rows.jsonl", [row])), "--predictions"]
    arguments += [str(written(tmp_path / "preds.jsonl", [answer])), "--out", str(tmp_path / "out"), *dataset.common]
    assert main(["eval", *arguments]) == 2
    error = capsys.readouterr().err
    assert "its columns are " in error
    assert ("F2P" if what == "rows" else "model_patch") in error
    assert not (tmp_path / "out" / "results.jsonl").exists()
