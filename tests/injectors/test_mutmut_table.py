"""mutmut's table on real source: every change parses, and the drawing is the same each time."""

from collections import Counter
from itertools import islice
from pathlib import Path

from pytest_ssr.injectors.equivalence import parses
from pytest_ssr.injectors.mutmut_table import MutmutInjector


class OneFile:
    """A source tree of one file of the standard library."""

    origin: Path | None = None

    def paths(self) -> list[str]:
        return ["textwrap.py"]

    def read(self, path: str) -> bytes:
        import textwrap

        return Path(textwrap.__file__).read_bytes()

    code_paths = paths


def test_mutmuts_table_gives_candidates_that_parse() -> None:
    tree = OneFile()
    found = list(islice(MutmutInjector().candidates(tree, seed=3), 60))
    assert len(found) == 60
    assert all(parses(c.changes["textwrap.py"] or b"") for c in found)
    assert len(Counter(c.operator for c in found)) >= 5
    again = list(islice(MutmutInjector().candidates(tree, seed=3), 60))
    assert [c.changes for c in again] == [c.changes for c in found]
