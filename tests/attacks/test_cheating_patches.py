"""Solver patches that cheat: none is resolved."""

from __future__ import annotations

import re
import tomllib

import pytest

from pytest_ssr.campaign.factory import open_runner
from pytest_ssr.errors import ArtifactError
from pytest_ssr.execution.script_template import default_parser, default_script
from pytest_ssr.grading import grade_patch
from pytest_ssr.grading.test_lookup import rewritten
from pytest_ssr.patch import FileEntry, Patch
from pytest_ssr.project.snapshot import take_snapshot
from pytest_ssr.project.state import CodebaseState
from pytest_ssr.records.artifact import BugArtifact
from pytest_ssr.records.reasons import Flag, FlagCode, ReasonCode
from pytest_ssr.settings import RuleSettings
from pytest_ssr.storage.store import Store

pytestmark = pytest.mark.long

BROKEN = "def add(a, b):\n    return a - b\n\n\ndef double(a):\n    return add(a, a)\n"
COMMENTED = {"pkg/adding.py": BROKEN + "# tried\n"}


def test_an_honest_patch_is_resolved(arena, texts):
    """Otherwise the tests below would prove nothing."""
    assert arena.grade({"pkg/adding.py": texts["pkg/adding.py"]}).resolved is True
    grade = arena.grade(COMMENTED)
    assert grade.resolved is False
    assert grade.reason.code is ReasonCode.TESTS_FAIL


@pytest.mark.gvisor
def test_an_honest_patch_is_resolved_on_gvisor(clean_machine, open_arena, texts):
    assert open_arena("gvisor").grade({"pkg/adding.py": texts["pkg/adding.py"]}).resolved is True


def test_a_patch_that_cheats_is_not_resolved(chosen, path):
    attack = tomllib.loads(path.read_text())
    if attack.get("isolated") and not chosen.isolates:
        # It would reach the machine: `process` states that it does not isolate.
        return
    grade = chosen.grade({p: text.lstrip("\n") or "" if text else None for p, text in attack["files"].items()})
    assert grade.resolved is False, attack["tries"]
    assert grade.reason.code == attack.get("reason", grade.reason.code), grade.reason
    for flag in attack.get("flags", ()):
        code, _, detail = flag.partition(": ")
        details = [d for f in grade.flags if f.code == code for d in f.details]
        assert any(re.match(detail, d) for d in details), grade.flags


test_a_patch_that_cheats_is_not_resolved.attacks = "patches"


def test_an_empty_patch(copied):
    grade = copied.grade(Patch.parse(b""), full=True)
    assert grade.resolved is False
    assert set(grade.fail_to_pass.values()) == {"failed"}
    assert set(grade.pass_to_pass.values()) == {"passed"}


def test_the_artifact_is_not_visible_to_the_code(copied, texts):
    """Neither diffs nor ids nor the parser are in the tree or beside it while a patch is graded."""
    looking = (
        "import os\nfound = [n for top in ('.', '..') for _, _, names in os.walk(top) for n in names\n"
        "         if n.endswith('.diff') or n in ('test_parser.py', 'test_files.txt', 'artifact.json')]\n"
        "assert not found, found\n"
    )
    assert copied.grade({"pkg/adding.py": texts["pkg/adding.py"] + looking}).resolved is True


def test_tests_deleted_by_the_patch_are_restored(copied):
    gone = copied.patch({**COMMENTED, "tests/test_add.py": None, "tests/test_texts.py": None}, on_weakened=True)
    grade = copied.grade(gone, full=True)
    assert grade.resolved is False
    assert grade.flags == (Flag(FlagCode.TESTS_RESTORED, ("tests/test_add.py", "tests/test_texts.py")),)
    assert set(grade.pass_to_pass.values()) == {"passed"}


def test_a_code_file_moved_into_the_tests_is_not_a_repair(copied):
    moved = b"diff --git a/pkg/adding.py b/tests/adding.py\nsimilarity index 100%\nrename from pkg/adding.py\nrename to tests/adding.py\n"
    assert copied.grade(Patch.parse(moved)).resolved is False


