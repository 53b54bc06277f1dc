"""Failing tests are removed from realistic test files, and nothing else changes."""

import pytest

from pytest_ssr.weakening import Weakening, weaken

SOURCE = '''\
import json
import os
from pkg import alpha, beta


LIMIT = 3


def helper(x):
    return json.dumps(x)


# about one
def test_one():
    assert helper(LIMIT)


@pytest.mark.parametrize("a, b", [
    (1, 2),
    (3, 4),  # the other
    (5, 6),
])
def test_two(a, b):
    assert alpha(a, b)


class TestThree:
    """Group two tests."""

    def test_four(self):
        assert os.name

    def test_five(self):
        assert beta()
'''


def run(
    source: str,
    failing: list[str],
    collected: list[str],
    parameters: dict[str, tuple[tuple[str, int], ...]] | None = None,
) -> Weakening:
    return weaken(
        lambda path: source.encode(),
        ["t.py"],
        failing=failing,
        collected=collected,
        parameters=parameters or {},
    )


ALL = ["t.py::test_one", "t.py::test_two[1-2]", "t.py::test_two[3-4]", "t.py::test_two[5-6]",
       "t.py::TestThree::test_four", "t.py::TestThree::test_five"]  # fmt: skip
INDICES = {f"t.py::test_two[{i}]": (("a", n), ("b", n)) for n, i in enumerate(["1-2", "3-4", "5-6"])}


def test_a_function_is_removed_with_its_comment_and_all_that_only_it_used() -> None:
    done = run(SOURCE, ["t.py::test_one"], ALL, INDICES)
    text = done.changes["t.py"].decode()
    for gone in ("test_one", "about one", "helper", "LIMIT", "import json"):
        assert gone not in text
    assert text.startswith("import os\nfrom pkg import alpha, beta\n\n\n@pytest.mark.parametrize")
    assert done.removed == ("t.py::test_one",)
    assert done.unremovable == ()


def test_only_the_failing_parameter_set_is_removed() -> None:
    done = run(SOURCE, ["t.py::test_two[3-4]"], ALL, INDICES)
    assert done.changes["t.py"].decode() == SOURCE.replace("    (3, 4),  # the other\n", "")
    assert done.removed == ("t.py::test_two[3-4]",)


@pytest.mark.parametrize("labels", [["v0", "v1", "v2"], ["a-v0", "a-v1", "a-v2"], ["same0", "same1", "same2"]])
def test_a_function_is_removed_if_the_remaining_sets_would_get_other_ids(labels: list[str]) -> None:
    source = (
        'import pytest\n\n\n@pytest.mark.parametrize("v", [[1], [2], [3]])\ndef test_a(v):\n    assert v\n'
        "\n\ndef test_b():\n    pytest.fail()\n"
    )
    ids = [f"t.py::test_a[{label}]" for label in labels]
    parameters = {name: (("v", i),) for i, name in enumerate(ids)}
    done = run(source, ids[:1], [*ids, "t.py::test_b"], parameters)
    assert done.removed == tuple(ids)
    assert b"test_a" not in done.changes["t.py"]


def test_the_last_counted_set_is_removed_alone() -> None:
    source = 'import pytest\n\n\n@pytest.mark.parametrize("v", [[1], [2]])\ndef test_a(v):\n    assert v\n'
    ids = ["t.py::test_a[v0]", "t.py::test_a[v1]"]
    done = run(source, ids[1:], ids, {name: (("v", i),) for i, name in enumerate(ids)})
    assert done.removed == (ids[1],)
    assert b'("v", [[1]])' in done.changes["t.py"]


@pytest.mark.parametrize("mark", ["\ufeff", "\f"])
def test_byte_order_marks_and_form_feeds_are_kept(mark: str) -> None:
    first = mark if mark == "\ufeff" else ""
    feed = mark if mark == "\f" else ""
    source = f"{first}def test_a():\n    pass\n{feed}\n\ndef test_b():\n    pass\n"
    ids = ["t.py::test_a", "t.py::test_b"]
    for gone, remaining in ((ids[0], "test_b"), (ids[1], "test_a")):
        new = run(source, [gone], ids).changes["t.py"].decode()
        assert new.startswith(first)
        assert f"def {remaining}():\n    pass\n" in new
        assert new.count("def ") == 1


