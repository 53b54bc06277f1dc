"""`ssr publish` to a hub and to git: what is sent, and what is refused before anything is."""

from __future__ import annotations

import json
import re
import socket
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from export_parts import export
from fake_hub import Hub, hub
from rollout_parts import add_task, keep, store

from harness.cli.app import parse
from harness.cli.exit_code import ExitCode
from harness.cli.main import main
from harness.exporters.manifest import digests_of, read_manifest
from harness.publishing.problems import NotPublishableError, ProblemKind
from pytest_ssr.errors import SettingsError

# Of huggingface_hub, which its HTTP client warns of.
pytestmark = pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")

SETTINGS = (
    ("git:repository", "to"),
    ("git:#main", "to"),
    ("git:r#a..b", "to"),
    ("hf:bugs", "to"),
    ("s3://bucket", "to"),
    ("git:r#main --public", "public"),
    ("hf:me/bugs --allow (", "allow"),
)


def rollouts(folder: Path) -> Path:
    """Return a store with attempts at the bugs of two projects."""
    made = store(folder)
    add_task(made, "t1", "calc")
    add_task(made, "t2", "other", "b" * 40, injector={"strategy": "removal"})
    for number, (task, resolved) in enumerate([("t1", True), ("t1", False), ("t1", False), ("t2", True)]):
        keep(made, f"{number:024x}", resolved, task=task, attempt=number)
    return made


@pytest.fixture
def exported(tmp_path: Path) -> Path:
    """A folder that `ssr export` wrote."""
    assert export(rollouts(tmp_path / ".ssr"), "--format", "rollouts", "--out", tmp_path / "out") == 0
    return tmp_path / "out"


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    subprocess.run(["git", "init", "--quiet", "--bare", tmp_path / "remote.git"], check=True)
    return tmp_path / "remote.git"


@pytest.fixture
def the_hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    constants = pytest.importorskip("huggingface_hub.constants")
    with hub() as held:
        monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
        monkeypatch.setenv("HF_ENDPOINT", held.url)
        monkeypatch.setenv("HF_TOKEN", held.token)
        yield held


def publish(folder: Path, to: str, *more: str) -> int:
    return main(["publish", str(folder), "--to", to, *more])


def refused(folder: Path, to: str, *more: str) -> list[tuple[ProblemKind, str]]:
    """Return the problems because of which a folder is not published."""
    parsed = parse(["publish", str(folder), "--to", to, *more])
    assert parsed is not None
    with pytest.raises(NotPublishableError) as caught:
        parsed.run(parsed.settings)
    return [(problem.kind, problem.place) for problem in caught.value.problems]


