"""Models behind a real server: requests, replies, and servers that misbehave."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from model_server import Served, cut_off, dribbling, error, garbage, message, rendered, response, serving, slow, tokens

from harness.models.budget import Budget, BudgetedModel
from harness.models.factory import open_model
from harness.models.http import HttpModel
from harness.models.middleware import CachingModel, RetryingModel
from harness.models.urls import is_loopback
from harness.models.wire import request_of
from harness.records.messages import ASSISTANT, SYSTEM, TOOL, USER, Message, Sampling, ToolCall
from harness.records.trajectory import ModelCall, Trajectory
from harness.records.usage import RunUsage
from pytest_ssr.errors import ContextError, ModelError, RefusedError, SettingsError
from pytest_ssr.records.decoding import decode
from pytest_ssr.storage.store import Store

MESSAGES = [Message(SYSTEM, "be brief"), Message(USER, "add")]
TOOLS = [{"type": "function", "function": {"name": "bash", "description": "", "parameters": {"type": "object"}}}]


def test_the_request_follows_the_protocol_and_the_reply_keeps_its_tokens() -> None:
    past = [
        *MESSAGES,
        Message(ASSISTANT, "", (ToolCall.parse("c1", "bash", '{"command": "ls"}'),)),
        Message(TOOL, "calc.py", tool_call_id="c1"),
    ]
    with serving(message("ok", ("bash", {"command": "pwd"}))) as served:
        model = HttpModel("vllm:x", served.url)
        reply = model.reply(past, tools=TOOLS, sampling=Sampling(0.7, 0.9, 100, seed=5))
        model.close()
    (request,) = served.asked
    assert request["model"] == "tiny"
    assert (request["temperature"], request["top_p"], request["max_tokens"], request["seed"]) == (0.7, 0.9, 100, 5)
    assert request["messages"][2]["tool_calls"][0]["function"] == {"name": "bash", "arguments": '{"command": "ls"}'}
    assert request["messages"][3] == {"role": "tool", "content": "calc.py", "tool_call_id": "c1"}
    assert reply.message.tool_calls[0].arguments == {"command": "pwd"}
    assert reply.finish_reason == "tool_calls"
    assert reply.prompt_ids == tuple(tokens(rendered(request, served)))
    assert reply.token_ids is not None
    assert reply.logprobs is not None
    assert len(reply.token_ids) == len(reply.logprobs) == reply.usage.completion_tokens


@pytest.mark.parametrize("name", ["anthropic/x", "bedrock/eu.anthropic.claude-sonnet-4-5", "vertex_ai/claude-opus-4-1"])
@pytest.mark.parametrize(
    ("sampling", "sent"),
    [
        (Sampling(), {"temperature": 1.0}),
        (Sampling(0.3), {"temperature": 0.3}),
        (Sampling(0.3, 1.0), {"temperature": 0.3}),
        (Sampling(top_p=0.8), {"top_p": 0.8}),
        (Sampling(0.3, 0.8), {"temperature": 0.3, "top_p": 0.8}),
    ],
)
def test_anthropic_is_sent_only_the_configured_one_of_temperature_and_top_p(
    name: str, sampling: Sampling, sent: dict[str, float]
) -> None:
    body = request_of(name, MESSAGES, (), sampling)
    assert {k: body[k] for k in ("temperature", "top_p") if k in body} == sent
    other = request_of("openai/gpt", MESSAGES, (), sampling)
    assert (other["temperature"], other["top_p"]) == (sampling.temperature, sampling.top_p)


def test_the_server_gives_its_window_and_counts_tokens() -> None:
    with serving(max_model_len=4096) as served:
        model = HttpModel("vllm:x", served.url)
        assert model.context_tokens == 4096
        assert model.count(MESSAGES, tools=()) == len(tokens(json.dumps([m.to_wire() for m in MESSAGES])))
        model.close()


def test_an_estimate_without_a_tokenizer_follows_the_server_s_counts() -> None:
    with serving(message("a"), tokenizes=404) as served:
        model = HttpModel("vllm:x", served.url)
        before = model.count(MESSAGES, tools=())
        reply = model.reply(MESSAGES, tools=(), sampling=Sampling())
        assert before < reply.usage.prompt_tokens <= model.count(MESSAGES, tools=())
        model.close()


def test_refused_additional_fields_are_omitted() -> None:
    with serving(error(422, "unknown field return_token_ids"), message("fine")) as served:
        model = HttpModel("vllm:x", served.url)
        reply = model.reply(MESSAGES, tools=(), sampling=Sampling())
        model.close()
    assert reply.message.content == "fine"
    assert reply.token_ids is None
    assert "return_token_ids" not in served.asked[1]


def counted(usage: bytes, *, token_ids: bytes = b"null") -> Any:
    choice = b'{"message": {"role": "assistant", "content": "x"}, "token_ids": ' + token_ids + b"}"
    return garbage(b'{"choices": [' + choice + b'], "usage": ' + usage + b"}")


def refusing(*fields: str, **headers: str) -> Any:
    """Refuse a request with one of these fields, in the way of servers that validate with pydantic."""

    def reply(request: dict[str, Any]) -> tuple[int, dict[str, str], bytes]:
        extra = [f for f in fields if f in request or any(f in m for m in request["messages"])]
        if extra:
            detail = [{"type": "extra_forbidden", "loc": ["body", f], "msg": "Extra", "input": request} for f in extra]
            return 422, {}, json.dumps({"detail": detail}).encode()
        return 200, {}, json.dumps(response(message("fine"), request, Served())).encode()

    return reply


def test_only_the_refused_fields_are_omitted(tmp_path: object) -> None:
    refuse = refusing("top_k", "min_p")
    with serving(refuse, refuse) as served:
        model = HttpModel("vllm:x", served.url)
        assert model.reply(MESSAGES, tools=(), sampling=Sampling()).token_ids is not None
        model.close()
    asked = served.asked[-1]
    assert (asked["return_token_ids"], asked["logprobs"], asked["repetition_penalty"]) == (True, True, 1.0)
    assert not {"top_k", "min_p"} & asked.keys()


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (400, {"error": {"message": "the picture is blurred", "code": 400}}),
        (400, {"detail": [{"loc": ["body", "tools"], "msg": "wrong", "input": {"text": "what is return_token_ids?"}}]}),
        (422, {"error": {"message": "reasoning about return_token_idz"}}),
    ],
)
def test_an_unrelated_error_keeps_the_token_fields(status: int, body: dict[str, Any]) -> None:
    refused = (status, {}, json.dumps(body).encode())
    with serving(lambda request: refused, message("fine")) as served:
        model = HttpModel("vllm:x", served.url)
        with pytest.raises(ModelError, match=f"status {status}"):
            model.reply(MESSAGES, tools=(), sampling=Sampling())
        assert len(served.asked) == 1
        assert model.reply(MESSAGES, tools=(), sampling=Sampling()).token_ids is not None
        model.close()


def test_requests_that_are_refused_concurrently_are_all_repeated() -> None:
    together = threading.Barrier(2, timeout=20)

    def refuse(request: dict[str, Any]) -> tuple[int, dict[str, str], bytes]:
        answer = refusing("return_token_ids")(request)
        if answer[0] == 422:
            together.wait()
        return cast("tuple[int, dict[str, str], bytes]", answer)

    with serving(*[refuse] * 4) as served, ThreadPoolExecutor(2) as pool:
        model = HttpModel("vllm:x", served.url)
        futures = [pool.submit(model.reply, MESSAGES, tools=(), sampling=Sampling()) for _ in range(2)]
        assert [f.result().message.content for f in futures] == ["fine", "fine"]
        model.close()
    assert len(served.asked) == 4


def test_a_busy_tokenizer_is_queried_again_and_a_missing_one_is_not() -> None:
    exact = len(tokens(json.dumps([m.to_wire() for m in MESSAGES])))
    with serving(tokenizes=503) as served:
        model = HttpModel("vllm:x", served.url)
        assert model.count(MESSAGES, tools=()) != exact
        served.tokenizes = 400
        assert model.count(MESSAGES, tools=()) != exact
        served.tokenizes = 200
        assert model.count(MESSAGES, tools=()) == exact
        served.tokenizes = 404
        assert model.count(MESSAGES, tools=()) != exact
        served.tokenizes = 200
        assert model.count(MESSAGES, tools=()) != exact
        model.close()


@pytest.mark.parametrize("name", ["reasoning", "reasoning_content"])
def test_reasoning_is_kept_sent_back_and_counted(name: str) -> None:
    thoughtful = message("ok", ("bash", {"command": "ls"})) | {name: "I think \ud800 hard. " * 20}
    with serving(thoughtful, message("done"), tokenizes=404) as served:
        model = HttpModel("vllm:x", served.url)
        first = model.reply(MESSAGES, tools=TOOLS, sampling=Sampling()).message
        assert first.reasoning == "I think \ufffd hard. " * 20
        assert decode(Message, json.loads(json.dumps(first.to_json()))) == first
        past = [*MESSAGES, first, Message(TOOL, "calc.py", tool_call_id="c0")]
        without = [*MESSAGES, replace(first, thoughts={}), past[-1]]
        assert model.count(past, tools=()) > model.count(without, tools=()) + 100
        model.reply(past, tools=TOOLS, sampling=Sampling())
        model.close()
    assert served.asked[1]["messages"][2][name] == first.reasoning


def test_a_server_that_refuses_reasoning_is_sent_none() -> None:
    refuse = refusing("reasoning")
    past = [*MESSAGES, Message(ASSISTANT, "hm", thoughts={"reasoning": "long"}), Message(USER, "go on")]
    with serving(refuse, refuse) as served:
        model = HttpModel("vllm:x", served.url)
        reply = model.reply(past, tools=(), sampling=Sampling())
        model.close()
    assert reply.token_ids is not None
    assert "reasoning" not in served.asked[-1]["messages"][2]


def test_a_server_on_this_machine_bypasses_all_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "ALL_PROXY", "http_proxy", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    with serving(message("fine")) as served:
        model = HttpModel("vllm:x", served.url)
        assert model.reply(MESSAGES, tools=(), sampling=Sampling()).message.content == "fine"
        model.close()
    with pytest.raises(ModelError, match="cannot be reached"):
        HttpModel("vllm:x", "http://models.example/v1")


@pytest.mark.parametrize(
    ("url", "here"),
    [
        ("http://localhost:8000/v1", True),
        ("http://127.0.0.2/v1", True),
        ("http://[::1]:8000/v1", True),
        ("https://a.localhost./v1", True),
        ("http://10.0.0.1/v1", False),
        ("https://localhost.example/v1", False),
        ("http://[::1/v1", False),
        ("", False),
    ],
)
def test_loopback_urls_are_recognized(url: str, here: bool) -> None:
    assert is_loopback(url) is here


@pytest.mark.parametrize(
    ("bad", "expected"),
    [
        (error(429, "slow down"), "status 429: "),
        (error(500, "oops"), "status 500"),
        (error(503, "loading"), "status 503"),
        (garbage(b"<html>"), "a response that is not a JSON object: <html>"),
        (garbage(b"[1]"), "a response that is not a JSON object"),
        (garbage(b"[" * 100_000), "a response that is not a JSON object"),
        (garbage(b"{}"), "not a chat completion"),
        (garbage(b'{"choices": []}'), "not a chat completion"),
        (garbage(b'{"choices": [{"message": {"content": 3}}]}'), "not a chat completion"),
        (garbage(b'{"choices": [{"message": {"tool_calls": [{"function": {"name": "x"}}]}}]}'), "are not a string"),
        (counted(b'{"prompt_tokens": 1e999}'), r"not a chat completion \(OverflowError"),
        (counted(b'{"prompt_tokens": -5}'), "-5 is less than 0"),
        (counted(b'{"completion_tokens": -1}'), "-1 is less than 0"),
        (counted(b'{"prompt_tokens": 9, "prompt_tokens_details": {"cached_tokens": -1}}'), "-1 is less than 0"),
        (counted(b'{"prompt_tokens": "sk"}'), "not a chat completion"),
        (counted(b"{}", token_ids=b"[1e999]"), "OverflowError"),
        (counted(b"{}", token_ids=b"[-1]"), "-1 is less than 0"),
        (garbage(b'{"choices": ' + b"[" * 900 + b"]" * 900 + b"}"), "nested too deeply|not a JSON object"),
        (cut_off, "cannot be reached"),
        (slow(0.8), "did not answer within"),
    ],
)
def test_retryable_errors_are_retried(bad: object, expected: str) -> None:
    waits: list[float] = []
    with serving(bad, message("at last")) as served:
        model = HttpModel("vllm:x", served.url, timeout_s=0.4)
        reply = RetryingModel(model, sleep=waits.append).reply(MESSAGES, tools=(), sampling=Sampling())
        assert reply.message.content == "at last"
        assert len(waits) == 1
        served.replies[:] = [bad] * 3
        with pytest.raises(ModelError, match=expected) as raised:
            RetryingModel(model, tries=2, sleep=waits.append).reply(MESSAGES, tools=(), sampling=Sampling())
        assert "after 2 requests" in str(raised.value)
        model.close()


@pytest.mark.parametrize("in_headers", [False, True])
def test_the_timeout_applies_to_the_whole_of_a_slow_answer(in_headers: bool) -> None:
    with serving(dribbling(in_headers=in_headers), message("at last")) as served:
        model = HttpModel("vllm:x", served.url, timeout_s=0.4)
        with pytest.raises(ModelError, match=r"/chat/completions did not answer within 0\.4 s") as raised:
            model.reply(MESSAGES, tools=(), sampling=Sampling())
        assert raised.value.retry
        assert model.reply(MESSAGES, tools=(), sampling=Sampling()).message.content == "at last"
        model.close()


def test_the_server_s_retry_after_is_used() -> None:
    waits: list[float] = []
    with serving(error(429, "slow down", retry_after="17"), message("ok")) as served:
        model = HttpModel("vllm:x", served.url)
        RetryingModel(model, sleep=waits.append).reply(MESSAGES, tools=(), sampling=Sampling())
        model.close()
    assert waits == [17.0]


@pytest.mark.parametrize(("status", "text"), [(401, "bad key"), (403, "no"), (404, "no such model")])
def test_permanent_errors_are_raised_at_once(status: int, text: str) -> None:
    with serving(error(status, text), message("never")) as served:
        model = HttpModel("vllm:x", served.url)
        with pytest.raises(ModelError, match=f"status {status}: .*{text}"):
            RetryingModel(model, sleep=lambda s: pytest.fail("waited")).reply(MESSAGES, tools=(), sampling=Sampling())
        model.close()
    assert len(served.asked) == 1


def test_a_prompt_that_is_too_long_is_a_context_error() -> None:
    with serving(error(400, "This model's maximum context length is 10 tokens")) as served:
        model = HttpModel("vllm:x", served.url)
        with pytest.raises(ContextError, match="maximum context length"):
            RetryingModel(model).reply(MESSAGES, tools=(), sampling=Sampling())
        model.close()


@pytest.mark.parametrize(
    ("status", "text", "for_its_content"),
    [
        (400, "content policy: this prompt is refused", True),
        (403, "your chosen model requires moderation, and your input was flagged", True),
        (400, "temperature must be 1 with this model", False),
        (403, "no", False),
        (500, "the content filter is down", False),
    ],
)
def test_a_prompt_refused_for_its_content_differs_from_an_invalid_request(
    status: int, text: str, for_its_content: bool
) -> None:
    with serving(error(status, text)) as served:
        model = HttpModel("vllm:x", served.url)
        with pytest.raises(ModelError, match=f"status {status}: .*{text}") as raised:
            model.reply(MESSAGES, tools=(), sampling=Sampling())
        model.close()
    assert isinstance(raised.value, RefusedError) is for_its_content


def test_a_key_is_sent_and_never_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_KEY", "s3cr3t-s3cr3t")
    with serving(error(401, "the key s3cr3t-s3cr3t is wrong")) as served:
        model = HttpModel("vllm:x", served.url, key_variable="MY_KEY")
        with pytest.raises(ModelError) as raised:
            model.reply(MESSAGES, tools=(), sampling=Sampling())
        model.close()
    assert served.keys == ["Bearer s3cr3t-s3cr3t"]
    assert "s3cr3t" not in str(raised.value)
    assert "[key]" in str(raised.value)


@pytest.mark.parametrize(
    "body",
    [
        {"error": {"message": "Incorrect API key provided: s3cr3t/s3cr3t"}},
        {"error": {"message": "x" * 260 + " s3cr3t/s3cr3t"}},
        {"choices": [{"message": {"content": "x"}}], "usage": {"prompt_tokens": "s3cr3t/s3cr3t"}},
        ["s3cr3t/s3cr3t"],
        ["x" * 490 + "s3cr3t/s3cr3t"],
    ],
)
@pytest.mark.parametrize("encode", [lambda text: text, lambda text: text.replace("/", r"\/")])
def test_a_key_in_an_invalid_answer_is_never_shown(
    body: Any, encode: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_KEY", "s3cr3t/s3cr3t\n")
    with serving(garbage(encode(json.dumps(body)).encode())) as served:
        model = HttpModel("vllm:x", served.url, key_variable="MY_KEY")
        with pytest.raises(ModelError, match=r"not a chat completion|not a JSON object") as raised:
            model.reply(MESSAGES, tools=(), sampling=Sampling())
        model.close()
    assert "s3" not in str(raised.value).replace("[key]", "")


def test_arguments_that_are_nested_too_deeply_are_malformed() -> None:
    deep = {"function": {"name": "bash", "arguments": '{"command": ' + "[" * 900 + "]" * 900 + "}"}}
    fine = {"function": {"name": "bash", "arguments": '{"command": ' + "[" * 40 + "]" * 40 + "}"}}
    with serving({"role": "assistant", "content": "", "tool_calls": [deep, fine]}) as served:
        model = HttpModel("vllm:x", served.url)
        message = model.reply(MESSAGES, tools=TOOLS, sampling=Sampling()).message
        model.close()
    assert [call.fault for call in message.tool_calls] == ["the arguments are nested deeper than 50 levels", ""]
    assert decode(Message, json.loads(json.dumps(message.to_json()))) == message


def test_reasoning_that_is_nested_too_deeply_is_ignored(tmp_path: Path) -> None:
    deep: list[Any] = []
    for _ in range(300):
        deep = [deep]
    nested = message("x") | {"thinking_blocks": [{"a": deep}], "reasoning": "hm"}
    with serving(nested) as served:
        model = CachingModel(HttpModel("vllm:x", served.url), Store(tmp_path / "store"))
        replies = [model.reply(MESSAGES, tools=TOOLS, sampling=Sampling(seed=1)) for _ in range(2)]
        model.close()
    assert [r.message.thoughts for r in replies] == [{"reasoning": "hm"}] * 2


def test_reasoning_with_numbers_outside_json_is_ignored() -> None:
    replies_sent = [
        message("x") | {"thinking_blocks": [{"a": float(n)}], "reasoning": "hm"} for n in ("nan", "-inf", "1")
    ]
    with serving(*replies_sent) as served:
        model = HttpModel("vllm:x", served.url)
        replies = [model.reply(MESSAGES, tools=TOOLS, sampling=Sampling()) for _ in replies_sent]
        model.close()
    *others, last = (r.message.thoughts for r in replies)
    assert others == [{"reasoning": "hm"}] * 2
    assert last["thinking_blocks"] == [{"a": 1.0}]


def test_arguments_that_are_not_json_are_kept_and_sent_back_as_json() -> None:
    broken = {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "bash", "arguments": "{oops"}}]}
    with serving(broken) as served:
        model = HttpModel("vllm:x", served.url)
        reply = model.reply(MESSAGES, tools=TOOLS, sampling=Sampling())
        model.close()
    (call,) = reply.message.tool_calls
    assert call.fault.startswith("the arguments are not JSON")
    assert json.loads(reply.message.to_wire()["tool_calls"][0]["function"]["arguments"]) == {"malformed": "{oops"}


def test_the_same_request_is_sent_once(tmp_path: object) -> None:
    store = Store(tmp_path / "store")  # type: ignore[operator]
    with serving(message("one"), message("two"), message("three")) as served:
        model = CachingModel(HttpModel("vllm:x", served.url), store)
        contents = [
            model.reply(MESSAGES, tools=TOOLS, sampling=Sampling(seed=seed)).message.content for seed in (1, 1, 2, 1, 2)
        ]
        model.close()
    assert contents == ["one", "one", "two", "one", "two"]
    assert len(served.asked) == 2


def test_a_cached_reply_is_paid_for_once(tmp_path: Path) -> None:
    budget, sampling = Budget(calls=1), Sampling(seed=1)
    with serving(message("one")) as served:
        name = f"vllm:{served.url}"
        model = open_model(name, budget=budget, cache=Store(tmp_path / "store"))
        replies = [model.session("r").reply(MESSAGES, tools=TOOLS, sampling=sampling) for _ in range(3)]
        model.close()
    assert [r.cached for r in replies] == [False, True, True]
    used = replies[0].usage
    assert (budget.completed_calls, budget.spent, budget.unpriced) == (1, used, 1)
    calls = [ModelCall.of(i, (0, 1), 2, reply) for i, reply in enumerate(replies)]
    done = Trajectory("r", "t", "solver", 0, name, calls=calls)
    assert RunUsage.of(done) == RunUsage(used.prompt_tokens + used.completion_tokens, 0.0, 1)
    meter = Budget()
    for reply in replies[1:]:
        meter.take(reply)
    assert meter.completed_calls == 0, "a judge does not pay for them either"


def test_a_budget_is_enforced() -> None:
    with serving(message("one"), message("two")) as served:
        budget = Budget(calls=1)
        model = BudgetedModel(HttpModel("vllm:x", served.url), budget)
        model.reply(MESSAGES, tools=(), sampling=Sampling())
        with pytest.raises(ModelError, match="the budget of 1 calls is spent"):
            model.reply(MESSAGES, tools=(), sampling=Sampling())
        model.close()
    assert budget.spent.prompt_tokens > 0
    assert budget.unpriced == 1


def test_a_password_is_sent_to_the_server_only() -> None:
    with serving(message("one"), error(500, "no")) as served:
        model = open_model("vllm:" + served.url.replace("http://", "http://me:s%40cret@"))
        assert model.name == f"vllm:{served.url}"
        assert model.reply(MESSAGES, tools=(), sampling=Sampling()).message.content == "one"
        assert served.keys[-1] == "Basic " + base64.b64encode(b"me:s@cret").decode()
        model.close()
        with pytest.raises(ModelError) as raised:
            HttpModel("vllm:x", "http://me:secret@127.0.0.1:9/v1")
    assert "127.0.0.1:9" in str(raised.value)
    assert "secret" not in str(raised.value)


def test_an_invalid_server_is_an_error() -> None:
    with pytest.raises(SettingsError, match="ftp://x is not the URL"):
        HttpModel("vllm:x", "ftp://x")
    with pytest.raises(ModelError, match="cannot be reached"):
        HttpModel("vllm:x", "http://127.0.0.1:9/v1")
    with serving() as served, pytest.raises(ModelError, match="does not serve huge; it serves tiny"):
        HttpModel("vllm:x", served.url, "huge", context_tokens=0)
    for models in (["tiny", 3], {"id": "tiny"}, 7, [{"object": "model"}]):
        with serving(models=models) as served, pytest.raises(ModelError, match="any model; it serves none"):
            HttpModel("vllm:x", served.url)
    with serving(models=["?", {"id": "tiny", "max_model_len": "long"}]) as served:
        model = HttpModel("vllm:x", served.url)
        assert (model.identity, model.context_tokens) == ("tiny", 32_768)
        model.close()