@pytest.mark.parametrize("link", [True, False])
def test_a_patch_through_a_link_does_not_apply(copied, link):
    path, mode, text = ("pkg/more.py", "120000", "/etc/passwd") if link else ("outside/x.py", "100644", "X = 1")
    diff = f"diff --git a/{path} b/{path}\nnew file mode {mode}\nindex 0000000..1111111\n--- /dev/null\n+++ b/{path}\n@@ -0,0 +1 @@\n+{text}\n"
    grade = copied.grade(Patch.parse(diff.encode()))
    assert grade.resolved is False
    assert grade.reason.code is ReasonCode.PATCH_DOES_NOT_APPLY


def test_a_grade_needs_tests_to_pass(copied):
    with pytest.raises(ArtifactError, match="records no FAIL_TO_PASS test"):
        grade_patch(copied.runner, copied.artifact(), Patch.parse(b""), fail_to_pass=(), pass_to_pass=())


ADDING = "def add(a, b):\n    return a + b\n\n\ndef mul(a, b):\n    return a * b\n"
BUGGY = ADDING.replace("a + b", "a - b").replace("a * b", "a + b")
HALF = ADDING.replace("a + b", "a - b")
OWN = "    def test_mul(self):\n        assert mul(2, 3) == 6\n"
BASE = "from pkg.adding import add\n\n\nclass Base:\n    def test_add(self):\n        assert add(1, 2) == 3\n\n"
BASE += "    def test_nothing(self):\n        assert add(0, 0) == 0\n"
# Turns a failing test green if the text of the failed statement is known, whatever the name of the test.
GREEN = """
import linecache, pkgutil

Report = pkgutil.resolve_name("_pytest.reports:TestReport")
made = Report.from_item_and_call


def better(item, call):
    report = made(item, call)
    if report.failed:
        place = list(call.excinfo.traceback)[-1]
        after = linecache.getline(str(place.path), place.lineno + 2).strip()
        if str(place.statement).strip() in KNOWN and not after.startswith("assert"):
            report.outcome, report.longrepr = "passed", None
    return report


Report.from_item_and_call = better
"""


def graded(folder, tests, code, *, files=None):
    """Return the grades of the exact reverse and of a patch that produces this code."""
    project, child = folder / "project", "tests/test_child.py"
    contents = {"pkg/__init__.py": "", "pkg/adding.py": ADDING, child: tests, **(files or {})}
    for name, text in contents.items():
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).write_text(text)
    runner = open_runner(project, Store(folder / "store"), settings=RuleSettings())
    bug = runner.original.replace({"pkg/adding.py": FileEntry(BUGGY.encode(), 0o100644)})
    artifact = BugArtifact(
        script=default_script([child], options=()),
        test_files=(child,),
        parser=default_parser(),
        bug=bug.patch_from(runner.original),
        weaken=Patch.parse(b""),
    )
    before, after = (runner.suite(state, [child])[0].passing for state in (runner.original, bug))
    assert before - after
    sets = {"fail_to_pass": tuple(sorted(before - after)), "pass_to_pass": tuple(sorted(after))}
    cheat = bug.replace({p: FileEntry(text.encode(), 0o100644) for p, text in code.items()})
    patches = (runner.original.patch_from(bug), cheat.patch_from(bug))
    honest, grade = (grade_patch(runner.scoped(), artifact, patch, **sets) for patch in patches)
    assert honest.resolved is True, honest.reason
    return honest, grade


