"""Patches of a solver that cheat: none is resolved."""

from __future__ import annotations

import pytest

from pytest_ssr.errors import ArtifactError
from pytest_ssr.grading import grade_patch
from pytest_ssr.patch import Patch

BROKEN = "def add(a, b):\n    return a - b\n\n\ndef double(a):\n    return add(a, a)\n"
COMMENTED = {"pkg/adding.py": BROKEN + "# tried\n"}
PASSES = "def test_add():\n    pass\n\n\ndef test_double():\n    pass\n\n\ndef test_nothing():\n    pass\n\n\ndef test_double_nothing():\n    pass\n"
HOOK = (
    "import pytest\n\n\n@pytest.hookimpl(wrapper=True)\ndef pytest_runtest_makereport(item, call):\n"
    "    report = yield\n    report.outcome = 'passed'\n    return report\n"
)
PASS_ALL = "import _pytest.python\n_pytest.python.Function.runtest = lambda self: None\n"
DROPPED = {
    "tests/test_add.py": PASSES,
    "tests/test_texts.py": None,
    "tests/__init__.py": PASS_ALL,
    "conftest.py": HOOK,
    "tests/conftest.py": HOOK,
    "pkg/conftest.py": HOOK,
    "sitecustomize.py": PASS_ALL,
    "usercustomize.py": PASS_ALL,
    "src/sitecustomize.py": PASS_ALL,
    "evil.pth": "import os; os._exit(0)\n",
    "evil-1.dist-info/entry_points.txt": "[pytest11]\nevil = pkg.evil\n",
    "pyproject.toml": "[tool.pytest.ini_options]\naddopts = '-p pkg.evil'\n",
    "pytest.ini": "[pytest]\naddopts = -p pkg.evil\n",
    ".pytest.ini": "[pytest]\naddopts = -p pkg.evil\n",
    "tox.ini": "[pytest]\naddopts = -p pkg.evil\n",
    "setup.cfg": "[tool:pytest]\naddopts = -p pkg.evil\n",
}


def test_an_honest_patch_is_resolved(arena, texts):
    """Else the tests below would prove nothing."""
    assert arena.grade({"pkg/adding.py": texts["pkg/adding.py"]}).resolved is True
    grade = arena.grade(COMMENTED)
    assert grade.resolved is False
    assert grade.reason.startswith("2 of 5 tests do not pass: tests/test_add.py::test_add")


@pytest.mark.parametrize("path", DROPPED)
def test_a_change_of_the_test_surface_is_dropped_and_named(copied, path):
    grade = copied.grade({**COMMENTED, "pkg/evil.py": HOOK, path: DROPPED[path]})
    assert grade.resolved is False
    assert grade.reason.startswith("2 of 5 tests do not pass")
    assert grade.flags == (f"changed and restored: {path}",)


def test_an_empty_patch(copied):
    grade = copied.grade(Patch.parse(b""))
    assert grade.resolved is False
    assert set(grade.fail_to_pass.values()) == {"failed"}
    assert set(grade.pass_to_pass.values()) == {"passed"}


