"""The adapter for verl: its own data set and agent loop worker, with a scripted engine and without Ray actors and GPUs."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any

os.environ |= {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false", "RAY_USAGE_STATS_ENABLED": "0"}

import hydra
import numpy as np
import pytest
from omegaconf import OmegaConf
from plain import plain_python
from proven import Proven
from replies import FIX, NO_FIX, SUBMIT
from tiny_model import make_model
from verl import DataProto
from verl.experimental.agent_loop import agent_loop
from verl.experimental.agent_loop.agent_loop import AgentLoopWorker
from verl.trainer.ppo.core_algos import AdvantageEstimator
from verl.trainer.ppo.ray_trainer import compute_advantage
from verl.utils.dataset.rl_dataset import RLHFDataset, collate_fn
from verl.workers.rollout.replica import TokenOutput

from harness.cli.commands.recipe import LOOP
from harness.environments import StoreTasks
from harness.environments.adapters.verl import SsrAgentLoop, task_rows
from harness.environments.episodes import Episodes
from harness.exporters.rl import VERL_AGENT
from pytest_ssr.errors import SandboxError, SettingsError

pytestmark = pytest.mark.filterwarnings("ignore")  # From third-party packages.
PROMPT, RESPONSE = 2048, 4096
LOG_PROB = -0.25


class Engine:
    """Generates scripted replies."""

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer
        self.script: list[Any] = []
        """In order: texts, or functions of the prompt."""
        self.asked: list[list[int]] = []
        self.limits: list[int] = []

    async def generate(self, request_id: str, *, prompt_ids: list[int], sampling_params: dict[str, Any]) -> TokenOutput:
        self.asked.append(prompt_ids)
        self.limits.append(sampling_params["max_tokens"])
        reply = self.script.pop(0)
        if callable(reply):
            reply = await reply(prompt_ids)
        if not reply:
            return TokenOutput(token_ids=[], stop_reason="aborted")
        ids = self.tokenizer(f"{reply}<|im_end|>")["input_ids"]
        return TokenOutput(
            token_ids=ids,
            log_probs=[LOG_PROB] * len(ids),
            stop_reason="completed",
            extra_fields={"max_global_steps": 7},
        )


@pytest.fixture
def worker(proven: Proven, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AgentLoopWorker:
    """One as verl's own tests make it, without the classes that load a model."""
    _, tokenizer = make_model(tmp_path)
    entry = {
        "_target_": LOOP, "name": VERL_AGENT, "project": str(proven.project),
        "store": str(proven.store.root), "python": str(plain_python()), "sandboxes": 2, "faults": 2,
    }  # fmt: skip
    monkeypatch.setitem(agent_loop._agent_loop_registry, VERL_AGENT, OmegaConf.create(entry))
    made = object.__new__(AgentLoopWorker)
    rollout = {
        "prompt_length": PROMPT, "response_length": RESPONSE, "temperature": 1.0, "top_p": 1.0, "top_k": -1,
        "calculate_log_probs": True,
    }  # fmt: skip
    made.config = OmegaConf.create({"actor_rollout_ref": {"rollout": rollout}, "data": {}})
    made.rollout_config = made.config.actor_rollout_ref.rollout
    made.llm_client, made.tokenizer, made.processor = Engine(tokenizer), tokenizer, None
    made.hf_model_type, made.dataset_cls, made.tools, made.mm_processor_kwargs = "qwen2", RLHFDataset, [], {}
    made.reward_loop_worker_handles, made.distillation_enabled = None, False
    return made


@pytest.fixture
def rows(proven: Proven, tmp_path: Path, worker: AgentLoopWorker) -> RLHFDataset:
    tasks = StoreTasks(proven.project, proven.store.root, python=plain_python())
    file = tmp_path / "rows.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in task_rows(tasks)))
    config = OmegaConf.create(
        {"max_prompt_length": PROMPT, "cache_dir": str(tmp_path), "filter_overlong_prompts": False}
    )
    return RLHFDataset(str(file), worker.tokenizer, config)


def play(worker: AgentLoopWorker, row: dict[str, Any]) -> Any:
    trajectory = {"step": 0, "sample_index": 0, "rollout_n": 0, "validate": False}
    columns = {name: value for name, value in row.items() if name != "agent_name"}
    return asyncio.run(worker._run_agent_loop({"logprobs": True}, trajectory, agent_name=row["agent_name"], **columns))


def own(output: Any, tokenizer: Any) -> str:
    ids, mask = output.response_ids[0].tolist(), output.response_mask[0].tolist()
    return tokenizer.decode([token for token, trained in zip(ids, mask, strict=True) if trained])


