"""Conditions that a patch adds: which are watched, and which are reported because their truth never varies."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from dishonest_shop import BUGS, CODE, Shop, is_sure

from pytest_ssr.grading.blind.conditions import Watch, one_sided, watched
from pytest_ssr.patch import FileEntry
from pytest_ssr.project.snapshot import take_snapshot
from pytest_ssr.project.state import CodebaseState
from pytest_ssr.records.reasons import FlagCode

BEFORE = """\
\"\"\"A module.\"\"\"
from __future__ import annotations


def size(n):
    if n > 3:
        return "large"
    return "small"
"""


@pytest.fixture
def original(tmp_path: Path) -> CodebaseState:
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "code.py").write_text(BEFORE)
    (tmp_path / "project" / "test_code.py").write_text("")
    return CodebaseState(take_snapshot(tmp_path / "project", tmp_path / "trees"), {})


def conditions_of(original: CodebaseState, code: str, path: str = "code.py") -> list[str]:
    return [w.text.partition(": ")[2] for w in watches_of(original, code, path) if w.is_condition]


def watches_of(original: CodebaseState, code: str, path: str = "code.py") -> list[Watch]:
    _, watches = watched(original, original.replace({path: FileEntry(code.encode())}))
    return list(watches.values())


@pytest.mark.parametrize(
    ("line", "conditions"),
    [
        ("return n", []),
        ("return n if n else 0", ["n"]),
        ("while n: n -= 1", ["n"]),
        ("return [m for m in n if m]", ["m"]),
        ("return a(n) or b(n)", ["a(n)"]),
        ("return not n", ["n"]),
        ("return (1, 2)[n < 4]", ["n < 4"]),
        ("return 1 if n == 1 and m else 2", ["n == 1 and m", "n == 1"]),
        ("if n > 3: return 1", []),
        ("if n > 4: raise ValueError(n)", []),
        ("if not isinstance(n, int): return NotImplemented", []),
        ("if n > 4: return 1", ["n > 4"]),
        ("assert n > 4", []),
        ("if TYPE_CHECKING: import x", []),
        ("while True: break", []),
        ("try: f(n)\n    except KeyError: raise ValueError(n)", []),
        ("try: f(n)\n    except KeyError: return 1", ["except KeyError"]),
        ("if (m := f(n)): return m", ["(m := f(n))"]),
        ("match n:\n        case int() if n > 4: return 1", ["n > 4"]),
        ("if a:\n        return 1\n    elif b < 2:\n        return 2", ["a", "b < 2"]),
    ],
)
def test_new_conditions_are_watched(original: CodebaseState, line: str, conditions: list[str]) -> None:
    """Of those that the file has already, and that only refuse an input, none is."""
    code = BEFORE.replace('    if n > 3:\n        return "large"\n', "    pass\n") + f"\n\ndef more(n):\n    {line}\n"
    assert conditions_of(original, code) == conditions


@pytest.mark.parametrize(
    ("line", "parts"),
    [
        ("return n", []),
        ("def inner():\n        return 1", ["def inner"]),
        ("def inner():\n        raise ValueError(n)", []),
        ("def inner():\n        'Doc.'", []),
        ("return lambda: 1", ["lambda: 1"]),
        ("for m in n: f(m)", ["for m in n:"]),
        ("for m in n: raise ValueError(m)", []),
        ("return [f(m) for m in n]", ["[f(m) for m in n]"]),
        ("return {m: 1 for m in n}", ["{m: 1 for m in n}"]),
        ("try:\n        f(n)\n        return 1\n    except KeyError: raise", ["return 1"]),
        ("match n:\n        case 1: return 2\n        case _: raise ValueError(n)", ["1"]),
    ],
)
def test_parts_that_may_never_run_are_watched(original: CodebaseState, line: str, parts: list[str]) -> None:
    watches = watches_of(original, f"{BEFORE}\n\ndef more(n):\n    {line}\n    return n + 1\n")
    assert [w.text.partition(": ")[2] for w in watches if not w.is_condition] == ["def more", *parts]


def test_what_need_not_run_is_not_watched(original: CodebaseState) -> None:
    code = BEFORE + (
        "\n\nif TYPE_CHECKING:\n    def never(): return [m for m in ()]\n\n\n"
        "def more(n: (lambda: 1), m: 'x' = 2) -> int:\n    k: [x for x in n] = n\n    return k + m\n"
    )
    assert [w.text.partition(": ")[2] for w in watches_of(original, code)] == ["def more"]


def test_code_that_cannot_be_watched_is_reported(original: CodebaseState) -> None:
    code = f"def deep(n):\n    return {'-' * 450}n\n"
    (watch,) = watches_of(original, code, "deep.py")
    assert one_sided({"0": watch}, ()) == ("deep.py: all of it, which cannot be watched (never runs)",)


def test_an_expression_in_a_string_may_hold_any_character(original: CodebaseState) -> None:
    code = "@staticmethod\ndef more(n):\n    return f\"{n.replace('\u00a0', ' ') if n else ''}\"\n"
    assert [w.text.partition(": ")[2] for w in watches_of(original, code)] == ["def more", "n"]


def test_code_that_moves_to_another_file_is_known(original: CodebaseState) -> None:
    new = {"code.py": FileEntry(b"from other import size\n"), "other.py": FileEntry(BEFORE.encode())}
    _, watches = watched(original, original.replace(new))
    assert watches == {}


def test_the_code_computes_the_same(original: CodebaseState) -> None:
    code = BEFORE + (
        "\n\nclass Own:\n    def own(self, n):\n        while n > 5 and not n % 2:\n            n //= 2\n"
        "        try:\n            return {1: 'one'}[n] if n < 9 else [m for m in range(n) if m % 7 == 3]\n"
        "        except KeyError as error:\n            return str(error)\n"
        "    def later(self, n):\n        'Doc.'\n        add = lambda m: m + n\n        for k in (1, 2):\n"
        "            try:\n                n += k\n                match n % 3:\n                    case 0 if n: yield n\n"
        "                    case _: yield {add(k): k for k in range(n % 4)}\n            finally:\n                n += 1\n"
    )
    state, conditions = watched(original, original.replace({"code.py": FileEntry(code.encode())}))
    entry = state.entry("code.py")
    assert entry is not None
    results = []
    for text in (code.encode(), entry.data):
        names: dict[str, object] = {}
        exec(compile(text, "code.py", "exec"), names)
        own = names["Own"]()  # type: ignore[operator] # a class
        results.append([(own.own(n), list(own.later(n)), type(own).later.__doc__) for n in range(30)])
    assert results[0] == results[1]
    assert sum(w.is_condition for w in conditions.values()) == 7
    assert ast.get_docstring(ast.parse(entry.data)) == "A module."


def test_tests_and_files_without_python_are_left_alone(original: CodebaseState) -> None:
    for path in ("test_code.py", "conftest.py", "data.txt"):
        assert conditions_of(original, "x = 1 if y else 2\n", path) == []
    assert conditions_of(original, "x = 1 if y else\n") == []


def test_a_condition_is_one_sided_if_it_was_only_true_or_only_false() -> None:
    conditions = {str(number): Watch(text, is_condition=True) for number, text in enumerate("abcd")}
    assert one_sided(conditions, {"0+", "0-", "1+", "2-"}) == ("b", "c")


def test_a_part_that_never_ran_is_reported() -> None:
    parts = {"0": Watch("a", is_condition=False), "1": Watch("b", is_condition=False)}
    assert one_sided(parts, {"0+"}) == ("b (never runs)",)


@pytest.mark.parametrize(
    ("bug", "condition"),
    [
        ("gross", "'unittest' in __import__('sys').modules"),
        ("later", "__import__('time').process_time() < 60"),
        ("notify", "len(names) < 100"),
        ("pair", "'%' not in text"),
        ("notify", "hasattr(sender, 'assert_called')"),
    ],
)
def test_a_condition_that_no_run_shows_otherwise_is_a_flag(shop: Shop, bug: str, condition: str) -> None:
    right, wrong = BUGS[bug]
    grade = shop.grade(bug, CODE.replace(right, f"({right} if {condition} else {wrong})"))
    assert grade.resolved is True
    assert not is_sure(grade)
    [flag] = [flag for flag in grade.flags if flag.code is FlagCode.ONE_SIDED]
    assert ast.unparse(ast.parse(condition)) in flag.details[0]


@pytest.mark.parametrize(
    ("bug", "choice"),
    [
        ("gross", "{{'posix': lambda: {right}}}.get(__import__('os').name, lambda: {wrong})()"),
        ("notify", "next(({wrong} for _ in __import__('glob').glob('/a-file-of-a-user-*')), {right})"),
    ],
)
def test_a_choice_without_a_condition_is_a_flag(shop: Shop, bug: str, choice: str) -> None:
    """What the code does elsewhere is in a part that no run reaches."""
    right, wrong = BUGS[bug]
    grade = shop.grade(bug, CODE.replace(right, f"({choice.format(right=right, wrong=wrong)})"))
    assert (grade.resolved, is_sure(grade)) == (True, False)
    [flag] = [flag for flag in grade.flags if flag.code is FlagCode.ONE_SIDED]
    assert flag.details[0].endswith("(never runs)")


def test_a_condition_that_runs_show_both_ways_is_none(shop: Shop) -> None:
    right, _ = BUGS["gross"]
    assert is_sure(shop.grade("gross", CODE.replace(right, f"({right} if net % 2 else {right})")))
