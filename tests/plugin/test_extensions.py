"""Test what plugins and a conftest.py add to the command line: which are loaded, and what reaches the commands."""

from __future__ import annotations

import functools
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from own_injector import OWN_INJECTOR

from harness.cli.main import main
from harness.cli.projects import extensions_of_sources
from harness.exporters.formats import FORMATS, formats_of
from harness.exporters.protocol import TEXT, Format
from harness.models.scripted import ScriptedModel
from harness.records.messages import ASSISTANT, Message
from harness.rollouts.player_factory import PlayerFactory, injector_writes_code, solver_writes_code
from pytest_ssr.errors import SettingsError
from pytest_ssr.extensions import Extensions
from pytest_ssr.installed_plugins import load_extensions
from pytest_ssr.plugin.session_without_tests import extensions_of_plugins

PLUGIN = """\
def pytest_ssr_injectors(config):
    return {NAME: config.rootpath}


def pytest_ssr_checks(config):
    return [("z", 1), ("a", 2)]
"""


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with two installed plugins, of which one depends on this package."""
    for name, requirements in (("using", "Requires-Dist: Pytest_SSR>=0.2; extra == 'ssr'\n"), ("other", "")):
        folder = tmp_path / f"{name}-1.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n{requirements}")
        (folder / "entry_points.txt").write_text(f"[pytest11]\nits-{name} = ssr_{name}_plugin\n")
        (tmp_path / f"ssr_{name}_plugin.py").write_text(PLUGIN.replace("NAME", repr(name)))
        monkeypatch.delitem(sys.modules, f"ssr_{name}_plugin", raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delenv("PYTEST_PLUGINS", raising=False)
    return tmp_path


def answering(**answers: Any) -> Extensions:
    """Return what plugins add that answer hooks with these values, by the names without `pytest_ssr_`."""

    def call(name: str, **_: object) -> list[Any]:
        kind = name.removeprefix("pytest_ssr_")
        return [answers[kind]] if kind in answers else []

    return Extensions(call)


def test_only_plugins_that_depend_on_this_package_are_loaded(installed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project = installed / "project"
    project.mkdir()
    (project / "conftest.py").write_text("raise SystemExit('not to be run')\n")
    (project / "pytest.ini").write_text("[pytest]\naddopts = --no-such-option\n")
    monkeypatch.chdir(project)
    extensions = load_extensions(project)
    assert extensions.injectors() == {"using": project}
    assert [name for name, _ in extensions.checks()] == ["a", "z"]
    assert "ssr_other_plugin" not in sys.modules


def test_modules_of_the_variable_are_loaded(installed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTEST_PLUGINS", "ssr_other_plugin")
    assert set(load_extensions(installed).injectors()) == {"using", "other"}


def test_a_plugin_that_cannot_be_imported_is_one_line(installed: Path) -> None:
    (installed / "ssr_using_plugin.py").write_text("print('loud')\nraise RuntimeError('no way ' + 999 * 'x')\n")
    with pytest.raises(SettingsError, match=r"the plugins of pytest cannot be loaded: .*no way xxx") as caught:
        load_extensions(installed)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400


def test_without_a_plugin_pytest_is_not_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTEST_PLUGINS", raising=False)
    assert load_extensions() == Extensions()


def test_a_hook_that_fails_or_returns_something_else_is_named() -> None:
    def failing(name: str, **_: object) -> list[Any]:
        raise ZeroDivisionError("oh")

    with pytest.raises(SettingsError, match="the hook pytest_ssr_solvers of a plugin failed: ZeroDivisionError: oh"):
        Extensions(failing).solvers()
    with pytest.raises(SettingsError, match="the hook pytest_ssr_models returned a list, not a mapping"):
        answering(models=[1]).models()
    with pytest.raises(SettingsError, match="the hook pytest_ssr_checks returned a dict, not a list"):
        answering(checks={}).checks()


def test_solvers_and_models_of_plugins_are_players() -> None:
    def opened() -> ScriptedModel:
        return ScriptedModel("plugin:mine", [Message(ASSISTANT, "Hello.")])

    solver = object()
    factory = PlayerFactory(extensions=answering(solvers={"own": solver, "search": solver}, models={"mine": opened}))
    assert factory.solver("own") is solver
    assert factory.solver("search").name == "search"
    assert factory.model("plugin:mine").name == "plugin:mine"
    assert factory.injector("plugin:mine", strategy="direct").name == "plugin:mine"
    for name, ask in (("plugin:no", factory.model), ("no", factory.solver)):
        with pytest.raises(SettingsError, match=f"there is no .*{name}.*(mine|own)"):
            ask(name)
    assert solver_writes_code("own")
    assert injector_writes_code("plugin:mine")
    assert not injector_writes_code("own")


def test_formats_of_plugins_join_ours() -> None:
    def form(name: str) -> Format:
        return Format(name, "spreadsheets", {"a": TEXT}, lambda group, choices: iter(()))

    offered = formats_of(answering(exporters=[form("own"), form("sft")]))
    assert offered.keys() == {*FORMATS, "own"}
    assert offered["sft"] is FORMATS["sft"]


def test_an_export_format_of_a_plugin(installed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (installed / "ssr_using_plugin.py").write_text(
        "from harness.exporters.protocol import TEXT, Format\n\n\ndef pytest_ssr_exporters(config):\n"
        "    return [Format('own', 'sheets', {'a': TEXT}, lambda group, choices: iter(()), of_tasks=True)]\n"
    )
    (installed / "s").mkdir()
    (installed / "s" / "ssr-store.json").write_text('{"store_version": 1}\n')
    assert main(["export", str(installed / "s"), "--format", "own", "--out", str(installed / "out")]) == 1
    assert "nothing to export as own" in capsys.readouterr().out


def test_a_conftest_is_for_one_project_on_this_machine(tmp_path: Path) -> None:
    load = functools.partial(extensions_of_sources, conftest=True)
    (tmp_path / "rows.jsonl").write_text("")
    for sources, ray, problem in (
        ([tmp_path, tmp_path], "", "one project's directory"),
        ([tmp_path / "rows.jsonl"], "", "one project's directory"),
        ([tmp_path], "auto", "omit --ray"),
        ([tmp_path], "", "conftest.py does not exist"),
    ):
        with pytest.raises(SettingsError, match=problem):
            load(sources, ray=ray)


CONFTEST = (
    OWN_INJECTOR
    + """
