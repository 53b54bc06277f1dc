"""The injector `mutmut`: mutmut's own table of operators, on LibCST nodes, turned into byte spans.

Only the table `mutmut.mutation.mutators.mutation_operators` of mutmut 3.8 is used, loaded when it is asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from random import Random
from typing import Any

from pytest_ssr.errors import MissingExtraError
from pytest_ssr.injectors.drawing import Change, draw
from pytest_ssr.injectors.protocol import Candidate, SourceTree
from pytest_ssr.injectors.python_source import Edit, ParsedSource, Scope

_Table = Sequence[tuple[type, Callable[[Any], Iterable[Any]]]]


class MutmutInjector:
    """Draws places as `mutation` does, and changes them as mutmut would."""

    name = "mutmut"

    def candidates(self, tree: SourceTree, *, seed: int) -> Iterator[Candidate]:
        """Yield one candidate after another; raises MissingExtraError when mutmut is not installed."""
        table = _load()
        spans: dict[str, list[tuple[int, Change]]] = {}

        def changes_of(source: ParsedSource, scope: Scope, chance: Random) -> Sequence[Change]:
            if source.path not in spans:
                spans[source.path] = list(_changes(source.data, table))
            if scope.kind == "class":
                return ()
            return [change for start, change in spans[source.path] if scope.node.start_byte <= start < scope.end]

        return draw(tree, strategy=self.name, seed=seed, enumerate_changes=changes_of)


def _load() -> _Table:
    try:
        from mutmut.mutation.mutators import mutation_operators
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] in ("mutmut", "libcst"):
            raise MissingExtraError("mutmut", "mutmut") from None
        raise
    table: _Table = mutation_operators
    return table


def _changes(data: bytes, table: _Table) -> Iterator[tuple[int, Change]]:
    """Yield the first byte and the change of every mutation in a file."""
    import libcst as cst
    from libcst.metadata import ByteSpanPositionProvider, MetadataWrapper

    wrapper = MetadataWrapper(cst.parse_module(data), unsafe_skip_copy=True)
    positions = wrapper.resolve(ByteSpanPositionProvider)
    for node, span in positions.items():
        start, end = span.start, span.start + span.length
        if wrapper.module.code_for_node(node).strip().encode() != data[start:end]:
            continue
        for kind, mutate in table:
            if not isinstance(node, kind):
                continue
            for mutant in mutate(node):
                text = wrapper.module.code_for_node(mutant).strip().encode()
                yield start, (mutate.__name__.removeprefix("operator_").replace("_", "-"), (Edit(start, end, text),))
