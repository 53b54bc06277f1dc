"""Removal: what remains of an emptied function, which runs are removed, and that unusual files do no harm."""

import ast
import os
import subprocess
import sys
import sysconfig
from collections.abc import Mapping
from itertools import islice
from pathlib import Path

import pytest

from pytest_ssr.injectors.equivalence import fingerprint, parses
from pytest_ssr.injectors.protocol import Candidate
from pytest_ssr.injectors.removal import RemovalInjector


class Files:
    """A source tree of files in memory."""

    origin = None

    def __init__(self, files: Mapping[str, bytes]) -> None:
        self.files = files

    def paths(self) -> list[str]:
        return sorted(self.files)

    def read(self, path: str) -> bytes:
        return self.files[path]

    code_paths = paths


def candidates_in(data: bytes, *others: bytes, most: int = 10_000) -> list[Candidate]:
    files = {"m.py": data, **{f"other{n}.py": o for n, o in enumerate(others)}}
    candidates = islice(RemovalInjector().candidates(Files(files), seed=0), most)
    return [c for c in candidates if c.path == "m.py"]


def emptied(data: bytes, *others: bytes) -> list[bytes]:
    return [c.changes["m.py"] or b"" for c in candidates_in(data, *others) if c.operator.endswith("-body")]


def results_of(operator: str, data: bytes) -> set[bytes]:
    return {c.changes["m.py"] or b"" for c in candidates_in(data) if c.operator == operator}


BODIES = {
    "value": (b"def f(x):\n    return x\n", b"def f(x):\n    return None\n"),
    "no value": (b"def f(x):\n    x.go()\n", b"def f(x):\n    pass\n"),
    "one line": (b"def f(x): return x\n", b"def f(x): return None\n"),
    "one line, two statements": (b"def f(x): x += 1; return x  # why\n", b"def f(x): return None\n"),
    "docstring": (b'def f(x):\n    """D."""\n    return x\n', b'def f(x):\n    """D."""\n    return None\n'),
    "docstring before a semicolon": (b'def f(x): "D."; return x\n', b'def f(x): "D."; return None\n'),
    "generator": (b"def f(x):\n    yield x\n", b"def f(x):\n    return\n    yield\n"),
    "generator on one line": (b"def f(x): yield x\n", b"def f(x): return; yield\n"),
    "async generator": (b"async def f(x):\n    yield x\n", b"async def f(x):\n    return\n    yield\n"),
    "coroutine": (b"async def f(x):\n    return await x\n", b"async def f(x):\n    return None\n"),
    "context manager": (
        b"@contextlib.contextmanager\ndef f(x):\n    x()\n    yield 1\n",
        b"@contextlib.contextmanager\ndef f(x):\n    yield\n",
    ),
    "tabs": (b"def f(x):\n\tif x:\n\t\treturn 1\n", b"def f(x):\n\treturn None\n"),
    "windows": (b"def f(x):\r\n    yield x\r\n", b"def f(x):\r\n    return\r\n    yield\r\n"),
    "no newline at the end": (b"def f(x):\n    return x", b"def f(x):\n    return None"),
    "byte order mark": (
        b"\xef\xbb\xbfimport a\ndef f(x):\n    return x\n",
        b"\xef\xbb\xbfimport a\ndef f(x):\n    return None\n",
    ),
    "comments": (
        b"def f(x):  # noqa\n    # first\n\n    # add 1\n    x += 1  # one\n    return x  # x\n    # end\n"
        b"\n\n# next\nY = 1\n",
        b"def f(x):  # noqa\n    return None\n\n\n# next\nY = 1\n",
    ),
    "overload beside the real one": (
        b"@t.overload\ndef f(x):\n    return 1\ndef f(x):\n    return x\n",
        b"@t.overload\ndef f(x):\n    return 1\ndef f(x):\n    return None\n",
    ),
    "init": (
        b"class A(B):\n    def __init__(self, x):\n        self.x = x\n        super().__init__(x)\n        go()\n",
        b"class A(B):\n    def __init__(self, x):\n        super().__init__(x)\n",
    ),
    "init that passes on what goes": (
        b"class A(B):\n    def __init__(self):\n        y = go()\n        super().__init__(y)\n",
        b"class A(B):\n    def __init__(self):\n        pass\n",
    ),
    "enter": (
        b"class A:\n    def __enter__(this):\n        go()\n        return this\n",
        b"class A:\n    def __enter__(this):\n        return this\n",
    ),
    "new": (
        b"class A:\n    def __new__(cls, x):\n        return go(x)\n",
        b"class A:\n    def __new__(cls, x):\n        return super().__new__(cls)\n",
    ),
    "metaclass": (
        b"class A(type):\n    def __new__(mcs, n, b, d):\n        return type(n, b, go(d))\n",
        b"class A(type):\n    def __new__(mcs, n, b, d):\n        return super().__new__(mcs, n, b, d)\n",
    ),
    "repr": (
        b"class A:\n    def __repr__(self):\n        return 'A'\n",
        b"class A:\n    def __repr__(self):\n        return ''\n",
    ),
    "property": (
        b"class A:\n    @property\n    def x(self):\n        return self.y\n",
        b"class A:\n    @property\n    def x(self):\n        return None\n",
    ),
    "getattr": (
        b"class A:\n    def __getattr__(self, n):\n        return 1\n",
        b"class A:\n    def __getattr__(self, n):\n        raise AttributeError(n)\n",
    ),
    "decorator": (
        b"def f(g):\n    return go(g)\n@f\ndef h(): pass\n",
        b"def f(g):\n    return g\n@f\ndef h(): pass\n",
    ),
    "decorator with arguments": (
        b"def f(n):\n    return go(n)\n@f(1)\ndef h(): pass\n",
        b"def f(n):\n    return lambda decorated: decorated\n@f(1)\ndef h(): pass\n",
    ),
    "decorator with and without arguments": (
        b"def f(g=None, *, n=1):\n    return go(g, n)\n@f(n=1)\ndef h(): pass\n@f\ndef i(): pass\n",
        b"def f(g=None, *, n=1):\n    return (lambda decorated: decorated) if g is None else g\n"
        b"@f(n=1)\ndef h(): pass\n@f\ndef i(): pass\n",
    ),
}


