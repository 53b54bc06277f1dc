"""Prices from a file count in attempts, reports and budgets; a file with a mistake is an error."""

from __future__ import annotations

from pathlib import Path

import pytest
from model_server import message, serving

from harness.cli.main import main
from harness.models.budget import Budget, BudgetSpentError
from harness.models.factory import open_model
from harness.models.prices import Price, read_prices
from harness.models.urls import masked
from harness.records.messages import USER, Message, Sampling, Usage
from harness.records.trajectory import Journal, Trajectory
from harness.solvers.mini.trajectory_writer import Recorder
from pytest_ssr.errors import SettingsError

PRICE = Price(2.0, 8.0, 0.5)


def written(folder: Path, text: str) -> Path:
    path = folder / "prices.yaml"
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
    assert read_prices(written(tmp_path, text)) == {"openai/m": PRICE}


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("", "prices.yaml"),
        ("- m", "prices.yaml"),
        ("m: {input: 2", "prices.yaml"),
        ("m: 2", "prices.yaml: m"),
        ("m: {input: 2}", "prices.yaml: m.*output"),
        ("m: {input: 2, output: 8, cache: 1}", "prices.yaml: m.*cache"),
        ("m: {input: 2, output: two}", r"prices.yaml: m.*\$\.output"),
        ("m: {input: -2, output: 8}", r"prices.yaml: m.*\$\.input"),
        ("m: {input: 2, output: .inf}", r"prices.yaml: m.*\$\.output"),
        ("m: {input: 2, output: .nan}", r"prices.yaml: m.*\$\.output"),
    ],
)
def test_a_mistake_names_the_model_and_the_field(tmp_path: Path, text: str, named: str) -> None:
    with pytest.raises(SettingsError, match=named) as caught:
        read_prices(written(tmp_path, text))
    assert caught.value.option == "prices"


@pytest.mark.parametrize("by", ["the name", "the id on the server"])
def test_a_server_of_ones_own_has_a_price_and_spends_a_budget(by: str) -> None:
    budget = Budget(usd=1e-9)
    with serving(message("hm"), message("hm")) as served:
        name = f"vllm:{served.url.replace('//', '//user:secret@')}"
        prices = {masked(name) if by == "the name" else "tiny": PRICE}
        model = open_model(name, budget=budget, prices=prices).session("r")
        reply = model.reply([Message(USER, "add")], tools=(), sampling=Sampling())
        assert reply.cost_usd == PRICE.cost_usd(reply.usage) == budget.spent_usd > 0
        with pytest.raises(BudgetSpentError):
            model.reply([Message(USER, "add")], tools=(), sampling=Sampling())
        model.close()


def test_another_model_keeps_an_unknown_price() -> None:
    with serving(message("hm")) as served:
        model = open_model(f"vllm:{served.url}", prices={"other": PRICE})
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
    assert main(["solve", "a", "--solver", "search", "--prices", str(prices)]) == 2
    assert "--prices is for a model" in capsys.readouterr().err
    assert main(["solve", "a", "--solver", "openai/m", "--prices", str(prices)]) == 2
    assert f"{prices}: m: " in capsys.readouterr().err
