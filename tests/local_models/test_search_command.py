"""A policy is trained with a model, and the solver `search` uses it: the whole way, with a tiny model."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from tiny_projects import project

from harness.cli.exit_code import ExitCode
from harness.cli.main import main
from harness.local_models.weights import find_weights
from harness.solvers.search.policy import load_policy
from harness.training.writer.rounds import ROWS
from pytest_ssr.errors import SettingsError

TEMPLATE = "{% for m in messages %}[{{ m.role }}]{{ m.content }}</s>{% endfor %}{% if add_generation_prompt %}[assistant]{% endif %}"


@pytest.fixture(scope="module")
def trained(llama: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    top = tmp_path_factory.mktemp("sources")
    bill, tax, fee, cost = (str(project(top, name)) for name in ("bill", "tax", "fee", "cost"))
    command = ["train", "search", bill, tax, fee, "--held-out", cost]
    numbers = ["--bugs", "20", "--lm-bugs", "3", "--lm-seconds", "0.5"]
    assert main([*command, *numbers, "--lm", str(llama), "--out", str(top / "policy")]) == ExitCode.DONE
    return top / "policy"


def test_the_policy_names_no_path_and_wants_the_model_named(trained, llama):
    settings = (trained / "policy.json").read_text()
    assert str(llama) not in settings
    assert json.loads(settings)["language"]["tokens"] > 100
    with pytest.raises(SettingsError):
        load_policy(trained)
    policy = load_policy(trained, str(llama))
    assert policy.language is not None
    assert policy.language.scorer.key == policy.language.key


def test_an_attempt_records_what_the_model_read_and_is_repeated_by_its_seed(trained, llama, tmp_path, capsys):
    source = project(tmp_path, "tiny")
    patches = []
    for name in ("one", "two"):
        store = tmp_path / name
        options = ["--rounds", "1", "--count", "2", "--attempts", "1", "--injector", "mutation", "--json"]
        solver = f"search:policy={trained},lm={llama}"
        assert main(
            ["play", str(source), *options, "--sandbox", "process", "--solver", solver, "--store", str(store)]
        ) in (0, 1)
        trajectories = sorted(p for p in store.rglob("trajectory.json*") if "language-model" in p.read_text())
        assert trajectories
        patches.append([p.read_text() for p in sorted(store.rglob("*.diff"))])
    assert patches[0]
    assert patches[0] == patches[1]


def test_self_play_fits_the_weights_to_proven_bugs_too(llama, tmp_path):
    sources = [str(project(tmp_path, name)) for name in ("one", "two", "three")]
    out = tmp_path / "policy"
    rounds = [
        "--rounds",
        "1",
        "--count",
        "2",
        "--attempts",
        "2",
        "--tries",
        "20",
        "--bugs",
        "12",
        "--sandbox",
        "process",
    ]
    model = ["--lm", str(llama), "--lm-bugs", "2", "--lm-seconds", "0.5"]
    command = ["train", "selfplay", *sources, "--out", str(out), "--injector", "mutation", *rounds, *model]
    assert main([*command, "--lm-updates", "0"]) == ExitCode.DONE
    played = json.loads((out / "policies" / "round-001" / "policy.json").read_text())["language"]
    assert played == json.loads((out / "policy.json").read_text())["language"]
    # The same static bugs alone give other weights.
    static = tmp_path / "static"
    command = ["train", "search", *sources, "--out", str(static), "--injector", "mutation", "--bugs", "12", *model]
    (static / "x").parent.mkdir()
    (static / "language-speeds.json").write_text((out / "language-speeds.json").read_text())
    assert main(command) == ExitCode.DONE
    alone = json.loads((static / "policy.json").read_text())["language"]
    assert (alone["key"], alone["tokens"]) == (played["key"], played["tokens"])
    assert alone["weights"] != played["weights"]


@pytest.mark.filterwarnings("ignore")  # From third-party packages.
def test_the_model_learns_after_each_round_from_what_was_proven(llama, tmp_path, capsys):
    sources = [str(project(tmp_path, name)) for name in ("one", "two", "three")]
    model, out = tmp_path / "model", tmp_path / "policy"
    shutil.copytree(llama, model)
    (model / "chat_template.jinja").write_text(TEMPLATE)
    command = ["train", "selfplay", *sources, "--out", str(out), "--injector", "mutation", "--sandbox", "process"]
    command += ["--rounds", "2", "--count", "2", "--attempts", "2", "--tries", "20", "--bugs", "12", "--json"]
    command += [
        "--lm",
        str(model),
        "--lm-bugs",
        "2",
        "--lm-seconds",
        "0.5",
        "--lm-updates",
        "2",
        "--lm-layers",
        "1",
        "--lm-writes",
    ]
    assert main(command) == ExitCode.DONE
    printed = capsys.readouterr().out
    start, one, two = json.loads(printed)["rounds"]
    assert start["language"] is None
    (own,) = (out / "models").iterdir()
    for number, learned in ((1, one["language"]), (2, two["language"])):
        assert learned["model"] == str(own / f"round-00{number}" / "model")
        assert learned["rows"] == 2 * ROWS
        assert 0 < learned["proven"] < learned["rows"]
    adapters = [Path(learned["language"]["model"]) for learned in (one, two)]
    assert find_weights(str(adapters[1])).adapters == (adapters[0].resolve(), adapters[1])
    # What was learned from: the reverse of the round's bugs, with and without a failing test, and static bugs.
    rows = [json.loads(line) for line in (own / "round-001.jsonl").read_text().splitlines()]
    asked = [row["messages"][0]["content"] for row in rows]
    assert any("Failing test: test_" in text and "Assertion: assert" in text for text in asked)
    assert any("Failing test" not in text for text in asked)
    # What the model of each round writes is tried, too.
    assert list((out / "store").rglob("samples.jsonl"))
    # The columns are those of the newest model.
    assert load_policy(out, str(adapters[1])).language is not None
    with pytest.raises(SettingsError):
        load_policy(out, str(adapters[0]))
    # A second start finds everything, and another number of updates is another run.
    written = {path: path.read_bytes() for path in adapters[1].iterdir()}
    assert main(command) == ExitCode.DONE
    assert capsys.readouterr().out == printed
    assert {path: path.read_bytes() for path in adapters[1].iterdir()} == written


def test_options_of_the_model_have_no_effect_without_it(tmp_path, capsys):
    command = ["train", "search", str(project(tmp_path, "tiny")), "--out", str(tmp_path / "out")]
    for option in ("--lm-bugs", "--lm-seconds"):
        assert main([*command, option, "3"]) == ExitCode.USAGE
        assert option in capsys.readouterr().err
    assert main([*command, "--lm", str(tmp_path / "nothing")]) == ExitCode.USAGE
    assert "--lm" in capsys.readouterr().err


def test_the_model_of_a_server_cannot_learn(tmp_path, capsys):
    command = ["train", "selfplay", str(project(tmp_path, "tiny")), "--out", str(tmp_path / "out")]
    assert main([*command, "--lm", "http://localhost:9/v1"]) == ExitCode.USAGE
    assert "--lm-updates" in capsys.readouterr().err
