"""The configuration files for training in docs/training: each parses into the settings of every method."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from harness.cli.app import parse
from harness.cli.commands.train_language import plan_of
from harness.training.language.plan import Method
from pytest_ssr.errors import SettingsError

FILES = sorted((Path(__file__).parents[2] / "docs" / "training").glob("*.yaml"))
SIZES = {"0.5b": "Qwen2.5-Coder-0.5B", "7b": "Qwen2.5-Coder-7B", "32b": "Qwen2.5-Coder-32B"}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pyproject.toml").write_text("")
    monkeypatch.chdir(tmp_path)


def settings(method: str, file: Path, *options: str) -> Any:
    parsed = parse(["train", method, ".", "--config", str(file), *options])
    assert parsed is not None
    return parsed.settings


def test_there_is_one_for_each_size_and_number_of_gpus() -> None:
    expected = [f"{size}-{gpus}" for size in SIZES for gpus in ("1-gpu", "8-gpus")]
    assert sorted([*expected, "7b-8-gpus-vllm"]) == sorted(file.stem for file in FILES)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_it_parses_for_every_method(file: Path) -> None:
    for method in Method:
        # kto compares the rows of a batch.
        read = settings(method, file, *(("--batch", "2") if method is Method.KTO else ()))
        plan = plan_of(read)
        assert SIZES[file.stem.partition("-")[0]] in plan.base.model
        assert plan.optimization.gradient_checkpointing
        if method.has_environment:
            processes = 4 if read.policy.vllm else 8 if "8-gpus" in file.stem else 1
            policy = read.policy
            assert policy.roles == "both"
            share = policy.batches(plan.optimization.batch, processes) * plan.optimization.batch
            # Each process plays whole groups of injectors, and as many of solvers.
            assert share % (2 * policy.group) == 0


def test_kto_needs_two_rows_in_a_batch() -> None:
    with pytest.raises(SettingsError) as raised:
        settings("kto", FILES[0], "--batch", "1").check()
    assert raised.value.option == "batch"


@pytest.mark.parametrize(
    ("method", "option"),
    [
        ("dpo", "--packing"),
        ("kto", "--tokens-of=m"),
        ("sft", "--beta=0.1"),
        ("grpo", "--epochs=3"),
        ("grpo", "--accumulation=2"),
        ("grpo", "--rollout-usd=1"),
        ("sft", "--log-rollouts=1"),
    ],
)
def test_an_option_without_an_effect_does_not_exist(method: str, option: str) -> None:
    with pytest.raises(SettingsError, match=option.partition("=")[0]):
        settings(method, FILES[0], option)


def test_a_dotted_name_overrides_a_file() -> None:
    read = settings("grpo", FILES[0], "adapter.kind=dora", "optimization.learning-rate=0.5", "policy.group=4")
    assert (read.adapter.kind, read.optimization.learning_rate, read.policy.group) == ("dora", 0.5, 4)
