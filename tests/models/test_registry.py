"""Prices from a file count in attempts, reports and budgets; a file with a mistake is an error."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from model_server import error, message, serving

from harness.cli.main import main
from harness.models.budget import Budget, BudgetSpentError
from harness.models.factory import open_model
from harness.models.middleware import CancellableModel
from harness.models.protocol import identity_of, label_of
from harness.models.registry import Entry, Price, read_registry
from harness.models.urls import masked
from harness.records.job_reports import JobReport
from harness.records.messages import USER, Message, Sampling, Usage
from harness.records.trajectory import Journal, Trajectory
from harness.solvers.mini.trajectory_writer import Recorder
from pytest_ssr.errors import MissingKeyError, ModelError, ModelUnavailableError, SettingsError

PRICE = Price(2.0, 8.0, 0.5)
ENTRY = Entry(input=2.0, output=8.0, cached=0.5)


def written(folder: Path, text: str) -> Path:
    path = folder / "models.yaml"
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("price", "cost"),
    [
        (PRICE, 0.6 * 2 + 0.4 * 0.5 + 0.25 * 8),
        (Price(2.0, 8.0), 2 + 0.25 * 8),
        (Price(0, 0), 0),
    ],
)
def test_the_cost_of_a_call(price: Price, cost: float) -> None:
    assert price.cost_usd(Usage(1_000_000, 250_000, 400_000)) == pytest.approx(cost)


@pytest.mark.parametrize(
    "text", ["openai/m: {input: 2, output: 8.0, cached: 0.5}", '{"openai/m": {"input": 2, "output": 8, "cached": 0.5}}']
)
def test_a_file_is_yaml_or_json(tmp_path: Path, text: str) -> None:
    assert read_registry(written(tmp_path, text)) == {"openai/m": ENTRY}


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("", "models.yaml"),
        ("- m", "models.yaml"),
        ("m: {input: 2", "models.yaml"),
        ("m: 2", "models.yaml: m"),
        ("m: {input: 2}", "models.yaml: m.*output"),
        ("m: {input: 2, output: 8, cache: 1}", "models.yaml: m.*cache"),
        ("m: {input: 2, output: two}", r"models.yaml: m.*\$\.output"),
        ("m: {input: -2, output: 8}", r"models.yaml: m.*\$\.input"),
        ("m: {input: 2, output: .inf}", r"models.yaml: m.*\$\.output"),
        ("m: {input: 2, output: .nan}", r"models.yaml: m.*\$\.output"),
        ("m: {model: openai/m, key: sk-123}", "models.yaml: m.*key"),
        ("m: {url: http://x}", "models.yaml: m.*model"),
        ("m: {model: openai/m, cached: 1}", "models.yaml: m.*input"),
        ("m: {model: openai/m, context: -1}", r"models.yaml: m.*\$\.context"),
    ],
)
def test_a_mistake_names_the_model_and_the_field(tmp_path: Path, text: str, named: str) -> None:
    with pytest.raises(SettingsError, match=named) as caught:
        read_registry(written(tmp_path, text))
    assert caught.value.option == "models"


@pytest.mark.parametrize("by", ["the name", "the id on the server"])
def test_a_server_of_ones_own_has_a_price_and_spends_a_budget(by: str) -> None:
    budget = Budget(usd=1e-9)
    with serving(message("hm"), message("hm")) as served:
        name = f"vllm:{served.url.replace('//', '//user:secret@')}"
        prices = {masked(name) if by == "the name" else "tiny": ENTRY}
        model = open_model(name, budget=budget, registry=prices).session("r")
        reply = model.reply([Message(USER, "add")], tools=(), sampling=Sampling())
        assert reply.cost_usd == PRICE.cost_usd(reply.usage) == budget.spent_usd > 0
        with pytest.raises(BudgetSpentError):
            model.reply([Message(USER, "add")], tools=(), sampling=Sampling())
        model.close()


def test_a_name_stands_for_a_server_with_a_key_a_context_and_a_price(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEAM_KEY", "of-the-team")
    budget = Budget(usd=1.0)
    with serving(message("hm")) as served:
        entry = replace(ENTRY, model=f"vllm:{served.url}", key="TEAM_KEY", context=5000)
        model = open_model("model:small", budget=budget, registry={"small": entry})
        assert (model.name, label_of(CancellableModel(model)), model.context_tokens) == ("small", "small", 5000)
        assert served.url in identity_of(model)
        reply = model.session("r").reply([Message(USER, "add")], tools=(), sampling=Sampling())
        assert reply.cost_usd == PRICE.cost_usd(reply.usage) == budget.spent_usd > 0
        assert set(served.keys) == {"Bearer of-the-team"}
        model.close()


def test_errors_of_a_hidden_model_show_nothing_of_its_server(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SSR_STATUS_LINES", "1")
    with serving(error(400, "at http://internal/secret")) as served:
        registry = {"small": Entry(f"vllm:{served.url}", hidden=True)}
        model = open_model("model:small", registry=registry)
        with pytest.raises(ModelError) as raised:
            model.session("r").reply([Message(USER, "add")], tools=(), sampling=Sampling())
        assert not raised.value.retry
        model.close()
        shown = str(raised.value)
    with pytest.raises(ModelError) as raised:
        open_model("model:small", registry=registry)
    shown += str(raised.value)
    assert "internal" not in shown
    assert served.url not in shown
    causes = [JobReport.from_line(line).private for line in capsys.readouterr().err.splitlines()]
    assert "internal" in causes[0]
    assert served.url in causes[-1]


def test_a_hidden_model_says_what_is_wrong_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TEAM_KEY", raising=False)
    with serving() as served:
        gone = served.url
    registry = {
        "gone": Entry(f"vllm:{gone}", hidden=True),
        "keyless": Entry(f"vllm:{gone}", key="TEAM_KEY", hidden=True),
    }
    with pytest.raises(ModelUnavailableError) as away:
        open_model("model:gone", registry=registry)
    assert gone not in str(away.value)
    with pytest.raises(MissingKeyError) as missing:
        open_model("model:keyless", registry=registry)
    assert missing.value.variable == "TEAM_KEY"
    assert gone not in str(missing.value)


def test_a_name_that_nobody_registered_is_an_error(tmp_path: Path) -> None:
    for name in ("other", "priced"):
        with pytest.raises(SettingsError, match="small"):
            open_model(f"model:{name}", registry={"small": Entry("vllm:http://x"), "priced": ENTRY})


def test_another_model_keeps_an_unknown_price() -> None:
    with serving(message("hm")) as served:
        model = open_model(f"vllm:{served.url}", registry={"other": ENTRY})
        assert model.reply([Message(USER, "add")], tools=(), sampling=Sampling()).cost_usd is None
        model.close()


def test_a_call_of_mini_swe_agent_has_the_price() -> None:
    journal = Journal(Trajectory("r", "t", "solver", 0, "m"))
    usage = {"prompt_tokens": 1000, "completion_tokens": 100}
    response = {"choices": [{"message": {"content": "hm"}}], "usage": usage}
    Recorder(journal, PRICE).take({"role": "assistant", "content": "hm", "extra": {"response": response, "cost": 9.0}})
    assert journal.trajectory.cost_usd == PRICE.cost_usd(Usage(1000, 100))


def test_the_option_is_for_models(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    prices = written(tmp_path, "m: 2")
    assert main(["solve", "a", "--solver", "search", "--models", str(prices)]) == 2
    assert "--models is for a model" in capsys.readouterr().err
    assert main(["solve", "a", "--solver", "openai/m", "--models", str(prices)]) == 2
    assert f"{prices}: m: " in capsys.readouterr().err
