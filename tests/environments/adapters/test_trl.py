"""The adapters for TRL: its own trainer takes a step on episodes whose replies are scripted."""

from __future__ import annotations

import functools
import json
import os
import socket
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

os.environ |= {"HF_HUB_OFFLINE": "1", "TRL_EXPERIMENTAL_SILENCE": "1", "TOKENIZERS_PARALLELISM": "false"}

import pytest
import trl
from accelerate import Accelerator
from datasets import Dataset
from plain import plain_python
from proven import Proven
from replies import FIX, NO_FIX, SUBMIT
from tiny_model import make_model
from torch import multiprocessing
from trl.generation.vllm_generation import VLLMGeneration

from harness.environments import EnvironmentSettings, StoreTasks
from harness.environments.adapters import trl as trl_adapter
from harness.environments.adapters.transcript import ChatTokens
from harness.environments.adapters.trl import (
    Rollout,
    TrlEnvironment,
    TrlRollouts,
    generate,
    given_reward,
    rollout_rows,
    task_rows,
)
from pytest_ssr.errors import SettingsError

pytestmark = pytest.mark.filterwarnings("ignore")  # From third-party packages.
QWEN = Path(trl.__file__).parent / "chat_templates" / "qwen3.jinja"


class ScriptedTrainer(trl.GRPOTrainer):
    """Writes scripted replies in place of the model's; all else is TRL's."""

    script: ClassVar[list[str]] = []

    def _generate_single_turn(self, prompt_ids: Sequence[Any], *rest: Any, **options: Any) -> Any:
        replies = [self.script.pop(0) for _ in prompt_ids]
        return [self.processing_class(f"{reply}<|im_end|>")["input_ids"] for reply in replies], None


@pytest.fixture
def tasks(proven: Proven) -> StoreTasks:
    return StoreTasks(proven.project, proven.store.root, python=plain_python())


def train(folder: Path, rows: list[dict[str, Any]], script: list[str], template: str = "", **options: Any) -> Any:
    """Take one step on two rollouts of one task and return what the trainer has logged."""
    model, tokenizer = make_model(folder)
    if template:
        tokenizer.chat_template = template
    arguments = trl.GRPOConfig(
        output_dir=str(folder / "out"), per_device_train_batch_size=2, num_generations=2, max_steps=1, logging_steps=1,
        max_completion_length=4096, report_to=[], use_cpu=True, save_strategy="no", beta=0.0,
    )  # fmt: skip
    ScriptedTrainer.script = script
    trainer = ScriptedTrainer(
        model=model, args=arguments, train_dataset=Dataset.from_list(rows), processing_class=tokenizer, **options
    )
    trainer.train()
    assert not script
    return next(entry for entry in trainer.state.log_history if "loss" in entry)


def call(name: str, **arguments: Any) -> str:
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"


def test_tool_calls_are_steps_and_the_environment_owns_the_reward(tasks: StoreTasks, tmp_path: Path) -> None:
    fix = call("editor", command="str_replace", path="calc.py", old_str="return a - b", new_str="return a + b")
    script = [fix, call("bash", command="ls"), call("submit"), "I give up.", "Done."]
    factory = functools.partial(TrlEnvironment, tasks)
    logged = train(tmp_path, task_rows(tasks), script, QWEN.read_text(), environment_factory=factory)
    assert logged["rewards/TrlEnvironment/mean"] == 0.0
    assert logged["rewards/TrlEnvironment/std"] == pytest.approx(2**0.5)
    assert logged["tools/failure_frequency"] == 0
    assert logged["grad_norm"] > 0


def test_replies_are_steps_of_a_rollout_function(tasks: StoreTasks, tmp_path: Path) -> None:
    rollouts = TrlRollouts(tasks)
    script = [FIX, NO_FIX, SUBMIT, SUBMIT]  # One turn of both after the other.
    logged = train(tmp_path, rollout_rows(tasks), script, rollout_func=rollouts, reward_funcs=[given_reward])
    assert (logged["rewards/given_reward/mean"], logged["grad_norm"] > 0) == (0.0, True)


def test_tokens_of_observations_are_masked(tasks: StoreTasks, tmp_path: Path) -> None:
    seen: list[Any] = []

    def rollouts(prompts: Any, trainer: Any) -> Any:
        seen.append((TrlRollouts(tasks)(prompts, trainer), trainer.processing_class))
        return seen[0][0]

    script = [FIX, FIX, SUBMIT, "No tool.", SUBMIT]
    train(tmp_path, rollout_rows(tasks), script, rollout_func=rollouts, reward_funcs=[given_reward])
    [(output, tokenizer)] = seen
    assert output["reward"] == [1.0, 1.0]
    for ids, mask, replies in zip(
        output["completion_ids"], output["env_mask"], ([FIX, SUBMIT], [FIX, "No tool.", SUBMIT]), strict=True
    ):
        own = tokenizer.decode([token for token, trained in zip(ids, mask, strict=True) if trained])
        assert own == "".join(f"{reply}<|im_end|>" for reply in replies)
        assert "<|im_start|>user\n" in tokenizer.decode(ids)


