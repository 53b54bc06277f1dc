"""Every operator by its own examples, and all of them over the standard library."""

import sysconfig
from pathlib import Path
from random import Random

import pytest

from pytest_ssr.injectors.equivalence import parses
from pytest_ssr.injectors.mutation import changes_of
from pytest_ssr.injectors.operators import OPERATORS, Operator
from pytest_ssr.source.syntax_tree import parse, scopes, splice, walk

EXAMPLES = [
    pytest.param(o, before, after, id=f"{o.name}-{n}")
    for o in OPERATORS
    for n, (before, after) in enumerate(o.examples)
]


@pytest.mark.parametrize(("operator", "before", "after"), EXAMPLES)
def test_an_operator_makes_its_example(operator: Operator, before: str, after: str) -> None:
    source = parse("m.py", before.encode())
    assert source is not None
    results = [
        splice(source.data, edits).decode()
        for node in walk(source.root)
        if node.type in operator.types
        for edits in operator.find(source, node, Random(0))
    ]
    assert after in results


def test_names_are_unique_and_every_operator_has_examples() -> None:
    names = [o.name for o in OPERATORS]
    assert len(names) == len(set(names))
    assert all(o.examples for o in OPERATORS)


@pytest.mark.parametrize(
    "name", ["textwrap.py", "json/decoder.py", "asyncio/queues.py", "argparse.py", "dataclasses.py"]
)
def test_operators_neither_crash_nor_touch_anything_outside_their_scope(name: str) -> None:
    data = (Path(sysconfig.get_path("stdlib")) / name).read_bytes()
    source = parse(name, data)
    assert source is not None
    total = parsed = 0
    for scope in scopes(source):
        for _, edits in changes_of(source, scope, Random(1)):
            total += 1
            if total % 40 == 0:
                new = splice(data, edits)
                parsed += parses(new)
                assert new[: scope.start] == data[: scope.start]
    assert total > 50
    assert parsed >= 0.95 * (total // 40)
