"""Tables of test data in a test file: rows of cells, in `parametrize` or in the iterable of a loop."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

Definition = ast.FunctionDef | ast.AsyncFunctionDef


class Table:
    """A literal of rows; each row is a list of cells."""

    def __init__(self, node: ast.List | ast.Tuple | ast.Set | ast.Dict) -> None:
        """Wrap a literal; a dict stands for its items."""
        self.node = node

    def column(self, number: int | None) -> list[ast.expr] | None:
        """Return the cells of a column, or whole rows for None; None if the rows are not literals of that size."""
        if isinstance(self.node, ast.Dict):
            if number not in (0, 1) or None in self.node.keys:
                return None
            return [k for k in self.node.keys if k is not None] if number == 0 else self.node.values
        rows = self.node.elts
        if any(isinstance(row, ast.Starred) for row in rows):
            return None
        if number is None:
            return [_only(row) for row in rows]
        cells = [_cells(row) for row in rows]
        return [c[number] for c in cells if c is not None] if all(c and len(c) > number for c in cells) else None

    def empty(self, number: int | None) -> bool:
        """Set all cells of a column to None; return whether any cell changed."""
        if isinstance(self.node, ast.Dict):
            changed = number == 1 and any(not _is_none(v) for v in self.node.values)
            if number == 1:
                self.node.values = [ast.Constant(None) for _ in self.node.values]
            return changed
        changed = False
        for row in self.node.elts:
            cells = _cells(row)
            if cells is not None and number is not None and not _is_none(cells[number]):
                cells[number], changed = ast.Constant(None), True
        return changed


def _cells(row: ast.expr) -> list[ast.expr] | None:
    if isinstance(row, ast.Tuple | ast.List) and not any(isinstance(e, ast.Starred) for e in row.elts):
        return row.elts
    return row.args if is_param(row) and isinstance(row, ast.Call) else None


def _only(row: ast.expr) -> ast.expr:
    return row.args[0] if is_param(row) and isinstance(row, ast.Call) and len(row.args) == 1 else row


def is_param(row: ast.expr) -> bool:
    """Return whether a row is a call of `pytest.param`."""
    return isinstance(row, ast.Call) and called(row) == "param"


def called(call: ast.Call) -> str:
    """Return the last name of the called expression."""
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def marks_of(holder: Definition | ast.ClassDef) -> Iterator[tuple[ast.Call, list[str], ast.expr]]:
    """Yield the `parametrize` marks of a definition: the call, the names of its parameters and its rows."""
    for mark in holder.decorator_list:
        if not isinstance(mark, ast.Call) or called(mark) != "parametrize":
            continue
        keywords = {k.arg: k.value for k in mark.keywords}
        named = mark.args[0] if mark.args else keywords.get("argnames")
        rows = mark.args[1] if len(mark.args) > 1 else keywords.get("argvalues")
        if named is not None and rows is not None:
            yield mark, names_of(named), rows


def names_of(named: ast.expr) -> list[str]:
    """Return the names in the first argument of `parametrize`."""
    if isinstance(named, ast.Constant):
        return [n.strip() for n in str(named.value).split(",") if n.strip()]
    return [str(getattr(n, "value", "")) for n in getattr(named, "elts", ())]


def columns_of(names: Sequence[object]) -> list[int | None]:
    """Return the column of each name; None, for whole rows, if there is only one name."""
    return [None] if len(names) == 1 else list(range(len(names)))
