"""Registered models: the keys that they may use, and what a test of one tells."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from model_server import message, serving

from harness.database.engine import close_engines
from harness.database.records import records_of
from harness.database.sharing import share_store
from harness.models.factory import open_model
from harness.models.registry import Entry
from harness.records.messages import USER, Message, Sampling
from harness.service.app import ServiceSettings, create_app
from harness.service.model_test import ModelTestCode, tried
from harness.service.registered_models import KeyNotAllowedError, RegisteredModels, for_use
from harness.settings.service import MODEL_KEYS

SERVER, ELSEWHERE = "vllm:http://gpu:8000", "https://elsewhere.example"
SECRET = "a-secret-of-the-worker"


@pytest.mark.parametrize(
    ("entry", "patterns"),
    [
        (Entry(SERVER, key="SSR_MODEL_KEY_TEAM"), MODEL_KEYS),
        (Entry(SERVER, key="SSR_VLLM_KEY"), MODEL_KEYS),
        (Entry(SERVER, key="TEAM_KEY"), ("OTHER", "TEAM_*")),
        (Entry("openai/m", url=ELSEWHERE, key="OPENAI_API_KEY"), ("OPENAI_API_KEY",)),
        (Entry("openai/m", key="OPENAI_API_KEY"), ()),
        (Entry("gemini/m", key="GEMINI_API_KEY"), ()),
    ],
)
def test_an_allowed_key(entry: Entry, patterns: tuple[str, ...]) -> None:
    used = for_use("m", entry, patterns)
    assert (used.key, used.hidden, used.keyless) == (entry.key, True, False)


@pytest.mark.parametrize(
    ("entry", "patterns"),
    [
        (Entry(SERVER, key="AWS_SECRET_ACCESS_KEY"), MODEL_KEYS),
        (Entry(SERVER, key="OPENAI_API_KEY"), MODEL_KEYS),
        (Entry("openai/m", url=ELSEWHERE, key="OPENAI_API_KEY"), MODEL_KEYS),
        (Entry("anthropic/m", key="OPENAI_API_KEY"), MODEL_KEYS),
        (Entry(f"huggingface/{ELSEWHERE}/m", key="HUGGINGFACE_API_KEY"), MODEL_KEYS),
        (Entry(SERVER, key="SSR_MODEL_KEY_TEAM"), ("",)),
        (Entry(SERVER, key="ssr_model_key_team"), MODEL_KEYS),
    ],
)
def test_a_key_that_is_not_allowed(entry: Entry, patterns: tuple[str, ...]) -> None:
    with pytest.raises(KeyNotAllowedError) as caught:
        for_use("m", entry, patterns)
    assert caught.value.variable == entry.key


def test_a_server_gets_no_key_that_its_entry_does_not_name(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("SSR_VLLM_KEY", "OPENAI_API_KEY"):
        monkeypatch.setenv(variable, SECRET)
    with serving(message("hello"), message("hello")) as served:
        for entry in (Entry(f"vllm:{served.url}"), for_use("m", Entry(f"vllm:{served.url}"), MODEL_KEYS)):
            model = open_model("model:m", registry={"m": entry})
            model.reply([Message(USER, "hi")], tools=(), sampling=Sampling(max_tokens=5))
            model.close()
    assert served.keys == [f"Bearer {SECRET}", ""], "the first is an entry of a user's own file"


@pytest.fixture
def client(tmp_path: Path) -> Iterator[TestClient]:
    """A service for this machine, whose caller is an administrator."""
    share_store(tmp_path / "store")
    records = records_of(tmp_path / "store")
    settings = ServiceSettings(model_keys=("SSR_MODEL_KEY_*",))
    with TestClient(create_app(records, settings), base_url="http://127.0.0.1:8700") as client:
        yield client
    close_engines()


def test_a_model_is_tested_by_one_request(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSR_MODEL_KEY_TEAM", SECRET)
    models: RegisteredModels = client.app.state.models  # type: ignore[attr-defined]
    with serving(message("hello"), message("hello")) as served:
        models.put("good", Entry(f"vllm:{served.url}", key="SSR_MODEL_KEY_TEAM"))
        answer = client.post("/api/v1/registered-models/good/test")
        assert {**answer.json(), "seconds": 0} == {"name": "good", "code": "answered", "seconds": 0}
        assert len(served.asked) == 1
        assert f"Bearer {SECRET}" in served.keys
        page = client.post("/models/good/test")
        assert page.status_code == 200
        assert "answered" in page.text
        assert SECRET not in page.text
    assert client.post("/api/v1/registered-models/none/test").status_code == 404
    assert client.post("/models/none/test").status_code == 404


def test_what_is_wrong_is_a_code_without_the_address_and_the_key(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSR_MODEL_KEY_TEAM", SECRET)
    monkeypatch.delenv("SSR_MODEL_KEY_ABSENT", raising=False)
    models: RegisteredModels = client.app.state.models  # type: ignore[attr-defined]
    with serving() as closed:
        pass
    with serving(refuses=401) as wrong, serving(refuses=503) as busy:
        servers = {ModelTestCode.REFUSED: wrong.url, ModelTestCode.UNREACHABLE: closed.url}
        entries = {
            **{code: Entry(f"vllm:{url}", key="SSR_MODEL_KEY_TEAM") for code, url in servers.items()},
            ModelTestCode.KEY_MISSING: Entry(f"vllm:{wrong.url}", key="SSR_MODEL_KEY_ABSENT"),
            ModelTestCode.KEY_NOT_ALLOWED: Entry(f"vllm:{wrong.url}", key="HOME"),
            ModelTestCode.NO_SERVER: Entry("scripted:replies.json"),
            ModelTestCode.INVALID: Entry("nonsense"),
        }
        for code, entry in entries.items():
            if code is not ModelTestCode.INVALID:
                models.put(str(code), entry)
                answer = client.post(f"/api/v1/registered-models/{code}/test")
                assert answer.json()["code"] == code
                assert not [part for part in ("127.0.0.1", "http", SECRET, "SSR_MODEL") if part in answer.text]
            assert tried("m", entry, MODEL_KEYS).code is code
        assert tried("m", Entry(f"vllm:{busy.url}"), MODEL_KEYS).code is ModelTestCode.UNREACHABLE


def test_a_server_that_never_answers_ends_the_test() -> None:
    release = threading.Event()

    def silent(request: object) -> tuple[int, dict[str, str], bytes]:
        release.wait(60)
        return 200, {}, b"{}"

    with serving(silent) as served:
        entry = Entry(f"vllm:{served.url}")
        assert tried("m", entry, MODEL_KEYS, timeout_s=0.3).code is ModelTestCode.UNREACHABLE
        release.set()
