"""The adapter for slime: its own data source, rollouts and samples, with a scripted engine and without Ray and GPUs."""

from __future__ import annotations

import functools
import importlib.util
import json
import os
import sys
import threading
from argparse import Namespace
from collections.abc import Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import ModuleType
from typing import Any

os.environ |= {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
if importlib.util.find_spec("ray") is None:
    # What imports Ray does not use it here, unless SSR_EXECUTOR names a cluster.
    sys.modules["ray"] = ModuleType("ray")

import pytest
from plain import plain_python
from proven import Proven
from replies import FIX, NO_FIX, SUBMIT
from slime.observability.rollout_data_utils import validate_rollout_id_annotated
from slime.rollout.data_source import RolloutDataSource
from slime.rollout.sglang_rollout import GenerateState, generate_and_rm_group, generate_rollout
from slime.utils import http_utils
from slime.utils.async_utils import run
from slime.utils.types import Sample
from tiny_model import make_model

from harness.environments import StoreTasks
from harness.environments.adapters import pool, slime
from harness.environments.episodes import Episodes
from pytest_ssr.errors import LeakError, SandboxError, SettingsError

pytestmark = pytest.mark.filterwarnings("ignore")  # From third-party packages.
NAME = "harness.environments.adapters.slime"
SAMPLING = {"temperature": 1.0, "max_new_tokens": 256}
LOG_PROB = -0.25


class Engine(ThreadingHTTPServer):
    """Answers `/generate` as SGLang does, with the replies of its script."""

    daemon_threads = True

    def __init__(self, tokenizer: Any) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.tokenizer = tokenizer
        self.script: list[Any] = []
        """In order: texts, texts with a finish reason, HTTP statuses, or functions of the request."""
        self.asked: list[dict[str, Any]] = []
        self.lock = threading.Lock()


class Handler(BaseHTTPRequestHandler):
    server: Engine

    def do_GET(self) -> None:
        self._send(200, {"workers": []})

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["content-length"])))
        with self.server.lock:
            self.server.asked.append(request)
            reply = self.server.script.pop(0)
        if callable(reply):
            reply = reply(request)
        if isinstance(reply, int):
            self._send(reply, {})
            return
        text, reason = reply if isinstance(reply, tuple) else (reply, "stop")
        ids = self.server.tokenizer(text + "<|im_end|>" * (reason == "stop"))["input_ids"]
        meta = {
            "finish_reason": {"type": reason},
            "output_token_logprobs": [[LOG_PROB, token, None] for token in ids],
            "prompt_tokens": len(request["input_ids"]),
            "completion_tokens": len(ids),
            "weight_version": "1",
        }
        self._send(200, {"text": text, "meta_info": meta})

    def _send(self, status: int, data: Any) -> None:
        body = json.dumps(data).encode()
        self.send_response(status)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments: object) -> None:
        """Log nothing."""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Any]:
    return make_model(tmp_path_factory.mktemp("model"))


@pytest.fixture
def engine(model: tuple[str, Any]) -> Iterator[Engine]:
    server = Engine(model[1])
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def args(proven: Proven, model: tuple[str, Any], engine: Engine, monkeypatch: pytest.MonkeyPatch) -> Namespace:
    """The arguments of slime that rollouts read, and those of our file."""
    monkeypatch.setattr(type(GenerateState), "_instances", {})
    monkeypatch.setattr(http_utils, "_http_client", None)
    pool.pool_of.cache_clear()
    monkeypatch.setattr(slime, "post", functools.partial(http_utils.post, max_retries=1))
    given = Namespace(
        hf_checkpoint=model[0], sglang_router_ip="127.0.0.1", sglang_router_port=engine.server_port,
        sglang_server_concurrency=8, rollout_num_engines=1, sglang_dp_size=1, use_distributed_post=False,
        rollout_temperature=1.0, rollout_top_p=1.0, rollout_top_k=-1, rollout_max_response_len=256, rollout_stop=None,
        rollout_stop_token_ids=None, rollout_skip_special_tokens=False, rollout_max_context_len=None,
        eval_max_context_len=None,
        custom_generate_function_path=f"{NAME}.generate", custom_rm_path=f"{NAME}.reward_func", group_rm=False,
        dynamic_sampling_filter_path=f"{NAME}.keep_graded", rollout_sample_filter_path=None,
        rollout_all_samples_process_path=None, partial_rollout=False, mask_offpolicy_in_partial_rollout=False,
        reward_key=None, advantage_estimator="grpo", rewards_normalization=True, grpo_std_normalization=True,
        n_samples_per_prompt=2, rollout_batch_size=1, over_sampling_batch_size=1, rollout_global_dataset=True,
        apply_chat_template_kwargs={}, ssr_project=str(proven.project), ssr_store=str(proven.store.root),
        ssr_python=str(plain_python()), ssr_sandboxes=1,
    )  # fmt: skip
    http_utils.init_http_client(given)
    return given


