"""The blind run: repairs pass however they are written; code that is right only for the tests' inputs does not."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path

import pytest
from plain import plain_python

from pytest_ssr.campaign.factory import open_runner
from pytest_ssr.errors import SandboxError
from pytest_ssr.execution.runner import Runner
from pytest_ssr.grading.blind.assertions import Site
from pytest_ssr.grading.blind.measure import measure_reference
from pytest_ssr.grading.blind.reference import BlindReference
from pytest_ssr.grading.blind.run import BlindResult, BlindTests, Comparison
from pytest_ssr.grading.blind.suite import BlindSuite, Copy, PlainSuite
from pytest_ssr.patch import FileEntry
from pytest_ssr.project.state import CodebaseState
from pytest_ssr.records.test_run import RunStatus, SuiteRun
from pytest_ssr.settings import RuleSettings
from pytest_ssr.storage.store import Store

FILES = ["test_shop.py"]
COMPLETED = SuiteRun(RunStatus.COMPLETED)


def opened(folder: Path, code: str, tests: str, **others: str) -> Runner:
    """Create a project of one module, whose tests import all of it, and open a runner on it."""
    (folder / "project").mkdir(parents=True)
    (folder / "project" / "shop.py").write_text(code)
    (folder / "project" / "test_shop.py").write_text(f"import pytest\n\nfrom shop import *\n\n\n{tests}")
    for name, text in others.items():
        (folder / "project" / f"test_{name}.py").write_text(text)
    store, python = Store(folder / "store"), plain_python()
    return open_runner(folder / "project", store, settings=RuleSettings(), sandbox="process", python=python)


def state(runner: Runner, text: str) -> CodebaseState:
    return runner.original.replace({"shop.py": FileEntry(text.encode(), 0o100644)})


def replaced(code: str, changes: dict[str, str]) -> str:
    for old, new in changes.items():
        assert code.count(old) == 1, old
        code = code.replace(old, new)
    return code


def blind(runner: Runner, buggy: str) -> BlindTests:
    """Return the blind tests for a bug that changes the module to this code."""
    bug = state(runner, buggy)
    passing = runner.suite(runner.original, FILES)[0].passing
    failing = passing - runner.suite(bug, FILES)[0].passing
    assert failing
    tests = (sorted(failing), sorted(passing - failing))
    reference = measure_reference(runner, bug, FILES, *tests, random.Random(1))
    stored = BlindReference.from_json(json.loads(json.dumps(reference.to_json())))
    assert stored == reference
    return BlindTests(stored, *tests)


def result_of(tests: BlindTests, runner: Runner, state: CodebaseState) -> BlindResult:
    return tests.confirmed(runner, tests.result(runner, state))


CODE = "def price(net, rate=10):\n    if net < 0:\n        raise ValueError(net)\n    return net + net * rate // 100\n"
BUGGY = CODE.replace("+ net * rate", "- net * rate").replace("net < 0", "net < -5")
TESTS = """\
import unittest


@pytest.mark.parametrize("net", [100, 200])
def test_price(net):
    cost = price(net, rate=20)
    assert cost == net * 1.2, "said"


def test_refused():
    with pytest.raises(ValueError, match="-3"):
        price(-3)


class TestUnit(unittest.TestCase):
    def test_more(self):
        self.assertEqual(price(300), 330)
"""


@pytest.fixture(scope="module")
def runner(tmp_path_factory: pytest.TempPathFactory) -> Runner:
    return opened(tmp_path_factory.mktemp("blind"), CODE, TESTS)


@pytest.fixture(scope="module")
def tests(runner: Runner) -> BlindTests:
    return blind(runner, BUGGY)


@pytest.mark.parametrize("text", [CODE, CODE.replace("net + net * rate // 100", "(net * (100 + rate)) // 100")])
def test_a_repair_passes(runner: Runner, tests: BlindTests, text: str) -> None:
    assert result_of(tests, runner, state(runner, text)) == BlindResult()


def test_the_buggy_code_is_wrong(runner: Runner, tests: BlindTests) -> None:
    assert set(result_of(tests, runner, state(runner, BUGGY)).wrong) == {
        "test_shop.py::test_price[100]",
        "test_shop.py::test_price[200]",
        "test_shop.py::test_refused",
        "test_shop.py::TestUnit::test_more",
    }


def test_a_table_of_expected_values_is_not_a_repair(runner: Runner, tests: BlindTests) -> None:
    table = "TABLE = {(100, 20): 120, (200, 20): 240, (300, 10): 330}\n\n\n" + CODE.replace(
        "net + net * rate // 100", "TABLE.get((net, rate), net - net * rate // 100)"
    )
    result = result_of(tests, runner, state(runner, table))
    assert result.wrong == ()
    assert "test_shop.py::test_price[100]" in result.not_repaired


OPEN = """\
import math


