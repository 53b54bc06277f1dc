"""The adapter for OpenEnv: a real server and its client, over a socket."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
import uvicorn
from openenv import GenericEnvClient
from plain import plain_python
from proven import Proven

from harness.environments import StoreTasks
from harness.environments.adapters.openenv import SsrAction, SsrClient, create_server

pytestmark = pytest.mark.filterwarnings("ignore")  # From third-party packages.


@pytest.fixture
def url(proven: Proven) -> Iterator[str]:
    tasks = StoreTasks(proven.project, proven.store.root, python=plain_python())
    server = uvicorn.Server(uvicorn.Config(create_server(tasks, sessions=2), log_level="error"))
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        thread = threading.Thread(target=server.run, args=([listener],))
        thread.start()
        while not server.started and thread.is_alive():
            time.sleep(0.01)
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        server.should_exit = True
        thread.join()


def bash(command: str) -> SsrAction:
    return SsrAction(tool="bash", arguments={"command": command})


@pytest.mark.parametrize(("program", "reward"), [("s/return a - b/return a + b/", 1.0), ("1s/$/ /", -1.0)])
def test_an_episode_over_a_socket(url: str, proven: Proven, program: str, reward: float) -> None:
    with SsrClient(base_url=url).sync() as client:
        result = client.reset(task=proven.verdict.artifact_id)
        assert "test_add" in result.observation.output
        assert {tool["function"]["name"] for tool in result.observation.metadata["tools"]} >= {"bash", "submit"}
        result = client.step(bash(f"sed -i '{program}' calc.py"))
        assert (result.reward, result.done) == (0.0, False)
        assert "calc.py" in result.observation.diff
        assert client.state().step_count == 1
        result = client.step(SsrAction(tool="submit"))
        assert (result.reward, result.done) == (reward, True)
        assert result.observation.metadata["success"] == (reward > 0)


def test_two_clients_have_episodes_of_their_own(url: str) -> None:
    with SsrClient(base_url=url).sync() as first, GenericEnvClient(base_url=url).sync() as second:
        first.reset()
        second.reset()
        first.step(bash("echo '# first' >> calc.py"))
        result: Any = second.step({"tool": "bash", "arguments": {"command": "cat calc.py"}})
        assert "# first" not in result.observation["output"]


@pytest.mark.usefixtures("ungraded")
def test_an_episode_without_a_grade_has_no_reward(url: str) -> None:
    with SsrClient(base_url=url).sync() as client:
        client.reset()
        client.step(bash("echo '# changed' >> calc.py"))
        result = client.step(SsrAction(tool="submit"))
        assert (result.reward, result.done) == (None, True)
        assert result.observation.metadata["code"] == "sandbox-failed"