@pytest.fixture
def group(proven: Proven) -> list[Sample]:
    task = proven.verdict.artifact_id
    return [Sample(group_index=0, index=index, prompt=task, label=task) for index in range(2)]


def play(args: Namespace, group: Sequence[Sample]) -> list[Any]:
    return run(generate_and_rm_group(args, group, dict(SAMPLING)))


def own(sample: Sample, tokenizer: Any) -> str:
    """Return the text of the tokens that are trained on."""
    response = sample.tokens[-sample.response_length :]
    return tokenizer.decode([token for token, mask in zip(response, sample.loss_mask, strict=True) if mask])


def ended(*replies: str) -> str:
    return "".join(f"{reply}<|im_end|>" for reply in replies)


def test_an_episode_is_a_sample_with_what_the_engine_returned(
    args: Namespace, engine: Engine, group: list[Sample]
) -> None:
    engine.script = [FIX, SUBMIT, "no tool", NO_FIX, SUBMIT]
    [first], [second] = play(args, group)
    assert (first.reward, second.reward) == (1.0, -1.0)
    assert (own(first, engine.tokenizer), first.status) == (ended(FIX, SUBMIT), Sample.Status.COMPLETED)
    assert own(second, engine.tokenizer) == ended("no tool", NO_FIX, SUBMIT)
    for sample in (first, second):
        sample._validate_response_metadata_lengths()
        assert sample.rollout_log_probs == [LOG_PROB * mask for mask in sample.loss_mask]
        assert Sample.from_dict(sample.to_dict()) == sample
    # The engine has seen exactly the tokens that are trained on.
    last = engine.asked[1]["input_ids"]
    assert first.tokens[: len(last)] == last
    assert first.weight_versions == ["1", "1"]
    assert (first.rollout_id, second.rollout_id) == (0, 1)


def test_slime_takes_two_rollouts_from_rows(args: Namespace, engine: Engine, proven: Proven, tmp_path: Path) -> None:
    tasks = StoreTasks(proven.project, proven.store.root, python=plain_python())
    rows = tmp_path / "prompts.jsonl"
    rows.write_text("".join(json.dumps(row) + "\n" for row in slime.prompt_rows(tasks)))
    vars(args).update(
        prompt_data=str(rows), input_key="prompt", label_key="label", metadata_key="metadata", tool_key=None,
        multimodal_keys=None, dump_details=None, rollout_max_prompt_len=None, apply_chat_template=False,
        rollout_seed=1, rollout_shuffle=True,
    )  # fmt: skip
    source = RolloutDataSource(args)
    for number in range(2):
        engine.script = [FIX, SUBMIT, NO_FIX, SUBMIT]
        output = generate_rollout(args, number, source)
        validate_rollout_id_annotated(output.samples)
        [[[first], [second]]] = output.samples
        assert (first.reward, second.reward, first.group_index) == (1.0, -1.0, number)
        raw, compared = slime.group_rewards(args, [first, second])
        assert (raw, compared) == ([1.0, -1.0], pytest.approx([0.5**0.5, -(0.5**0.5)]))