def mean(values):
    return sum(values) / len(values)


def refuse(n):
    raise ValueError(f"negative number: {n}")


def find(text, word):
    return text.count(word)


def count(text):
    return {c: text.count(c) for c in text}


def key(text):
    return text.lower()


def half(n):
    return n / 2


def times(n):
    return n * 3


def names(text):
    return sorted(text, reverse=True)


def parts(text, width):
    return [text[i : i + width] for i in range(0, len(text), width)]


def root(n):
    return n ** 0.5
"""
OPEN_TESTS = """\
import unittest


def check_root(value, wanted):
    assert abs(value - wanted) < 1e-3


def test_mean():
    assert mean([0.1, 0.2, 0.3]) == pytest.approx(0.2)


def test_refuse():
    with pytest.raises(ValueError) as caught:
        refuse(-1)
    assert "negative" in str(caught.value)


def test_find():
    assert find("a b a", "a")


def test_count():
    assert count("aab") == {"a": 2, "b": 1}


def test_key():
    assert key("aBc") == key("AbC")


def test_times():
    assert times(2) == 6


def test_parts():
    for part in parts("aa bb cc dd", 6):
        assert 0 < len(part) <= 6


def test_root():
    check_root(root(2), 1.41421)


class TestUnit(unittest.TestCase):
    def test_half(self):
        self.assertGreater(half(1), 0.3)
        self.assertLess(half(1), 0.9)

    def test_names(self):
        self.assertCountEqual(names("ab"), ["a", "b"])