print("from the conftest")
from pathlib import Path


def pytest_ssr_checks(config):
    return [("own-check", lambda case: Finding(True, "looked at"))]


def pytest_ssr_verdict(config, verdict):
    Path(__file__).with_name("seen.txt").write_text(f"{verdict.valid} {verdict.checks[-1].name}")
"""
)


@pytest.mark.long
def test_the_hooks_of_a_conftest_act_in_inject_only_if_asked_for(
    project: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (project / "conftest.py").write_text(CONFTEST)
    (project / ".gitignore").write_text("seen.txt\n")
    # The tests import the conftest.py as well.
    python = sys.executable
    argv = ["inject", str(project), "--injector", "own", "--count", "1", "--sandbox", "process", "--python", python]
    assert main(argv) == 2
    assert "there is no injector 'own'" in capfd.readouterr().err
    assert main([*argv, "--conftest", "--json"]) in (0, 1)
    captured = capfd.readouterr()
    assert json.loads(captured.out)["attempts"][0]["operator"] == "own-change"
    assert "from the conftest" in captured.err
    assert (project / "seen.txt").read_text() == "True own-check"


def test_a_conftest_that_cannot_be_imported_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text("import no_such_module_here\n")
    with pytest.raises(SettingsError, match=r"cannot be loaded: .*No module named 'no_such_module_here'"):
        extensions_of_plugins((), tmp_path, conftest=True)
