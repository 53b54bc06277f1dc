"""Replies, limits and errors of servers, as their sources, their documentation and reports of their users show them.

`tests/door/README.md` names the source of each case.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest
from recorded_server import Answer, Answers, Recorded, replaying

from harness.models.http import CONTEXT_TOKENS, HttpModel
from harness.models.wire import reply_of
from harness.records.messages import SYSTEM, USER, Message, Reply, Sampling
from pytest_ssr.errors import ContextError, ModelError

MESSAGES = [Message(SYSTEM, "Be brief."), Message(USER, "Say hello.")]
TOOLS = [{"type": "function", "function": {"name": "bash", "description": "", "parameters": {"type": "object"}}}]
CHAT = "POST /v1/chat/completions"


def models(**entry: Any) -> Answers:
    return {"GET /v1/models": (200, {"object": "list", "data": [{"id": "m", "object": "model", **entry}]})}


def completion(prompt_tokens: int = 11, completion_tokens: int = 2, **choice: Any) -> dict[str, Any]:
    message = {"role": "assistant", "content": "Hello!"}
    usage = {"prompt_tokens": prompt_tokens, "completion_tokens": completion_tokens}
    return {"choices": [{"index": 0, "message": message, "finish_reason": "stop", **choice}], "usage": usage}


@contextmanager
def model_behind(*answers: Answers, unknown: Answer = (404, {"error": "?"})) -> Iterator[tuple[HttpModel, Recorded]]:
    merged = {path: answer for part in answers for path, answer in part.items()}
    with replaying(merged, unknown=unknown) as recorded:
        model = HttpModel("vllm:x", recorded.url)
        try:
            yield model, recorded
        finally:
            model.close()


def ask(model: HttpModel, *, tools: Any = ()) -> Reply:
    return model.reply(MESSAGES, tools=tools, sampling=Sampling(max_tokens=50))


def content(*items: Mapping[str, Any]) -> dict[str, Any]:
    return {"logprobs": {"content": list(items)}}


LLAMA_CPP = content(
    {"id": 19556, "token": "Hello", "bytes": [72], "logprob": -1.5, "top_logprobs": []},
    {"id": 17, "token": "!", "bytes": [33], "logprob": -1.25, "top_logprobs": []},
)
NAMED = content({"token": "token_id:19556", "logprob": -1.5}, {"token": "token_id:17", "logprob": -1.25})
PLAIN = content({"token": "Hello", "logprob": -1.5}, {"token": "!", "logprob": -1.25})
META_INFO = {"meta_info": {"output_token_logprobs": [[-1.5, 19556, "Hello"], [-1.25, 17, "!"]]}}


@pytest.mark.parametrize(
    ("data", "prompt_ids"),
    [
        pytest.param(completion(**LLAMA_CPP), None, id="llama.cpp"),
        pytest.param(completion(**NAMED), None, id="vllm-named-tokens"),
        pytest.param({**completion(**PLAIN, token_ids=[19556, 17]), "prompt_token_ids": [1, 2]}, (1, 2), id="vllm"),
        pytest.param(completion(**PLAIN, token_ids=[19556, 17], prompt_token_ids=[1, 2]), (1, 2), id="sglang"),
        pytest.param(completion(**META_INFO, prompt_token_ids=[1, 2]), (1, 2), id="sglang-meta-info"),
        pytest.param(completion(**PLAIN, provider_specific_fields={"token_ids": [19556, 17]}), None, id="litellm"),
        pytest.param(completion(**NAMED, token_ids=[]), None, id="vllm-empty-list"),
    ],
)
def test_token_ids_are_found_at_each_server_s_place(data: dict[str, Any], prompt_ids: tuple[int, ...] | None) -> None:
    reply = reply_of(data, latency_s=0)
    assert (reply.token_ids, reply.logprobs, reply.prompt_ids) == ((19556, 17), (-1.5, -1.25), prompt_ids)


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(completion(), id="ollama"),
        pytest.param(completion(**PLAIN), id="lm-studio"),
        pytest.param(completion(completion_tokens=3, **LLAMA_CPP), id="special-tokens-left-out"),
        pytest.param(completion(token_ids=[], logprobs={"content": []}), id="empty"),
        pytest.param(completion(logprobs=None), id="null"),
    ],
)
def test_a_reply_without_ids_has_no_log_probabilities_either(data: dict[str, Any]) -> None:
    reply = reply_of(data, latency_s=0)
    assert (reply.message.content, reply.token_ids, reply.logprobs) == ("Hello!", None, None)


def test_content_in_parts_and_arguments_as_an_object_are_read() -> None:
    call = {"id": "1", "type": "function", "function": {"name": "bash", "arguments": {"command": "ls"}}}
    parts = [{"type": "thinking", "thinking": []}, {"type": "text", "text": "Good "}, {"type": "text", "text": "day"}]
    reply = reply_of(completion(message={"content": parts, "tool_calls": [call]}), latency_s=0)
    assert reply.message.content == "Good day"
    assert reply.message.tool_calls[0].arguments == {"command": "ls"}


def error(**fields: Any) -> dict[str, Any]:
    return {"error": fields}


N_CTX = {"type": "exceed_context_size_error", "n_prompt_tokens": 6031, "n_ctx": 4096, "message": "try increasing it"}
OVERFLOWS: list[tuple[str, int, Any, tuple[int, int]]] = [
    ("llama.cpp", 400, error(code=400, **N_CTX), (6031, 4096)),
    ("llama.cpp-500", 500, error(code=500, **N_CTX), (6031, 4096)),
    ("llama.cpp-200", 200, error(code=400, **N_CTX), (6031, 4096)),
    ("openai", 400, error(message="?", param="messages", code="context_length_exceeded"), (0, 0)),
    (
        "vllm",
        400,
        {
            "object": "error",
            "message": "This model's maximum context length is 16384 tokens. However, you requested 19591 tokens",
            "type": "BadRequestError",
            "code": 400,
        },
        (0, 0),
    ),
    ("sglang", 400, {"message": "The input (61709 tokens) is longer than the model's context length."}, (0, 0)),
    (
        "lm-studio",
        400,
        {
            "error": "Trying to keep the first 6547 tokens when context the overflows. ... only context length of 4096 tokens"
        },
        (0, 0),
    ),
    ("lm-studio-n-keep", 400, {"error": "greater than the context length (n_keep: 13055>= n_ctx: 4096)"}, (0, 0)),
    (
        "litellm-proxy",
        400,
        error(
            message="litellm.ContextWindowExceededError: prompt is too long: 209303 tokens > 200000 maximum",
            type=None,
            code="400",
        ),
        (0, 0),
    ),
    (
        "litellm-proxy-anthropic",
        400,
        error(message="input length and `max_tokens` exceed context limit: 179413 + 32768 > 200000", code="400"),
        (0, 0),
    ),
    ("azure", 400, error(message="Input tokens exceed the configured limit of 272000 tokens."), (0, 0)),
    (
        "gemini",
        400,
        error(message="The input token count exceeds the maximum number of tokens allowed (1048576)."),
        (0, 0),
    ),
    ("tgi", 422, {"error": "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 2048."}, (0, 0)),
]


@pytest.mark.parametrize(("status", "body", "sizes"), [pytest.param(*rest, id=name) for name, *rest in OVERFLOWS])
def test_a_prompt_that_is_too_long_is_recognised(status: int, body: Any, sizes: tuple[int, int]) -> None:
    with model_behind(models(max_model_len=8192), {CHAT: (status, body)}) as (model, _):
        before = model.count(MESSAGES, tools=())
        with pytest.raises(ContextError) as raised:
            ask(model)
        assert (raised.value.prompt_tokens, raised.value.limit_tokens) == sizes
        assert model.context_tokens == (sizes[1] or 8192)
        assert (model.count(MESSAGES, tools=()) > before) is (sizes[0] > 0), "the estimate learns from the size"


@pytest.mark.parametrize(
    ("status", "body", "retry"),
    [
        pytest.param(200, error(message="Provider returned error", code=429), True, id="openrouter"),
        pytest.param(200, error(message="no such model", code=404), False, id="openrouter-404"),
        pytest.param(
            200, {"error": "Unexpected endpoint or method. (POST /v1/chat/completions)"}, True, id="lm-studio"
        ),
        pytest.param(504, error(message="the model took too long to respond"), True, id="proxy"),
        pytest.param(400, error(message="temperature is too large"), False, id="other"),
    ],
)
def test_other_errors_are_not_taken_for_long_prompts(status: int, body: Any, retry: bool) -> None:
    answers = models(max_model_len=8192), {CHAT: (status, body)}
    with model_behind(*answers) as (model, _), pytest.raises(ModelError) as raised:
        ask(model)
    assert (isinstance(raised.value, ContextError), raised.value.retry) == (False, retry)


def ollama(ps: list[Any]) -> Answers:
    """A server whose model is loaded by an empty request. ps: the answers to `/api/ps`, the last one repeated."""
    running = iter(ps)
    last = ps[-1]
    return {
        "GET /api/ps": lambda _: (200, {"models": next(running, last)}),
        "POST /api/generate": (200, {"done": True}),
        "POST /api/show": (
            200,
            {"parameters": "stop <|end|>\nnum_ctx    2048", "model_info": {"q.context_length": 40960}},
        ),
    }


LM_STUDIO = {"id": "m", "state": "loaded", "max_context_length": 131072, "loaded_context_length": 4096}
DEPLOYMENTS = [{"model_name": "m", "model_info": {"max_input_tokens": n}} for n in (200000, 128000, None)]


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        pytest.param(models(max_model_len=4096), 4096, id="vllm"),
        pytest.param(models(meta={"n_ctx": 4096, "n_ctx_train": 8192}), 4096, id="llama.cpp"),
        pytest.param(
            {
                **models(meta={"n_ctx_train": 8192}),
                "GET /props": (200, {"default_generation_settings": {"n_ctx": 512}}),
            },
            512,
            id="older-llama.cpp",
        ),
        pytest.param(models(context_length=65536), 65536, id="openrouter"),
        pytest.param({**models(), **ollama([[{"name": "m", "context_length": 4096}]])}, 4096, id="ollama"),
        pytest.param({**models(), **ollama([[], [{"name": "m", "context_length": 4096}]])}, 4096, id="ollama-loads-it"),
        pytest.param({**models(), **ollama([[{"name": "m"}]])}, 2048, id="older-ollama"),
        pytest.param({**models(), "GET /api/v0/models/m": (200, LM_STUDIO)}, 4096, id="lm-studio"),
        pytest.param({**models(), "GET /model/info": (200, {"data": DEPLOYMENTS})}, 128000, id="litellm-proxy"),
        pytest.param({**models(), "GET /info": (200, {"max_total_tokens": 2048})}, 2048, id="tgi"),
        pytest.param(models(max_model_len="long"), CONTEXT_TOKENS, id="unknown"),
    ],
)
def test_the_context_length_is_the_one_that_the_server_runs_with(answers: Answers, expected: int) -> None:
    with model_behind(answers, {CHAT: (200, completion())}) as (model, _):
        assert model.context_tokens == expected
        assert ("--context" in model.remarks) is (expected == CONTEXT_TOKENS)


def test_a_server_that_answers_every_path_is_not_believed() -> None:
    anything = (200, {"error": "Unexpected endpoint or method."})
    with model_behind(models(), {CHAT: (200, completion())}, unknown=anything) as (model, recorded):
        assert model.context_tokens == CONTEXT_TOKENS
        estimate = model.count(MESSAGES, tools=())
        assert estimate > 1
        before = len(recorded.requests)
        assert model.count(MESSAGES, tools=()) == estimate
        assert len(recorded.requests) == before, "it has no tokenizer, and is not queried again"


def test_an_empty_list_of_tokens_is_not_believed() -> None:
    empty = {"POST /tokenize": (200, {"tokens": [], "count": 0})}
    with model_behind(models(max_model_len=8192), empty) as (model, _):
        assert model.count(MESSAGES, tools=()) > 1


def test_prompts_of_llama_cpp_are_encoded_if_the_count_is_the_server_s() -> None:
    def encode(request: Any) -> Answer:
        return 200, {"tokens": list(range(11)) if request.get("content") == "<s>" else []}

    counts = [11, 12]
    answers: Answers = {
        "POST /apply-template": (200, {"prompt": "<s>"}),
        "POST /tokenize": encode,
        CHAT: lambda _: (200, completion(counts.pop(0), **LLAMA_CPP)),
    }
    with model_behind(models(meta={"n_ctx": 4096}), answers) as (model, _):
        assert model.count(MESSAGES, tools=()) == 11
        assert [ask(model).prompt_ids for _ in range(2)] == [tuple(range(11)), None]


def answering_tools(with_tools: Answer | Callable[[Any], Answer]) -> Answers:
    def chat(request: Any) -> Answer:
        if not request.get("tools"):
            return 200, completion()
        return with_tools(request) if callable(with_tools) else with_tools

    return {CHAT: chat}


@pytest.mark.parametrize(
    ("with_tools", "passes"),
    [
        pytest.param((200, completion(111)), True, id="rendered"),
        pytest.param((200, completion(11)), False, id="dropped"),
        pytest.param((200, completion(0)), True, id="not-counted"),
        pytest.param((400, error(message="registry.ollama.ai/library/m does not support tools")), False, id="ollama"),
        pytest.param(
            (400, {"message": '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser'}),
            False,
            id="vllm-without-parser",
        ),
        pytest.param((503, error(message="loading")), True, id="busy"),
    ],
)
def test_a_server_that_hides_tools_from_its_model_is_recognised(with_tools: Answer, passes: bool) -> None:
    with model_behind(models(max_model_len=8192), answering_tools(with_tools)) as (model, recorded):
        assert model.passes_tools is passes
        if with_tools[0] == 503:
            assert not model.remarks
            return
        probes = len(recorded.requests)
        assert ("tools" in model.remarks) is not passes
        assert "token ids" in model.remarks
        assert len(recorded.requests) == probes, "it is found out once"


def test_a_model_is_chosen_among_several() -> None:
    served = {"GET /v1/models": (200, {"data": [{"id": "a"}, {"id": "b", "max_model_len": 4096}]})}
    with replaying({**served, CHAT: (200, completion())}) as recorded:
        first = HttpModel(f"vllm:{recorded.url}", recorded.url)
        second = HttpModel(f"vllm:{recorded.url}#b", recorded.url, "b")
        assert (first.served_model, second.served_model, second.context_tokens) == ("a", "b", 4096)
        assert "#MODEL" in first.remarks
        assert "#MODEL" not in second.remarks
        first.close()
        second.close()