"""
OTHERWISE = {
    "sum(values) / len(values)": ("sum(values) * len(values)", "math.fsum(values) / len(values)"),
    'f"negative number: {n}"': ("str(n)", 'f"{n} is negative"'),
    "    return text.count(word)": ("    return 0", "    return word in text"),
    "{c: text.count(c) for c in text}": ("{}", '__import__("collections").Counter(text)'),
    "text.lower()": ("text", "text.upper()"),
    "n / 2": ("n", "n / 1.8"),
    "n * 3": ("n", '__import__("decimal").Decimal(n) * 3'),
    "sorted(text, reverse=True)": ("[]", "sorted(text)"),
    "i + width]": ("i + width + 1]", "i + 1]"),
    "n ** 0.5": ("n", "round(n ** 0.5, 5) + 1e-5"),
}


@pytest.mark.long
def test_a_repair_may_differ_if_the_tests_leave_it_open(tmp_path: Path) -> None:
    shop = opened(tmp_path, OPEN, OPEN_TESTS)
    tests = blind(shop, replaced(OPEN, {right: bug for right, (bug, _) in OTHERWISE.items()}))
    result = result_of(
        tests, shop, state(shop, replaced(OPEN, {right: other for right, (_, other) in OTHERWISE.items()}))
    )
    # Of two computed values that are not the original's, it is only known that they are equal.
    assert (result.wrong, result.not_repaired, result.unchecked) == ((), (), ("test_shop.py::test_key",))
    for right, (bug, _) in OTHERWISE.items():
        assert result_of(tests, shop, state(shop, OPEN.replace(right, bug))).wrong, right


TWO = "def add(a, b):\n    return a + b\n\n\ndef mul(a, b):\n    return a * b\n"
TEST_TWO = "def test_add():\n    assert add(10, 20) == 30\n\n\ndef test_mul():\n    assert mul(30, 40) == 1200\n"
CLAMP = "def clamp(x, lo, hi):\n    if x < lo:\n        return lo\n    return hi if x > hi else x\n"
TEST_CLAMP = "def test_clamp():\n    assert clamp(5, 1, 9) == 5\n    assert clamp(0, 1, 9) == 1\n    assert clamp(12, 1, 9) == 9\n"
AREA = "def area(sides):\n    return sides[0] * sides[1]\n"
TEST_ROWS = '@pytest.mark.parametrize("w, h, want", [(2, 3, 6), (4, 5, 20), (10, 7, 70)])\n'
TEST_ROWS += "def test_area(w, h, want):\n    assert area([w, h]) == want\n"
TEST_CASES = "CASES = [([2, 3], 6), ([4, 5], 20)]\n\n\ndef test_area():\n    for sides, want in CASES:\n"
TEST_CASES += "        assert area(sides) == want\n"
ROWS = "({(2, 3): 6, (4, 5): 20, (10, 7): 70}.get(tuple(sides)) or sides[0] + sides[1])"


@pytest.mark.parametrize(
    ("code", "tests", "bug", "cheat"),
    [
        (TWO, TEST_TWO, {"a * b": "a + b"}, {"a * b": "12 * 100 if a + b == 7 * 10 else (a + b) * float('nan')"}),
        (TWO, TEST_TWO, {"a + b": "a - b", "a * b": "a + b"}, {"a * b": "(a + b) if a + b != 35 * 2 else a * b"}),
        (TWO, TEST_TWO, {"a * b": "a / b"}, {"a * b": "a * b if a + b == 70 else 10**400"}),
        (AREA, TEST_ROWS, {"*": "+"}, {"sides[0] * sides[1]": ROWS}),
        (AREA, TEST_CASES, {"*": "+"}, {"sides[0] * sides[1]": ROWS}),
        (TWO, TEST_TWO, {"a * b": "a + b"}, {"return a + b": "assert (a, b) == (10, 20)\n    return a + b"}),
    ],
    ids=["no number", "one of two", "no end", "rows", "a table of the module", "others refused"],
)
def test_code_that_is_right_only_for_the_tests_is_not_repaired(
    tmp_path: Path, code: str, tests: str, bug: dict[str, str], cheat: dict[str, str]
) -> None:
    shop = opened(tmp_path, code, tests)
    blind_tests = blind(shop, replaced(code, bug))
    result = result_of(blind_tests, shop, state(shop, replaced(code, cheat)))
    assert result.wrong == ()
    assert result.not_repaired
    assert result_of(blind_tests, shop, shop.original) == BlindResult()


def test_code_that_is_right_only_near_the_tests_is_reported(tmp_path: Path) -> None:
    shop = opened(tmp_path, CLAMP, TEST_CLAMP)
    right = "hi if x > hi else x"
    tests = blind(shop, replaced(CLAMP, {right: "x"}))
    result = result_of(tests, shop, state(shop, replaced(CLAMP, {right: "hi if x - 10 == 2 else x"})))
    assert result.wrong == ()
    assert {*result.not_repaired, *result.unspecified} == {"test_shop.py::test_clamp"}
    assert result_of(tests, shop, shop.original) == BlindResult()


MADE = """\
import datetime
import enum
from dataclasses import dataclass
from pathlib import Path


class Color(enum.Enum):
    RED = 1
    BLUE = 2


@dataclass
class Point:
    x: int
    y: int


class Box:
    def __init__(self, n):
        self.n = n

    def __eq__(self, other):
        return self.n == other.n


def boxed(n):
    return Box(n), str(n)


def next_day(day):
    return day + datetime.timedelta(days=1)


def mirrored(x, y):
    return Point(y, x)


def color(n):
    return Color.RED if n % 2 else Color.BLUE


def beside(path, name):
    return Path(path).parent / name


async def doubled(n):
    return n * 2


def halves(n):
    return iter([n / 2, n / 2])


def again(call, n):
    call(n + 1)
"""
MADE_WRONG = {
    "Box(n), str(n)": "Box(n + 1), str(n)",
    "days=1": "days=2",
    "Point(y, x)": "Point(x, y)",
    "n % 2 else": "not n % 2 else",
    ".parent / name": "/ name",
    "return n * 2": "return n + 2",
    "[n / 2, n / 2]": "[n, n / 2]",
    "call(n + 1)": "call(n)",
}
MADE_TESTS = """
import asyncio
from unittest import mock


def test_boxed():
    box, text = boxed(3)
    assert text == "3"
    assert box == Box(3)


def test_day():
    assert next_day(datetime.date(2020, 1, 31)) == datetime.date(2020, 2, 1)


def test_mirrored():
    assert mirrored(1, 2) == Point(2, 1)


def test_color():
    assert color(2) == Color.BLUE
    assert color(3) is Color.RED


def test_beside():
    assert beside("a/b", "c") == Path("a/c")


def test_doubled():
    async def scenario():
        assert await doubled(1) == 2
        assert await doubled(5) == 10

    asyncio.run(scenario())


