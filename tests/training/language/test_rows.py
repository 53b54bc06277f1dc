"""Training on rows, with a tiny model made on the spot: sft, bc, dpo and kto through the command line."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from language_runs import SHORT, lines, report, train
from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback

from harness.cli.exit_code import ExitCode
from harness.cli.main import main
from harness.exporters.tokens import IGNORED
from harness.training.language.encoding import Encoder
from harness.training.language.left_out import LeftOut, LeftOutCode, LeftOutError
from harness.training.language.models import dtype_of, encoder_of, load_model
from harness.training.language.plan import Adapter, Base, Data, Method
from harness.training.language.rows import read_rows
from harness.training.language.supervised import supervised_trainer
from pytest_ssr.errors import SettingsError

pytestmark = pytest.mark.filterwarnings("ignore")  # From third-party packages.


@pytest.mark.parametrize("method", ["sft", "bc", "dpo", "kto"])
def test_the_loss_falls_over_50_updates(method: str, rollouts: Path, model: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    assert train(method, rollouts, model, out, *SHORT) == ExitCode.DONE
    losses = [line["loss"] for line in lines(out)]
    assert len(losses) == 50
    assert sum(losses[-5:]) < sum(losses[:5])
    assert report(out)["updates"] == 50
    assert report(out)["seconds_per_update"] > 0 < report(out)["tokens_per_second"]
    assert (out / "report.png").stat().st_size > 1000
    assert report(out)["of_unknown_origin"] == 0
    if method in ("sft", "bc"):
        codes = [item["code"] for item in report(out)["left_out"]]
        assert codes == ["not-positive"]
        expected = {"model": "model", "rollouts": 3, "with_token_ids": 1}
        assert report(out)["origins"] == [expected]


@pytest.mark.parametrize(
    ("has_gpu", "kind", "dtype", "expected"),
    [
        (True, "none", "auto", "float32"),
        (True, "lora", "auto", "bfloat16"),
        (True, "none", "bfloat16", "bfloat16"),
        (False, "lora", "auto", "float32"),
    ],
)
def test_weights_that_are_trained_are_float32(
    has_gpu: bool, kind: str, dtype: str, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: has_gpu)
    assert str(dtype_of(Base("model", dtype=dtype), Adapter(kind=kind))) == f"torch.{expected}"


def test_an_adapter_above_weights_of_fewer_bits_is_float32(
    rollouts: Path, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    types: set[str] = set()

    class Watch(TrainerCallback):  # type: ignore[misc]
        def on_train_begin(self, *args: Any, model: Any, **more: Any) -> None:
            types.update(str(weights.dtype) for weights in model.parameters() if weights.requires_grad)

    def as_trl_does_above_quantised_weights(*args: Any) -> Any:
        trainer = supervised_trainer(*args)
        for weights in trainer.model.parameters():
            if weights.requires_grad:
                weights.data = weights.data.to(dtype=torch.bfloat16)
        trainer.add_callback(Watch())
        return trainer

    monkeypatch.setattr("harness.training.language.training.supervised_trainer", as_trl_does_above_quantised_weights)
    assert train("sft", rollouts, model, tmp_path / "run", "--updates", "1") == ExitCode.DONE
    assert types == {"torch.float32"}


def test_all_weights_can_be_trained_and_rows_packed(rollouts: Path, model: Path, tmp_path: Path) -> None:
    first = []
    for name, packing in (("plain", ()), ("packed", ("--packing", "--max-length", "2048"))):
        out = tmp_path / name
        short = (
            "--adapter",
            "none",
            "--updates",
            "2",
            "--batch",
            "3",
            "--accumulation",
            "1",
            "--warmup",
            "0",
            *packing,
        )
        assert train("sft", rollouts, model, out, *short, "--gradient-checkpointing") == ExitCode.DONE
        first.append(lines(out)[0]["loss"])
        assert AutoModelForCausalLM.from_pretrained(out / "model").num_parameters() > 0
    assert first[0] == pytest.approx(first[1], rel=1e-3), "packed sequences do not see each other"


def encoder(model: Path, **data: Any) -> Encoder:
    loaded = AutoModelForCausalLM.from_pretrained(model)
    return encoder_of(loaded, AutoTokenizer.from_pretrained(model), Base(str(model)), Data(**data))


def test_recorded_token_ids_are_used_as_they_are(rollouts: Path, model: Path) -> None:
    rows = read_rows([rollouts], Method.SFT, LeftOut(), token_ids=True)
    (recorded,) = [row for row in rows if "input_ids" in row]
    assert recorded["task_id"] == "t1"
    encoded = encoder(model).sequence(recorded)
    assert (encoded.ids, encoded.labels) == (recorded["input_ids"], recorded["labels"])
    assert all("messages" in row for row in read_rows([rollouts], Method.SFT, LeftOut(), token_ids=False))


def test_recorded_token_ids_that_the_tokenizer_does_not_have(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tokens = len(AutoTokenizer.from_pretrained(model))
    padded = tmp_path / "model"
    shutil.copytree(model, padded)
    loaded = AutoModelForCausalLM.from_pretrained(model)
    loaded.resize_token_embeddings(tokens + 64)
    loaded.save_pretrained(padded)
    good, bad = ({"input_ids": [1, last], "labels": [1, last], "model": "model"} for last in (2, tokens))
    file = tmp_path / "rows.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in (good, good, bad)))
    assert train("sft", file, padded, tmp_path / "run", "--updates", "1") == ExitCode.DONE
    counts = {item["code"]: item["count"] for item in report(tmp_path / "run")["left_out"]}
    assert counts == {"other-tokenizer": 1}
    assert report(tmp_path / "run")["of_unknown_origin"] == 3
    file.write_text("".join(json.dumps(row) + "\n" for row in (good, bad, bad)))
    capsys.readouterr()
    assert train("sft", file, padded, tmp_path / "refused", "--updates", "1") == ExitCode.USAGE
    error = capsys.readouterr().err
    assert "2 of 3" in error
    assert error.count("\n") == 1


def test_recorded_token_ids_that_are_not_those_of_the_text(rollouts: Path, model: Path) -> None:
    rows = read_rows([rollouts], Method.BC, LeftOut(), token_ids=True)
    recorded = next(row for row in rows if "input_ids" in row)
    assert encoder(model).sequence(recorded)
    ids = recorded["input_ids"]
    with pytest.raises(LeftOutError) as caught:
        encoder(model).sequence({**recorded, "labels": [IGNORED] * (len(ids) - 1) + ids[-1:]})
    assert caught.value.code == LeftOutCode.OTHER_TOKENIZER


def test_only_replies_are_trained_on(rollouts: Path, model: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(model)
    for method in (Method.SFT, Method.BC):
        rows = read_rows([rollouts], method, LeftOut(), token_ids=False)
        encoded = encoder(model).sequence(rows[-1])
        trained = tokenizer.decode([label for label in encoded.labels if label != IGNORED])
        assert trained.count("<|im_end|>") == trained.count("é!") == (3 if method is Method.SFT else 1)
        assert "output of" not in trained
        assert "<|im_start|>" not in trained
        assert "output of ls" in tokenizer.decode(encoded.ids)


def test_an_export_gives_the_same_run_as_its_store(rollouts: Path, model: Path, tmp_path: Path) -> None:
    export = tmp_path / "export"
    assert main(["export", str(rollouts), "--format", "bc", "--out", str(export), "--json"]) == ExitCode.DONE
    short = ("--updates", "2", "--ignore-token-ids")
    for name, source in (("a", rollouts), ("b", export), ("c", export / "data" / "train.jsonl")):
        assert train("bc", source, model, tmp_path / name, *short) == ExitCode.DONE
    assert lines(tmp_path / "a")[0]["loss"] == lines(tmp_path / "b")[0]["loss"] == lines(tmp_path / "c")[0]["loss"]


def test_rows_that_are_too_long_are_left_out_and_counted(rollouts: Path, model: Path, tmp_path: Path) -> None:
    lengths = sorted(
        len(encoder(model).sequence(row).ids) for row in read_rows([rollouts], Method.SFT, LeftOut(), token_ids=True)
    )
    out = tmp_path / "run"
    assert train("sft", rollouts, model, out, "--updates", "1", "--max-length", str(lengths[-1] - 1)) == ExitCode.DONE
    counts = {item["code"]: item["count"] for item in report(out)["left_out"]}
    assert counts["too-long"] == sum(length == lengths[-1] for length in lengths)
    assert train("sft", rollouts, model, tmp_path / "none", "--max-length", "5") == ExitCode.USAGE


def test_what_cannot_be_trained_is_refused_in_one_line(
    rollouts: Path, model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / "other"
    shutil.copytree(model, other)
    without = tmp_path / "model"
    shutil.copytree(model, without)
    (without / "chat_template.jinja").unlink()
    empty = tmp_path / "store"
    shutil.copytree(rollouts, empty)
    for grade in empty.glob("rollouts/*/rollout.json"):
        grade.unlink()
    cut = tmp_path / "cut.jsonl"
    cut.write_text('{"messages": [], "tools": []}\n{"mess')
    cases = {
        "another tokenizer": (rollouts, other, ()),
        "no chat template": (rollouts, without, ()),
        "no graded rollout": (empty, model, ()),
        "a file that was cut off": (cut, model, ()),
        "no model": (rollouts, tmp_path / "absent", ()),
        "no GPU for bits": (rollouts, model, ("--bits", "4")),
        "no such module": (rollouts, model, ("--lora-target", "absent")),
        "no tracker": (rollouts, model, ("--tracker", "wandb")),
        "an evaluation set": (rollouts, model, ("--exclude", "owner/calc")),
        "too short for every sample": (rollouts, model, ("--max-length", "1")),
    }
    for name, (source, which, options) in cases.items():
        assert train("sft", source, which, tmp_path / "out", *options) == ExitCode.USAGE, name
        error = capsys.readouterr().err
        assert error.startswith("ssr: "), name
        assert error.count("\n") == 1, error
    assert train("kto", rollouts, model, tmp_path / "out", "--batch", "1") == ExitCode.USAGE
    assert train("sft", rollouts, other, tmp_path / "out", "--tokens-of", "model", "--updates", "1") == ExitCode.DONE
    assert train("sft", rollouts, other, tmp_path / "out", "--updates", "2") == ExitCode.USAGE, "other settings"
    assert train("sft", rollouts, model, rollouts, "--updates", "2") == ExitCode.USAGE, "a folder with other files"


MESSAGES = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]


PAIR = {"prompt": MESSAGES[:1], "completion": MESSAGES[1:]}


@pytest.mark.parametrize(
    ("method", "line"),
    [
        ("sft", b""),
        ("sft", b'{"messages": 5}'),
        ("sft", b'{"messages": ["a"]}'),
        ("sft", b'{"messages": [{"content": "a"}]}'),
        ("sft", b'{"messages": [{"role": "user", "content": 1}]}'),
        ("sft", b'{"messages": "\xe9"}'),
        ("sft", b'{"input_ids": ["a"], "labels": [1]}'),
        ("sft", b'{"input_ids": null, "labels": null}'),
        ("dpo", b'{"prompt": "a", "chosen": "b", "rejected": "c"}'),
        ("kto", json.dumps(PAIR | {"label": "no"}).encode()),
    ],
)
def test_a_row_of_a_file_is_checked(method: str, line: bytes, tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_bytes(line)
    with pytest.raises(SettingsError, match=r"rows\.jsonl"):
        read_rows([file], Method(method), LeftOut(), token_ids=True)


def test_labels_are_those_of_the_tokens(model: Path) -> None:
    row = {"model": "model", "input_ids": [1, 2], "labels": [IGNORED, 3]}
    with pytest.raises(SettingsError):
        encoder(model).sequence(row)


def test_a_template_that_fails_leaves_a_row_out(model: Path) -> None:
    failing = encoder(model)
    failing.tokenizer.chat_template = "{{ raise_exception('no system messages') }}"
    with pytest.raises(LeftOutError) as raised:
        failing.sequence({"messages": MESSAGES})
    assert raised.value.code is LeftOutCode.TEMPLATE_FAILS


def test_a_damaged_model_is_refused(model: Path, tmp_path: Path) -> None:
    cut, other = tmp_path / "cut", tmp_path / "other"
    for folder in (cut, other):
        shutil.copytree(model, folder)
    weights = cut / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])
    config = json.loads((other / "config.json").read_text())
    (other / "config.json").write_text(json.dumps(config | {"hidden_size": 64}))
    for folder in (cut, other, tmp_path):
        with pytest.raises(SettingsError) as raised:
            load_model(Base(str(folder)), Adapter())
        assert raised.value.option == "model"


def test_a_run_is_of_its_sources(rollouts: Path, model: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    other = tmp_path / "rows.jsonl"
    other.write_text(json.dumps({"messages": MESSAGES}) + "\n")
    assert train("sft", other, model, out, "--updates", "1") == ExitCode.DONE
    assert train("sft", rollouts, model, out, "--updates", "1") == ExitCode.USAGE
