"""Changes since a git revision, and injection that is restricted to them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from plain import plain_python

from pytest_ssr.errors import NothingToDoError, ProjectError, SettingsError
from pytest_ssr.injectors import revision_filter
from pytest_ssr.injectors.combination import CombinationInjector
from pytest_ssr.injectors.git_history import run_git
from pytest_ssr.injectors.mutation import MutationInjector
from pytest_ssr.injectors.protocol import Candidate
from pytest_ssr.injectors.revision_filter import ProjectDiff, base_revision, read_diff, restrict_to_diff
from pytest_ssr.project.snapshot import Snapshot, take_snapshot

OLD = """\
import os

LIMIT = 3
OTHER = 4


def first(a):
    return a + 1


class Shop:
    price = 1
    count = 2

    def buy(self, n):
        return self.price * n

    @property
    def size(self):
        return self.count


def last(a):
    def inner(b):
        return b + 1

    return inner(a)


if LIMIT > 2:
    def maybe():
        return 1
else:
    def maybe():
        return 2
"""


def git(folder: Path, *arguments: str) -> str:
    env = {"PATH": os.environ["PATH"], "HOME": os.devnull, "GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": os.devnull}
    identity = ["-c", "user.name=A", "-c", "user.email=a@example.org", "-c", "init.defaultBranch=main"]
    completed = subprocess.run(
        ["git", *identity, *arguments], cwd=folder, env=env, check=True, capture_output=True, text=True
    )
    return completed.stdout.strip()


def committed(folder: Path, files: Mapping[str, str]) -> Path:
    """Make a repository with one commit."""
    folder.mkdir(parents=True, exist_ok=True)
    for path, text in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    git(folder, "init", "-q")
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "-m", "as it was")
    return folder


def snapshot(project: Path) -> Snapshot:
    return take_snapshot(project, project.parent / "trees")


def changed(project: Path, path: str = "shop.py", revision: str = "HEAD") -> list[str]:
    """Return the changed spans of a file as text, each by its first line."""
    lines = (project / path).read_text().splitlines()
    return [lines[first].strip() for first, _ in read_diff(snapshot(project), revision).lines.get(path, ())]


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    """A repository with one module."""
    return committed(tmp_path / "shop", {"shop.py": OLD})


@pytest.mark.parametrize(
    ("old", "new", "spans"),
    [
        ("a + 1", "a + 2", ["def first(a):"]),
        ("b + 1", "b + 2", ["def last(a):"]),
        ("self.price * n", "n * self.price", ["def buy(self, n):"]),
        ("    @property\n", "    @staticmethod\n", ["@staticmethod"]),
        ("LIMIT = 3", "LIMIT = 5", ["LIMIT = 5"]),
        ("price = 1", "price = 7", ["price = 7"]),
        ("class Shop:", "class Shop(dict):", ["class Shop(dict):"]),
        ("return 2", "return 3", ["def maybe():"]),
        ("import os\n", "import os\n\n\ndef new():\n    return 1\n", ["def new():"]),
        ("    return inner(a)\n", "    inner(a)\n", ["def last(a):"]),
        ("        return b + 1\n\n    return inner(a)\n", "        return b + 1\n", ["def last(a):"]),
    ],
)
def test_functions_and_statements_that_changed_are_found(shop: Path, old: str, new: str, spans: list[str]) -> None:
    assert OLD.count(old) == 1
    (shop / "shop.py").write_text(OLD.replace(old, new))
    assert changed(shop) == spans


def test_the_whole_function_with_its_decorators_is_the_span(shop: Path) -> None:
    (shop / "shop.py").write_text(OLD.replace("return self.count", "return self.count + 0"))
    ((first, end),) = read_diff(snapshot(shop), "HEAD").lines["shop.py"]
    assert (shop / "shop.py").read_text().splitlines()[first:end] == [
        "    @property",
        "    def size(self):",
        "        return self.count + 0",
    ]


@pytest.mark.parametrize(
    "text",
    [
        OLD.replace("import os\n", "import os\n\n\n# A remark.\n"),
        OLD.replace("def first(a):\n    return a + 1\n\n\n", ""),
        OLD.replace("def first(a):\n    return a + 1\n\n\n", "") + "\n\ndef first(a):\n    return a + 1\n",
        OLD.replace("\n", "\r\n"),
    ],
    ids=["only remarks", "a deletion", "a move", "other line ends"],
)
def test_edits_that_leave_every_function_unchanged(shop: Path, text: str) -> None:
    (shop / "shop.py").write_bytes(text.encode())
    with pytest.raises(NothingToDoError, match=r"no function of .*shop has changed since HEAD"):
        read_diff(snapshot(shop), "HEAD")


def test_a_renamed_file_is_compared_with_its_old_content(shop: Path) -> None:
    git(shop, "mv", "shop.py", "store.py")
    (shop / "store.py").write_text(OLD.replace("a + 1", "a + 2"))
    assert changed(shop, "store.py") == ["def first(a):"]


@pytest.mark.parametrize("added", [True, False])
def test_all_of_a_new_file_has_changed_tracked_or_not(shop: Path, added: bool) -> None:
    (shop / "new.py").write_text("A = 1\n\n\ndef f():\n    return A\n")
    if added:
        git(shop, "add", "new.py")
    assert read_diff(snapshot(shop), "HEAD").lines == {"new.py": ((0, 5),)}


def test_commits_the_index_and_the_working_tree_count_alike(shop: Path) -> None:
    begin = git(shop, "rev-parse", "HEAD")
    text = OLD.replace("a + 1", "a + 2")
    (shop / "shop.py").write_text(text)
    git(shop, "commit", "-qam", "one")
    (shop / "shop.py").write_text(text := text.replace("LIMIT = 3", "LIMIT = 5"))
    git(shop, "add", "-A")
    (shop / "shop.py").write_text(text.replace("price = 1", "price = 7"))
    assert changed(shop, revision=begin[:10]) == ["LIMIT = 5", "def first(a):", "price = 7"]
    assert changed(shop) == ["LIMIT = 5", "price = 7"]


def test_a_project_below_the_top_of_its_repository_sees_its_own_files(tmp_path: Path) -> None:
    top = committed(tmp_path / "top", {"inner/shop.py": OLD, "shop.py": OLD})
    for path in ("inner/shop.py", "shop.py"):
        (top / path).write_text(OLD.replace("a + 1", "a + 2"))
    assert read_diff(snapshot(top / "inner"), "HEAD").lines.keys() == {"shop.py"}
    (top / "inner/shop.py").write_text(OLD)
    with pytest.raises(NothingToDoError):
        read_diff(snapshot(top / "inner"), "HEAD")


def test_tests_are_not_code(shop: Path) -> None:
    (shop / "test_shop.py").write_text("def test_it():\n    pass\n")
    with pytest.raises(NothingToDoError):
        read_diff(snapshot(shop), "HEAD")


@pytest.mark.parametrize("revision", ["nowhere", "--all", "HEAD~9", "HEAD:shop.py", "^HEAD", ""])
def test_an_unknown_revision_raises(shop: Path, revision: str) -> None:
    with pytest.raises(SettingsError, match=r"has no git revision '.*'; name a commit, a branch or a tag"):
        read_diff(snapshot(shop), revision)


def test_a_folder_without_git_raises(tmp_path: Path) -> None:
    (tmp_path / "plain").mkdir()
    (tmp_path / "plain" / "shop.py").write_text(OLD)
    with pytest.raises(ProjectError, match="plain is not in a git repository"):
        read_diff(snapshot(tmp_path / "plain"), "HEAD")


NEW = OLD.replace("a + 1", "a + 2")


def test_a_repository_has_no_program_run(shop: Path) -> None:
    trace = shop.parent / "trace"
    for name in ("one", "two.three"):
        git(shop, "config", f"filter.{name}.clean", f"touch {trace}; cat")
        git(shop, "config", f"filter.{name}.required", "true")
    git(shop, "config", "filter.four.process", f"touch {trace}; cat")
    git(shop, "config", "diff.external", f"touch {trace}; cat")
    git(shop, "config", "core.fsmonitor", f"touch {trace}; cat")
    (shop / "other.py").write_text(NEW)
    (shop / "third.py").write_text(NEW)
    git(shop, "add", "other.py", "third.py")
    (shop / ".gitattributes").write_text("shop.py filter=one\nother.py filter=two.three\nthird.py filter=four\n")
    for name in ("shop.py", "other.py", "third.py"):
        (shop / name).write_text(NEW + "\n")
    trace.unlink(missing_ok=True)
    assert read_diff(snapshot(shop), "HEAD").lines.keys() == {"shop.py", "other.py", "third.py"}
    assert not trace.exists()


def test_a_filter_that_cannot_be_switched_off_is_refused(shop: Path) -> None:
    git(shop, "config", "filter.a=b.clean", "cat")
    with pytest.raises(ProjectError, match="a=b"):
        read_diff(snapshot(shop), "HEAD")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("diff.noprefix", "true"),
        ("diff.mnemonicPrefix", "true"),
        ("core.quotePath", "true"),
        ("diff.relative", "false"),
        ("diff.renames", "false"),
        ("diff.ignoreSubmodules", "all"),
        ("color.ui", "always"),
    ],
)
def test_settings_of_a_repository_and_names_of_files_change_nothing(tmp_path: Path, name: str, value: str) -> None:
    old, new = "inner/a b.py", "inner/\"größe'\n.py"
    top = committed(tmp_path / "top", {old: OLD})
    git(top, "config", name, value)
    git(top, "mv", old, new)
    (top / new).write_text(NEW)
    path = new.removeprefix("inner/")
    assert changed(top / "inner", path) == ["def first(a):"]


def test_a_file_that_git_converts_has_only_its_edits(shop: Path) -> None:
    git(shop, "config", "core.autocrlf", "true")
    (shop / "shop.py").write_bytes(NEW.replace("\n", "\r\n").encode())
    assert read_diff(snapshot(shop), "HEAD").edited == {"shop.py": {8}}


@pytest.mark.parametrize("is_known", [True, False], ids=["history", "no history"])
def test_a_submodule_is_compared_with_what_it_was(tmp_path: Path, is_known: bool) -> None:
    part = committed(tmp_path / "part", {"shop.py": OLD})
    top = committed(tmp_path / "top", {"main.py": "A = 1\n"})
    git(top, "-c", "protocol.file.allow=always", "submodule", "add", "-q", str(part), "lib/part")
    git(top, "commit", "-qam", "submodule")
    with pytest.raises(NothingToDoError):
        read_diff(snapshot(top), "HEAD")
    inside = top / "lib/part"
    (inside / "shop.py").write_text(NEW)
    (inside / "new.py").write_text("A = 1\n")
    git(inside, "add", ".")
    if is_known:
        git(inside, "commit", "-qm", "change")
        (inside / "shop.py").write_text(NEW + "\n")
        assert changed(top, "lib/part/shop.py") == ["def first(a):"]
    else:
        (inside / ".git").unlink()
        git(inside, "init", "-q")
        assert read_diff(snapshot(top), "HEAD").lines["lib/part/shop.py"] == ((0, OLD.count("\n")),)
    assert read_diff(snapshot(top), "HEAD").lines["lib/part/new.py"] == ((0, 1),)


def test_the_files_of_a_nested_repository_are_new(shop: Path) -> None:
    committed(shop / "nested", {"inner.py": "A = 1\n"})
    assert read_diff(snapshot(shop), "HEAD").lines == {"nested/inner.py": ((0, 1),)}


def test_a_review_begins_at_the_main_branch(shop: Path) -> None:
    git(shop, "branch", "-M", "main")
    begin = git(shop, "rev-parse", "HEAD")
    git(shop, "checkout", "-qb", "topic")
    (shop / "shop.py").write_text(NEW)
    git(shop, "commit", "-qam", "change")
    assert base_revision(shop) == begin


def test_a_main_branch_without_a_common_commit_is_an_error(shop: Path) -> None:
    git(shop, "branch", "-M", "main")
    git(shop, "update-ref", "refs/remotes/origin/main", git(shop, "commit-tree", "-m", "other", "HEAD^{tree}"))
    with pytest.raises(ProjectError, match="shallow clone"):
        base_revision(shop)


def candidate(**changes: bytes | None) -> Candidate:
    return Candidate("mutation", "op", {f"{name}.py": data for name, data in changes.items()}, "a.py", 1, "f")


class Tree:
    """Two files of five lines."""

    origin = None

    def read(self, path: str) -> bytes:
        return b"0\n1\n2\n3\n4\n"

    def paths(self) -> list[str]:
        return ["a.py", "b.py"]

    code_paths = paths


@pytest.mark.parametrize(
    ("changes", "covered"),
    [
        ({"a": b"0\nx\n2\n3\n4\n"}, True),
        ({"a": b"0\n1\n2\nx\n4\n"}, False),
        ({"a": b"0\nx\n2\nx\n4\n"}, False),
        ({"a": b"0\n2\n3\n4\n"}, True),
        ({"a": b"0\n1\n2\nx\n3\n4\n"}, True),
        ({"a": b"0\nx\n1\n2\n3\n4\n"}, False),
        ({"a": b"0\n1\n2\n3\n4\nx\n"}, False),
        ({"a": None}, False),
        ({"b": b"0\nx\n2\n3\n4\n"}, False),
        ({"a": b"0\nx\n2\n3\n4\n", "b": b"x\n1\n2\n3\n4\n"}, False),
    ],
)
def test_each_edit_of_a_candidate_has_to_lie_in_a_span(changes: dict[str, bytes | None], covered: bool) -> None:
    diff = ProjectDiff("c0ffee", {"a.py": ((1, 3),)})
    assert diff.covers(candidate(**changes), Tree()) is covered


def test_a_combination_is_made_of_changes_in_changed_functions(shop: Path) -> None:
    (shop / "shop.py").write_text(OLD.replace("a + 1", "a + 2").replace("self.price * n", "n * self.price"))
    taken = snapshot(shop)
    diff = read_diff(taken, "HEAD")
    candidates = list(restrict_to_diff(CombinationInjector([MutationInjector()]), diff).candidates(taken, seed=0))
    assert candidates
    assert all(diff.covers(c, taken) for c in candidates)
    parts = [{p.split()[-1] for p in c.detail.split("; ")} for c in candidates]
    assert {"first", "Shop.buy"} in parts
    assert set().union(*parts) <= {"first", "Shop.buy", "Shop"}


def ssr(*argv: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    env = {k: v for k, v in os.environ.items() if not k.startswith(("PYTEST", "TOX", "COV", "SSR_"))}
    command = [sys.executable, "-m", *map(str, argv)]
    return subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, timeout=300, check=False)


INJECT = ("harness.cli", "inject", ".", "--sandbox", "process", "--python", str(plain_python()))
WITHOUT = ("-p", "no:anyio", "-p", "no:hypothesispytest")
PLUGIN = ("pytest", *WITHOUT, "--ssr-inject", "--ssr-sandbox=process", f"--ssr-python={plain_python()}")


@pytest.fixture
def repository(tmp_path: Path, calculator: dict[str, str]) -> Path:
    """The small project as a repository."""
    return committed(tmp_path / "project", calculator)


def scopes_of(project: Path) -> set[str]:
    records = [json.loads(p.read_text()) for p in project.glob(".ssr/attempts/*/*.json")]
    return {record["scope"] for record in records}


def change_clamp(project: Path) -> None:
    text = (project / "calc.py").read_text()
    (project / "calc.py").write_text(text.replace("if x < low:", "if x <= low:"))


@pytest.mark.long
def test_injection_is_restricted_to_the_diff_with_one_process_and_with_workers(repository: Path) -> None:
    change_clamp(repository)
    completed = ssr(*INJECT, "--count", "3", "--diff", "HEAD", "--json", cwd=repository)
    report = json.loads(completed.stdout)
    assert completed.returncode == 0, completed.stderr
    assert {a["scope"] for a in report["attempts"]} == {"clamp"} == scopes_of(repository)
    again = ssr(*PLUGIN, "--ssr-count=3", "--ssr-diff=HEAD", "-n", "2", cwd=repository)
    assert again.returncode == 0, again.stdout + again.stderr
    assert scopes_of(repository) == {"clamp"}
    assert len(list(repository.glob(".ssr/attempts/*"))) == 1, "the same changes are the same campaign"
    whole = ssr(*INJECT, "--count", "3", cwd=repository)
    assert whole.returncode == 0, whole.stderr
    assert scopes_of(repository) > {"clamp"}, "and all code is another campaign"


@pytest.mark.parametrize("argv", [(*INJECT, "--diff", "HEAD"), (*PLUGIN, "--ssr-diff=HEAD", "-n", "2")])
def test_a_pull_request_without_code_is_not_a_failure(repository: Path, argv: tuple[str, ...]) -> None:
    (repository / "README.md").write_text("New.\n")
    completed = ssr(*argv, cwd=repository)
    assert completed.returncode == 0
    (line,) = (completed.stdout + completed.stderr).splitlines()
    assert line.startswith("ssr: no function of ")
    assert line.endswith("project has changed since HEAD; there is nothing to inject into")


@pytest.mark.parametrize(("argv", "status"), [((*INJECT, "--diff"), 0), ((*PLUGIN, "--ssr-diff"), 0)])
def test_changed_code_that_no_test_imports_is_not_a_failure(
    repository: Path, argv: tuple[str, ...], status: int
) -> None:
    (repository / "unused.py").write_text("def f():\n    return 1\n")
    completed = ssr(*argv, "HEAD", cwd=repository)
    assert completed.returncode == status, completed.stdout + completed.stderr
    assert "(unused.py) are in code that bugs may go into: the tests do not import it" in completed.stdout
    assert "Traceback" not in completed.stdout + completed.stderr


@pytest.mark.parametrize(("argv", "status"), [((*INJECT, "--diff"), 2), ((*PLUGIN, "--ssr-diff"), 4)])
def test_a_mistake_in_the_revision_is_one_line(repository: Path, argv: tuple[str, ...], status: int) -> None:
    completed = ssr(*argv, "nowhere", cwd=repository)
    assert completed.returncode == status
    assert "has no git revision 'nowhere'" in completed.stderr
    assert len(completed.stderr.strip().splitlines()) == 1


def test_new_files_that_git_cannot_list_are_an_error(shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(origin: Path, *arguments: str) -> tuple[bool, bytes, str]:
        return (False, b"", "killed") if arguments[0] == "ls-files" else run_git(origin, *arguments)

    (shop / "shop.py").write_text(OLD.replace("a + 1", "a + 2"))
    monkeypatch.setattr(revision_filter, "run_git", failing)
    with pytest.raises(ProjectError, match="killed"):
        read_diff(snapshot(shop), "HEAD")