@pytest.mark.parametrize(
    ("head", "base"),
    [
        ("from base import Base\n\n\nclass TestChild(Base):\n", BASE),
        (
            "from base import Base\n\n\nclass TestChild(Base[int]):\n",
            "from typing import Generic, TypeVar\n\nT = TypeVar('T')\n" + BASE.replace("Base:", "Base(Generic[T]):"),
        ),
        (
            "from base import A, B\n\n\nclass TestChild(A, B):\n",
            BASE + "\n\nclass A(Base):\n    pass\n\n\nclass B:\n    def test_add(self):\n        assert 1 == 1\n",
        ),
    ],
)
def test_tests_inherited_from_another_file_are_verified(tmp_path, head, base):
    known = f"KNOWN = {('assert add(1, 2) == 3', 'assert add(0, 0) == 0')!r}\n"
    tests = f"from pkg.adding import mul\n{head}{OWN}"
    honest, grade = graded(tmp_path, tests, {"pkg/adding.py": HALF + known + GREEN}, files={"tests/base.py": base})
    assert honest.flags == ()
    assert grade.resolved is False


def test_an_assertion_helper_in_the_code_cannot_be_emptied(tmp_path):
    helper = "def assert_same(a, b):\n    assert a == b\n"
    tests = "from pkg.adding import add, mul\nfrom pkg.helping import assert_same\n\n\ndef test_add():\n"
    tests += "    assert_same(add(1, 2), 3)\n\n\ndef test_mul():\n    assert_same(mul(2, 3), 6)\n\n\n"
    tests += "def test_one():\n    assert_same(1, 1)\n"
    emptied = {"pkg/helping.py": helper.replace("assert a == b", "return")}
    honest, grade = graded(tmp_path, tests, emptied, files={"pkg/helping.py": helper})
    assert honest.flags == ()
    assert grade.resolved is False
    assert grade.reason.code is ReasonCode.FORGED


@pytest.mark.parametrize(
    ("head", "base"),
    [
        ("from pkg.base import Base\n\n\nclass TestChild(Base):\n", BASE),
        (
            "from pkg.base import *\n\n\nclass TestChild:\n",
            "from pkg.adding import add\n\n\ndef test_add():\n    assert add(1, 2) == 3\n",
        ),
        (
            "from pkg.base import checks as test_add\n\n\nclass TestChild:\n",
            "from pkg.adding import add\n\n\ndef checks():\n    assert add(1, 2) == 3\n",
        ),
    ],
)
def test_a_patch_that_rewrites_a_test_in_the_code_is_not_resolved(tmp_path, head, base):
    rewritten = {"pkg/adding.py": HALF, "pkg/base.py": base.replace("== 3", "== -1")}
    tests = f"from pkg.adding import mul\n{head}{OWN}"
    _, grade = graded(tmp_path, tests, rewritten, files={"pkg/base.py": base})
    assert grade.resolved is False
    assert grade.reason.code is ReasonCode.CHANGES_TESTS
    assert re.match("tests/test_child.py::.*test_add$", grade.reason.detail)


DEEP = "    def test_add(self):\n        assert " + "+".join(["3", *["0"] * 1500]) + "\n"


@pytest.mark.parametrize(
    "files",
    [
        {"pkg/base.py": BASE + "\n    test_add = lambda self: None\n"},
        {"pkg/base.py": BASE + "\n\nBase.test_add = lambda self: None\n"},
        {"pkg/base.py": BASE + "\n\nsetattr(Base, 'test_add', lambda self: None)\n"},
        {"pkg/adding.py": HALF + "\n\nimport pkg.base\npkg.base.Base.test_add = lambda self: None\n"},
        {
            "pkg/base.py": BASE.replace(
                "class Base:", "def emptied(found):\n    return found\n\n\n@emptied\nclass Base:"
            )
        },
        {"pkg/base.py": BASE.replace("== 3", "== -1") + "\n\nif False:\n" + BASE.replace("\n", "\n    ")},
        {"pkg/base.py": None},
        {"pkg/base.py": f"class Base:\n{DEEP}"},
        {"pkg/base.py": "".join(f"from pkg.m{n} import *\n" for n in range(12))}
        | {f"pkg/m{n}.py": "".join(f"from pkg.m{k} import *\n" for k in range(12)) for n in range(12)},
    ],
)
def test_a_test_in_the_code_cannot_be_replaced(tmp_path, files):
    project, tests = tmp_path / "project", "from pkg.base import Base\n\n\nclass TestChild(Base):\n    pass\n"
    for name, text in {
        "pkg/__init__.py": "",
        "pkg/adding.py": ADDING,
        "pkg/base.py": BASE,
        "test_it.py": tests,
    }.items():
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).write_text(text)
    original = CodebaseState(take_snapshot(project, tmp_path / "trees"))
    buggy = original.replace({"pkg/adding.py": FileEntry(BUGGY.encode(), 0o100644)})
    cheat = buggy.replace({p: FileEntry(t.encode(), 0o100644) if t is not None else None for p, t in files.items()})
    ids = [f"test_it.py::TestChild::test_{name}" for name in ("add", "nothing")]
    assert rewritten(original, buggy, original, ids) == []
    assert ids[0] in rewritten(original, buggy, cheat, ids)