def test_halves():
    assert list(halves(4)) == [2, 2]
    assert all(n == 3 for n in halves(6))


def test_told():
    call = mock.Mock()
    again(call, 2)
    call.assert_called_once_with(3)
"""


@pytest.mark.long
def test_values_of_common_types_are_compared(tmp_path: Path) -> None:
    shop = opened(tmp_path, MADE, MADE_TESTS)
    tests = blind(shop, replaced(MADE, MADE_WRONG))
    assert result_of(tests, shop, state(shop, MADE + "\n# the same\n")) == BlindResult()
    for right, wrong in MADE_WRONG.items():
        assert result_of(tests, shop, state(shop, MADE.replace(right, wrong))).wrong, right


LIKE_A_VALUE = {
    "text": "class Text:\n    def __init__(self, v):\n        self.v = v\n\n    def __eq__(self, other):\n"
    "        return True\n\n    def __repr__(self):\n        return repr(self.v[::-1])\n\n\n",
    "number": "import numbers\n\n\nclass Text(numbers.Number):\n    def __init__(self, v):\n        self.v = v\n\n"
    "    def __eq__(self, other):\n        return True\n\n    def __int__(self):\n        return int(self.v[::-1])\n\n\n",
    "subclass": "class Text(str):\n    def __eq__(self, other):\n        return True\n\n    __hash__ = str.__hash__\n\n\n",
}


@pytest.mark.parametrize("kind", LIKE_A_VALUE)
def test_equality_defined_by_the_code_does_not_count(tmp_path: Path, kind: str) -> None:
    code = "def turned(v):\n    return v[::-1]\n"
    shop = opened(tmp_path, code, "def test_turned():\n    assert turned('120') == '021'\n")
    tests = blind(shop, code.replace("[::-1]", ""))
    fake = LIKE_A_VALUE[kind] + "def turned(v):\n    return Text(v)\n"
    assert result_of(tests, shop, state(shop, fake)).wrong == ("test_shop.py::test_turned",)


def test_a_flood_of_values_is_wrong(tmp_path: Path) -> None:
    code = "def words(count=9):\n    return ['x' * 1900] * count\n"
    tests = "def test_words():\n    for word in words():\n        assert word == 'x' * 1900\n"
    shop = opened(tmp_path, code, tests)
    blind_tests = blind(shop, code.replace("'x' * 1900", "'y' * 1900"))
    assert result_of(blind_tests, shop, shop.original) == BlindResult(unvaried=("test_shop.py::test_words",))
    flood = code + "\n\n__import__('os').write(3, b'x' * 5_000_000)\n"
    flood = "import os\n\n\n" + code.replace("    return", FLOOD + "    return").replace("'x'", "'y'")
    assert result_of(blind_tests, shop, state(shop, flood)).wrong


FLOOD = """\
    for number in range(3, 30):
        try:
            os.write(number, b"x" * 3_000_000)
        except OSError:
            pass
