"""A model that writes repairs, with a tiny one made on the spot: it is sampled, trained on rows, and solves."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from language_runs import report, train
from proven import Proven
from tiny_gguf import make_llama, write_gguf
from transformers import AutoModelForCausalLM, AutoTokenizer

from harness.cli.exit_code import ExitCode
from harness.cli.main import main
from harness.local_models.sampling import LocalSampler, Question, Sampled, SamplingModel
from harness.local_models.weights import SMOLLM2, Weights, find_weights
from harness.rollouts.player_factory import PlayerFactory
from harness.rollouts.runner import RolloutRunner
from harness.solvers.writer.prompt import BEGIN, END, question, reply
from harness.solvers.writer.regions import regions_of
from harness.training.language import models
from pytest_ssr.errors import SettingsError

pytestmark = pytest.mark.filterwarnings("ignore")  # From third-party packages.
FUNCTION = 'def add(a, b):\n    """Add."""\n    return a - b\n'
ASKED = Question(question(regions_of(FUNCTION)[-1]), BEGIN, f"\n{END}")
TEMPLATE = "{% for m in messages %}[{{ m.role }}]{{ m.content }}</s>{% endfor %}{% if add_generation_prompt %}[assistant]{% endif %}"
_ALMOST_GREEDY = 1e-4

Ask = Callable[..., Sampled]


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a tiny model whose weights are large, so that each token changes the next ones."""
    folder = tmp_path_factory.mktemp("llama")
    make_llama(folder)
    (folder / "chat_template.jinja").write_text(TEMPLATE)
    return folder


@pytest.fixture(scope="module")
def ask(llama: Path) -> Ask:
    """Return a function that samples from the tiny model."""
    weights = find_weights(str(llama))

    def sample(
        asked: Question = ASKED, *, count: int = 5, temperature: float = 1.0, tokens: int = 12, seed: int = 0
    ) -> Sampled:
        return LocalSampler(weights).sample(asked, count=count, temperature=temperature, tokens=tokens, seed=seed)

    return sample


def prompt_ids(tokenizer: Any, asked: Question) -> list[int]:
    text = tokenizer.apply_chat_template(asked.messages, tokenize=False, add_generation_prompt=True)
    return list(tokenizer(text)["input_ids"]) + list(tokenizer(asked.begin)["input_ids"])


@pytest.mark.filterwarnings("error::FutureWarning")
def test_the_same_seed_gives_the_same_replies(ask: Ask) -> None:
    assert ask(seed=1) == ask(seed=1) != ask(seed=2)
    assert len(set(ask(seed=1).replies)) > 1
    assert all(each.startswith(BEGIN) for each in ask(seed=1).replies)


def test_without_chance_replies_are_those_of_transformers(ask: Ask, llama: Path) -> None:
    tokenizer, network = AutoTokenizer.from_pretrained(llama), AutoModelForCausalLM.from_pretrained(llama)
    ids = prompt_ids(tokenizer, ASKED)
    written = network.generate(torch.tensor([ids]), do_sample=False, max_new_tokens=12)[0, len(ids) :]
    expected = BEGIN + tokenizer.decode(written, skip_special_tokens=True)
    sampled = ask(temperature=_ALMOST_GREEDY, count=3)
    assert sampled.replies == (expected,) * 3
    assert sampled.tokens == len(ids) + 3 * 12


def test_a_reply_ends_alone_and_the_others_go_on(ask: Ask) -> None:
    whole = ask(count=6, seed=3)
    ending = whole.replies[0][len(BEGIN) :][:3]
    assert ending
    sampled = ask(Question(ASKED.messages, BEGIN, ending), count=6, seed=3)
    assert sampled.tokens < whole.tokens
    assert len(sampled.replies[0]) < len(whole.replies[0])
    for reply_until, reply_whole in zip(sampled.replies, whole.replies, strict=True):
        assert reply_whole.startswith(reply_until)
        assert reply_until == reply_whole or ending in reply_until[len(BEGIN) :]
    assert whole.replies[1:] == ask(count=5, seed=4).replies


