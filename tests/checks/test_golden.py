"""Artifacts that satisfy the whole rule: seven checks, three controls, two repeats."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from pytest_ssr.grading import grade_patch
from pytest_ssr.patch import Patch
from pytest_ssr.records.artifact import read_artifact, write_artifact
from pytest_ssr.records.reasons import Flag, FlagCode

ADD_BUG = {"pkg/adding.py": "def add(a, b):\n    return a - b\n\n\ndef double(a):\n    return add(a, a)\n"}
TWO_FILES = {
    "pkg/adding.py": "def add(a, b):\n    return a + b\n\n\ndef double(a):\n    return a\n",
    "pkg/texts.py": 'MARK = "?"\n\n\ndef shout(text):\n    return text.upper() + MARK\n\n\ndef quiet(text):\n'
    "    return text.lower()\n",
}
ADDED = {
    "pkg/texts.py": "try:\n    from pkg.more import MARK\nexcept ImportError:\n    MARK = '!'\n\n\n"
    "def shout(text):\n    return text.upper() + MARK\n\n\ndef quiet(text):\n    return text.lower()\n",
    "pkg/more.py": 'MARK = "?"\n',
}
OPTIONAL = {
    "pkg/texts.py": "try:\n    from pkg.mark import MARK\nexcept ImportError:\n    MARK = '?'\n\n\n"
    "def shout(text):\n    return text.upper() + MARK\n\n\ndef quiet(text):\n    return text.lower()\n",
    "pkg/mark.py": 'MARK = "!"\n',
}
RENAMED = b"""\
diff --git a/pkg/mark.py b/pkg/marks.py
similarity index 100%
rename from pkg/mark.py
rename to pkg/marks.py
"""
SHAPES = {
    "one file": (ADD_BUG, ("test_add", "test_double"), {"pkg/adding.py"}),
    "two files": (TWO_FILES, ("test_double", "test_shout", "test_both"), {"pkg/adding.py", "pkg/texts.py"}),
    "a file added": (ADDED, ("test_shout", "test_both"), {"pkg/texts.py", "pkg/more.py"}),
}


def weakened(texts, without, names):
    """Return the test files that change when some functions are removed."""
    changed = {}
    for path in ("tests/test_add.py", "tests/test_texts.py"):
        text = texts[path]
        for name in names:
            text = without(text, name) if f"def {name}(" in text else text
        if text != texts[path]:
            changed[path] = text
    return changed


@pytest.mark.parametrize("shape", SHAPES)
def test_a_golden_artifact_is_valid(builder, texts, without, shape):
    bug, failing, files = SHAPES[shape]
    verdict = builder.judge(builder.artifact(bug, weakened(texts, without, failing)))
    assert verdict.valid, verdict.rejection
    assert {i.rpartition("::")[2] for i in verdict.fail_to_pass} == set(failing)
    assert set(verdict.files_control) == files
    assert len(verdict.pass_to_pass) == 7 - len(failing)
    assert not verdict.set_aside


@pytest.mark.long
@pytest.mark.parametrize("bug", [{"pkg/mark.py": None}, Patch.parse(RENAMED)], ids=["deleted", "renamed"])
def test_a_removed_file_is_a_bug(open_builder, texts, without, bug):
    builder = open_builder(OPTIONAL)
    verdict = builder.judge(builder.artifact(bug, weakened(texts, without, ("test_shout", "test_both"))))
    assert verdict.valid, verdict.rejection
    assert len(verdict.fail_to_pass) == 2


@pytest.mark.bubblewrap
def test_a_golden_artifact_is_valid_under_bubblewrap(open_builder, texts, without):
    builder = open_builder(sandbox="bubblewrap")
    verdict = builder.judge(builder.artifact(ADD_BUG, weakened(texts, without, ("test_add", "test_double"))))
    assert verdict.valid, verdict.rejection


def test_a_test_that_is_weakened_instead_of_removed_counts(builder, texts):
    weak = texts["tests/test_add.py"].replace("add(1, 2) == 3", "add(1, 2)").replace("double(2) == 4", "True")
    verdict = builder.judge(builder.artifact(ADD_BUG, {"tests/test_add.py": weak}))
    assert verdict.valid, verdict.rejection
    assert verdict.checks[5].reason.details["removed"] == 0


def test_the_examples_of_a_document_are_weakened_by_skipping_them(open_builder, texts, without):
    document = ">>> from pkg.adding import add\n>>> add(2, 2)\n4\n"
    builder = open_builder({"README.rst": document})
    weak = weakened(texts, without, ("test_add", "test_double"))
    weak["README.rst"] = document.replace("\n4", "  # doctest: +SKIP\n4")
    artifact = builder.artifact(ADD_BUG, weak, files=("README.rst", "tests/test_add.py", "tests/test_texts.py"))
    verdict = builder.judge(artifact)
    assert verdict.valid, verdict.rejection
    assert "README.rst::README.rst" in verdict.fail_to_pass


def test_tests_that_vanish_with_a_broken_import_fail(builder, texts):
    bug = {"pkg/texts.py": texts["pkg/texts.py"].replace("def shout", "def shouts")}
    verdict = builder.judge(builder.artifact(bug, {"tests/test_texts.py": "def test_new():\n    pass\n"}))
    assert verdict.valid, verdict.rejection
    assert len(verdict.fail_to_pass) == 3


UNITTEST = """\
set -o pipefail
python -m unittest -v tests.test_plain 2>&1 | sed 's/^/> /'
"""
UNITTEST_PARSER = """\
import json, re, sys
found = {}
for name, end in re.findall(r"^> (\\w+) \\(tests\\.test_plain\\.TestPlain[^)]*\\) \\.\\.\\. (\\w+)", sys.stdin.read(), re.M):
    found["tests/test_plain.py::TestPlain::" + name] = "passed" if end == "ok" else "failed"
