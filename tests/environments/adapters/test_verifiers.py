"""The adapter for verifiers: a real environment with a model behind HTTP, and a harness that runs in the test."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx
import pytest
import verifiers.v1 as vf
from model_server import message, serving
from plain import plain_python
from proven import Proven
from replies import FIX, NO_FIX, SUBMIT
from verifiers.v1.utils.loaders import load_environment, resolve_env_config

pytestmark = pytest.mark.filterwarnings("ignore")  # From third-party packages.
TASKSET = """
from harness.environments.adapters.verifiers import SsrEnv, SsrTaskset
__all__ = ["SsrEnv", "SsrTaskset"]
"""


class DirectConfig(vf.HarnessConfig):
    pass


class Direct(vf.Harness[DirectConfig]):
    """Sends the conversation to the model, as a program in a runtime would."""

    SUPPORTS_RESUME = True
    EXECUTES_CODE = False
    NEEDS_CONTAINER = False
    APPENDS_SYSTEM_PROMPT = True

    async def launch(
        self, ctx: Any, trace: Any, runtime: Any, endpoint: str, secret: str, mcp_urls: Any, data: Any
    ) -> Any:
        _, prompt = self.resolve_prompt(data)
        messages = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else [wire(m) for m in prompt]
        async with httpx.AsyncClient(timeout=60) as client:
            response = await client.post(
                f"{endpoint}/chat/completions",
                headers={"Authorization": f"Bearer {secret}"},
                json={"model": ctx.model, "messages": messages},
            )
        response.raise_for_status()
        return vf.ProgramResult(exit_code=0, stdout="", stderr="")


def wire(message: Any) -> dict[str, Any]:
    return {"role": message.role, "content": message.content}


__all__ = ["Direct"]


@pytest.fixture
def env(proven: Proven, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return the environment as verifiers loads it, with one task."""
    (tmp_path / "ssr_bugs.py").write_text(TASKSET)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.syspath_prepend(Path(__file__).parent)
    monkeypatch.setenv("KEY_OF_TEST", "none")
    taskset = {
        "id": "ssr_bugs",
        "project": str(proven.project),
        "store": str(proven.store.root),
        "python": str(plain_python()),
    }
    player = {"harness": {"id": "test_verifiers"}, "runtime": {"type": "subprocess"}}
    return load_environment(resolve_env_config({"taskset": taskset, "player": player}))


def test_an_episode_with_a_model_behind_http(env: Any, proven: Proven) -> None:
    [task] = list(env.taskset)
    assert task.data.id == proven.verdict.artifact_id
    for replies, reward in (((FIX, SUBMIT), 1.0), ((NO_FIX, "no tool", SUBMIT), -1.0)):
        with serving(*[message(reply) for reply in replies], token_ids=False) as served:
            episode = asyncio.run(play(env, task, served.url))
        assert not episode.errors, episode.errors
        [trace] = episode.traces
        assert trace.rewards["ssr"].score == reward
        assert trace.metrics["success"] == (reward > 0)
        assert "test_add" in served.asked[0]["messages"][0]["content"]


@pytest.mark.usefixtures("ungraded")
def test_an_episode_without_a_grade_has_no_reward(env: Any) -> None:
    [task] = list(env.taskset)
    with serving(message(FIX), message(SUBMIT), token_ids=False) as served:
        episode = asyncio.run(play(env, task, served.url))
    assert "it is gone" in str(episode.errors)
    assert ["ssr" in trace.rewards for trace in episode.traces] == [False]


async def play(env: Any, task: Any, url: str) -> Any:
    client = vf.EvalClientConfig(base_url=url, api_key_var="KEY_OF_TEST")
    context = vf.ModelContext(model="tiny", client=client, sampling=vf.SamplingConfig())
    async with env.serving():
        return await env.run_episode(task, context)