def git(repository: Path, *arguments: str) -> str:
    command = ["git", "-C", str(repository), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def commit(repository: Path, files: dict[str, str], branch: str = "main") -> None:
    """Commit files to a branch by hand."""
    work = repository.parent / "work"
    exists = git(repository, "branch", "--list", branch)
    clone = ["clone", "--quiet", str(repository), str(work)] if exists else ["init", "--quiet", str(work)]
    subprocess.run(["git", *clone], check=True, capture_output=True)
    git(work, "checkout", "--quiet", *(() if exists else ("-b",)), branch)
    for name, text in files.items():
        (work / name).write_text(text)
    git(work, "add", "--all")
    git(work, "-c", "user.name=a", "-c", "user.email=a@b", "commit", "--quiet", "-m", "by hand")
    git(work, "push", "--quiet", str(repository), branch)


def test_an_export_is_published_to_git_as_one_commit(exported: Path, repository: Path, tmp_path: Path) -> None:
    to = f"git:{repository}#main"
    assert publish(exported, to, "--tag", "v1") == ExitCode.DONE
    assert publish(exported, to, "--tag", "v1") == ExitCode.DONE
    assert git(repository, "rev-list", "--count", "main") == "1"
    assert git(repository, "rev-parse", "v1") == git(repository, "rev-parse", "main")
    assert (
        git(repository, "log", "-1", "--format=%an <%ae> %ad", "--date=format:%z", "main")
        == "ssr <ssr@localhost> +0000"
    )
    git(tmp_path, "clone", "--quiet", "--branch", "main", str(repository), "clone")
    published = digests_of(tmp_path / "clone")
    published = {path: digest for path, digest in published.items() if not path.startswith(".git/")}
    assert published == read_manifest((tmp_path / "clone" / "SHA256SUMS").read_bytes())
    assert published.items() >= {p: d for p, d in digests_of(exported).items() if p != "README.md"}.items()
    assert [path for path in published if path.startswith("plots/")] == [
        "plots/lengths.png",
        "plots/operators.png",
        "plots/solve-rates.png",
    ]


def test_the_card_has_figures_and_plots_and_its_head_stays(exported: Path, repository: Path) -> None:
    assert publish(exported, f"git:{repository}#main") == ExitCode.DONE
    card = git(repository, "show", "main:README.md")
    head = yaml.safe_load(card.split("---\n")[1])
    assert head == yaml.safe_load((exported / "README.md").read_text().split("---\n")[1])
    rows = dict(re.findall(r"^\| ([^|]+) \| ([^|]+) \|$", card, re.MULTILINE))
    assert rows["rows"] == "train 4"
    assert (rows["projects"], rows["tasks"]) == ("2", "2")
    assert rows["rows by strategy"] == "mutation 3, removal 1"
    assert rows["tasks with graded attempts"].startswith("2,")
    assert "(plots/solve-rates.png)" in card


@pytest.mark.long
def test_a_later_export_replaces_the_files_of_the_earlier_one_and_no_others(
    exported: Path, repository: Path, tmp_path: Path
) -> None:
    to = f"git:{repository}#main"
    assert publish(exported, to) == ExitCode.DONE
    commit(repository, {"LICENSE": "MIT"})
    assert export(tmp_path / ".ssr", "--format", "sft", "--out", exported, "--as", "parquet") == 0
    assert publish(exported, to) == ExitCode.DONE
    names = git(repository, "ls-tree", "-r", "--name-only", "main").splitlines()
    assert {"LICENSE", "data/train.parquet"} <= {*names}
    assert "data/train.jsonl" not in names
    assert git(repository, "rev-list", "--count", "main") == "3"


@pytest.mark.long
def test_foreign_files_are_overwritten_only_on_demand(exported: Path, repository: Path) -> None:
    to = f"git:{repository}#main"
    commit(repository, {"README.md": "# mine", "notes.txt": "mine"})
    assert refused(exported, to) == [(ProblemKind.FOREIGN, "README.md")]
    assert git(repository, "show", "main:README.md") == "# mine"
    assert publish(exported, to, "--replace") == ExitCode.DONE
    assert git(repository, "show", "main:notes.txt") == "mine"


@pytest.mark.long
def test_a_card_that_someone_edited_is_not_overwritten(exported: Path, repository: Path) -> None:
    to = f"git:{repository}#main"
    publish(exported, to)
    commit(repository, {"README.md": "# better"})
    assert refused(exported, to) == [(ProblemKind.FOREIGN, "README.md")]


@pytest.mark.long
def test_a_tag_is_never_moved(exported: Path, repository: Path, tmp_path: Path) -> None:
    publish(exported, f"git:{repository}#main", "--tag", "v1")
    before = git(repository, "rev-parse", "v1")
    assert export(tmp_path / ".ssr", "--format", "sft", "--out", exported) == 0
    assert refused(exported, f"git:{repository}#other", "--tag", "v1") == [(ProblemKind.TAG_TAKEN, "v1")]
    assert (git(repository, "rev-parse", "v1"), git(repository, "branch", "--list", "other")) == (before, "")


def test_a_repository_that_cannot_be_reached_or_written_is_no_usage_error(exported: Path, repository: Path) -> None:
    assert publish(exported, f"git:{repository}-absent#main") == ExitCode.BROKEN
    hook = repository / "hooks" / "pre-receive"
    hook.write_text("#!/bin/sh\nexit 1\n")
    hook.chmod(0o755)
    assert publish(exported, f"git:{repository}#main") == ExitCode.BROKEN
    hook.unlink()
    assert publish(exported, f"git:{repository}#main") == ExitCode.DONE


def test_credentials_in_a_url_are_not_shown(exported: Path, capfd: pytest.CaptureFixture[str]) -> None:
    url = "git:http://me:hidden-password@127.0.0.1:9/x.git#main"
    assert publish(exported, url, "--dry-run") == ExitCode.DONE
    assert publish(exported, url) == ExitCode.BROKEN
    assert "hidden-password" not in "".join(capfd.readouterr())


def test_an_export_is_published_to_the_hub_as_one_commit(exported: Path, the_hub: Hub) -> None:
    for _ in range(2):
        assert publish(exported, "hf:me/bugs", "--tag", "v1") == ExitCode.DONE
    made = the_hub.repositories["me/bugs"]
    assert (made.private, len(made.commits), made.tags) == (True, 2, {"v1": 1})
    files = made.files()
    assert files["data/train.jsonl"] == (exported / "data/train.jsonl").read_bytes()
    assert files["plots/solve-rates.png"].startswith(b"\x89PNG")
    assert {*(read_manifest(files["SHA256SUMS"]) or ())} == {*files} - {"SHA256SUMS", ".gitattributes"}


def test_a_new_data_set_is_public_only_on_demand(exported: Path, the_hub: Hub) -> None:
    assert publish(exported, "hf:me/bugs#next", "--public") == ExitCode.DONE
    made = the_hub.repositories["me/bugs"]
    assert not made.private
    assert "README.md" not in made.files()
    assert "README.md" in made.files("next")


def test_an_interrupted_publication_goes_on(exported: Path, the_hub: Hub) -> None:
    the_hub.loses_commits = True
    assert publish(exported, "hf:me/bugs") == ExitCode.BROKEN
    uploaded = [request for request in the_hub.requests if request.startswith("PUT")]
    the_hub.loses_commits = False
    assert publish(exported, "hf:me/bugs") == ExitCode.DONE
    assert [request for request in the_hub.requests if request.startswith("PUT")] == uploaded
    assert len(uploaded) == 3


@pytest.mark.long
def test_the_hub_keeps_foreign_files_and_loses_those_of_the_earlier_export(
    exported: Path, the_hub: Hub, tmp_path: Path
) -> None:
    publish(exported, "hf:me/bugs")
    made = the_hub.repositories["me/bugs"]
    made.files()["LICENSE"] = b"MIT"
    assert export(tmp_path / ".ssr", "--format", "sft", "--out", exported, "--as", "parquet") == 0
    assert publish(exported, "hf:me/bugs") == ExitCode.DONE
    assert {"LICENSE", "data/train.parquet"} <= {*made.files()}
    assert "data/train.jsonl" not in made.files()
    made.files()["README.md"] = b"# better"
    assert refused(exported, "hf:me/bugs") == [(ProblemKind.FOREIGN, "README.md")]
    assert publish(exported, "hf:me/bugs", "--replace") == ExitCode.DONE
    made.tags["v1"] = 0
    assert refused(exported, "hf:me/bugs", "--tag", "v1") == [(ProblemKind.TAG_TAKEN, "v1")]


def test_without_access_to_the_hub_the_user_is_told(
    exported: Path, the_hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "another-token")
    assert publish(exported, "hf:me/bugs") == ExitCode.USAGE
    assert not the_hub.repositories


def test_a_dry_run_is_complete_without_a_network(
    exported: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def connect(*_: object) -> None:
        raise AssertionError("a dry run connects")

    monkeypatch.setattr(socket.socket, "connect", connect)
    monkeypatch.setattr(socket, "getaddrinfo", connect)
    before = digests_of(exported.parent)
    for to in ("hf:me/bugs", "git:https://example.invalid/bugs.git#main"):
        capsys.readouterr()
        assert publish(exported, to, "--dry-run", "--json") == ExitCode.DONE
        told: dict[str, Any] = json.loads(capsys.readouterr().out)
        assert {"README.md", "SHA256SUMS", "data/train.jsonl", "plots/lengths.png"} <= {*told["files"]}
        assert told["files"]["data/train.jsonl"] == (exported / "data/train.jsonl").stat().st_size
        assert (told["commit"], told["bytes"]) == (None, sum(told["files"].values()))
    assert digests_of(exported.parent) == before


Damage = Callable[[Path], object]
DAMAGES: dict[str, tuple[Damage, ProblemKind]] = {
    "a row is missing": (lambda f: (f / "data/train.jsonl").write_text("{}\n"), ProblemKind.CHANGED),
    "a part is missing": (lambda f: (f / "data/train.jsonl").unlink(), ProblemKind.MISSING),
    "a file is new": (lambda f: (f / "notes.txt").write_text("mine"), ProblemKind.UNLISTED),
    "no list": (lambda f: (f / "SHA256SUMS").unlink(), ProblemKind.NOT_AN_EXPORT),
    "a cut list": (
        lambda f: (f / "SHA256SUMS").write_bytes((f / "SHA256SUMS").read_bytes()[:-9]),
        ProblemKind.NOT_AN_EXPORT,
    ),
    "no card": (lambda f: (f / "README.md").unlink(), ProblemKind.NOT_AN_EXPORT),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_a_folder_that_was_changed_is_refused(exported: Path, repository: Path, name: str) -> None:
    damage, kind = DAMAGES[name]
    damage(exported)
    assert [found for found, _ in refused(exported, f"git:{repository}#main", "--dry-run")] == [kind]
    assert publish(exported, f"git:{repository}#main") == ExitCode.USAGE
    assert not git(repository, "branch")


def test_secrets_and_private_data_are_refused_with_their_place(tmp_path: Path, repository: Path) -> None:
    made = rollouts(tmp_path / ".ssr")
    keep(made, "e" * 24, True, task="t2", attempt=9, said="export HF_TOKEN=hf_" + "x" * 34)
    keep(made, "f" * 24, True, task="t2", attempt=10, said="cat /home/jdoe/notes")
    assert export(made, "--format", "rollouts", "--out", tmp_path / "out") == 0
    to = f"git:{repository}#main"
    found = refused(tmp_path / "out", to)
    assert sorted(kind for kind, _ in found) == [ProblemKind.PRIVATE, ProblemKind.SECRET]
    assert all(re.fullmatch(r"data/train\.jsonl:\d", place) for _, place in found)
    assert [kind for kind, _ in refused(tmp_path / "out", to, "--allow", "/home/jdoe")] == [ProblemKind.SECRET]
    assert publish(tmp_path / "out", to, "--allow", "/home/jdoe", "--allow", "^hf_x+$") == ExitCode.DONE


@pytest.mark.parametrize(("given", "option"), SETTINGS)
def test_wrong_settings_name_their_option(exported: Path, given: str, option: str) -> None:
    parsed = parse(["publish", str(exported), "--to", *given.split(), "--dry-run"])
    assert parsed is not None

    def run() -> None:
        parsed.settings.check()
        parsed.run(parsed.settings)

    with pytest.raises(SettingsError) as caught:
        run()
    assert caught.value.option == option


def test_a_project_does_not_set_where_to(exported: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pyproject.toml").write_text('[tool.ssr.publish]\nto = "hf:me/bugs"\n')
    monkeypatch.chdir(tmp_path)
    assert main(["publish", str(exported), "--dry-run"]) == ExitCode.USAGE