print(json.dumps(found))
"""


def test_a_script_and_a_parser_of_another_runner_are_accepted(open_builder):
    plain = (
        "import unittest\nfrom pkg.adding import add\n\n\nclass TestPlain(unittest.TestCase):\n"
        "    def test_one(self):\n        self.assertEqual(add(1, 1), 2)\n\n"
        "    def test_zero(self):\n        self.assertEqual(add(1, 0), 1)\n"
    )
    builder = open_builder({"tests/__init__.py": "", "tests/test_plain.py": plain})
    weak = plain.replace("assertEqual(add(1, 1), 2)", "assertTrue(add)")
    artifact = builder.artifact(
        ADD_BUG,
        {"tests/test_plain.py": weak},
        files=("tests/test_plain.py",),
        script=UNITTEST,
        parser=UNITTEST_PARSER,
    )
    verdict = builder.judge(artifact)
    assert verdict.valid, verdict.rejection
    assert verdict.fail_to_pass == ("tests/test_plain.py::TestPlain::test_one",)


def test_the_reverse_of_the_oracle_is_a_diff_that_git_accepts(builder, texts, without, tmp_path):
    artifact = builder.artifact(TWO_FILES, weakened(texts, without, ("test_double", "test_shout", "test_both")))
    state = builder.runner.original.apply(artifact.bug).apply(artifact.weaken)
    for name in texts:
        entry = state.entry(name)
        if entry is not None:
            target = tmp_path / "tree" / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(entry.data)
    for number, patch in enumerate((artifact.weaken.reverse(), artifact.bug.reverse())):
        diff = tmp_path / f"{number}.diff"
        diff.write_bytes(patch.data)
        subprocess.run(["git", "apply", "--check", str(diff)], cwd=tmp_path / "tree", check=True)


@pytest.mark.long
def test_the_five_files_are_sufficient(open_builder, texts, without, tmp_path: Path):
    first = open_builder()
    artifact = first.artifact(ADD_BUG, weakened(texts, without, ("test_add", "test_double")))
    write_artifact(tmp_path, artifact)
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        "bug_inject.diff",
        "test_files.txt",
        "test_parser.py",
        "test_script.sh",
        "test_weaken.diff",
    ]
    again = read_artifact(tmp_path)
    assert open_builder().judge(again).artifact_id == artifact.content_id(first.runner.snapshot.tree_hash)


def test_grading_starts_from_the_snapshot_each_time(builder, texts, without):
    artifact = builder.artifact(ADD_BUG, weakened(texts, without, ("test_add", "test_double")))
    verdict = builder.judge(artifact)

    def grade(changes):
        weak = builder.runner.original.apply(artifact.bug).apply(artifact.weaken)
        patch = weak.replace(
            {
                p: None if t is None else type(weak.entry("pkg/adding.py"))(t.encode(), 0o100644)
                for p, t in changes.items()
            }
        ).patch_from(weak)
        return grade_patch(
            builder.runner.scoped(),
            artifact,
            patch,
            fail_to_pass=verdict.fail_to_pass,
            pass_to_pass=verdict.pass_to_pass,
        )

    comment = ADD_BUG["pkg/adding.py"] + "# fixed\n"
    assert grade({"pkg/adding.py": comment}).resolved is False
    assert grade({"pkg/adding.py": texts["pkg/adding.py"]}).resolved is True
    assert grade({"pkg/adding.py": comment}).resolved is False
    worse = texts["pkg/adding.py"].replace("return add(a, a)", "return 4")
    graded = grade({"pkg/adding.py": worse})
    assert graded.resolved is False
    assert graded.pass_to_pass["tests/test_add.py::test_double_nothing"] == "failed"
    rewritten = grade({"tests/test_add.py": "def test_add():\n    pass\n"})
    assert rewritten.resolved is False
    assert rewritten.flags == (Flag(FlagCode.TESTS_RESTORED, ("tests/test_add.py",)),)