def test_each_reply_is_a_sample_if_requested(args: Namespace, engine: Engine, group: list[Sample]) -> None:
    args.ssr_single_steps = True
    engine.script = [FIX, SUBMIT, "no tool", NO_FIX, SUBMIT]
    played = play(args, group)
    validate_rollout_id_annotated([played])
    assert [[own(sample, engine.tokenizer) for sample in samples] for samples in played] == [
        [ended(FIX), ended(SUBMIT)],
        [ended("no tool"), ended(NO_FIX), ended(SUBMIT)],
    ]
    assert all(set(sample.loss_mask) == {1} for samples in played for sample in samples)
    # Each rollout counts once, however many samples it has.
    _, compared = slime.group_rewards(args, [*played[0], *played[1]])
    assert compared == pytest.approx([0.5**0.5] * 2 + [-(0.5**0.5)] * 3)


def test_a_cut_context_begins_another_sample(args: Namespace, engine: Engine, group: list[Sample]) -> None:
    look = "```bash\nseq 200\n```\n"
    engine.script = [FIX, look, look, SUBMIT]
    [[whole]] = play(args, group[:1])
    assert (own(whole, engine.tokenizer), whole.reward) == (ended(FIX, look, look, SUBMIT), 1.0)
    args.rollout_max_context_len = len(whole.tokens) - 100 + SAMPLING["max_new_tokens"]
    engine.script = [FIX, look, look, SUBMIT]
    [samples] = play(args, group[:1])
    assert len(samples) > 1
    assert "".join(own(sample, engine.tokenizer) for sample in samples) == ended(FIX, look, look, SUBMIT)
    assert {(sample.reward, sample.rollout_id) for sample in samples} == {(1.0, 0)}
    assert "left out" in engine.tokenizer.decode(samples[-1].tokens)
    for sample in samples:
        sample._validate_response_metadata_lengths()
        assert len(sample.tokens) <= args.rollout_max_context_len


def test_a_reply_that_was_cut_is_closed_outside_of_the_loss(
    args: Namespace, engine: Engine, group: list[Sample]
) -> None:
    engine.script = [("I think that", "length"), FIX, SUBMIT]
    [[sample]] = play(args, group[:1])
    assert own(sample, engine.tokenizer) == f"I think that{ended(FIX, SUBMIT)}"
    assert "I think that<|im_end|><|im_start|>user\n" in engine.tokenizer.decode(sample.tokens)


def test_a_limit_truncates_and_its_changes_are_graded(args: Namespace, engine: Engine, group: list[Sample]) -> None:
    args.ssr_steps = 1
    engine.script = [FIX]
    [[sample]] = play(args, group[:1])
    assert (sample.status, sample.reward) == (Sample.Status.TRUNCATED, 1.0)


def test_the_samples_of_a_group_are_played_in_parallel(args: Namespace, engine: Engine, group: list[Sample]) -> None:
    args.ssr_sandboxes = 2
    both_wait = threading.Barrier(2)

    def reply(request: dict[str, Any]) -> str:
        replies = engine.tokenizer.decode(request["input_ids"]).count("<|im_start|>assistant")
        both_wait.wait(30)
        return FIX if replies == 1 else SUBMIT

    engine.script = [reply] * 4
    [first], [second] = play(args, group)
    assert (first.reward, second.reward) == (1.0, 1.0)
    assert first.tokens == second.tokens
    assert (first.index, second.index) == (0, 1)


def test_failures_are_aborted_and_have_no_reward(args: Namespace, engine: Engine, group: list[Sample]) -> None:
    engine.script = [FIX, 500, FIX, SUBMIT]
    played = play(args, group)
    [failed], [graded] = played
    assert (failed.status, failed.reward, failed.response_length) == (Sample.Status.ABORTED, None, 0)
    assert (graded.status, graded.reward) == (Sample.Status.COMPLETED, 1.0)
    assert run(slime.reward_func(args, played)) == [[None], [1.0]]
    assert not slime.keep_graded(args, played).keep
    with pytest.raises(SettingsError):
        slime.group_rewards(args, [failed, graded])
    engine.script = [FIX, SUBMIT]
    [[again]] = play(args, [failed])
    assert (again.reward, again.status) == (1.0, Sample.Status.COMPLETED)
    assert slime.keep_graded(args, [[again]]).keep


