"""The injector `mutmut` against mutmut itself."""

import ast
import sys
import sysconfig
import textwrap
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from types import ModuleType

import pytest

from pytest_ssr.errors import MissingExtraError
from pytest_ssr.injectors.equivalence import parses
from pytest_ssr.injectors.mutmut_table import MutmutInjector

SAMPLE = '''"""Doc."""


def f(a, b=1, *rest, **more):
    """Doc."""
    c = (not (
        a or b
    ))
    total = 0
    total += max(
        a,  # the first
        b,
    )
    d = dict(x=1, y=2)
    if (a < b) and a is not None:
        return "Text", a.lower().split(",", 1), ~b
    for i in rest:
        if i in d:
            continue
        break
    match a:
        case 1:
            total -= 1
        case 2:
            total = None
        case _:
            pass
    return (lambda: 1) if total else (
        b ** 2
    )
'''


class Files:
    """A tree in memory."""

    origin = None

    def __init__(self, **files: bytes) -> None:
        self.files = {f"{n}.py": t for n, t in files.items()}

    def paths(self) -> Sequence[str]:
        return sorted(self.files)

    def code_paths(self) -> Sequence[str]:
        return self.paths()

    def read(self, path: str) -> bytes:
        return self.files[path]


def mutants(data: bytes, seed: int = 0, limit: int | None = None) -> list[bytes]:
    candidates = islice(MutmutInjector().candidates(Files(m=data), seed=seed), limit)
    return [new for c in candidates for new in c.changes.values() if new is not None]


def by_mutmut(text: str) -> set[str]:
    """Return the programs that result if LibCST puts mutmut's nodes into the tree of the whole file."""
    cst = pytest.importorskip("libcst")
    mutators = pytest.importorskip("mutmut.mutation.mutators")
    module = cst.parse_module(text)
    trees: set[str] = set()

    def visit(node: object) -> None:
        for kind, operator in mutators.mutation_operators:
            if isinstance(node, kind):
                for changed in operator(node):
                    new = module.deep_replace(node, changed).code
                    if parses(new.encode()):
                        trees.add(ast.dump(ast.parse(new)))
        for child in node.children:  # type: ignore[attr-defined]  # any node of LibCST, which may be absent
            visit(child)

    visit(module)
    return trees - {ast.dump(ast.parse(text))}


def test_the_programs_are_those_of_mutmut_itself() -> None:
    pytest.importorskip("mutmut")
    expected = by_mutmut(SAMPLE)
    actual = {ast.dump(ast.parse(new)) for new in mutants(SAMPLE.encode())}
    assert len(actual) > 40
    assert actual <= expected
    assert expected - actual == set()


def test_the_rest_of_the_file_stays_as_it_is() -> None:
    pytest.importorskip("mutmut")
    news = mutants(SAMPLE.encode())
    assert sum(b"# the first" in new for new in news) >= len(news) - 4
    assert all(new.startswith(b'"""Doc."""\n\n\ndef f(a, b') and b'    """Doc."""\n' in new for new in news)


def test_candidates_are_named_after_the_operators_of_mutmut() -> None:
    pytest.importorskip("mutmut")
    candidates = list(MutmutInjector().candidates(Files(m=b"def f():\n    g(~h)\n"), seed=0))
    assert sorted(c.operator for c in candidates) == ["arg-removal", "remove-unary-ops"]
    one = next(c for c in candidates if c.operator == "remove-unary-ops")
    assert (one.strategy, one.operator, one.line, one.scope) == ("mutmut", "remove-unary-ops", 2, "f")
    assert one.detail == "~h -> h"


@pytest.mark.parametrize(
    "data",
    [
        b"\xef\xbb\xbf" + SAMPLE.encode(),
        SAMPLE.replace("\n", "\r\n").encode(),
        b"# coding: latin-1\nNAME = '\xe9'\n" + SAMPLE.encode(),
        "é = 'ü'\n".encode() + SAMPLE.encode(),
    ],
    ids=["bom", "crlf", "latin-1", "utf-8"],
)
def test_offsets_are_right_whatever_the_encoding(data: bytes) -> None:
    pytest.importorskip("mutmut")
    assert len(mutants(data)) >= len(mutants(SAMPLE.encode()))
    assert all(parses(new) for new in mutants(data))


def test_the_seed_determines_the_order() -> None:
    pytest.importorskip("mutmut")
    assert mutants(SAMPLE.encode(), 5) == mutants(SAMPLE.encode(), 5)
    assert mutants(SAMPLE.encode(), 5) != mutants(SAMPLE.encode(), 6)


@pytest.mark.parametrize("name", ["textwrap.py", "dataclasses.py", "asyncio/queues.py"])
def test_candidates_of_real_modules_are_valid_python(name: str) -> None:
    pytest.importorskip("mutmut")
    data = (Path(sysconfig.get_path("stdlib")) / name).read_bytes()
    news = mutants(data, limit=150)
    assert len(news) > 50
    assert all(parses(new) and new != data for new in news)


def test_mutmuts_table_gives_candidates_that_parse() -> None:
    pytest.importorskip("mutmut")
    tree = Files(textwrap=Path(textwrap.__file__).read_bytes())
    candidates = list(islice(MutmutInjector().candidates(tree, seed=3), 60))
    assert len(candidates) == 60
    assert all(parses(c.changes["textwrap.py"] or b"") for c in candidates)
    assert len(Counter(c.operator for c in candidates)) >= 5
    again = list(islice(MutmutInjector().candidates(tree, seed=3), 60))
    assert [c.changes for c in again] == [c.changes for c in candidates]


@pytest.fixture
def unloaded_mutmut() -> Iterator[None]:
    """Remove mutmut's modules for a test, and afterwards whatever the test imported under their names."""
    loaded = _pop_mutmut()
    yield
    _pop_mutmut()
    sys.modules.update(loaded)


def _pop_mutmut() -> dict[str, ModuleType]:
    return {name: sys.modules.pop(name) for name in list(sys.modules) if name.split(".")[0] == "mutmut"}


@pytest.mark.usefixtures("unloaded_mutmut")
def test_without_mutmut_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mutmut", None)
    with pytest.raises(MissingExtraError) as raised:
        MutmutInjector().candidates(Files(m=b""), seed=0)
    assert str(raised.value) == "mutmut is not installed and is needed here; run: pip install 'pytest-ssr[mutmut]'"


@pytest.mark.usefixtures("unloaded_mutmut")
def test_a_broken_mutmut_is_not_reported_as_missing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    package = tmp_path / "mutmut" / "mutation"
    package.mkdir(parents=True)
    for folder in (package.parent, package):
        (folder / "__init__.py").write_text("")
    (package / "mutators.py").write_text("import a_package_that_is_absent\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(ModuleNotFoundError, match="No module named 'a_package_that_is_absent'"):
        MutmutInjector().candidates(Files(m=b""), seed=0)
