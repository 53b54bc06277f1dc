"""Test which oracle files an artifact has."""

from __future__ import annotations

from pathlib import Path

from pytest_ssr.campaign.artifact_builder import make_artifact
from pytest_ssr.execution.baseline import Baseline
from pytest_ssr.patch import FileEntry
from pytest_ssr.project.snapshot import take_snapshot
from pytest_ssr.project.state import CodebaseState
from pytest_ssr.settings import RuleSettings

FILES = {
    "README.md": ">>> from box import two\n>>> two()\n2\n",
    "box.py": 'def two():\n    """\n    >>> two() > 0\n    True\n    """\n    return 2\n',
    "tests/test_box.py": "from box import two\n\n\ndef test_two():\n    assert two()\n",
}
DOCUMENT, IN_CODE, TEST = "README.md::README.md", "box.py::box.two", "tests/test_box.py::test_two"


def test_code_with_doctests_is_no_oracle_file(tmp_path: Path) -> None:
    project = tmp_path / "project"
    for name, text in FILES.items():
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).write_text(text)
    snapshot = take_snapshot(project, tmp_path / "trees")
    # Of the two files that could be added, the one beside README.md holds code.
    tests = (DOCUMENT, IN_CODE, TEST)
    baseline = Baseline(
        tests, frozenset(tests), {}, {}, {}, ("box.py",), (), 1.0, 0.0, doctests=frozenset((DOCUMENT, IN_CODE))
    )
    buggy = CodebaseState(snapshot).replace({"box.py": FileEntry(FILES["box.py"].replace("2", "3").encode(), 0o100644)})
    artifact = make_artifact(buggy, [DOCUMENT], baseline, RuleSettings())
    assert artifact.test_files == ("README.md", "tests/test_box.py")
