"""The injector `lm:MODEL` with a model of random weights, which writes no bug: the run ends with one line."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest

from harness.cli.exit_code import ExitCode
from harness.cli.main import main
from harness.injectors import lm
from harness.local_models.sampling import Question, open_sampler
from harness.local_models.stored_sampler import StoredSampler


@pytest.fixture(scope="module")
def chat(llama: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of the model with a chat template."""
    folder = tmp_path_factory.mktemp("chat") / "model"
    shutil.copytree(llama, folder)
    (folder / "chat_template.jinja").write_text("{% for message in messages %}{{ message.content }}{% endfor %}")
    return folder


@pytest.mark.bubblewrap
def test_a_model_that_writes_no_code_ends_the_run(
    chat: Path,
    calculator: Mapping[str, str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lm, "MOST_FRUITLESS", 2)
    project = tmp_path / "project"
    for name, text in calculator.items():
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).write_text(text)
    assert main(["inject", str(project), "--injector", f"lm:{chat}", "--count", "1"]) == ExitCode.USAGE
    error = [line for line in capsys.readouterr().err.splitlines() if line.startswith("ssr: ")]
    assert len(error) == 1
    assert str(chat) not in error[0]


def test_kept_replies_are_those_of_the_model(chat: Path, tmp_path: Path) -> None:
    sampler = open_sampler(str(chat), option="injector")
    question = Question([{"role": "user", "content": "x = 1"}], "<<<", "\n>>>")
    alone = sampler.sample(question, count=2, temperature=0.7, tokens=5, seed=3)
    for _ in range(2):
        stored = StoredSampler(sampler, tmp_path / "store")
        assert stored.sample(question, count=2, temperature=0.7, tokens=5, seed=3) == alone
