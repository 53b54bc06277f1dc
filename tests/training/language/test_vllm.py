"""Training with TRL's vLLM server mode: its own client, a scripted server, and no copy of the weights by NCCL."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import trl
from action_model import make_action_model
from language_runs import lines
from plain import plain_python
from proven import Proven
from replies import FIX, NO_FIX, SUBMIT
from trl.generation import vllm_client, vllm_generation

from harness.cli.app import parse
from harness.cli.commands.train_language import plan_of
from harness.cli.exit_code import ExitCode
from harness.cli.main import main
from harness.training.language.plan import Method
from harness.training.language.reinforcement import _arguments
from harness.training.language.run_folder import RunFolder

pytestmark = [pytest.mark.bubblewrap, pytest.mark.filterwarnings("ignore")]  # From third-party packages.
FILE = Path(__file__).parents[3] / "docs" / "training" / "7b-8-gpus-vllm.yaml"
END, ASSISTANT, ACTIONS = 2, 5, 6
LOG_PROBS = [-1.1, 0.0]
"""As the model has learned: one of three actions, then the end."""


class Server(ThreadingHTTPServer):
    """Answers as vLLM does: the first reply repairs the bug in every other rollout, the second one submits."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.asked: list[dict[str, Any]] = []

    def choices(self, prompts: list[list[int]]) -> Iterator[dict[str, Any]]:
        for index, prompt in enumerate(prompts):
            ids = [ACTIONS + (index % 2 if prompt.count(ASSISTANT) == 1 else 2), END]
            names = [f"token_id:{token}" for token in ids]
            logprobs = {
                "tokens": names,
                "token_logprobs": LOG_PROBS,
                "top_logprobs": [{name: value} for name, value in zip(names, LOG_PROBS, strict=True)],
            }
            yield {"prompt_token_ids": prompt, "token_ids": ids, "logprobs": logprobs}


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        self._send(
            {
                "/v1/models": {"data": [{"id": "served"}]},
                "/server_info?config_format=json": {
                    "vllm_config": {"model_config": {"logprobs_mode": "processed_logprobs"}}
                },
            }.get(self.path, {})
        )

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        if self.path != "/v1/completions":
            self._send({"success": True})
            return
        request = json.loads(body)
        self.server.asked.append(request)
        self._send({"choices": list(self.server.choices(request["prompt"]))})

    def _send(self, data: Any) -> None:
        body = json.dumps(data).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments: object) -> None:
        """Log nothing."""


@pytest.fixture
def server() -> Iterator[Server]:
    served = Server()
    thread = threading.Thread(target=served.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    yield served
    served.shutdown()
    served.server_close()
    thread.join()


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return the number of weights of each update that the server would have received."""
    updates: list[int] = []
    for module in (vllm_client, vllm_generation):
        monkeypatch.setattr(module, "is_vllm_available", lambda **options: True)
    client = vllm_client.VLLMClient
    monkeypatch.setattr(client, "init_communicator", lambda self, device: None)
    monkeypatch.setattr(client, "update_named_params", lambda self, names, weights: updates.append(len(list(weights))))
    return updates


def test_the_configuration_makes_trl_use_a_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pyproject.toml").write_text("")
    monkeypatch.chdir(tmp_path)
    for method in (Method.GRPO, Method.REINFORCE):
        parsed = parse(["train", method, ".", "optimization.sharding=false", "--config", str(FILE)])
        assert parsed is not None
        settings = parsed.settings
        arguments = _arguments(plan_of(settings), settings.policy, RunFolder(tmp_path))
        config = trl.GRPOConfig(**arguments)
        assert (config.use_vllm, config.vllm_mode) == (True, "server")
        assert config.vllm_server_base_url == "http://localhost:8000"
        assert config.generation_kwargs == {"max_tokens": settings.policy.reply_tokens}


def test_two_updates_from_the_replies_of_a_server(
    proven: Proven, tmp_path: Path, server: Server, sent: list[int]
) -> None:
    model = make_action_model(tmp_path / "model", (FIX, NO_FIX, SUBMIT))
    out = tmp_path / "run"
    argv = [
        *("train", "grpo", str(proven.project), "--store", str(proven.store.root), "--model", str(model)),
        *("--out", str(out), "--python", str(plain_python()), "--sandbox", "bubblewrap", "--roles", "solver"),
        *("--group", "4", "--tasks", "1", "--batch", "4", "--updates", "2", "--reply-tokens", "3"),
        *("--dtype", "float32", "--vllm", f"http://127.0.0.1:{server.server_port}"),
        *("optimization.sharding=false", "--config", str(FILE)),
    ]
    assert main(argv) == ExitCode.DONE
    assert [line["reward"] for line in lines(out)] == [0.0, 0.0]
    assert all(line["grad_norm"] > 0 for line in lines(out))
    assert [(request["max_tokens"], len(request["prompt"])) for request in server.asked] == [(3, 4)] * 4
    # The server has the weights of each update before it generates.
    assert len(sent) == 2
    assert min(sent) > 0
