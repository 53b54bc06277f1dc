"""A server that is started for a model is monitored, restarted when it dies, and ended with its child processes."""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path

import pytest

from harness.models.factory import open_model
from harness.models.middleware import RetryingModel
from harness.models.vllm import VllmModel
from harness.records.messages import USER, Message, Sampling
from harness.rollouts.player_factory import PlayerFactory
from pytest_ssr.errors import ModelError, SettingsError

MESSAGES = [Message(USER, "add")]
# A path after #! must have no space: this is a program of the shell that runs itself with Python.
PROGRAM = """\
#!/bin/sh
''''exec "{python}" "$0" "$@" # '''
import os, signal, sys
sys.path.insert(0, {tests!r})
if {broken}:
    sys.exit("no such model: " + sys.argv[2])
import model_server
said = {{"role": "assistant", "content": " ".join(sys.argv[1:3])}}
if "slowly" in sys.argv:
    said = model_server.dribbling()
if "never" in sys.argv:
    signal.sigwait([signal.SIGTERM])
replies = [said, lambda request: os._exit(3)] if "--lasting" not in sys.argv else [said] * 9
with model_server.serving(*replies, port=int(sys.argv[-1]), token_ids="--lasting" not in sys.argv) as served:
    signal.sigwait([signal.SIGTERM])
"""


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "vllm"
    write(path, broken=False)
    monkeypatch.setenv("SSR_VLLM", str(path))
    return path


def write(path: Path, *, broken: bool) -> None:
    tests = str(Path(__file__).parents[1] / "support")
    path.write_text(PROGRAM.format(python=sys.executable, tests=tests, broken=broken))
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


def test_a_server_that_dies_is_restarted_and_finally_ended(program: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    model = VllmModel("some/model")
    try:
        assert model.context_tokens == 8192
        first = model._process
        assert first is not None
        contents = [
            RetryingModel(model, sleep=lambda _: None).reply(MESSAGES, tools=(), sampling=Sampling()).message.content
            for _ in range(2)
        ]
        assert contents == ["serve some/model"] * 2, "the second request was repeated on another server"
        second = model._process
        assert second is not None
        assert second.pid != first.pid
        assert first.returncode == 3
    finally:
        model.close()
    assert second.returncode is not None
    model.close()
    with pytest.raises(ModelError, match="vllm:some/model is closed"):
        model.reply(MESSAGES, tools=(), sampling=Sampling())


def test_a_configured_window_is_used(program: Path) -> None:
    model = open_model("vllm:some/model", context_tokens=4000)
    try:
        assert model.context_tokens == 4000
    finally:
        model.close()


def test_what_a_server_lacks_is_said_once_it_runs(program: Path) -> None:
    players = PlayerFactory(vllm_arguments=["--lasting"])
    model = players.model("vllm:some/model")
    try:
        assert players.remarks() == [], "it is not started to be asked"
        model.reply(MESSAGES, tools=(), sampling=Sampling())
        (line,) = players.remarks()
        assert line.startswith("vllm:some/model")
        assert "token ids" in line
        assert players.remarks() == [], "it was said"
    finally:
        players.close()


def test_additional_arguments_make_it_another_model(program: Path, tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    plain, other = (VllmModel(f"{tmp_path}/model", arguments=a) for a in ((), ("--quantization", "fp8")))
    assert plain.identity
    assert other.identity == f"{plain.identity} --quantization fp8"
    name = "--tool-call-parser"
    for given, expected in (
        (["--port", "1"], [name, "hermes"]),
        ([f"{name}=x"], [f"{name}=x"]),
        ([name, "x"], [name, "x"]),
    ):
        model = open_model("vllm:some/model", vllm_arguments=given, timeout_s=20.0)
        try:
            assert model.reply(MESSAGES, tools=(), sampling=Sampling()).message.content == "serve some/model"
            (process,) = [p for p in map(command_of, Path("/proc").glob("[0-9]*")) if str(program) in p]
        finally:
            model.close()
        assert process[process.index("-1") + 1 :][: len(given)] == given
        assert [a for a in process if a.startswith(name)] == [expected[0]]
        assert all(f in process for f in expected)


def command_of(process: Path) -> list[str]:
    try:
        return (process / "cmdline").read_text().split("\0")[:-1]
    except OSError:
        return []


def test_the_timeouts_of_the_server_are_configurable(program: Path) -> None:
    model = VllmModel("some/model", arguments=["slowly"], timeout_s=0.5)
    with pytest.raises(ModelError, match=r"/chat/completions did not answer within 0\.5 s"):
        model.reply(MESSAGES, tools=(), sampling=Sampling())
    model.close()
    model = VllmModel("some/model", arguments=["never"], ready_s=0.3)
    with pytest.raises(ModelError, match=r"vllm:some/model: the server is not ready after 0\.3 s"):
        model.reply(MESSAGES, tools=(), sampling=Sampling())
    model.close()


def test_a_connection_that_another_thread_closed_is_retryable(program: Path) -> None:
    model = VllmModel("some/model")
    try:
        held = model._server()
        held.close()
        with pytest.raises(ModelError, match="the connection was closed") as raised:
            model.reply(MESSAGES, tools=(), sampling=Sampling())
        assert raised.value.retry
        assert held.count(MESSAGES, tools=()) > 0
    finally:
        model.close()


def test_the_reason_of_a_failed_start_is_reported(program: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(program, broken=True)
    model = VllmModel("some/model")
    with pytest.raises(ModelError, match="`vllm serve` ended with 1: no such model: some/model"):
        model.reply(MESSAGES, tools=(), sampling=Sampling())
    for _ in range(2):
        with pytest.raises(ModelError, match="ended with 1"):
            model.reply(MESSAGES, tools=(), sampling=Sampling())
    with pytest.raises(ModelError, match="was started 3 times"):
        model.reply(MESSAGES, tools=(), sampling=Sampling())
    model.close()
    monkeypatch.setenv("SSR_VLLM", "no-such-program")
    with pytest.raises(SettingsError, match="`vllm` is not on the PATH"):
        VllmModel("some/model")
    assert "SSR_VLLM" in os.environ
