"""The real litellm package against a real server: requests, replies, costs, and the behaviour it must not have."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from model_server import dribbling, error, garbage, message, rendered, serving, tokens

from harness.models.budget import Budget
from harness.models.factory import open_model
from harness.models.middleware import RetryingModel
from harness.models.registry import Entry
from harness.records.messages import ASSISTANT, SYSTEM, TOOL, USER, Message, Sampling, ToolCall
from pytest_ssr.errors import ContextError, ModelError, RefusedError, SettingsError
from pytest_ssr.records.decoding import decode

pytestmark = pytest.mark.filterwarnings("ignore")  # From a third-party package.
MESSAGES = [Message(SYSTEM, "be brief"), Message(USER, "add")]
TOOLS = [{"type": "function", "function": {"name": "bash", "description": "", "parameters": {"type": "object"}}}]
KEY = "sk-0123456789abcdefghijklmnopqrstuv"
_IMPORT = """
import socket
asked = []
socket.getaddrinfo = lambda host, *rest, **named: asked.append(host) or (_ for _ in ()).throw(OSError("no network"))
try:
    import harness.models.litellm
finally:
    print(len(asked))
"""


@pytest.fixture(autouse=True)
def _keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "HOSTED_VLLM_API_KEY", "ANTHROPIC_API_KEY"):
        monkeypatch.setenv(name, KEY)
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.setenv(name, "models.example")


def model_of(name: str, url: str, **settings: Any) -> Any:
    from harness.models.litellm import LitellmModel

    return LitellmModel(name, url=url, **settings)


def test_a_traceback_of_its_own_is_cut_off() -> None:
    from harness.models.litellm import _convert_error

    error = _convert_error("a/b", RuntimeError(f"it fell {KEY}\nTraceback (most recent call last):\n  File x, line 3"))
    assert str(error) == "a/b: RuntimeError: it fell [OPENAI_API_KEY]"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("gpt-4-turbo", "openai/gpt-4-turbo"),
        ("claude-3-5-sonnet-20241022", "anthropic/claude-3-5-sonnet-20241022"),  # No longer in litellm's tables.
        ("gemini-1.5-pro", "gemini/gemini-1.5-pro"),
        ("grok-4", "xai/grok-4"),  # All names in the tables have a provider.
        ("llama-3", ""),  # Many providers have some.
        ("unheard-of", ""),
    ],
)
def test_a_name_without_a_provider_is_completed(name: str, expected: str) -> None:
    from harness.models.litellm import with_provider

    assert with_provider(name) == expected


def message_from(name: str, url: str, past: list[Message] = MESSAGES, top_p: float = 0.9) -> Message:
    return model_of(name, url).reply(past, tools=TOOLS, sampling=Sampling(0.7, top_p, 100, seed=5)).message  # type: ignore[no-any-return]


@pytest.mark.parametrize(("local", "asks"), [("", False), ("False", True)])
def test_its_import_does_not_use_the_network_by_default(local: str, asks: bool) -> None:
    env = {k: v for k, v in os.environ.items() if k != "LITELLM_LOCAL_MODEL_COST_MAP"}
    if local:
        env["LITELLM_LOCAL_MODEL_COST_MAP"] = local
    # With a query, the import itself may fail on a busy machine: litellm's thread logs through a half-imported module.
    done = subprocess.run([sys.executable, "-c", _IMPORT], env=env, capture_output=True, text=True, check=not asks)
    assert (int(done.stdout) > 0) is asks, done.stderr


def test_a_package_that_cannot_be_imported_is_an_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "litellm.py").write_text("raise ImportError('half of it')\n")
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("harness.models.litellm", "litellm"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    with pytest.raises(ModelError, match="litellm cannot be imported: half of it; with LITELLM_LOCAL"):
        open_model("openai/m")


@pytest.mark.parametrize("name", ["openai/tiny", "hosted_vllm/tiny"])
def test_request_and_reply_are_the_same_as_without_it(name: str) -> None:
    past = [
        *MESSAGES,
        Message(ASSISTANT, "", (ToolCall.parse("c1", "bash", '{"command": "ls"}'),)),
        Message(TOOL, "calc.py", tool_call_id="c1"),
    ]
    with serving(message("ok", ("bash", {"command": "pwd"}))) as served:
        reply = model_of(name, served.url).reply(past, tools=TOOLS, sampling=Sampling(0.7, 0.9, 100, seed=5))
    (request,) = served.asked
    assert (request["temperature"], request["top_p"], request["max_tokens"], request["seed"]) == (0.7, 0.9, 100, 5)
    assert request["messages"][2]["tool_calls"][0]["function"] == {"name": "bash", "arguments": '{"command": "ls"}'}
    assert request["messages"][3]["content"] == "calc.py"
    assert request["messages"][3]["tool_call_id"] == "c1"
    assert [t["function"]["name"] for t in request["tools"]] == ["bash"]
    assert reply.message.content == "ok"
    assert reply.message.tool_calls[0].arguments == {"command": "pwd"}
    assert reply.finish_reason == "tool_calls"
    assert reply.usage.prompt_tokens == len(tokens(rendered(request, served)))
    assert (reply.token_ids is not None) is name.startswith("hosted_vllm/")
    if reply.token_ids is not None:
        assert reply.prompt_ids == tuple(tokens(rendered(request, served)))
        assert reply.logprobs is not None
        assert len(reply.logprobs) == len(reply.token_ids) == reply.usage.completion_tokens


@pytest.mark.parametrize(("name", "has_tokens"), [("openai/tiny", False), ("hosted_vllm/tiny", True)])
@pytest.mark.parametrize("passes", [True, False])
def test_what_its_server_lacks_is_found_out_once(name: str, has_tokens: bool, passes: bool) -> None:
    with serving(message("hello"), message("hello"), passes_tools=passes) as served:
        model = model_of(name, served.url)
        assert model.passes_tools is passes
        assert ("tools" in model.remarks) is not passes
        assert ("token ids" in model.remarks) is not has_tokens
        assert len(served.asked) == 2


def test_known_prices_are_counted_and_unknown_prices_reported() -> None:
    with serving(message("one"), message("two")) as served:
        budget = Budget()
        priced = open_model("openai/gpt-4o-mini", budget=budget, url=served.url)
        reply = priced.reply(MESSAGES, tools=(), sampling=Sampling())
        assert reply.cost_usd is not None
        assert budget.spent_usd == reply.cost_usd > 0
        assert priced.context_tokens == 128_000
        unknown = open_model("openai/tiny", budget=budget, url=served.url, context_tokens=5000)
        assert unknown.reply(MESSAGES, tools=(), sampling=Sampling()).cost_usd is None
        assert (budget.completed_calls, budget.unpriced) == (2, 1)
        assert unknown.context_tokens == 5000


@pytest.mark.parametrize("name", ["openai/tiny", "hosted_vllm/tiny"])
@pytest.mark.parametrize(
    ("bad", "retried"),
    [
        (error(500, "oops"), True),
        (error(503, "loading"), True),
        (error(429, "slow down", retry_after="17"), True),
        (garbage(b"<html>"), True),
        (error(401, "bad key"), False),
        (error(403, "no"), False),
        (error(404, "no such model"), False),
        (error(400, "the picture is blurred"), False),
    ],
)
def test_only_the_retry_wrapper_repeats_a_request(name: str, bad: object, retried: bool) -> None:
    waits: list[float] = []
    with serving(bad) as served:
        model = model_of(name, served.url)
        with pytest.raises(ModelError) as raised:
            model.reply(MESSAGES, tools=TOOLS, sampling=Sampling())
        assert len(served.asked) == 1
        assert raised.value.retry is retried
        served.replies[:] = [bad, message("at last")]
        if retried:
            reply = RetryingModel(model, sleep=waits.append).reply(MESSAGES, tools=(), sampling=Sampling())
            assert reply.message.content == "at last"
    assert len(waits) == retried
    if "slow down" in str(raised.value):
        assert waits == [17.0]


@pytest.mark.parametrize("in_headers", [False, True])
@pytest.mark.parametrize("name", ["openai/tiny", "hosted_vllm/tiny"])
def test_the_timeout_applies_to_the_whole_of_a_slow_answer(name: str, in_headers: bool) -> None:
    with serving(dribbling(in_headers=in_headers), message("at last")) as served:
        model = model_of(name, served.url, timeout_s=2.0)
        with pytest.raises(ModelError, match=f"{name} did not answer within 2 s") as raised:
            model.reply(MESSAGES, tools=(), sampling=Sampling())
        assert raised.value.retry
        assert model.reply(MESSAGES, tools=(), sampling=Sampling()).message.content == "at last"


@pytest.mark.parametrize("name", ["openai/tiny", "hosted_vllm/tiny"])
def test_a_prompt_that_is_too_long_is_a_context_error(name: str) -> None:
    with serving(error(400, "This model's maximum context length is 10 tokens")) as served:
        with pytest.raises(ContextError, match="maximum context length"):
            message_from(name, served.url)
        assert len(served.asked) == 1


@pytest.mark.parametrize("name", ["openai/tiny", "hosted_vllm/tiny"])
def test_a_prompt_refused_for_its_content_differs_from_an_invalid_request(name: str) -> None:
    texts = ("content policy: this prompt is refused", "temperature must be 1 with this model")
    with serving(*(error(400, text) for text in texts)) as served:
        for text, for_its_content in zip(texts, (True, False), strict=True):
            with pytest.raises(ModelError, match=text) as raised:
                message_from(name, served.url)
            assert isinstance(raised.value, RefusedError) is for_its_content
            assert not raised.value.retry


def test_a_key_is_sent_and_neither_shown_nor_logged(
    caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    with caplog.at_level(logging.DEBUG), serving(error(401, f"the key {KEY} is wrong"), message("fine")) as served:
        with pytest.raises(ModelError, match=r"\[OPENAI_API_KEY\] is wrong") as raised:
            message_from("openai/tiny", served.url)
        message_from("openai/tiny", served.url)
    assert served.keys == [f"Bearer {KEY}"] * 2
    printed = "".join(capfd.readouterr())
    for text in (str(raised.value), caplog.text, printed, json.dumps([vars(r) for r in caplog.records], default=str)):
        assert KEY not in text
        assert KEY[3:30] not in text


def test_a_server_of_one_s_own_needs_no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY")
    with serving(message("fine")) as served:
        message_from("openai/tiny", served.url)
    assert KEY not in str(served.keys)


@pytest.mark.parametrize("name", ["openai/tiny", "hosted_vllm/tiny"])
def test_a_keyless_entry_sends_no_key_of_the_environment(name: str) -> None:
    with serving(message("fine")) as served:
        registry = {"own": Entry(name, url=f"{served.url}/v1", keyless=True)}
        open_model("model:own", registry=registry).reply(MESSAGES[:1], tools=(), sampling=Sampling(max_tokens=5))
    assert len(served.keys) == 1
    assert KEY not in str(served.keys)


def test_secrets_are_masked_before_truncation() -> None:
    from harness.models.litellm import _convert_error

    text = str(_convert_error("openai/tiny", ValueError(f"http://me:secret@host {'x' * 460} {KEY}")))
    assert "sk-" not in text
    assert "secret" not in text


def test_a_server_on_this_machine_bypasses_all_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "ALL_PROXY", "http_proxy", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    with serving(message("fine")) as served:
        assert message_from("openai/tiny", served.url).content == "fine"
    assert os.environ["NO_PROXY"].startswith("models.example,localhost,")


@pytest.mark.parametrize("name", ["reasoning", "reasoning_content"])
def test_the_reasoning_of_a_model_behind_vllm_is_sent_back(name: str) -> None:
    with serving(message("so") | {name: "I think hard."}, message("done")) as served:
        first = message_from("hosted_vllm/tiny", served.url)
        assert first.reasoning == "I think hard."
        message_from("hosted_vllm/tiny", served.url, [*MESSAGES, first, Message(USER, "go on")])
    sent = served.asked[1]["messages"][2]
    assert "I think hard." in (sent.get("reasoning"), sent.get("reasoning_content"))


def anthropic(*content: dict[str, Any]) -> Any:
    data = {
        "id": "m1", "type": "message", "role": "assistant", "model": "claude-sonnet-4-5", "content": list(content),
        "stop_reason": "tool_use", "stop_sequence": None, "usage": {"input_tokens": 10, "output_tokens": 5},
    }  # fmt: skip
    return lambda request: (200, {}, json.dumps(data).encode())


def test_thinking_blocks_are_sent_back_with_their_signature() -> None:
    thinking = {"type": "thinking", "thinking": "I look first.", "signature": "c2lnbmVk"}
    use = {"type": "tool_use", "id": "t1", "name": "bash", "input": {"command": "ls"}}
    with serving(anthropic(thinking, use), anthropic({"type": "text", "text": "done"})) as served:
        url = served.url.removesuffix("/v1")
        first = message_from("anthropic/claude-sonnet-4-5", url, top_p=0.95)
        assert first.reasoning == "I look first."
        assert first.tool_calls[0].arguments == {"command": "ls"}
        again = decode(Message, json.loads(json.dumps(first.to_json())))
        message_from("anthropic/claude-sonnet-4-5", url, [*MESSAGES, again, Message(TOOL, "a.py", tool_call_id="t1")])
    turn = next(m for m in served.asked[1]["messages"] if m["role"] == "assistant")
    assert {k: served.asked[0].get(k) for k in ("temperature", "top_p")} == {"temperature": 0.7, "top_p": None}
    assert turn["content"][0] == thinking
    assert turn["content"][-1] == use
    assert all(block.get("text", "?").strip() for block in turn["content"]), "Anthropic refuses an empty string"


def test_a_key_that_is_not_set_is_an_error_before_anything_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "of-somebody-else")
    monkeypatch.delenv("TEAM_KEY", raising=False)
    with pytest.raises(SettingsError, match="TEAM_KEY"):
        open_model("model:small", registry={"small": Entry("openai/m", key="TEAM_KEY")})
