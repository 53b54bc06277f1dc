"""The rows that a store and its exports give, without PyTorch."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from rollout_parts import add_task, keep, store

from harness.cli.exit_code import ExitCode
from harness.cli.main import main
from harness.exporters.skipped import SkipCode
from harness.training.language.left_out import LeftOut
from harness.training.language.plan import Method
from harness.training.language.rows import origins, read_rows
from pytest_ssr.errors import SettingsError


@pytest.mark.parametrize("method", [Method.SFT, Method.BC])
def test_canonical_records_give_the_rows_of_their_store(method: Method, tmp_path: Path) -> None:
    folder = store(tmp_path / "store")
    add_task(folder, "t1", "acme/shop")
    for attempt, resolved in enumerate((True, False)):
        name = f"t1{attempt}".ljust(24, "0")
        keep(folder, name, resolved, commands=("ls", "make", "end"), task="t1", attempt=attempt)
    export = tmp_path / "export"
    assert main(["export", str(folder), "--format", "rollouts", "--out", str(export), "--json"]) == ExitCode.DONE

    def rows(source: Path) -> tuple[list[object], list[object]]:
        left_out = LeftOut()
        found = read_rows([source], method, left_out, token_ids=False)
        return [(row["rollout_id"], row["repository"]) for row in found], [i["code"] for i in left_out.to_json()]

    expected = rows(folder)
    assert set(expected[0]) == {("t10".ljust(24, "0"), "acme/shop")}
    assert expected[1] == [SkipCode.NOT_POSITIVE]
    file = export / "data" / "train.jsonl"
    assert rows(export) == rows(file) == expected
    records = [json.loads(line) for line in file.read_text().splitlines()]
    file.write_text("\n" + "".join(json.dumps(record, sort_keys=True) + "\n" for record in records))
    assert rows(export) == expected
    row = {"messages": [], "prompt": [], "completion": []}
    file.write_text(f"{json.dumps(row)}\n{json.dumps(records[1])}\n")
    with pytest.raises(SettingsError):
        rows(export)


@pytest.mark.parametrize("method", [Method.SFT, Method.BC, Method.DPO, Method.KTO])
@pytest.mark.parametrize("is_exported", [False, True])
def test_rollouts_are_counted_by_the_model_that_made_them(method: Method, is_exported: bool, tmp_path: Path) -> None:
    source = store(tmp_path / "store")
    add_task(source, "t1", "calc")
    for attempt, (last, resolved, model) in enumerate((("make", True, "search"), ("rm", False, "m"))):
        name = f"t1{attempt}".ljust(24, "0")
        keep(source, name, resolved, commands=("ls", last), task="t1", attempt=attempt, model=model, ids=False)
    if is_exported:
        out = tmp_path / "rows.jsonl"
        assert main(["export", str(source), "--format", str(method), "--out", str(out)]) == ExitCode.DONE
        source = out
    made_by = origins(read_rows([source], method, LeftOut(), token_ids=True))
    # Both rollouts are in a pair, and only the resolved one is imitated.
    models = ["m", "search"] if method in (Method.DPO, Method.KTO) else ["search"]
    assert made_by == [{"model": model, "rollouts": 1, "with_token_ids": 0} for model in models]
