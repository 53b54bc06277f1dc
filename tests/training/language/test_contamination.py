"""Names of evaluation sets, and the folder of a run: what needs no PyTorch."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.storage.atomic_write import UNFINISHED
from harness.training.language.contamination import Excluded, names_of_project, require_clean, with_owner
from harness.training.language.run_folder import RunFolder
from pytest_ssr.errors import SettingsError


@pytest.mark.parametrize(
    "name",
    [
        *("pallets/flask", "Pallets/Flask", "pallets__flask", "flask", "flask-3.0.2", "pallets__flask-5014"),
        *("swesmith/pallets__flask.bc098031", "mitsuhiko/flask", "alice/taken", "bob__tool-7"),
    ],
)
def test_a_name_of_an_evaluation_set_is_refused(name: str) -> None:
    excluded = Excluded(["alice/taken", "bob__tool-7"])
    with pytest.raises(SettingsError):
        require_clean([name], excluded, forced=False)
    assert require_clean([name], excluded, forced=True) == []


@pytest.mark.parametrize("name", ["acme/shop", "flask-login", "alice/flask-admin", "bob__tool-8", "carol/taken2", ""])
def test_another_name_is_accepted(name: str) -> None:
    assert require_clean([name], Excluded(["alice/taken", "bob__tool-7"]), forced=False) == []


def test_a_namesake_of_another_owner_is_accepted_and_reported() -> None:
    assert require_clean(["alice/flask", "acme/shop"], Excluded(), forced=False) == ["alice/flask"]
    with pytest.raises(SettingsError):
        require_clean(["alice/flask"], Excluded(["alice/flask"]), forced=False)


@pytest.mark.parametrize(
    ("address", "names"),
    [
        ("https://github.com/alice/flask.git", ["alice/flask"]),
        ("git@github.com:alice/flask", ["alice/flask"]),
        ("ssh://git@localhost:22/alice/flask.git/", ["alice/flask"]),
        ("/home/bob/pallets__flask", ["pallets__flask"]),
        ("https://github.com/pallets/click", ["pallets/click", "flask"]),
        (None, ["flask"]),
    ],
)
def test_a_clone_has_the_owner_of_its_origin(address: str | None, names: list[str], tmp_path: Path) -> None:
    project = tmp_path / "flask"
    (project / ".git").mkdir(parents=True)
    if address is not None:
        remotes = f'[remote "up"]\n\turl = other\n[remote "origin"]\n\turl = {address}\n[branch "main"]\n'
        (project / ".git" / "config").write_text(f"[core]\n\tbare = false\n{remotes}")
    assert names_of_project(project) == names
    assert with_owner("flask", [project / ".ssr", project]) == names[0] or address is None
    assert with_owner("other", [project]) == "other"


def test_a_folder_has_one_training_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = RunFolder(tmp_path / "run")
    with folder.alone():
        with pytest.raises(SettingsError), RunFolder(tmp_path / "run").alone():
            pass
        monkeypatch.setenv("RANK", "1")
        with RunFolder(tmp_path / "run").alone():
            pass
    monkeypatch.delenv("RANK")
    with folder.alone():
        assert list(folder.path.iterdir()) == []


def test_a_run_that_ended_in_its_first_update_continues_in_its_folder(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    folder.path.mkdir()
    folder.begin({"method": "grpo"}, [], [])
    (folder.path / "trajectories").mkdir()
    folder.append(folder.rollouts, [{"step": 1}])
    folder.require_same({"method": "grpo"})
    (folder.path / "notes.txt").write_text("")
    with pytest.raises(SettingsError):
        folder.require_same({"method": "grpo"})


def test_a_run_that_was_killed_while_it_wrote_its_settings_begins_in_its_folder(tmp_path: Path) -> None:
    (tmp_path / f"{UNFINISHED}abc").write_text("{")
    RunFolder(tmp_path).require_same({"method": "sft"})


def test_a_folder_of_rollouts_is_not_a_run(tmp_path: Path) -> None:
    (tmp_path / "rollouts.jsonl").write_text("{}")
    with pytest.raises(SettingsError):
        RunFolder(tmp_path).require_same({"method": "sft"})
