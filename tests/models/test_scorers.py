"""A server that echoes prompts with log-probabilities scores variants as a model of this process does."""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from harness.local_models.scoring import Scores, Variant
from harness.models.scorers import ServerScorer, open_scorer
from pytest_ssr.errors import ModelError, SettingsError


def _echo(offsets: list[Any], values: list[Any]) -> dict[str, Any]:
    return {"choices": [{"logprobs": {"text_offset": offsets, "token_logprobs": values, "tokens": []}}]}


# Tokens of two characters, each with a log-probability of minus its number; the first has none, as in vLLM.
OTHERS: dict[str, Any] = {
    "no-logprobs": {"choices": [{"text": "x", "logprobs": None}]},
    "no-echo": {"choices": [{"logprobs": {"text_offset": [4], "token_logprobs": [-1.0], "tokens": ["x"]}}]},
    "no-choices": {},
    "not-a-number": _echo([0, 2, 4], [None, math.nan, -1.0]),
    "positive": _echo([0, 2, 4], [None, 2.0, -1.0]),
    "infinite-offset": _echo([0, 2, math.inf], [None, -1.0, -1.0]),
    "large-integer": _echo([0, 2, 4], [None, -(10**400), -1.0]),
    "fewer-numbers": _echo([0, 2, 4], [None]),
    "disorder": _echo([0, 3, 2, 4], [None, -1.0, -1.0, -1.0]),
}


class _Server(BaseHTTPRequestHandler):
    kind = ""
    prompts: list[str]

    def log_message(self, *_: object) -> None:
        pass

    def _send(self, data: object, status: int = 200) -> None:
        body = json.dumps(data).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self) -> None:
        self._send({"data": [] if self.kind == "no-model" else [{"id": "small"}]})

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.kind == "busy" and len(self.prompts) % 2:
            self.prompts.append("")
            self._send({}, 503)
            return
        if self.kind in OTHERS:
            self._send(OTHERS[self.kind])
            return
        assert asked["echo"]
        assert asked["model"] == "small"
        self.prompts.append(asked["prompt"])
        offsets = [*range(0, len(asked["prompt"]), 2), len(asked["prompt"])]
        values = [None, *(-float(n) for n in range(1, len(offsets)))]
        self._send({"choices": [{"logprobs": {"text_offset": offsets, "token_logprobs": values, "tokens": []}}]})


@pytest.fixture
def server(request: pytest.FixtureRequest) -> Iterator[tuple[str, list[str]]]:
    prompts: list[str] = []
    handler = type("Handler", (_Server,), {"kind": getattr(request, "param", ""), "prompts": prompts})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as running:
        threading.Thread(target=running.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{running.server_port}/v1", prompts
        running.shutdown()


@pytest.mark.parametrize("server", ["busy"], indirect=True)
def test_a_server_that_is_busy_is_asked_again(server):
    url, prompts = server
    waits: list[float] = []
    scorer = replace(ServerScorer.at(url), sleep=waits.append)
    read = scorer.open("").read([Variant("abcd", 0, 4), Variant("abcdef", 0, 4)], after=0)
    assert [scores is not None for scores in read] == [True, True]
    assert prompts == ["pass", "", "abcd", "", "abcdef"]
    assert len(waits) == 2


def test_each_variant_is_read_whole(server):
    url, prompts = server
    scorer = open_scorer(url)
    variants = [Variant("abcdefghij", 4, 6), Variant("abcdXXXXghij", 4, 8), Variant("abcdghij", 4, 4)]
    prompts.clear()
    reader = scorer.open("abcdefghij")
    assert reader.glance(variants) == [None, None, None]
    assert reader.read(variants, after=2) == [
        Scores((-2.0,), (-3.0, -4.0)),
        Scores((-2.0, -3.0), (-4.0, -5.0)),
        Scores((), (-2.0, -3.0)),
    ]
    assert prompts == [v.text for v in variants]
    assert reader.tokens == 5 + 6 + 4
    assert scorer.key == ServerScorer("http://elsewhere/v1", "small").key


@pytest.mark.parametrize("server", OTHERS, indirect=True)
def test_a_server_without_log_probabilities_of_prompts_is_refused(server):
    with pytest.raises(SettingsError) as caught:
        open_scorer(server[0])
    assert caught.value.option == "lm"


@pytest.mark.parametrize("server", ["no-model"], indirect=True)
def test_a_server_without_a_model_gives_no_scores(server):
    with pytest.raises(ModelError):
        open_scorer(server[0])