def test_a_prompt_that_leaves_no_room_gives_no_reply(ask: Ask) -> None:
    long = Question([{"role": "user", "content": "x y z " * 20_000}], BEGIN, END)
    assert ask(long) == Sampled((), 0)


def test_a_model_without_a_chat_template_is_refused(llama: Path, tmp_path: Path) -> None:
    shutil.copytree(llama, tmp_path / "plain")
    (tmp_path / "plain" / "chat_template.jinja").unlink()
    with pytest.raises(SettingsError) as caught:
        SamplingModel(Weights(tmp_path / "plain", "plain"))
    assert str(tmp_path / "plain") in str(caught.value)


@pytest.mark.bubblewrap
def test_a_model_that_has_learned_a_repair_solves(proven: Proven, model: Path, tmp_path: Path) -> None:
    rows = tmp_path / "rows.jsonl"
    answer = {"role": "assistant", "content": reply("    return a + b\n")}
    row = {"messages": [*ASKED.messages, answer], "repository": "calc"}
    rows.write_text(f"{json.dumps(row)}\n" * 4)
    options = ("--adapter", "none", "--batch", "4", "--accumulation", "1", "--updates", "60", "--learning-rate", "1e-2")
    assert train("sft", rows, model, tmp_path / "run", *options) == ExitCode.DONE
    with PlayerFactory() as players:
        solver = players.solver(f"lm:{tmp_path / 'run' / 'model'}", tries=40, shows_failure=False)
    runner = RolloutRunner(proven.runner, proven.artifact, proven.verdict, solver, proven.store)
    assert [rollout.resolved for rollout in runner.attempts(1)] == [True]


def test_the_model_in_a_gguf_file_is_trained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    make_llama(tmp_path / "llama")
    write_gguf(tmp_path / "llama", tmp_path / "tiny.gguf")
    rows, template = tmp_path / "rows.jsonl", tmp_path / "template.jinja"
    template.write_text(TEMPLATE)
    rows.write_text(json.dumps({"messages": [*ASKED.messages, {"role": "assistant", "content": reply("")}]}))
    options = ("--updates", "1", "--chat-template", str(template))
    assert train("sft", rows, tmp_path / "tiny.gguf", tmp_path / "run", *options) == ExitCode.DONE
    assert report(tmp_path / "run")["updates"] == 1
    assert len(list((tmp_path / "cache" / "pytest-ssr" / "models").glob("*/config.json"))) == 1


def test_a_model_of_a_package_is_trained_by_its_name(
    rollouts: Path, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def find(name: str, **options: Any) -> Weights:
        asked.append((name, options["option"]))
        return Weights(model, "key")

    monkeypatch.setattr(models, "find_weights", find)
    options = ("--updates", "1", "--ignore-token-ids")
    assert train("sft", rollouts, Path(SMOLLM2), tmp_path / "run", *options) == ExitCode.DONE
    assert set(asked) == {(SMOLLM2, "model")}
    assert report(tmp_path / "run")["updates"] == 1


def test_a_file_that_is_no_model_is_refused_in_one_line(
    rollouts: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "model.gguf").write_bytes(b"GGUF")
    assert train("sft", rollouts, tmp_path / "model.gguf", tmp_path / "run") == ExitCode.USAGE
    assert str(tmp_path / "model.gguf") in capsys.readouterr().err


@pytest.mark.parametrize("name", ["lm:nowhere", "lm:."])
def test_a_solver_that_is_no_model_is_refused_in_one_line(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["solve", "abc", "--repo", ".", "--solver", name]) == ExitCode.USAGE
    assert len(capsys.readouterr().err.strip().splitlines()) == 1
    with PlayerFactory() as players, pytest.raises(SettingsError) as caught:
        players.solver(name)
    assert caught.value.option == "solver"