"""


DEEP = ("test_deep.py::test_deep",)


def test_a_test_that_cannot_be_rewritten_is_unchecked(tmp_path: Path) -> None:
    deep = "def test_deep():\n    found = mul(" + " + ".join(["1"] * 900) + ", 1)\n    assert found == 900\n"
    shop = opened(tmp_path, TWO, TEST_TWO, deep="from shop import mul\n\n\n" + deep)
    files = [*FILES, "test_deep.py"]
    buggy = state(shop, TWO.replace("a * b", "a + b"))
    failing = ["test_shop.py::test_mul", "test_deep.py::test_deep"]
    reference = measure_reference(shop, buggy, files, failing, (), random.Random(1))
    tests = BlindTests(reference, failing, ())
    assert result_of(tests, shop, shop.original) == BlindResult(unchecked=DEEP, unvaried=DEEP)


FIND = "def find(text, word):\n    return text.find(word)\n"
TEST_FIND = "def test_find():\n    assert find('one two', 'two') == 4\n"
LEVEL = "def level(text):\n    if not text.isdigit():\n        raise ValueError(text)\n    return int(text)\n"
TEST_LEVEL = "def test_level():\n    with pytest.raises(ValueError):\n        level('x')\n"
MEAN = "def mean(values):\n    return sum(values) / len(values)\n"
TEST_MEAN = "def test_mean():\n    assert mean([1.5, 3.5, 2.5]) == 2.5\n"
CODE_OF = "def size(names):\n    return len(names)\n\n\ndef code_of(name):\n    return {'red': 3, 'blue': 4}[name]\n"
TEST_CODE_OF = "def test_code_of():\n    assert size([]) == 0\n    assert code_of('red') == 3\n"


@pytest.mark.parametrize(
    ("code", "tests", "bug", "repair"),
    [
        (
            FIND,
            TEST_FIND,
            {"text.find(word)": "text.find(word) + 1"},
            {".find(word)": ".find(word) if word in text else None"},
        ),
        (FIND, TEST_FIND, {"text.find(word)": "text.find(word) + 1"}, {".find(": ".index("}),
        (
            LEVEL,
            TEST_LEVEL,
            {"raise ValueError(text)": "return 0"},
            {"ValueError(text)": "(ValueError if 'x' in text else KeyError)(text)"},
        ),
        (MEAN, TEST_MEAN, {" / ": " // "}, {"sum(values) / len(values)": "round(sum(values) / len(values), 3)"}),
        (CODE_OF, TEST_CODE_OF, {"[name]": "[name] + 1"}, {"[name]": ".get(name, 0)"}),
    ],
    ids=[
        "nothing for an empty answer",
        "an error for nothing found",
        "another error",
        "rounded",
        "an answer for an error",
    ],
)
def test_a_repair_may_differ_for_inputs_that_the_tests_leave_open(
    tmp_path: Path, code: str, tests: str, bug: dict[str, str], repair: dict[str, str]
) -> None:
    shop = opened(tmp_path, code, tests)
    buggy = replaced(code, bug)
    blind_tests = blind(shop, buggy)
    result = result_of(blind_tests, shop, state(shop, replaced(code, repair)))
    assert (result.wrong, result.not_repaired) == ((), ())
    assert result.unspecified
    assert result_of(blind_tests, shop, state(shop, buggy)).wrong


def test_values_that_exceed_the_output_limit_are_not_compared(tmp_path: Path) -> None:
    code = "def word(n):\n    return chr(ord('a') + n) * 1900\n"
    cases = [(n, chr(ord("a") + n) * 1900) for n in range(30)]
    tests = f"CASES = {cases}\n\n\ndef test_word():\n    for n, want in CASES:\n        assert word(n) == want\n"
    shop = opened(tmp_path, code, tests)
    blind_tests = blind(shop, code.replace("+ n", "+ n // 2"))
    assert result_of(blind_tests, shop, shop.original) == BlindResult()
    assert result_of(blind_tests, shop, state(shop, code.replace("+ n", "+ n // 2"))).wrong


RANDOM = """\
import secrets


def token():
    return "".join(secrets.choice("ab") for _ in range(12))
"""
RANDOM_TESTS = """\
def test_token():
    assert len(token()) == 12
    for letter in token():
        assert letter in "ab"
"""


def test_random_values_that_agree_by_chance_are_compared_with_the_expected_value(tmp_path: Path) -> None:
    shop = opened(tmp_path, RANDOM, RANDOM_TESTS)
    blind_tests = blind(shop, RANDOM.replace("12", "11"))
    assert result_of(blind_tests, shop, shop.original).wrong == ()
    assert result_of(blind_tests, shop, state(shop, RANDOM.replace('"ab"', '"cd"'))).wrong == (
        "test_shop.py::test_token",
    )


@pytest.mark.long
def test_inputs_that_make_the_original_slow_are_skipped(tmp_path: Path) -> None:
    code = "import time\n\n\ndef double(n):\n    if n != 21:\n        time.sleep(0.3)\n    return n * 2\n"
    shop = opened(tmp_path, code, "def test_double():\n    assert double(21) == 42\n")
    blind_tests = blind(shop, code.replace("n * 2", "n + 2"))
    result = result_of(blind_tests, shop, state(shop, code.replace("n * 2", "n * 2 if n == 21 else None")))
    assert result == BlindResult(unvaried=("test_shop.py::test_double",), one_sided=("shop.py:7: n == 21",))


def test_rows_that_pass_do_not_outvote_one_that_the_bug_breaks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With other inputs, the code is right for seven rows and wrong for the only one that the bug breaks."""
    names = {f"test_shop.py::test_mul[{row}]": f"test_shop.py::test_mul[{row}]" for row in range(8)}
    copies = tuple(Copy(f"test_shop_token{number}.py", b"", ()) for number in range(4))
    lines = [json.dumps([f"{c.path}::test_mul[{row}]", 0, True, [row]]) for c in copies for row in range(8)]
    suite = BlindSuite(tuple(FILES), {}, "token", 1.0, copies)
    reference = BlindReference(suite, {0: Site(("==",), (True,))}, names, tuple(names), tuple(lines), tuple(lines))
    tests = BlindTests(reference, ["test_shop.py::test_mul[7]"], [n for n in names if "[7]" not in n])
    ran: list[CodebaseState] = []
    monkeypatch.setattr(BlindSuite, "run", lambda suite, runner, tree: (ran.append(tree), ([], COMPLETED))[1])

    def compared(_: Comparison, case: str, *more: object) -> tuple[str, bool]:
        return "lost" if "[7]" in case and ran[-1].changes else "right", True

    monkeypatch.setattr(Comparison, "_compared", compared)
    shop = opened(tmp_path, TWO, TEST_TWO)
    assert result_of(tests, shop, state(shop, "")).not_repaired == ("test_shop.py::test_mul[7]",)