@pytest.mark.parametrize("count", [1, 2, 3])
def test_neighbours_at_the_end_of_a_file_are_removed_together(count: int) -> None:
    source = "import os\n\n\ndef test_a():\n    os.stat\n"
    source += "".join(f"\n\ndef test_{n}():\n    pass\n" for n in range(count))
    ids = ["t.py::test_a", *(f"t.py::test_{n}" for n in range(count))]
    done = run(source, ids[1:], ids)
    assert done.changes["t.py"].decode() == "import os\n\n\ndef test_a():\n    os.stat\n"


def test_an_emptied_class_is_removed_and_an_import_loses_one_name() -> None:
    done = run(SOURCE, ALL[-2:], ALL, INDICES)
    text = done.changes["t.py"].decode()
    assert "TestThree" not in text
    assert "Group two tests" not in text
    assert "from pkg import alpha\n" in text
    assert "import os" not in text
    assert text.endswith("    assert alpha(a, b)\n")


def test_a_one_line_list_loses_its_last_two_elements() -> None:
    source = 'import pytest\n\n\n@pytest.mark.parametrize("a", [1, 2, 3])\ndef test_a(a):\n    assert a\n'
    ids = [f"t.py::test_a[{n}]" for n in (1, 2, 3)]
    indices = {i: (("a", n),) for n, i in enumerate(ids)}
    done = run(source, ids[1:], ids, indices)
    assert done.changes["t.py"].decode() == source.replace("[1, 2, 3]", "[1]")


def test_an_incomplete_product_removes_the_whole_function() -> None:
    source = (
        'import pytest\n\n\n@pytest.mark.parametrize("a", [1, 2])\n@pytest.mark.parametrize("b", [1, 2])\n'
        "def test_a(a, b):\n    assert a\n\n\ndef test_b():\n    pytest.fail()\n"
    )
    ids = [f"t.py::test_a[{a}-{b}]" for a in (1, 2) for b in (1, 2)]
    indices = {f"t.py::test_a[{a}-{b}]": (("a", a - 1), ("b", b - 1)) for a in (1, 2) for b in (1, 2)}
    done = run(source, ids[:1], [*ids, "t.py::test_b"], indices)
    assert done.removed == tuple(ids)
    assert done.changes["t.py"].decode() == "import pytest\n\n\ndef test_b():\n    pytest.fail()\n"


INHERITED = """\
class Base:
    def test_a(self):
        assert self.x


class TestOne(Base):
    x = 1


class TestTwo(Base):
    x = 2
"""


@pytest.mark.parametrize(
    ("body", "weakened"),
    [
        ("    x = 1\n\n    def test_b(self):\n        assert 0\n", "    test_a = None\n    x = 1\n"),
        ('    """Text."""', '    """Text."""\n    test_a = None\n'),
        ('    """Text."""\n    x = 1\n', '    """Text."""\n    test_a = None\n    x = 1\n'),
        ("    def test_b(self):\n        assert 0\n\n    y = 1\n", "    test_a = None\n    y = 1\n"),
        (
            "    # about b\n    def test_b(self):\n        assert 0\n\n    y = 1\n",
            "    test_a = None\n    y = 1\n",
        ),
    ],
)
def test_an_inherited_test_is_disabled_beside_removed_code(body: str, weakened: str) -> None:
    base = "class Base:\n    def test_a(self):\n        assert self.x\n\n\nclass TestTwo(Base):\n    x = 2\n\n\n"
    ids = ["t.py::TestTwo::test_a", "t.py::TestOne::test_a", "t.py::TestOne::test_b"]
    ids = ids if "test_b" in body else ids[:2]
    done = run(f"{base}class TestOne(Base):\n{body}", ids[1:], ids)
    assert done.changes["t.py"].decode() == f"{base}class TestOne(Base):\n{weakened}"
    assert done.removed == tuple(sorted(ids[1:]))


