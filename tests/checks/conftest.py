"""Fixtures: a small project of two modules, and bug artifacts made from the texts of its files."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from pytest_ssr.campaign.factory import open_runner
from pytest_ssr.checks.validator import Validation
from pytest_ssr.execution.runner import Runner
from pytest_ssr.execution.script_template import default_parser, default_script
from pytest_ssr.patch import FileEntry, Patch, make_patch
from pytest_ssr.records.artifact import BugArtifact
from pytest_ssr.records.verdict import Verdict
from pytest_ssr.settings import RuleSettings
from pytest_ssr.storage.store import Store

ADD = "def add(a, b):\n    return a + b\n\n\ndef double(a):\n    return add(a, a)\n"
TEXTS = (
    'MARK = "!"\n\n\ndef shout(text):\n    return text.upper() + MARK\n\n\ndef quiet(text):\n    return text.lower()\n'
)
TEST_ADD = """\
from pkg.adding import add, double


def test_add():
    assert add(1, 2) == 3


def test_add_nothing():
    assert add(0, 0) == 0


def test_double():
    assert double(2) == 4


def test_double_nothing():
    assert double(0) == 0
"""
TEST_TEXTS = """\
import pytest
from pkg.texts import quiet, shout


def test_shout():
    assert shout("a") == "A!"


def test_quiet():
    assert quiet("A") == "a"


def test_both():
    assert quiet(shout("a")) == "a!"


@pytest.mark.skip(reason="not today")
def test_skipped():
    pass
"""
FILES = {
    "pkg/__init__.py": "",
    "pkg/adding.py": ADD,
    "pkg/texts.py": TEXTS,
    "pkg/unused.py": "X = 1\n",
    "tests/test_add.py": TEST_ADD,
    "tests/test_texts.py": TEST_TEXTS,
    "conftest.py": "",
    "notes.txt": "notes\n",
    "pytest.ini": "[pytest]\n",
}

Texts = Mapping[str, str | None]


class ArtifactBuilder:
    """Makes artifacts for one project and validates them."""

    def __init__(self, runner: Runner) -> None:
        self.runner = runner

    def patch(self, changes: Texts) -> Patch:
        """Return the diff from the project to these texts; None deletes a file, and a new path adds one."""
        files = self.runner.snapshot.files
        old = {p: FileEntry(self.runner.snapshot.read(p), files[p].mode) if p in files else None for p in changes}
        new = {p: None if t is None else FileEntry(t.encode(), 0o100644) for p, t in changes.items()}
        return make_patch({p: (old[p], new[p]) for p in changes})

    def artifact(
        self,
        bug: Texts | Patch,
        weaken: Texts | Patch,
        *,
        files: tuple[str, ...] = ("tests/test_add.py", "tests/test_texts.py"),
        script: str | None = None,
        parser: str | None = None,
    ) -> BugArtifact:
        """Return an artifact; the script and the parser are our own unless given."""
        return BugArtifact(
            script=script.encode() if script else default_script(files, options=()),
            test_files=files,
            parser=parser.encode() if parser else default_parser(),
            bug=bug if isinstance(bug, Patch) else self.patch(bug),
            weaken=weaken if isinstance(weaken, Patch) else self.patch(weaken),
        )

    def judge(self, artifact: BugArtifact) -> Verdict:
        """Return the verdict of a separate validation."""
        return Validation(artifact, self.runner.scoped()).verdict()


@pytest.fixture(scope="module")
def open_builder(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., ArtifactBuilder]:
    """Return a function that opens a builder on a copy of the small project, with other files and settings if given."""

    def make(
        files: Mapping[str, str] | None = None, *, sandbox: str = "process", **settings: object
    ) -> ArtifactBuilder:
        folder = tmp_path_factory.mktemp("checks")
        for name, text in {**FILES, **(files or {})}.items():
            target = folder / "project" / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text)
        rule = RuleSettings(**settings)  # type: ignore[arg-type]
        return ArtifactBuilder(open_runner(folder / "project", Store(folder / "store"), settings=rule, sandbox=sandbox))

    return make


@pytest.fixture(scope="module")
def builder(open_builder: Callable[..., ArtifactBuilder]) -> ArtifactBuilder:
    """The builder that the artifacts of a test module share; each artifact is validated separately."""
    return open_builder()


@pytest.fixture
def texts() -> dict[str, str]:
    """The project's files by path."""
    return dict(FILES)


@pytest.fixture(scope="session")
def without() -> Callable[[str, str], str]:
    """Remove one function from a file's text."""

    def remove(text: str, name: str) -> str:
        start = text.index(f"def {name}(")
        end = text.find("\n\n\n", start)
        return text[:start].rstrip() + "\n" if end < 0 else text[:start] + text[end + 3 :]

    return remove


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A temporary folder for the test."""
    return tmp_path
