"""Read gradient-boosted trees in LightGBM's text format, and evaluate them in NumPy.

LightGBM's own reader trusts the text: a wrong child's index ends the process, or never ends. So the few fields that
numeric trees need are read and checked here, and only training needs LightGBM. Predictions are the same, bit for bit.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
Number = TypeVar("Number", int, float)

_MOST_TREES, _MOST_LEAVES = 1000, 64
_LARGEST_VALUE = 1e6
"""Largest absolute value of a leaf, so that sums are finite."""
_NUMERIC = {"0", "2"}
"""Values of `decision_type` for a split by a number that is never missing."""
_ROWS = 256
"""Number of rows that are evaluated together, which bounds the memory."""


@dataclass(frozen=True, slots=True)
class Trees:
    """The nodes of all trees, one after the other; a leaf has itself as its children."""

    text: str
    """The trees in LightGBM's format."""
    roots: Integers
    """The index of the first node of each tree."""
    features: Integers
    """The feature that each node compares."""
    thresholds: Floats
    """Rows with at most this value go to the left."""
    children: Integers
    """The index of the left child of each node, then that of the right one."""
    values: Floats
    """The values of leaves, and 0 for other nodes."""

    def __len__(self) -> int:
        return len(self.roots)

    def predict(self, rows: npt.ArrayLike) -> Floats:
        """Return the sum of all trees for each row of features."""
        array = np.asarray(rows, np.float64)
        parts = [self._predict(array[i : i + _ROWS]) for i in range(0, len(array), _ROWS)]
        return np.concatenate([np.zeros(0), *parts])

    def _predict(self, rows: Floats) -> Floats:
        nodes = np.tile(self.roots, (len(rows), 1))
        starts = np.arange(len(rows))[:, None] * rows.shape[1]
        while True:
            is_right = rows.take(starts + self.features.take(nodes)) > self.thresholds.take(nodes)
            following = self.children.take(2 * nodes + is_right)
            if np.array_equal(following, nodes):
                # Added one after the other, as LightGBM does; `sum` would round in another order.
                result: Floats = np.cumsum(self.values.take(nodes), axis=1)[:, -1]
                return result
            nodes = following


def read_trees(text: str, features: int) -> Trees:
    """Return the trees in a text; raises ValueError unless they are numeric trees on a number of features."""
    head, *blocks = re.split(r"^Tree=\d+$", text.partition("\nend of trees")[0], flags=re.MULTILINE)
    fields = _fields(head)
    expected = {"num_class": "1", "num_tree_per_iteration": "1", "max_feature_idx": str(features - 1)}
    if any(fields.get(name) != value for name, value in expected.items()) or "average_output" in head:
        raise ValueError(f"the trees do not rank by {features} features")
    if not 0 < len(blocks) <= _MOST_TREES:
        raise ValueError(f"{len(blocks)} trees, not 1 to {_MOST_TREES}")
    roots, nodes = list[int](), list[_Node]()
    for number, block in enumerate(blocks):
        roots.append(len(nodes))
        try:
            nodes += _nodes(_fields(block), len(nodes), features)
        except (KeyError, ValueError) as error:
            raise ValueError(f"tree {number} is damaged: {error}") from None
    return Trees(
        text,
        np.array(roots, np.int64),
        np.array([n.feature for n in nodes], np.int64),
        np.array([n.threshold for n in nodes], np.float64),
        np.array([child for n in nodes for child in n.children], np.int64),
        np.array([n.value for n in nodes], np.float64),
    )


class _Node(NamedTuple):
    feature: int
    threshold: float
    children: tuple[int, int]
    value: float


def _fields(block: str) -> dict[str, str]:
    return {name: value for name, _, value in (line.partition("=") for line in block.splitlines())}


def _nodes(fields: Mapping[str, str], start: int, features: int) -> Iterator[_Node]:
    """Yield the nodes of one tree. start: the index of the first."""
    leaves = int(fields["num_leaves"])
    if not 0 < leaves <= _MOST_LEAVES:
        raise ValueError(f"{leaves} leaves, not 1 to {_MOST_LEAVES}")
    if fields["num_cat"] != "0" or fields.get("is_linear", "0") != "0":
        raise ValueError("it has categories or linear leaves")
    inner = leaves - 1
    if not set(fields["decision_type"].split()) <= _NUMERIC:
        raise ValueError("a split is not by a number")
    compared = _numbers(fields, "split_feature", inner, int, 0, features - 1)
    thresholds = _numbers(fields, "threshold", inner, float, -sys.float_info.max, sys.float_info.max)
    left, right = (_numbers(fields, f"{side}_child", inner, int, -leaves, inner - 1) for side in ("left", "right"))
    for number, children in enumerate(zip(left, right, strict=True)):
        # A split is numbered after the one that it is below, so there is no cycle.
        if any(0 <= child <= number for child in children):
            raise ValueError(f"node {number} is below itself")
        # A leaf's number is negative: -1 is leaf 0.
        first, second = (start + (child if child >= 0 else inner - 1 - child) for child in children)
        yield _Node(compared[number], thresholds[number], (first, second), 0.0)
    for number, value in enumerate(_numbers(fields, "leaf_value", leaves, float, -_LARGEST_VALUE, _LARGEST_VALUE)):
        own = start + inner + number
        yield _Node(0, 0.0, (own, own), value)


def _numbers(
    fields: Mapping[str, str], name: str, count: int, kind: Callable[[str], Number], least: float, most: float
) -> list[Number]:
    """Return the numbers in a field; raises ValueError unless they are as many as expected, and in a range."""
    words = fields[name].split()
    values = [kind(word) for word in words[: count + 1]]
    if len(values) != count or not all(least <= value <= most for value in values):
        raise ValueError(f"{name} needs {count} numbers from {least:g} to {most:g}")
    return values