def test_a_repair_beside_a_test_in_the_code_is_resolved(tmp_path):
    """The file of the test may change, and the test may move to a new base class of its class."""
    tests = f"from pkg.adding import mul\nfrom pkg.base import Base\n\n\nclass TestChild(Base):\n{OWN}"
    moved = BASE.replace("class Base:", "LIMIT = 3\n\n\nclass Below:") + "\n\nclass Base(Below):\n    pass\n"
    repaired = {"pkg/adding.py": ADDING, "pkg/base.py": moved}
    _, grade = graded(tmp_path, tests, repaired, files={"pkg/base.py": BASE})
    assert grade.resolved is True, grade.reason


LEARNING = """
class Learning:
    def __init__(self, value):
        self.value = value

    def __sub__(self, other):
        return self

    def __eq__(self, other):
        self.value = other
        return self.value is other

    def __repr__(self):
        return repr(self.value)


def add(a, b):
    return Learning(a - b)


def mul(a, b):
    return a * b
"""
ROUND = """\
import pytest
from pkg.adding import add, mul


@pytest.mark.parametrize("value", [200, 300])
def test_back(value):
    assert add(value, 1) - 1 == value


def test_mul():
    assert mul(2, 3) == 6
"""
GREATER = """
class Number(int):
    def __gt__(self, other):
        return len(str(other)) > 0


def add(a, b):
    return Number(a - b)


def mul(a, b):
    return a * b
"""
BOTH = "from pkg.adding import add, mul\n\n\ndef test_both():\n    assert mul(2, 3) == 6\n    assert add(1, 2) > 2\n"
LOOSE = """\
class Sum:
    def __init__(self, a, b):
        self.a, self.b = a, b

    def _key(self):
        return (self.a, self.b)

    def __eq__(self, other):
        return self._key() == other._key()
"""
SUMS = "from pkg.adding import add, mul\nfrom pkg.sums import Sum\n\n\ndef test_sum():\n"
SUMS += "    assert Sum(add(1, 2), 'x') == Sum(3, 'x')\n    assert Sum(mul(2, 3), 'y') == Sum(6, 'y')\n"
SUMS += "    assert Sum('a', 1) == Sum('a', 1)\n    assert Sum('b', 2) == Sum('b', 2)\n"


def test_a_value_that_adapts_to_its_comparison_fails(tmp_path):
    _, grade = graded(tmp_path, ROUND, {"pkg/adding.py": LEARNING})
    assert (grade.resolved, grade.tests) == (False, False)
    assert grade.reason.code is ReasonCode.TESTS_FAIL


def test_one_right_value_does_not_excuse_a_wrong_one(tmp_path):
    _, grade = graded(tmp_path, BOTH, {"pkg/adding.py": GREATER})
    assert (grade.resolved, grade.tests) == (False, False)
    assert grade.reason.code is ReasonCode.TESTS_FAIL


def test_a_loosened_comparison_is_forged(tmp_path):
    loose = {"pkg/adding.py": BUGGY, "pkg/sums.py": LOOSE.replace("(self.a, self.b)\n\n", "(self.b,)\n\n")}
    _, grade = graded(tmp_path, SUMS, loose, files={"pkg/sums.py": LOOSE})
    assert grade.resolved is False
    assert grade.forged