@pytest.mark.parametrize(("before", "after"), BODIES.values(), ids=BODIES)
def test_an_emptied_function_keeps_what_callers_and_imports_need(before: bytes, after: bytes) -> None:
    assert emptied(before) == [after]


@pytest.mark.parametrize(
    "body",
    [b"pass", b"...", b"return", b"return None", b"raise NotImplementedError", b'"D."', b'"D."; ...', b'"a" "b"'],
)
def test_empty_functions_are_ignored(body: bytes) -> None:
    assert candidates_in(b"def f(x): " + body + b"\n") == []
    assert candidates_in(b"class A:\n    @abstractmethod\n    def f(self):\n        " + body + b"\n") == []


def test_a_nested_function_is_emptied_on_its_own() -> None:
    data = b"def f(x):\n    def g(y):\n        return lambda: x + y\n    return g\n"
    assert b"def f(x):\n    def g(y):\n        return None\n    return g\n" in emptied(data)


@pytest.mark.parametrize(
    "use",
    [b"X = build()\n", b"import m\nX = m.build(1)\n", b"if X:\n    y = [build()]\n", b"class A:\n    y = build()\n"],
)
def test_what_runs_on_import_keeps_its_body(use: bytes) -> None:
    data = b"def build(a=1):\n    return a\n"
    assert len(emptied(data)) == 1
    assert emptied(data + use) == []


def test_a_decorator_used_in_another_file_stays_a_decorator() -> None:
    (result,) = emptied(b"def mark(thing):\n    return go(thing)\n", b"import m\n@m.mark\nclass A: pass\n")
    assert result == b"def mark(thing):\n    return thing\n"


def test_a_run_is_removed_with_its_comments_and_without_a_gap() -> None:
    data = b"def f(x):\n    x.a()\n\n    # both\n    x.b()  # b\n    x.c()\n        # deep\n\n    x.d()\n"
    assert b"def f(x):\n    x.a()\n\n    x.d()\n" in results_of("remove-hunk", data)
    assert b"def f(x):\n    x.a()\n" in results_of("remove-hunk", data)


def test_a_run_whose_values_are_needed_later_is_kept() -> None:
    data = b"def f(x):\n    y = x\n    z = 1\n    x.go(z)\n    return y\n"
    assert results_of("remove-hunk", data) == {
        b"def f(x):\n    y = x\n    return y\n",
        b"def f(x):\n    y = x\n    z = 1\n",
        b"def f(x):\n    y = x\n",
    }


@pytest.mark.parametrize(
    "binding",
    [
        b"(y, [z]) = x",
        b"for y in x: pass",
        b"with x as y: pass",
        b"import a.b as y",
        b"from a import y",
        b"def y(): pass",
        b"class y: pass",
        b"print(y := x)",
        b"y: int = 1",
    ],
)
def test_every_way_to_bind_a_name_counts(binding: bytes) -> None:
    data = b"def f(x):\n    x.a()\n    " + binding + b"\n    return y\n"
    assert results_of("remove-hunk", data) == {b"def f(x):\n    x.a()\n"}


