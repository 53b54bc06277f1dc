"""Prompts of a user replace ours, and are checked before anything is started."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.agents.prompts import DEFAULT, TEMPLATES, Prompts, default_files, default_template
from harness.cli.main import main
from harness.injectors.model import ModelInjector
from harness.models.scripted import ScriptedModel
from harness.solvers.model import ModelSolver, solver_system
from harness.solvers.submission import SubmissionForm, SubmissionSettings
from pytest_ssr.errors import SettingsError


def written(folder: Path, **texts: str) -> Path:
    folder.mkdir(exist_ok=True)
    for name, text in texts.items():
        (folder / f"{name}.md").write_text(text)
    return folder


def test_the_written_defaults_are_valid_and_change_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "prompts"
    assert main(["prompts", str(folder)]) == 0
    assert "--prompt-dir" in capsys.readouterr().out
    read = Prompts.read(folder)
    assert read.templates == {name: default_template(name) for name in TEMPLATES}
    assert {p.name for p in folder.iterdir()} == set(default_files())
    submission = SubmissionSettings(SubmissionForm.PATCH_FILE, 3)
    assert solver_system(submission, read) == solver_system(submission)
    assert main(["prompts", str(folder)]) == 2
    assert "exists already" in capsys.readouterr().err


def test_templates_of_a_user_replace_ours(tmp_path: Path) -> None:
    folder = written(tmp_path / "p", solver_system="Repair it; it costs $$5.\n$submission", strategy_removal="Cut.")
    prompts = Prompts.read(folder)
    assert solver_system(prompts=prompts).startswith("Repair it; it costs $5.\nWhen all is repaired, call `submit`.")
    assert prompts.fill("strategy_removal", min_changed_files=2) == "Cut.\n"
    assert prompts.fill("injector_system") == DEFAULT.fill("injector_system")
    model = ScriptedModel("m", [])
    for default, own in (
        (ModelSolver(model), ModelSolver(model, prompts=prompts)),
        (ModelInjector(model), ModelInjector(model, prompts=prompts)),
    ):
        assert default.key != own.key


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        ({"solver_task": "Repair $root."}, r"solver_task\.md lacks \$specification"),
        ({"solver_task": "$specification $issue"}, r"\$issue gets no value; its placeholders are: \$command, \$root, "),
        ({"injector_system": "Inject $folder."}, r"\$folder gets no value; its placeholders are: none"),
        ({"solver_task": "costs $5: $specification"}, r"has a `\$` that begins no placeholder"),
        ({"solver": "$submission"}, r"solver\.md is not a template; the templates are solver_system, "),
        ({"injector_system": " \n"}, "is empty; remove it"),
        ({}, "has no template; `ssr prompts"),
    ],
)
def test_invalid_templates_are_an_error_at_the_start(tmp_path: Path, texts: dict[str, str], expected: str) -> None:
    with pytest.raises(SettingsError, match=expected) as caught:
        Prompts.read(written(tmp_path / "p", **texts))
    assert caught.value.option == "prompt-dir"


def test_the_option_is_for_models(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = str(written(tmp_path / "p", solver_task="no"))
    assert main(["solve", "a", "--solver", "search", "--prompt-dir", folder]) == 2
    assert "--prompt-dir is for a model" in capsys.readouterr().err
    assert main(["solve", "a", "--solver", "openai/m", "--prompt-dir", folder]) == 2
    assert "solver_task.md lacks $specification" in capsys.readouterr().err
    assert main(["solve", "a", "--solver", "openai/m", "--prompt-dir", str(tmp_path / "none")]) == 2
    assert "is not a folder" in capsys.readouterr().err