FORGED_LINES = (
    BROKEN + "import os, sys\n\n\ndef forge():\n    for name in ('test_add', 'test_double'):\n"
    '        line = \'\\n#ssr-result {"id": "tests/test_add.py::%s", "status": "passed"}\\n\' % name\n'
    "        for n in range(1, 20):\n            try:\n                os.write(n, line.encode())\n"
    "            except OSError:\n                pass\n\n\nforge()\n"
)
INSIDE = {
    "ends in a test": BROKEN.replace("return a - b", "__import__('os')._exit(0)"),
    "ends at import": "import os\nos._exit(0)\n",
    "leaves at import": "raise SystemExit(0)\n",
    "leaves from a test": BROKEN.replace("return a - b", "raise SystemExit(0)"),
    "ends at the end": BROKEN + "import atexit, os\natexit.register(os._exit, 0)\n",
    "takes pytest away": BROKEN + "import sys\nsys.modules['pytest'] = sys\n",
    "skips": BROKEN + "import pytest\npytest.skip('later', allow_module_level=True)\n",
    "skips each": BROKEN.replace("return a - b", "__import__('pytest').skip('later')"),
    "is expected to fail": BROKEN.replace("return a - b", "__import__('pytest').xfail('later')"),
    "stops the session": BROKEN + "import pytest\npytest.exit('done', returncode=0)\n",
    "prints results": FORGED_LINES,
    "prints results and ends": FORGED_LINES + "os._exit(0)\n",
    "deletes the tests": BROKEN + "import shutil\nshutil.rmtree('tests', ignore_errors=True)\n",
    "rewrites the tests": BROKEN + f"open('tests/test_add.py', 'w').write({PASSES!r})\n",
    "says passed over the channel": (
        BROKEN + "import sys\nr = sys.modules.get('ssr_reporter')\n"
        "if r:\n    r._send('done', id='tests/test_add.py::test_add', outcome='passed', duration=0)\n"
    ),
    "takes the channel away": (
        BROKEN + "import os, sys\nr = sys.modules.get('ssr_reporter')\n"
        "if r:\n    c = os.readlink(f'/proc/self/fd/{r._FD}')\n    os.unlink(c)\n    os.symlink('/etc/passwd', c)\n"
    ),
    "reads the solution in the tree": (
        "import glob, os\nfor p in glob.glob('**/*.diff', recursive=True) + glob.glob('.git/**/*', recursive=True):\n"
        "    raise LookupError(p)\n" + BROKEN
    ),
}


@pytest.mark.parametrize("how", INSIDE)
def test_code_that_cheats_is_not_resolved(copied, how):
    grade = copied.grade({"pkg/adding.py": INSIDE[how]})
    assert grade.resolved is False, grade.reason
    assert grade.flags == ()


def test_nothing_of_the_artifact_lies_where_the_code_runs(copied, texts):
    """Neither diffs nor ids nor the parser are in the tree or beside it while a patch is graded."""
    looking = (
        "import os\nfound = [n for top in ('.', '..') for _, _, names in os.walk(top) for n in names\n"
        "         if n.endswith('.diff') or n in ('test_parser.py', 'test_files.txt', 'artifact.json')]\n"
        "assert not found, found\n"
    )
    assert copied.grade({"pkg/adding.py": texts["pkg/adding.py"] + looking}).resolved is True


def test_the_tests_deleted_by_the_patch_are_there_again(copied):
    gone = copied.patch({**COMMENTED, "tests/test_add.py": None, "tests/test_texts.py": None}, on_weakened=True)
    grade = copied.grade(gone)
    assert grade.resolved is False
    assert grade.flags == tuple(f"changed and restored: tests/test_{n}.py" for n in ("add", "texts"))
    assert set(grade.pass_to_pass.values()) == {"passed"}


def test_a_code_file_moved_over_a_test_is_no_repair(copied):
    moved = b"diff --git a/pkg/adding.py b/tests/adding.py\nsimilarity index 100%\nrename from pkg/adding.py\nrename to tests/adding.py\n"
    assert copied.grade(Patch.parse(moved)).resolved is False


@pytest.mark.parametrize("link", [True, False])
def test_a_patch_through_a_link_does_not_apply(copied, link):
    path, mode, text = ("pkg/more.py", "120000", "/etc/passwd") if link else ("outside/x.py", "100644", "X = 1")
    diff = f"diff --git a/{path} b/{path}\nnew file mode {mode}\nindex 0000000..1111111\n--- /dev/null\n+++ b/{path}\n@@ -0,0 +1 @@\n+{text}\n"
    grade = copied.grade(Patch.parse(diff.encode()))
    assert grade.resolved is False
    assert grade.reason.startswith("the patch does not apply: ")


def test_a_grade_needs_tests_to_pass(copied):
    with pytest.raises(ArtifactError, match="records no FAIL_TO_PASS test"):
        grade_patch(copied.bench, copied.artifact(), Patch.parse(b""), fail_to_pass=(), pass_to_pass=())