def test_names_of_comprehensions_lambdas_and_nested_functions_are_local() -> None:
    data = (
        b"def f(x):\n    a([y for y in x])\n    b(lambda y: y)\n    def g(y): return y\n    c(g)\n"
        b"    return [y for y in x]\n"
    )
    assert b"def f(x):\n    def g(y): return y\n    c(g)\n    return [y for y in x]\n" in results_of(
        "remove-hunk", data
    )


def test_a_generator_never_loses_its_last_yield() -> None:
    data = b"def f(x):\n    x.a()\n    x.b()\n    yield 1\n    x.c()\n"
    hunks = results_of("remove-hunk", data)
    assert hunks
    assert all(b"yield" in result for result in hunks)


def test_branches_lose_their_logic() -> None:
    data = (
        b"def f(x):\n    if x:\n        x.a()\n    elif x > 1:\n        x.b()\n    else:\n        x.c()\n"
        b"    if x: return 1\n    try:\n        x.d()\n    except A:\n        x.e()\n    except B:\n        x.f()\n"
        b"    match x:\n        case 1:\n            x.g()\n        case 2:\n            x.h()\n"
    )
    results = results_of("remove-branch-logic", data)
    for removed in (
        b"    elif x > 1:\n        x.b()\n",
        b"    else:\n        x.c()\n",
        b"    if x: return 1\n",
        b"    except B:\n        x.f()\n",
        b"        case 2:\n            x.h()\n",
    ):
        assert data.replace(removed, b"") in results
    assert data.replace(b"x.a()", b"pass") in results
    assert data.replace(b"x.g()", b"pass") in results


@pytest.mark.parametrize(
    "data",
    [
        b"def f(:\n    return 1\n",
        b"",
        b"\xff\xfe\x00",
        b"# -*- coding: nonsense -*-\ndef f(): return 1\n",
        b"def f():\n\treturn 1\n        return 2\n",
        b"x = " + b"(" * 300 + b")" * 300,
        b"if 1:\n  pass\n\x0c\n",
        b"def f(x): return x" + b" + x" * 20_000,
    ],
)
def test_unusual_files_do_no_harm(data: bytes) -> None:
    for candidate in candidates_in(data):
        assert parses(candidate.changes["m.py"] or b"(")


def test_a_file_of_python_2_is_skipped() -> None:
    assert candidates_in(b"def f(x):\n    return x\n") != []
    assert candidates_in(b"def f(x):\n    return x\n\n\nprint 'a'\n") == []


def test_candidates_have_a_location() -> None:
    data = b"# top\n\nclass A:\n    def f(self):\n        go()\n        self.x = 1\n"
    (body,) = [c for c in candidates_in(data) if c.operator == "remove-method-body"]
    assert (body.strategy, body.path, body.line, body.scope) == ("removal", "m.py", 5, "A.f")
    assert body.detail.endswith("-> pass")


STDLIB = Path(sysconfig.get_path("stdlib"))
SOME = ("argparse.py", "contextlib.py", "dataclasses.py", "enum.py", "json/decoder.py", "asyncio/tasks.py", "typing.py")


@pytest.mark.long
@pytest.mark.parametrize("name", SOME)
def test_removals_from_the_standard_library_parse_and_differ(name: str) -> None:
    data = (STDLIB / name).read_bytes()
    comments = data.count(b"#")
    candidates = candidates_in(data, most=40)
    assert len(candidates) > 20
    for candidate in candidates:
        result = candidate.changes["m.py"] or b""
        ast.parse(result)
        assert fingerprint(data) != fingerprint(result)
        assert result.count(b"#") <= comments


def test_the_order_depends_on_the_seed_and_not_on_the_hash_seed() -> None:
    code = (
        "import sys, hashlib; sys.path.insert(0, sys.argv[1]); from test_removal import *; "
        "data = (STDLIB / 'argparse.py').read_bytes(); "
        "print(hashlib.sha256(repr([c.changes for c in candidates_in(data, most=30)]).encode()).hexdigest())"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", code, str(Path(__file__).parent)],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(outputs) == 1
    tree = Files({"m.py": (STDLIB / "argparse.py").read_bytes()})
    one, two = ([c.changes for c in islice(RemovalInjector().candidates(tree, seed=s), 30)] for s in (1, 2))
    assert one != two
