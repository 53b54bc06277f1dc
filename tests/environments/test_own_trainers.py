"""Methods of `ssr train` of other packages: the example of the documentation, installed and run; and broken ones."""

from __future__ import annotations

import json
import re
import sys
import tomllib
from pathlib import Path

import pytest
from plain import plain_python
from proven import Proven

from harness.cli.app import TRAINERS, parse
from harness.cli.main import main
from harness.cli.unknown_variables import UnknownVariable, unknown_variables

PAGE = Path(__file__).parents[2] / "docs" / "training.md"


def example(language: str) -> str:
    """Return the block of the documentation's section about other packages in a language."""
    section = PAGE.read_text().partition("## Trainers of other packages")[2].partition("\n## ")[0]
    (block,) = re.findall(rf"```{language}\n(.*?)```", section, re.DOTALL)
    return str(block)


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Install the package of the documentation's example, with entry points that are no trainers."""
    (points,) = tomllib.loads(example("toml"))["project"]["entry-points"].items()
    assert points[0] == TRAINERS
    others = {"broken": "ssr_bandit:absent", "data": "json:dumps", "sft": "ssr_bandit:BanditTraining"}
    lines = [f"[{TRAINERS}]", *(f"{name} = {value}" for name, value in {**others, **points[1]}.items())]
    site = tmp_path / "site"
    folder = site / "ssr_bandit-1.dist-info"
    folder.mkdir(parents=True)
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: ssr-bandit\nVersion: 1\n")
    (folder / "entry_points.txt").write_text("\n".join(lines))
    (site / "ssr_bandit.py").write_text(example("python"))
    monkeypatch.syspath_prepend(site)
    monkeypatch.delitem(sys.modules, "ssr_bandit", raising=False)
    monkeypatch.chdir(tmp_path)
    return site


@pytest.mark.long
@pytest.mark.bubblewrap
@pytest.mark.usefixtures("site")
def test_the_trainer_of_the_documentation_learns(
    proven: Proven, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    argv = ["train", "bandit", str(proven.project), "--store", str(proven.store.root), "--episodes", "4", "--json"]
    assert main([*argv, "--python", str(plain_python())]) == 0
    means = json.loads(capsys.readouterr().out)
    assert means == json.loads((tmp_path / "bandit.json").read_text())
    assert (max(means, key=means.get), max(means.values()), min(means.values())) == ("s/ - / + /", 1.0, -1.0)


@pytest.mark.usefixtures("site")
def test_its_variables_are_known() -> None:
    assert unknown_variables({"SSR_EPISODES": "4", "SSR_EPISODEN": "4"}) == [
        UnknownVariable("SSR_EPISODEN", "SSR_EPISODES")
    ]


@pytest.mark.usefixtures("site")
def test_its_options_come_from_flags_variables_and_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own.yaml").write_text("episodes: 7\nout: there.json\n")
    monkeypatch.setenv("SSR_SEED", "5")
    parsed = parse(["train", "bandit", "p", "--config", "own.yaml"])
    assert parsed is not None
    assert [getattr(parsed.settings, name) for name in ("project", "episodes", "out", "seed")] == [
        Path("p"),
        7,
        tmp_path / "there.json",
        5,
    ]


@pytest.mark.parametrize("name", ["broken", "data"])
def test_an_entry_point_that_is_no_trainer_is_a_mistake(
    site: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", name, "."]) == 2
    assert f"entry point {name} = " in capsys.readouterr().err


def test_our_methods_stay_and_import_no_other(site: Path) -> None:
    parsed = parse(["train", "sft", ".", "--model", "m"])
    assert parsed is not None
    assert type(parsed.settings).__module__ == "harness.settings.training"
    assert "ssr_bandit" not in sys.modules


def test_the_help_lists_it(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    points = site / "ssr_bandit-1.dist-info" / "entry_points.txt"
    points.write_text(f"[{TRAINERS}]\nbandit = ssr_bandit:BanditTraining\n")
    assert main(["train", "--help"]) == 0
    assert "Learn which replacement" in capsys.readouterr().out
    assert main(["train", "bandid", "."]) == 2
    assert "did you mean bandit" in capsys.readouterr().err