def test_a_machine_that_is_too_busy_for_the_original_gives_no_grade(
    runner: Runner, tests: BlindTests, monkeypatch: pytest.MonkeyPatch
) -> None:
    for kind in (BlindSuite, PlainSuite):
        monkeypatch.setattr(kind, "run", lambda *_: ([], SuiteRun(RunStatus.TIMED_OUT)))
    with pytest.raises(SandboxError):
        result_of(tests, runner, state(runner, CODE + "# repaired\n"))


def test_a_value_that_is_wrong_in_one_run_of_two_is_wrong(runner: Runner, tests: BlindTests) -> None:
    guessing = "import random\n\n\n" + CODE.replace("net + net", "net + random.choice([-1, 1]) * net")
    results = [result_of(tests, runner, state(runner, guessing)) for _ in range(4)]
    assert any(result.wrong for result in results)
    failed = next(result for result in results if result.wrong)
    # What the original computes today decides, not a second run of the patch.
    assert tests.confirmed(runner, failed) == failed


def test_values_that_the_original_no_longer_computes_are_unchecked(tmp_path: Path) -> None:
    """The references are of an earlier day, and the tests compute values from the date."""
    shop = opened(tmp_path, TWO, TEST_TWO)
    buggy = state(shop, TWO.replace("a * b", "a + b"))
    failing = ["test_shop.py::test_mul"]
    reference = measure_reference(shop, buggy, FILES, failing, (), random.Random(1))

    def earlier(lines: tuple[str, ...]) -> tuple[str, ...]:
        records = [json.loads(line) for line in lines]
        return tuple(json.dumps([*r[:3], [-v if isinstance(v, int) else v for v in r[3]]]) for r in records)

    assert reference.plain is not None
    parts = [
        replace(part, first_lines=earlier(part.first_lines), full_lines=earlier(part.full_lines))
        for part in (reference, reference.plain)
    ]
    old = replace(parts[0], plain=parts[1])
    result = result_of(BlindTests(old, failing, ()), shop, shop.original)
    assert (result.wrong, result.unchecked) == ((), tuple(failing))
    assert result_of(BlindTests(reference, failing, ()), shop, shop.original).unchecked == ()


LONG = """\
def shout(text):
    return text.upper() * 300


def lines(count):
    return "line\\n" * count + "end"
"""
LONG_TESTS = """\
def test_shout():
    assert shout("abc") == "ABC" * 300


def test_lines():
    assert lines(200).count("line") == 200
    assert "end" in lines(200)


@pytest.mark.parametrize("number", range(2000))
def test_little(number):
    assert number >= 0
"""


@pytest.mark.long
def test_long_values_are_compared_by_their_digests_if_there_are_many_tests(tmp_path: Path) -> None:
    """The space for values is divided among the tests; what `in` decides cannot be decided on digests."""
    runner = opened(tmp_path, LONG, LONG_TESTS)
    tests = blind(runner, replaced(LONG, {"upper": "lower", "count +": "(count - 1) +"}))
    honest = replaced(LONG, {"text.upper() * 300": "(text * 300).upper()", '+ "end"': '+ "the end"'})
    assert result_of(tests, runner, state(runner, honest)).unchecked == ()
    assert result_of(tests, runner, state(runner, honest)).wrong == ()
    wrong = replaced(LONG, {"text.upper() * 300": "text.upper() * 299 + 'ABc'"})
    assert result_of(tests, runner, state(runner, wrong)).wrong == ("test_shop.py::test_shout",)
