"""What TRL's trainers do faster on a CPU gives the same losses, metrics and replies."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import trl
from datasets import Dataset
from language_runs import lines, train
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, MistralConfig, Qwen3NextConfig
from trl.kernels.chunked_logprob import _use_triton
from trl.trainer import utils

from harness.cli.exit_code import ExitCode
from harness.training.language import cpu_trainers
from harness.training.language.cpu_trainers import score_labelled_positions, sharing_prompts

pytestmark = pytest.mark.filterwarnings("ignore")  # From third-party packages.


@pytest.fixture
def projected(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return the numbers of positions that are projected to the vocabulary, by call; at first TRL decides which."""
    counts: list[int] = []

    class Function:
        @staticmethod
        def apply(hidden: Any, *args: Any) -> Any:
            counts.append(len(hidden))
            return original.apply(hidden, *args)

    original = utils._ChunkedLogProbFunction
    monkeypatch.setattr(utils, "_ChunkedLogProbFunction", Function)
    monkeypatch.setattr(utils, "_use_triton", _use_triton)
    return counts


@pytest.mark.parametrize(
    ("method", "options"),
    [
        ("sft", ()),
        ("sft", ("--adapter", "none")),
        ("sft", ("--packing", "--max-length", "2048", "--gradient-checkpointing")),
        ("kto", ()),
        ("kto", ("--adapter", "none")),
    ],
)
def test_scoring_labelled_positions_alone_changes_no_metric(
    method: str,
    options: tuple[str, ...],
    rollouts: Path,
    model: Path,
    projected: list[int],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    short = ("--updates", "3", "--batch", "3", "--accumulation", "1", "--dtype", "float32", *options)
    metrics, counts = [], []
    for name in ("labelled", "all"):
        if name == "all":
            monkeypatch.setattr(utils, "_use_triton", _use_triton)
            monkeypatch.setattr("harness.training.language.guarded.score_labelled_positions", lambda: None)
        assert train(method, rollouts, model, tmp_path / name, *short) == ExitCode.DONE
        metrics.append([{k: v for k, v in line.items() if k != "seconds"} for line in lines(tmp_path / name)])
        counts.append(sum(projected))
        projected.clear()
    assert len(metrics[1]) == 3
    assert metrics[0] == [pytest.approx(line, rel=1e-4) for line in metrics[1]]
    assert 0 < counts[0] < counts[1]


@pytest.fixture
def trainer(model: Path, tmp_path: Path) -> Any:
    """Return a GRPO trainer of a tiny model that always writes the most likely token."""
    config = trl.GRPOConfig(
        output_dir=str(tmp_path), use_cpu=True, bf16=False, report_to=[], num_generations=2,
        per_device_train_batch_size=2, max_completion_length=6, generation_kwargs={"do_sample": False},
    )  # fmt: skip
    built = sharing_prompts(trl.GRPOTrainer)(
        args=config,
        model=AutoModelForCausalLM.from_pretrained(model),
        processing_class=AutoTokenizer.from_pretrained(model),
        reward_funcs=[lambda completions, **more: [0.0] * len(completions)],
        train_dataset=Dataset.from_list([{"prompt": "a"}] * 2),
        peft_config=LoraConfig(r=2, target_modules="all-linear"),
    )
    for name, weights in built.model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(weights)
    return built


FIRST, SECOND = [5, 6, 7, 8], [9, 10]


@pytest.mark.parametrize(
    ("prompts", "repeats", "expected"),
    [
        ([FIRST, SECOND, FIRST, SECOND, FIRST], True, [(1, 3)]),
        ([FIRST, SECOND, FIRST, SECOND, FIRST], False, [(5, 4)]),
        ([FIRST, SECOND, FIRST], True, [(3, 4)]),
    ],
    ids=["groups", "other-state", "later-turn"],
)
def test_a_prompt_of_a_group_is_read_once(
    prompts: list[list[int]],
    repeats: bool,
    expected: list[tuple[int, int]],
    trainer: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if not repeats:
        monkeypatch.setattr(cpu_trainers, "_repeats", lambda config: False)
    read: list[tuple[int, ...]] = []
    causal = trainer.model.get_base_model()
    hook = causal.base_model.embed_tokens.register_forward_hook(
        lambda module, args, output: read.append(tuple(args[0].shape))
    )
    replies, logprobs = trainer._generate_single_turn(prompts, None, {}, 1)
    hook.remove()
    assert logprobs is None
    # What is written one token at a time has one column.
    assert [shape for shape in read if shape[1] > 1] == expected
    assert replies[0] == replies[2]
    alone = [trl.GRPOTrainer._generate_single_turn(trainer, [prompt], None, {}, 1)[0][0] for prompt in prompts]
    assert replies == alone


def test_a_reply_ends_at_its_end(trainer: Any) -> None:
    end = trainer.eos_token_ids[0]
    assert trainer._until_end([4, end, 0, 0]) == [4, end]
    assert trainer._until_end([4, 5]) == [4, 5]


def test_only_attention_can_be_repeated() -> None:
    assert cpu_trainers._repeats(LlamaConfig(num_hidden_layers=2))
    assert cpu_trainers._repeats(MistralConfig(num_hidden_layers=2, sliding_window=4))
    assert not cpu_trainers._repeats(Qwen3NextConfig(num_hidden_layers=4))


def test_log_probabilities_of_a_policy_are_the_same(trainer: Any, projected: list[int]) -> None:
    torch.manual_seed(0)
    ids, mask = torch.randint(3, 40, (3, 9)), torch.ones(3, 9, dtype=torch.long)
    mask[0, :2] = 0
    before = trainer._get_per_token_logps_and_entropies(trainer.model, ids, mask, 4, compute_entropy=True)
    score_labelled_positions()
    after = trainer._get_per_token_logps_and_entropies(trainer.model, ids, mask, 4, compute_entropy=True)
    assert projected == [3 * 8, 3 * 4]
    torch.testing.assert_close(after[0], before[0])
    torch.testing.assert_close(after[1], before[1])
    after[0].sum().backward()
    assert any(weights.grad is not None and weights.grad.any() for weights in trainer.model.parameters())