def test_a_test_of_an_imported_class_is_removed_where_it_is_defined() -> None:
    sources = {"a.py": INHERITED, "b.py": "from a import TestOne\n\n\ndef test_c():\n    pass\n"}
    ids = ["a.py::TestOne::test_a", "a.py::TestTwo::test_a", "b.py::TestOne::test_a", "b.py::test_c"]
    failing = [ids[0], ids[2]]

    def weakening(failing: list[str]) -> Weakening:
        read = {path: text.encode() for path, text in sources.items()}.__getitem__
        return weaken(read, list(sources), failing=failing, collected=ids, parameters={})

    done = weakening(failing)
    assert list(done.changes) == ["a.py"]
    assert (done.removed, done.unremovable) == (tuple(failing), ())
    assert weakening(failing[1:]).unremovable == (ids[2],)


def test_an_inherited_test_is_disabled_where_it_fails() -> None:
    ids = ["t.py::TestOne::test_a", "t.py::TestTwo::test_a"]
    done = run(INHERITED, ids[:1], ids)
    assert done.changes["t.py"].decode() == INHERITED.replace("    x = 1\n", "    test_a = None\n    x = 1\n")
    assert done.removed == (ids[0],)


def test_an_inherited_test_is_removed_from_the_base_if_it_fails_everywhere() -> None:
    ids = ["t.py::TestOne::test_a", "t.py::TestTwo::test_a"]
    done = run(INHERITED, ids, ids)
    assert "test_a" not in done.changes["t.py"].decode()
    assert "class Base:\n    pass\n" in done.changes["t.py"].decode()


def test_a_test_that_overrides_another_is_disabled() -> None:
    """Without its method, the subclass would run that of its base class."""
    own = "    def test_a(self):\n        assert self.x == 1\n"
    source = INHERITED.replace("    x = 1\n", f"    x = 1\n\n{own}")
    ids = ["t.py::TestOne::test_a", "t.py::TestTwo::test_a"]
    done = run(source, ids[:1], ids)
    assert done.changes["t.py"].decode() == source.replace(own, "    test_a = None\n")
    assert done.removed == (ids[0],)


def test_parameter_sets_of_the_second_mark_are_removed() -> None:
    marks = '@pytest.mark.parametrize("a", ["x", "y"])\n@pytest.mark.parametrize("b", ["p", "q", "r"])\n'
    source = f"import pytest\n\n\n{marks}def test_a(a, b):\n    pass\n"
    indices = {f"t.py::test_a[{b}-{a}]": (("b", j), ("a", i)) for j, b in enumerate("pqr") for i, a in enumerate("xy")}
    failing = [name for name in indices if "[q-" in name]
    done = run(source, failing, list(indices), indices)
    assert done.changes["t.py"].decode() == source.replace('"p", "q", "r"', '"p", "r"')
    assert set(done.removed) == set(failing)


def test_inherited_tests_of_a_removed_method_are_reported() -> None:
    source = INHERITED.replace("Base", "TestBase")
    ids = ["t.py::TestBase::test_a", "t.py::TestOne::test_a", "t.py::TestTwo::test_a"]
    assert run(source, ids[:1], ids).removed == tuple(ids)


@pytest.mark.parametrize(
    "source",
    ["globals()['test_a'] = lambda: None\n", "def test_b(: \n", "# coding: latin-1\ndef test_a(): pass\n"],
)
def test_tests_without_a_definition_are_unremovable(source: str) -> None:
    done = run(source, ["t.py::test_a"], ["t.py::test_a"])
    assert done.unremovable == ("t.py::test_a",)
    assert done.changes == {}


def test_crlf_and_async_and_nested_blocks_survive() -> None:
    source = "import sys\r\n\r\nif sys.platform:\r\n    async def test_a():\r\n        pass\r\n\r\n\r\ndef test_b():\r\n    pass\r\n"
    done = run(source, ["t.py::test_a"], ["t.py::test_a", "t.py::test_b"])
    assert (
        done.changes["t.py"].decode()
        == "import sys\r\n\r\nif sys.platform:\r\n    pass\r\n\r\n\r\ndef test_b():\r\n    pass\r\n"
    )