def ended(*replies: str) -> str:
    return "".join(f"{reply}<|im_end|>" for reply in replies)


def test_rows_are_episodes_with_the_reward_of_the_tests(worker: AgentLoopWorker, rows: RLHFDataset) -> None:
    engine, outputs = worker.llm_client, []
    for script in ([FIX, SUBMIT], ["no tool", NO_FIX, SUBMIT]):
        engine.script = list(script)
        outputs.append(play(worker, rows[0]))
        assert own(outputs[-1], engine.tokenizer) == ended(*script)
        # The engine has seen exactly the tokens that are trained on.
        tokens = outputs[-1].input_ids[0][outputs[-1].attention_mask[0].bool()].tolist()
        assert tokens[: len(engine.asked[-1])] == engine.asked[-1]
    assert [output.reward_score for output in outputs] == [1.0, -1.0]
    batch = worker._postprocess(outputs)
    assert batch.batch["rm_scores"].sum(dim=1).tolist() == [1.0, -1.0]
    assert batch.non_tensor_batch["success"].tolist() == [1.0, 0.0]
    assert (batch.batch["rollout_log_probs"] == LOG_PROB * batch.batch["response_mask"]).all()


def test_two_rows_of_one_task_are_played_in_parallel_in_two_steps(worker: AgentLoopWorker, rows: RLHFDataset) -> None:
    engine = worker.llm_client
    for step in range(2):
        both_wait = asyncio.Barrier(2)
        repair = [FIX, NO_FIX]

        async def reply(prompt_ids: list[int], barrier: asyncio.Barrier = both_wait, repair: list[str] = repair) -> str:
            await asyncio.wait_for(barrier.wait(), 30)
            replies = engine.tokenizer.decode(prompt_ids).count("<|im_start|>assistant")
            return repair.pop() if replies == 1 else SUBMIT

        engine.script = [reply] * 4
        batch = DataProto.from_single_dict(collate_fn([rows[0], rows[0]]), meta_info={"global_steps": step})
        batch = batch.union(asyncio.run(worker.generate_sequences(batch)))
        batch.non_tensor_batch["uid"] = np.array(["task", "task"], dtype=object)
        assert sorted(batch.batch["rm_scores"].sum(dim=1).tolist()) == [-1.0, 1.0]
        assert sorted(batch.non_tensor_batch["success"]) == [0.0, 1.0]
        assert batch.non_tensor_batch["max_global_steps"].tolist() == [7, 7]
        batch.batch["token_level_rewards"] = batch.batch["rm_scores"]
        advantages = compute_advantage(batch, AdvantageEstimator.GRPO).batch["advantages"]
        mask = batch.batch["response_mask"].bool()
        assert (advantages[mask].abs() - 0.5**0.5).abs().max() < 1e-4
        assert not advantages[~mask].any()


def test_a_full_response_is_graded_and_ends_with_a_reply(worker: AgentLoopWorker, rows: RLHFDataset) -> None:
    engine, look = worker.llm_client, "```bash\nseq 3000\n```\n"
    engine.script = [FIX, look, "never asked"]
    output = play(worker, rows[0])
    assert (output.reward_score, engine.script) == (1.0, ["never asked"])
    assert own(output, engine.tokenizer) == ended(FIX, look)
    # Where verl puts the reward.
    last = int(output.attention_mask[0, PROMPT:].sum()) - 1
    assert output.response_mask[0, last] == 1


def test_a_reply_has_the_rest_of_the_response(worker: AgentLoopWorker, rows: RLHFDataset) -> None:
    engine = worker.llm_client
    engine.script = [FIX, SUBMIT]
    play(worker, rows[0])
    prompt, second = engine.asked
    assert engine.limits == [RESPONSE, RESPONSE - (len(second) - len(prompt))]


def test_an_episode_without_a_grade_is_played_again(
    worker: AgentLoopWorker, rows: RLHFDataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker.llm_client.script = [FIX, "", FIX, SUBMIT]
    assert play(worker, rows[0]).reward_score == 1.0

    def fail(*arguments: Any, **options: Any) -> Any:
        raise OSError("a bug of ours")

    monkeypatch.setattr(Episodes, "begin", fail)
    with pytest.raises(SandboxError):
        play(worker, rows[0])


def test_a_prompt_that_is_too_long_is_an_error(worker: AgentLoopWorker, rows: RLHFDataset) -> None:
    worker.rollout_config.prompt_length = 100
    with pytest.raises(SettingsError):
        play(worker, rows[0])


def test_recipes_name_the_loop() -> None:
    assert hydra.utils.get_class(LOOP) is SsrAgentLoop
