"""A real small model behind llama.cpp's server: whatever it writes, it is recorded, counted, exported and listed.

What the model achieves does not matter: it has 135 million parameters. `tox -e small-model` runs these tests.
"""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from small_model import model_file
from tiny_projects import project

from harness.cli.main import main
from harness.local_models.scoring import Variant
from harness.local_models.torch_model import TorchModel
from harness.local_models.weights import SMOLLM2, find_weights
from harness.models.http import HttpModel
from harness.models.scorers import open_scorer
from harness.records.messages import SYSTEM, USER, Message, Sampling
from harness.records.trajectory import ExitReason, Trajectory, read_trajectory
from pytest_ssr.errors import ContextError, ModelError, SettingsError

CONTEXT_TOKENS = 4096
ENDS = {ExitReason.MODEL, ExitReason.INFRA, ExitReason.INTERRUPTED}
"""The reasons of rollouts that failed by a fault of ours or of the server."""
pytestmark = pytest.mark.bubblewrap


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    program = Path(__file__).parents[1] / "support" / "small_model.py"
    process = subprocess.Popen([sys.executable, str(program), str(port), str(CONTEXT_TOKENS)])
    root = f"http://127.0.0.1:{port}"
    try:
        deadline = time.monotonic() + 120
        while not _is_ready(root):
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.2)
        yield f"{root}/v1"
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(30)


def _is_ready(root: str) -> bool:
    try:
        return httpx.get(f"{root}/health", timeout=5, trust_env=False).status_code == 200
    except httpx.HTTPError:
        return False


def post(url: str, path: str, body: dict[str, Any]) -> dict[str, Any]:
    response = httpx.post(url.removesuffix("/v1") + path, json=body, timeout=60, trust_env=False)
    return dict(response.raise_for_status().json())


