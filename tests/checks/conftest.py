"""A small project of two modules, and bug artifacts made by hand from the texts of files."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from pytest_ssr.artifact import BugArtifact
from pytest_ssr.execution.own_script import own_parser, own_script
from pytest_ssr.execution.workbench import Workbench
from pytest_ssr.opening import open_workbench
from pytest_ssr.patch import FileEntry, Patch, make_patch
from pytest_ssr.settings import RuleSettings
from pytest_ssr.store import Store
from pytest_ssr.validator import Validation
from pytest_ssr.verdict import Verdict

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


class Bench:
    """Makes artifacts against one project and judges them."""

    def __init__(self, bench: Workbench) -> None:
        self.workbench = bench

    def patch(self, changes: Texts) -> Patch:
        """Return the diff from the project to these texts; None deletes, a path that is not there is added."""
        files = self.workbench.snapshot.files
        old = {p: FileEntry(self.workbench.snapshot.read(p), files[p].mode) if p in files else None for p in changes}
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
            script=script.encode() if script else own_script(files, options=()),
            test_files=files,
            parser=parser.encode() if parser else own_parser(),
            bug=bug if isinstance(bug, Patch) else self.patch(bug),
            weaken=weaken if isinstance(weaken, Patch) else self.patch(weaken),
        )

    def judge(self, artifact: BugArtifact) -> Verdict:
        """Return the verdict of a validation of its own."""
        return Validation(artifact, self.workbench.scoped()).verdict()


@pytest.fixture(scope="module")
def open_bench(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Bench]:
    """Open a bench on the small project, with other files and settings where wanted."""

    def make(files: Mapping[str, str] | None = None, *, sandbox: str = "process", **settings: object) -> Bench:
        folder = tmp_path_factory.mktemp("checks")
        for name, text in {**FILES, **(files or {})}.items():
            target = folder / "project" / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text)
        rule = RuleSettings(**settings)  # type: ignore[arg-type]
        return Bench(open_workbench(folder / "project", Store(folder / "store"), settings=rule, sandbox=sandbox))

    return make


@pytest.fixture(scope="module")
def bench(open_bench: Callable[..., Bench]) -> Bench:
    """One bench that the artifacts of a module share; each is judged on its own."""
    return open_bench()


@pytest.fixture
def texts() -> dict[str, str]:
    """The project's files by path."""
    return dict(FILES)


@pytest.fixture(scope="session")
def without() -> Callable[[str, str], str]:
    """Take one function out of a file's text."""

    def take_out(text: str, name: str) -> str:
        start = text.index(f"def {name}(")
        end = text.find("\n\n\n", start)
        return text[:start].rstrip() + "\n" if end < 0 else text[:start] + text[end + 3 :]

    return take_out


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A folder of the test's own."""
    return tmp_path
