"""The rows that a store and its exports give, without PyTorch."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from model_server import message, serving
from rollout_parts import add_task, keep, store

from harness.agents.attempt import run_attempt
from harness.agents.loop import Agent
from harness.agents.tools.protocol import Observation
from harness.agents.tools.submit import Submit
from harness.agents.workspace import Workspace
from harness.cli.exit_code import ExitCode
from harness.cli.main import main
from harness.exporters.skipped import SkipCode
from harness.models.factory import open_model
from harness.records.messages import Sampling
from harness.records.trajectory import Journal, Trajectory
from harness.training.language.encoding import Encoder, base_name
from harness.training.language.left_out import LeftOut
from harness.training.language.plan import Data, Method
from harness.training.language.rows import origins, read_rows
from pytest_ssr.errors import SettingsError
from pytest_ssr.sandbox.fake import FakeSandbox, FakeSandboxProvider
from pytest_ssr.sandbox.protocol import Limits


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


class Bytes:
    """A tokenizer whose tokens are bytes."""

    def decode(self, ids: list[int]) -> str:
        return bytes(ids).decode()


def recorded_over_http(folder: Path) -> str:
    """Record a rollout of a model that a server serves as `acme/tiny` into a new store; return the model's name."""

    @contextmanager
    def workspace() -> Iterator[Workspace]:
        yield Workspace(FakeSandbox(FakeSandboxProvider(), "/p", {}), Limits())

    submit = Submit("hand in", lambda _: Observation("handed in", 0, done=True, result={"patch": "p"}))
    add_task(store(folder), "t1", "calc")
    path = keep(folder, "r1") / "trajectory.jsonl"
    served_models = [{"id": "acme/tiny", "max_model_len": 8192}]
    with serving(message("I am done.", ("submit", {})), models=served_models) as served:
        model = open_model(f"vllm:{served.url}")
        journal = Journal(Trajectory("r1", "t1", "solver", 0, model.name), path)
        agent = Agent(model, [submit], sampling=Sampling(max_tokens=100))
        run_attempt(agent, journal, workspace, system="be brief", task=lambda _: "repair it")
        model.close()
    return model.name


def encoded_ids(row: dict[str, Any], name: str) -> list[int]:
    """Return the tokens of a row for a model of this name, or of whose tokenizer this name is."""
    return Encoder(Bytes(), Data(), frozenset({base_name(name)}), limit=10**6, vocabulary=256).sequence(row).ids


@pytest.mark.parametrize("kind", ["store", "rollouts", "sft-tokens"])
def test_token_ids_of_a_server_are_those_of_the_model_that_it_serves(kind: str, tmp_path: Path) -> None:
    source = tmp_path / "store"
    name = recorded_over_http(source)
    assert name.startswith("vllm:http://127.0.0.1:")
    assert name.endswith("/v1")
    if kind != "store":
        out = tmp_path / "rows.jsonl"
        assert main(["export", str(source), "--format", kind, "--out", str(out)]) == ExitCode.DONE
        source = out
    (row,) = read_rows([source], Method.SFT, LeftOut(), token_ids=True)
    assert row["model"] == name
    assert b"I am done." in bytes(encoded_ids(row, "acme/tiny"))
    assert encoded_ids(row, "hosted_vllm/acme/tiny") == encoded_ids(row, "models/tiny/")
    for other in ("v1", name, "acme/large"):
        with pytest.raises(SettingsError):
            encoded_ids(row, other)


def test_token_ids_of_a_server_without_the_id_of_its_model_need_its_whole_name(tmp_path: Path) -> None:
    name = recorded_over_http(tmp_path / "store")
    path = tmp_path / "store" / "rollouts" / "r1" / "trajectory.jsonl"
    header, *events = path.read_text().splitlines(keepends=True)
    data = json.loads(header)
    assert data["provenance"].pop("served_model") == "acme/tiny"
    path.write_text(json.dumps(data) + "\n" + "".join(events))
    (row,) = read_rows([tmp_path / "store"], Method.SFT, LeftOut(), token_ids=True)
    for other in ("v1", "acme/tiny", "vllm:http://elsewhere/v1"):
        with pytest.raises(SettingsError):
            encoded_ids(row, other)
    assert encoded_ids(row, name)