@pytest.fixture(scope="module")
def played(url: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a store in which the model has solved and injected, with tools and without."""
    top = tmp_path_factory.mktemp("small")
    source, store = project(top, "tiny"), top / "store"
    name, small = f"vllm:{url}", ["--max-tokens", "120", "--steps", "3", "--attempts", "2"]
    common = ["--rounds", "1", "--store", str(store), "--sandbox", "bubblewrap", "--json"]
    for more in (
        ["--injector", "mutation", "--solver", name, "--count", "1", *small],
        ["--injector", name, "--strategy", "lm-modify", "--solver", "search", "--count", "2", "--max-tokens", "120"],
        ["--injector", name, "--strategy", "removal", "--solver", "search", "--count", "1", *small[:4]],
    ):
        assert main(["play", str(source), *common, *more]) in (0, 1)
    return store


CODE = """def first(items, default=None):
    \"\"\"Return the first of 12 items.\"\"\"
    for item in items:
        if item is not None and item != 'é':
            return item
    return default
"""


def test_the_converted_model_has_the_tokens_and_probabilities_of_llama_cpp(url: str, tmp_path: Path) -> None:
    weights = find_weights(SMOLLM2, tmp_path)
    model = TorchModel(weights)
    ids, _ = model.encode(CODE)
    assert ids[1:] == post(url, "/tokenize", {"content": CODE})["tokens"]
    # The most likely next token, and its log-probability, after each of some prefixes.
    differences = []
    for end in range(20, len(CODE), 9):
        prompt, _ = model.encode(CODE[:end])
        body = {"prompt": prompt, "n_predict": 1, "n_probs": 1, "temperature": 0}
        (best,) = post(url, "/completion", body)["completion_probabilities"]
        text = CODE[:end] + best["token"]
        if model.encode(text)[0] == [*prompt, best["id"]]:
            (score,) = model.open(text).read([Variant(text, end, len(text))], after=0)
            assert score is not None
            assert len(score.changed) == 1
            differences.append(abs(score.changed[0] - best["logprob"]))
    assert len(differences) > 5
    # llama.cpp computes in fewer bits. A weight in the wrong place would change them by several nats.
    assert max(differences) < 1
    assert sum(differences) / len(differences) < 0.25


def test_a_server_that_does_not_echo_prompts_is_refused(url: str) -> None:
    with pytest.raises((SettingsError, ModelError)):
        open_scorer(url)


def rollouts_of(store: Path) -> list[Trajectory]:
    found = [read_trajectory(path) for path in sorted(store.rglob("trajectory.jsonl"))]
    return [rollout for rollout in found if rollout.model.startswith("vllm:")]


def test_the_server_s_abilities_are_found_out(url: str) -> None:
    model = HttpModel(f"vllm:{url}", url)
    messages = [Message(SYSTEM, "Be brief."), Message(USER, "Say hello.")]
    try:
        assert (model.context_tokens, model.passes_tools) == (CONTEXT_TOKENS, False)
        reply = model.reply(messages, tools=(), sampling=Sampling(max_tokens=8, seed=1))
        assert model.count(messages, tools=()) == reply.usage.prompt_tokens == len(reply.prompt_ids or ())
        assert len(reply.token_ids or ()) == len(reply.logprobs or ()) == reply.usage.completion_tokens
        with pytest.raises(ContextError) as raised:
            model.reply([Message(USER, "word " * 5000)], tools=(), sampling=Sampling(max_tokens=8))
        assert raised.value.limit_tokens == CONTEXT_TOKENS < raised.value.prompt_tokens
    finally:
        model.close()


def test_every_rollout_is_recorded_with_its_tokens(url: str, played: Path) -> None:
    rollouts = rollouts_of(played)
    assert {rollout.role for rollout in rollouts} == {"solver", "injector"}
    assert not {rollout.exit_reason for rollout in rollouts} & ENDS
    assert all(rollout.steps for rollout in rollouts if rollout.provenance.get("observe_as"))
    for rollout in rollouts:
        assert rollout.calls
        assert rollout.on_policy
        for call in rollout.calls:
            assert call.usage.completion_tokens == len(call.token_ids or ()) > 0
            assert call.usage.prompt_tokens == len(call.prompt_ids or ()) > 0
            assert not call.usage.estimated
            text = post(url, "/detokenize", {"tokens": call.token_ids})["content"]
            assert text.removesuffix("<|im_end|>") == rollout.messages[call.assistant_index].content


@pytest.mark.parametrize("form", ["slime-samples", "rollouts"])
def test_tokens_are_exported_as_they_were_sampled(played: Path, tmp_path: Path, form: str) -> None:
    out = tmp_path / "rows.jsonl"
    assert main(["export", str(played), "--format", form, "--out", str(out), "--role", "solver"]) == 0
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    solved = [rollout for rollout in rollouts_of(played) if rollout.role == "solver"]
    if form == "rollouts":
        exported = sorted(call["token_ids"] for row in rows for call in row["calls"])
    else:
        exported = sorted(row["tokens"][-row["response_length"] :] for row in rows)
    assert exported == sorted(list(c.token_ids or ()) for rollout in solved for c in rollout.calls)


def test_the_board_lists_the_model_by_name(played: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert main(["leaderboard", str(played), "--json"]) == 0
    board = json.loads(capsys.readouterr().out)
    name = model_file().name
    assert name in {row["solver"] for row in board["solvers"]}
    assert name in {row["injector"] for row in board["injectors"]}
    assert "127.0.0.1" not in json.dumps([board["solvers"], board["injectors"]])


def test_what_is_missing_is_said_once(url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = project(tmp_path, "tiny")
    argv = ["--injector", "mutation", "--solver", f"vllm:{url}", "--count", "1", "--attempts", "2"]
    common = ["--rounds", "1", "--sandbox", "bubblewrap", "--max-tokens", "20", "--steps", "1"]
    assert main(["play", str(source), *argv, *common]) in (0, 1)
    assert capsys.readouterr().err.count(model_file().name) == 1
