"""Diffs that leave the tree, or touch protected files: rejected with the path before anything runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_ssr.errors import ArtifactError
from pytest_ssr.patch import Patch
from pytest_ssr.records.artifact import read_artifact, write_artifact
from pytest_ssr.records.check_reasons import CheckCode, CheckReason

pytestmark = pytest.mark.long

OUTSIDE = (
    "../x.py",
    "pkg/../../x.py",
    "/etc/x.py",
    ".git/hooks/x.py",
    "pkg/.git/x.py",
    ".GIT/x.py",
    "./x.py",
    "pkg//x.py",
)


def test_an_oversized_diff_is_not_read():
    data = adding("x.py", text="x" * (16 << 20))
    with pytest.raises(ArtifactError, match="the diff is larger than 16 MiB"):
        Patch.parse(data)
    assert Patch.parse(adding("x.py", text="x" * (15 << 20))).paths == ("x.py",)


def adding(path: str, *, mode: str = "100644", text: str = "X = 1") -> bytes:
    """Return a diff that adds a file of one line."""
    return (
        f"diff --git a/{path} b/{path}\nnew file mode {mode}\nindex 0000000..1111111\n"
        f"--- /dev/null\n+++ b/{path}\n@@ -0,0 +1 @@\n+{text}\n"
    ).encode()


@pytest.mark.parametrize("path", OUTSIDE)
def test_a_path_that_leaves_the_tree_is_rejected(path):
    with pytest.raises(ArtifactError, match=r"is not a plain relative path|lies inside \.git"):
        Patch.parse(adding(path))


@pytest.mark.parametrize("path", OUTSIDE)
def test_a_rename_that_leaves_the_tree_is_rejected(path):
    diff = f"diff --git a/pkg/adding.py b/{path}\nsimilarity index 100%\nrename from pkg/adding.py\nrename to {path}\n"
    with pytest.raises(ArtifactError, match=r"is not a plain relative path|lies inside \.git"):
        Patch.parse(diff.encode())


@pytest.mark.parametrize("path", OUTSIDE)
@pytest.mark.parametrize("name", ["bug_inject.diff", "test_weaken.diff"])
def test_an_artifact_with_such_a_diff_is_not_read(copied, tmp_path, path, name):
    folder = tmp_path / "artifact"
    folder.mkdir()
    write_artifact(folder, copied.artifact())
    (folder / name).write_bytes(adding(path))
    with pytest.raises(ArtifactError, match=name):
        read_artifact(folder)


def test_a_diff_whose_lines_disagree_about_the_path():
    for old, new in ((b"b/pkg/x.py\n@@", b"b/../x.py\n@@"), (b"+++ b/pkg/x.py", b"+++ /etc/x.py")):
        diff = adding("pkg/x.py").replace(old, new)
        assert diff != adding("pkg/x.py")
        with pytest.raises(ArtifactError):
            Patch.parse(diff)


def test_a_link_in_the_project_is_not_followed(copied):
    with pytest.raises(ArtifactError, match=r"outside/x\.py cannot be written: outside is a file or a symlink"):
        copied.check("bug-scope", bug=Patch.parse(adding("outside/x.py")))


def test_a_link_cannot_be_made(copied):
    with pytest.raises(ArtifactError, match=r"pkg/more\.py: a patch may not make or change a symlink"):
        copied.check("bug-scope", bug=Patch.parse(adding("pkg/more.py", mode="120000", text="/etc/passwd")))


def test_a_link_cannot_be_made_and_used_in_one_diff(copied):
    both = Patch.parse(adding("pkg/up.py", mode="120000", text="../..") + adding("pkg/up.py/x.py"))
    rejection = copied.judge(bug=both).rejection
    assert rejection.name == "bug-scope"
    assert rejection.reason.code is CheckCode.DOES_NOT_APPLY
    assert rejection.reason.details["error"].startswith("pkg/up.py/x.py cannot be written")


@pytest.mark.parametrize("path", ["../x.py", "/etc/passwd", ".git/config", "tests/../x.py", "./tests/test_add.py"])
def test_a_listed_file_outside_the_tree_is_not_read(copied, tmp_path: Path, path):
    folder = tmp_path / "artifact"
    folder.mkdir()
    write_artifact(folder, copied.artifact())
    with (folder / "test_files.txt").open("a") as file:
        file.write(f"{path}\n")
    with pytest.raises(ArtifactError, match="is not a plain relative path"):
        read_artifact(folder)


def test_a_link_among_the_five_files_is_not_followed(copied, tmp_path: Path):
    folder = tmp_path / "artifact"
    folder.mkdir()
    write_artifact(folder, copied.artifact())
    (folder / "test_script.sh").unlink()
    (folder / "test_script.sh").symlink_to("/etc/passwd")
    with pytest.raises(ArtifactError, match=r"test_script\.sh is a symbolic link"):
        read_artifact(folder)


SURFACE = {
    "conftest.py": "collect_ignore = ['tests/test_add.py']\n",
    "pkg/conftest.py": "X = 1\n",
    "tests/test_add.py": "def test_add():\n    assert False\n",
    "tests/helper.py": "X = 1\n",
    "pkg/test_inner.py": "X = 1\n",
    "pytest.ini": "[pytest]\naddopts = -k nothing\n",
    ".pytest.ini": "[pytest]\naddopts = -k nothing\n",
    "pytest.toml": "[pytest]\naddopts = ['-k', 'nothing']\n",
    "pyproject.toml": "[tool.pytest.ini_options]\naddopts = '-k nothing'\n",
    "tox.ini": "[pytest]\naddopts = -k nothing\n",
    "setup.cfg": "[tool:pytest]\naddopts = -k nothing\n",
    "sitecustomize.py": "import os\nos._exit(0)\n",
    "usercustomize.py": "import os\nos._exit(0)\n",
    "src/sitecustomize.py": "import os\nos._exit(0)\n",
    "evil.pth": "import os; os._exit(0)\n",
    "evil-1.dist-info/entry_points.txt": "[pytest11]\nevil = pkg.evil\n",
    "evil.egg-info/evil.py": "X = 1\n",
}


@pytest.mark.parametrize("path", SURFACE)
def test_a_bug_in_the_test_surface(copied, texts, path):
    bug = {path: SURFACE[path], "pkg/adding.py": texts["pkg/adding.py"].replace("a + b", "a - b")}
    finding = copied.check("bug-scope", bug=bug)
    assert finding.passed is False
    assert finding.reason == CheckReason(CheckCode.TEST_SURFACE_CHANGED, {"file": path})


@pytest.mark.parametrize("path", ["notes.txt", "pkg/data.json", "Makefile", "run.sh"])
def test_a_bug_outside_of_code(copied, path):
    finding = copied.check("bug-scope", bug={path: "x\n"})
    assert finding.passed is False
    assert finding.reason == CheckReason(CheckCode.NOT_CODE, {"file": path})


def test_a_bug_that_is_listed_as_a_test(copied):
    finding = copied.check("bug-scope", bug={"pkg/adding.py": None}, files=("tests/test_add.py", "pkg/adding.py"))
    assert finding.passed is False
    assert finding.reason == CheckReason(CheckCode.TEST_SURFACE_CHANGED, {"file": "pkg/adding.py"})


WEAKENINGS = {
    "code": {"pkg/texts.py": "def shout(text):\n    return 'A'\n"},
    "a new conftest": {"tests/conftest.py": "collect_ignore = ['test_add.py']\n"},
    "the conftest": {"conftest.py": "collect_ignore_glob = ['*']\n"},
    "options": {"pytest.ini": "[pytest]\naddopts = --deselect tests/test_add.py::test_add\n"},
    "a start-up hook": {"sitecustomize.py": "import os\nos._exit(0)\n"},
}


@pytest.mark.parametrize("how", WEAKENINGS)
def test_a_weakening_of_unlisted_files(copied, weak, how):
    more = WEAKENINGS[how]
    finding = copied.check("test-files", weaken={**weak, **more})
    assert finding.passed is False
    assert finding.reason == CheckReason(CheckCode.FILE_NOT_LISTED, {"files": tuple(more)})


@pytest.mark.parametrize("how", [h for h in WEAKENINGS if h != "the conftest"])
def test_a_weakening_that_lists_protected_files(copied, weak, how):
    more = WEAKENINGS[how]
    finding = copied.check("test-files", weaken={**weak, **more}, files=("tests/test_add.py", *more))
    assert finding.passed is False
    (path,) = more
    if how in ("a new conftest", "a start-up hook"):
        assert finding.reason == CheckReason(CheckCode.FILE_MISSING, {"files": (path,)})
    else:
        assert finding.reason == CheckReason(CheckCode.NO_TEST_IN_FILE, {"file": path})


def test_a_weakening_that_ignores_every_test(copied, weak):
    """An existing conftest counts as a test file, but a suite without a test has not passed."""
    silent = {**weak, "conftest.py": "def pytest_collection_modifyitems(items):\n    items.clear()\n"}
    files = ("tests/test_add.py", "tests/test_texts.py", "conftest.py")
    rejection = copied.judge(weaken=silent, files=files).rejection
    assert rejection.name == "test-weakening"
    assert rejection.reason == CheckReason(CheckCode.NO_TEST_PASSES, {"state": "weakened"})