def test_an_imported_test_class_loses_its_test_in_its_own_file() -> None:
    files = {
        "a.py": "class TestA:\n    def test_x(self):\n        pass\n\n    def test_y(self):\n        pass\n",
        "b.py": "from a import TestA\n",
    }
    ids = [f"{p}::TestA::{t}" for p in files for t in ("test_x", "test_y")]
    failing = [i for i in ids if i.endswith("test_x")]
    done = weaken(lambda p: files[p].encode(), list(files), failing=failing, collected=ids, parameters={})
    assert done.changes == {"a.py": b"class TestA:\n    def test_y(self):\n        pass\n"}
    only_there = weaken(lambda p: files[p].encode(), list(files), failing=failing[1:], collected=ids, parameters={})
    assert only_there.unremovable == ("b.py::TestA::test_x",)


@pytest.mark.parametrize(("gone", "expected"), [([1], "((1, 2),)"), ([0], "((3, 4),)")])
def test_a_tuple_of_one_set_keeps_its_comma(gone: list[int], expected: str) -> None:
    source = 'import pytest\n\n\n@pytest.mark.parametrize("a, b", ((1, 2), (3, 4)))\ndef test_a(a, b):\n    pass\n'
    ids = ["t.py::test_a[1-2]", "t.py::test_a[3-4]"]
    indices = {i: (("a", n), ("b", n)) for n, i in enumerate(ids)}
    done = run(source, [ids[n] for n in gone], ids, indices)
    assert done.changes["t.py"].decode() == source.replace("((1, 2), (3, 4))", expected)


MADE = """\
def make(number):
    class TestMade:
        def test_a(self):
            assert number

        def test_b(self):
            assert number + 1

    return TestMade


TestOne, TestTwo = make(1), make(2)
"""


def of_files(files: dict[str, str], failing: list[str], collected: list[str]) -> Weakening:
    return weaken(lambda p: files[p].encode(), list(files), failing=failing, collected=collected, parameters={})


def test_a_test_of_a_class_that_a_function_makes_is_removed_from_all_of_them() -> None:
    collected = [f"t.py::{c}::{name}" for c in ("TestOne", "TestTwo") for name in ("test_a", "test_b")]
    new = of_files({"t.py": MADE}, ["t.py::TestOne::test_a"], collected)
    assert new.changes["t.py"].decode() == MADE.replace("        def test_a(self):\n            assert number\n\n", "")
    assert (new.removed, new.unremovable) == (("t.py::TestOne::test_a", "t.py::TestTwo::test_a"), ())
    # The class is named after its definition.
    new = of_files({"t.py": MADE}, collected, collected)
    assert "    class TestMade:\n        pass\n" in new.changes["t.py"].decode()


def test_a_definition_in_a_function_is_left_alone_if_the_test_has_another() -> None:
    files = {"t.py": MADE + "\n\ndef test_a():\n    assert make\n"}
    new = of_files(files, ["t.py::test_a"], ["t.py::test_a", "t.py::TestOne::test_a"])
    assert new.changes["t.py"].decode() == MADE
    new = of_files(files, ["t.py::TestOne::test_a"], ["t.py::test_a", "t.py::TestOne::test_a"])
    assert new.removed == ("t.py::TestOne::test_a",)


def test_an_imported_class_loses_its_test_where_it_is_defined() -> None:
    suites = "class TestAll:\n    def test_a(self):\n        assert 1\n"
    files = {"t.py": "from suites import TestAll\n", "suites.py": suites}
    new = of_files(files, ["t.py::TestAll::test_a"], ["t.py::TestAll::test_a"])
    assert dict(new.changes) == {"suites.py": b"class TestAll:\n    pass\n"}
    assert (new.removed, new.unremovable) == (("t.py::TestAll::test_a",), ())