@pytest.mark.parametrize("error", [SandboxError("no sandbox"), LeakError("a leak"), OSError("a bug of ours")])
def test_a_broken_environment_aborts_its_samples_until_too_many_fail(
    args: Namespace, group: list[Sample], monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def fail(*arguments: Any, **options: Any) -> Any:
        raise error

    monkeypatch.setattr(Episodes, "begin", fail)
    args.ssr_faults = 2
    [[sample]] = play(args, group[:1])
    assert (sample.status, sample.reward) == (Sample.Status.ABORTED, None)
    with pytest.raises(SandboxError):
        play(args, group[:1])


def test_an_environment_that_broke_unexpectedly_is_not_used_again(
    args: Namespace, engine: Engine, group: list[Sample], monkeypatch: pytest.MonkeyPatch
) -> None:
    used: list[Episodes] = []
    write = Episodes.write

    def fail_once(self: Episodes, text: str) -> Any:
        used.append(self)
        if len(used) == 1:
            raise OSError("a bug of ours")
        return write(self, text)

    monkeypatch.setattr(Episodes, "write", fail_once)
    engine.script = [FIX, FIX, SUBMIT]
    [[first], [second]] = play(args, group)
    assert (first.status, second.reward) == (Sample.Status.ABORTED, 1.0)
    assert used[0] not in used[1:]


def test_what_slime_aborts_ends_without_another_request(args: Namespace, engine: Engine, group: list[Sample]) -> None:
    state = GenerateState(args)
    engine.script = [FIX, ("", "abort")]
    [[sample]] = play(args, group[:1])
    assert (sample.status, sample.reward) == (Sample.Status.ABORTED, None)

    def reply(request: dict[str, Any]) -> str:
        state.aborted = True
        return FIX

    engine.script = [reply, "never asked"]
    [[sample]] = play(args, group[:1])
    assert (sample.status, engine.script) == (Sample.Status.ABORTED, ["never asked"])
    [sample] = run(slime.generate(args, group[0], dict(SAMPLING)))
    assert (sample.status, engine.script) == (Sample.Status.ABORTED, ["never asked"])


def evaluate(args: Namespace, group: Sequence[Sample]) -> list[Any]:
    return run(generate_and_rm_group(args, group, dict(SAMPLING), evaluation=True))


def test_an_evaluation_has_one_sample_with_a_reward_for_each_rollout(
    args: Namespace, engine: Engine, group: list[Sample]
) -> None:
    args.ssr_single_steps = True
    engine.script = [FIX, 500, FIX, SUBMIT]
    [sample] = evaluate(args, group[:1])
    assert (sample.reward, sample.status) == (1.0, Sample.Status.COMPLETED)
    args.ssr_faults = 2
    engine.script = [500, 500]
    with pytest.raises(SandboxError):
        evaluate(args, group[:1])


def test_an_evaluation_has_its_own_context(args: Namespace, engine: Engine, group: list[Sample]) -> None:
    args.eval_max_context_len = SAMPLING["max_new_tokens"] + 1
    with pytest.raises(SettingsError):
        evaluate(args, group[:1])
    engine.script = [FIX, SUBMIT]
    assert play(args, group[:1])[0][0].reward == 1.0


@pytest.mark.parametrize(
    "wrong",
    [
        {"ssr_project": ""},
        {"ssr_dataset": "rows"},
        {"ssr_step": 1},
        {"ssr_steps": "3"},
        {"ssr_faults": 0},
        {"partial_rollout": True},
        {"rollout_max_context_len": 256},
    ],
)
def test_wrong_settings_are_errors(args: Namespace, group: list[Sample], wrong: dict[str, Any]) -> None:
    vars(args).update(wrong)
    with pytest.raises(SettingsError):
        play(args, group[:1])
