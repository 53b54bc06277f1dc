"""A policy is trained with a model, and the solver `search` uses it: the whole way, with a tiny model."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tiny_projects import project

from harness.cli.exit_code import ExitCode
from harness.cli.main import main
from harness.solvers.search.policy import load_policy
from pytest_ssr.errors import SettingsError

CODE = '''\
"""Amounts."""


def {a}_total(items, rate, limit):
    total = 0
    for item in items:
        if item is None or item < 0:
            continue
        total = total + item * rate
    if total > limit:
        total = limit
    return total


def {a}_share(part, whole):
    if whole == 0:
        return 0
    return part / whole


def {a}_names(people, default="nobody"):
    names = []
    for person in people:
        if person.name and not person.hidden:
            names.append(person.name.strip())
    return sorted(names) or [default]
'''


@pytest.fixture(scope="module")
def trained(llama: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    top = tmp_path_factory.mktemp("sources")
    for name in ("bill", "tax", "fee", "cost"):
        (top / name).mkdir()
        (top / name / "code.py").write_text(CODE.format(a=name))
    command = [
        "train",
        "search",
        *(str(top / name) for name in ("bill", "tax", "fee")),
        "--held-out",
        str(top / "cost"),
    ]
    numbers = ["--bugs", "20", "--lm-bugs", "3", "--lm-seconds", "0.5"]
    assert main([*command, *numbers, "--lm", str(llama), "--out", str(top / "policy")]) == ExitCode.DONE
    return top / "policy"


def test_the_policy_names_no_path_and_wants_the_model_named(trained, llama):
    settings = (trained / "policy.json").read_text()
    assert str(llama) not in settings
    assert json.loads(settings)["language"]["tokens"] > 0
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
        assert '"read": ' in trajectories[0].read_text() or '"read":' in trajectories[0].read_text()
        patches.append([p.read_text() for p in sorted(store.rglob("*.diff"))])
    assert patches[0]
    assert patches[0] == patches[1]


def test_options_of_the_model_have_no_effect_without_it(tmp_path, capsys):
    (tmp_path / "code.py").write_text(CODE.format(a="a"))
    command = ["train", "search", str(tmp_path), "--out", str(tmp_path / "out")]
    for option in ("--lm-bugs", "--lm-seconds"):
        assert main([*command, option, "3"]) == ExitCode.USAGE
        assert option in capsys.readouterr().err
    assert main([*command, "--lm", str(tmp_path / "nothing")]) == ExitCode.USAGE
    assert "--lm" in capsys.readouterr().err
