"""Names that a bug reads and that nothing binds, and code in which a name only seems to be unbound."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pytest_ssr.checks.bug_scope import undefined_names
from pytest_ssr.patch import FileEntry
from pytest_ssr.project.snapshot import Snapshot, take_snapshot
from pytest_ssr.project.state import CodebaseState

CODE = """\
import os
from collections import Counter as Bag

LIMIT = 3


class Shelf:
    size = 1

    def grow(self, by):
        total = self.size + by
        return min(total, LIMIT)


def names(items):
    first = [item for item in items if item]
    return first or missing
"""


@pytest.fixture(scope="module")
def change(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., tuple[str, ...]]:
    root = tmp_path_factory.mktemp("names")
    (root / "project").mkdir()
    (root / "project" / "shop.py").write_text(CODE)
    (root / "trees").mkdir()
    snapshot: Snapshot = take_snapshot(root / "project", root / "trees")

    def change(old: str, new: str, *, head: str = "") -> tuple[str, ...]:
        assert old in CODE
        before = CodebaseState(snapshot).replace({"shop.py": FileEntry((head + CODE).encode())})
        after = before.replace({"shop.py": FileEntry((head + CODE.replace(old, new, 1)).encode())})
        return undefined_names(before, after)

    return change


@pytest.mark.parametrize(
    ("old", "new", "name"),
    [
        ("return min(total, LIMIT)", "return bound(total)", "bound"),
        ("return min(total, LIMIT)", "return min(total, size)", "size"),
        ("return min(total, LIMIT)", "return [n for n in range(total) if n < most]", "most"),
        ("return min(total, LIMIT)", "return (lambda n: n + extra)(total)", "extra"),
        ("return min(total, LIMIT)", "return f'{totl}'", "totl"),
        ("size = 1", "size = SIZE", "SIZE"),
        ("LIMIT = 3", "LIMIT = THREE", "THREE"),
        ("return first or missing", "return item", "item"),
        ("return first or missing", "return total", "total"),
    ],
)
def test_a_name_that_nothing_binds_is_found(
    change: Callable[..., tuple[str, ...]], old: str, new: str, name: str
) -> None:
    assert change(old, new) == (f"shop.py reads {name}",)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("return min(total, LIMIT)", "return max(total, Shelf.size, os.cpu_count(), Bag())"),
        ("return min(total, LIMIT)", "return __class__, super().__init__, __name__, __file__"),
        ("return min(total, LIMIT)", "return (n := total) + n"),
        ("return min(total, LIMIT)", "del total\n        return LIMIT"),
        ("return min(total, LIMIT)", "x: Undefined = total\n        return x"),
        ("return min(total, LIMIT)", "global later\n        later = total\n        return later"),
        ("return min(total, LIMIT)", "import json as j\n        return j.dumps(total)"),
        ("return min(total, LIMIT)", "try:\n            pass\n        except ValueError as e:\n            return e"),
        ("return min(total, LIMIT)", "match total:\n            case [a, *b]:\n                return a, b"),
        ("def grow(self, by):", "def grow(self: Undefined, by: Other) -> Third:"),
        # The bug removed it.
        ("        total = self.size + by\n", ""),
        ("from collections import Counter as Bag\n", ""),
        ("LIMIT = 3\n", ""),
        # The original read it, too.
        ("return first or missing", "return missing"),
    ],
)
def test_what_is_bound_or_was_bound_is_accepted(change: Callable[..., tuple[str, ...]], old: str, new: str) -> None:
    assert change(old, new) == ()


@pytest.mark.parametrize(
    "head",
    [
        "from os.path import *\n",
        "import builtins\n",
        "from builtins import print as show\n",
        "exec('bound = min')\n",
        "globals()['bound'] = min\n",
        "import sys\nsetattr(sys.modules[__name__], 'bound', min)\n",
        "try:\n    unicode\nexcept NameError:\n    unicode = str\n",
    ],
)
def test_a_file_that_handles_names_by_itself_is_passed_over(change: Callable[..., tuple[str, ...]], head: str) -> None:
    assert change("return min(total, LIMIT)", "return bound(total)", head="x = 1\n") == ("shop.py reads bound",)
    assert change("return min(total, LIMIT)", "return bound(total)", head=head) == ()
