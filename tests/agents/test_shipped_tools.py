"""The tools that ship: listing, finding, applying a diff and running tests, bounded and in the sandbox."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from plain import plain_python

from harness.agents.tools.bash import run_command
from harness.agents.tools.protocol import Observation, argument_problem
from harness.agents.workspace import Workspace
from harness.rollouts.player_factory import SHIPPED, read_bundles
from pytest_ssr.errors import SettingsError
from pytest_ssr.sandbox import load_provider
from pytest_ssr.sandbox.protocol import Limits

DIFF = """\
--- a/calc.py
+++ b/calc.py
@@ -1,9 +1,9 @@
 def add(a, b):
-    return a + b
+    return a - b
"""


@pytest.fixture
def workspace(tmp_path: Path, calculator: Mapping[str, str]) -> Iterator[Workspace]:
    project = tmp_path / "project"
    for name, text in {**calculator, ".hidden/x.py": "", "sub/deep/er.py": ""}.items():
        path = project / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (project / "calc.py").write_text("def add(a, b):\n    return a + b\n")
    (project / "tests/test_calc.py").write_text(
        "from calc import add\n\n\ndef test_add():\n    assert add(1, 2) == 3\n"
    )
    subprocess.run(["git", "init", "-q"], cwd=project, check=True)
    with load_provider("process").open(project, mount_at="/p") as sandbox:
        env = {"PATH": f"{plain_python().parent}:/usr/bin:/bin", "PYTHONDONTWRITEBYTECODE": "1", "PYTHONPATH": "."}
        opened = Workspace(sandbox, Limits(wall_s=60), env)
        for bundle in read_bundles([Path("repository")]):
            bundle.install(opened)
        yield opened


def use(workspace: Workspace, name: str, **arguments: Any) -> Observation:
    (bundle,) = read_bundles([Path("repository")])
    tool = next(t for t in bundle.tools if t.name == name)
    assert not argument_problem(tool, arguments)
    return tool.use(arguments, workspace)


def test_bash_finds_the_programs_after_those_of_its_path(workspace: Workspace) -> None:
    assert "calc.py" in run_command("list_dir", workspace).text.splitlines()
    folders = run_command("echo $PATH", workspace).text.splitlines()[0].split(":")
    assert folders[:-1] == workspace.env["PATH"].split(":")
    assert folders[-1].endswith("/repository/bin")


def test_list_dir(workspace: Workspace) -> None:
    assert use(workspace, "list_dir").text.splitlines()[:3] == ["calc.py", "pytest.ini", "sub/"]
    assert "sub/deep/er.py" in use(workspace, "list_dir", depth=3).text.splitlines()
    assert use(workspace, "list_dir", path="sub", depth=2).text.splitlines()[:2] == ["deep/", "deep/er.py"]
    assert use(workspace, "list_dir", path="no $(touch x)").exit_code == 1
    assert use(workspace, "list_dir", depth=0).exit_code == 1
    workspace.shell("mkdir many && cd many && touch $(seq 700); cd ..")
    many = use(workspace, "list_dir", path="many").text.splitlines()
    assert len(many) == 502
    assert many[-2].startswith("[more than 500 entries")


def test_find_files(workspace: Workspace) -> None:
    assert use(workspace, "find_files", pattern="*.py").text.splitlines()[:3] == [
        ".hidden/x.py",
        "calc.py",
        "sub/deep/er.py",
    ]
    assert use(workspace, "find_files", pattern="deep/*.py").text.splitlines()[0] == "sub/deep/er.py"
    assert use(workspace, "find_files", pattern="*.py", path="sub").text.splitlines()[0] == "sub/deep/er.py"
    assert use(workspace, "find_files", pattern="'; touch x; '").exit_code == 1
    assert workspace.shell("test -e x").exit_code == 1


def test_apply_diff(workspace: Workspace) -> None:
    workspace.shell("cd sub")
    done = use(workspace, "apply_diff", diff=DIFF)
    assert (done.exit_code, done.text.splitlines()[0]) == (0, "changed calc.py: +1 -1")
    assert b"a - b" in workspace.sandbox.read("calc.py")
    again = use(workspace, "apply_diff", diff=DIFF)
    assert again.exit_code == 1
    assert "nothing is changed" in again.text
    assert use(workspace, "apply_diff", diff="no diff").exit_code == 1


@pytest.mark.long
def test_run_tests(workspace: Workspace) -> None:
    assert "1 passed" in use(workspace, "run_tests").text
    one = use(workspace, "run_tests", targets="'tests/test_calc.py::test_add'")
    assert (one.exit_code, "1 passed" in one.text) == (0, True)
    assert use(workspace, "run_tests", targets="tests/none.py").exit_code != 0
    assert use(workspace, "run_tests", targets="it's").exit_code == 1
    workspace.sandbox.write("tests/test_long.py", b"def test():\n    assert 0, '\\n' + 'x\\n' * 900\n")
    long = use(workspace, "run_tests")
    assert long.exit_code == 1
    assert "lines are left out here" in long.text
    assert len(long.text.splitlines()) < 210


def test_a_bundle_has_a_folder_or_a_name() -> None:
    assert SHIPPED == ("repository",)
    with pytest.raises(SettingsError, match=r"the bundles that ship are: repository"):
        read_bundles([Path("repo")])