@pytest.mark.usefixtures("ungraded")
def test_an_episode_without_a_grade_has_no_reward(tasks: StoreTasks, tmp_path: Path) -> None:
    env = TrlEnvironment(tasks)
    env.reset(**task_rows(tasks)[0])
    env.submit()
    assert env.get_reward() is None
    seen: list[Any] = []

    def rollouts(prompts: Any, trainer: Any) -> Any:
        seen.append(TrlRollouts(tasks)(prompts, trainer))
        return seen[0]

    train(
        tmp_path, rollout_rows(tasks), [FIX, NO_FIX, SUBMIT, SUBMIT], rollout_func=rollouts, reward_funcs=[given_reward]
    )
    assert seen[0]["reward"] == [None, None]


class Silent:
    """Stands for an episode that ends after some replies."""

    def __init__(self, name: int, replies: int) -> None:
        self.prompt_ids, self.ids, self.left = [name], [], replies
        self.episodes = self

    @property
    def outcome(self) -> bool | None:
        return None if self.left else True

    def add_reply(self, ids: list[int], logprobs: list[float] | None, trainer: Any) -> str:
        self.ids += ids
        return ""

    def write(self, text: str) -> None:
        self.left -= 1

    def add_turn(self, turn: None, trainer: Any, *, with_logprobs: bool) -> bool:
        return False


def generate_in_a_process(rank: int, port: int) -> None:
    """Generate by TRL's server mode as one of two processes, whose episodes end after different numbers of replies."""
    os.environ |= {
        "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port), "ACCELERATE_USE_CPU": "true",
    }  # fmt: skip
    generation = object.__new__(VLLMGeneration)
    generation.accelerator = Accelerator(cpu=True)
    generation.mode = "server"
    for name in ("temperature", "top_p", "top_k", "min_p", "repetition_penalty", "max_completion_length"):
        setattr(generation, name, 1)
    generation.logprobs, generation.structured_outputs_regex, generation.generation_kwargs = 0, None, {}

    def answer(prompts: list[list[int]], **options: Any) -> dict[str, Any]:
        # A reply names the prompt that it answers.
        return {
            "prompt_ids": prompts,
            "completion_ids": [[ids[0]] for ids in prompts],
            "logprobs": [[[0.0]]] * len(prompts),
        }

    generation.vllm_client = SimpleNamespace(generate=answer)

    def single_turn(prompts: list[list[int]], *rest: Any) -> tuple[list[list[int]], None]:
        return generation.generate(prompts, None, 1)[1], None

    trainer = SimpleNamespace(
        accelerator=generation.accelerator,
        processing_class=SimpleNamespace(eos_token_id=9),
        _generate_single_turn=single_turn,
    )
    rollouts = [Silent(10, 1), Silent(11, 3)] if rank else [Silent(20, 2)]
    generate(rollouts, trainer)
    generate([] if rank else [Silent(30, 1)], trainer)
    assert [rollout.ids for rollout in rollouts] == ([[10], [11] * 3] if rank else [[20] * 2])
    generation.accelerator.end_training()


def test_a_completion_is_cut_where_it_is_full(monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = SimpleNamespace(
        args=SimpleNamespace(max_completion_length=4),
        processing_class=SimpleNamespace(decode=lambda ids, **options: str(ids), eos_token_id=9),
        eos_token_ids=[9, 8],
    )
    chat = ChatTokens(trainer.processing_class, {})
    monkeypatch.setattr(ChatTokens, "between", lambda self, output: [7, 7, 7])
    monkeypatch.setattr(trl_adapter, "_chat", lambda trainer: chat)
    turn: Any = SimpleNamespace(outcome=None, output="")
    for reply, said, ids, cut in (
        ([1, 2, 3, 4, 5], "[1, 2, 3, 4]", [1, 2, 3, 4], 1),
        ([1, 2, 3, 9], "[1, 2, 3, 9]", [1, 2, 3, 9], 0),
        ([1, 9], "[1, 9]", [1, 9, 7, 7], 0),
        # What ends a reply need not be what ends it in the template.
        ([1, 8], "[1, 8]", [1, 8, 9, 7], 0),
        ([1, 2, 3], "[1, 2, 3]", [1, 2, 3], 0),
    ):
        for logprobs in (None, [-0.5] * len(reply)):
            rollout: Any = Rollout(SimpleNamespace(), [0])
            assert rollout.add_reply(reply, logprobs, trainer) == said
            assert rollout.add_turn(turn, trainer, with_logprobs=logprobs is not None)
            assert rollout.ids == ids
            assert rollout.mask == [int(index < len(reply)) for index in range(len(ids))]
            assert rollout.cut_replies == cut
            assert len(rollout.logprobs) == (len(ids) if logprobs else 0)


def test_processes_generate_together(monkeypatch: pytest.MonkeyPatch) -> None:
    # The processes import this file by its name, `tests.environments...`.
    monkeypatch.syspath_prepend(Path(__file__).parents[3])
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    multiprocessing.spawn(generate_in_a_process, (port,), nprocs=2)


def test_a_dataset_without_tasks_and_tools_that_trl_cannot_see_are_errors(tasks: StoreTasks) -> None:
    with pytest.raises(SettingsError):
        TrlEnvironment(tasks).reset(prompt=[])
    with pytest.raises(SettingsError):
        TrlEnvironment(tasks, EnvironmentSettings(tools=["hammer"]))
