"""Generate repairs: code that a small network writes into the holes of a function.

A generator is one file of arrays (`numpy.savez`), which holds no code and is read without pickle.
"""

from __future__ import annotations

import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from harness.solvers.search.arrays import load_arrays
from harness.solvers.search.generator.beam import write
from harness.solvers.search.generator.context import FileContext, Part
from harness.solvers.search.generator.filling import GENERATED, filled, with_share
from harness.solvers.search.generator.holes import Hole, holes_of
from harness.solvers.search.generator.network import Floats, Network, shapes
from harness.solvers.search.generator.project_lines import ProjectLines
from harness.solvers.search.generator.vocabulary import DISTANCES, Vocabulary
from harness.solvers.search.patterns import Repair
from harness.storage.atomic_write import write_bytes
from pytest_ssr.source.syntax_tree import ParsedSource, Scope
from pytest_ssr.storage.store import key_of

PARTS = len(Part)
MOST_REPAIRS = 200
"""Most generated repairs of a function."""
_MOST_HOLES = 80
_MOST_KNOWN = 64
"""Most functions whose repairs are kept: a policy serves many tasks."""
_MOST_COMMON = 1 << 14
_MOST_WIDTH = 1 << 10
_LONGEST_TOKEN = 1 << 10
_LARGEST_WEIGHT = 100.0
"""Largest absolute value of a weight, with which the network computes finite numbers at any width."""
_SHARE = 0.3
"""Share of all generated repairs of a function in its weight."""
_LEAST = 1e-200
"""Least probability of a repair relative to the likeliest: their sum is not zero."""
_FLATNESS = 0.7
"""Exponent of the probabilities: the network is surer than it is right."""


_Key = tuple[str, bytes, str]
"""The path and the content of a file, and the key of the lines of its project."""


def _key(source: ParsedSource, project: ProjectLines | None) -> _Key:
    return source.path, source.data, project.key if project is not None else ""


@dataclass(slots=True)
class Generator:
    """Writes repairs."""

    vocabulary: Vocabulary
    weights: Mapping[str, Floats]
    _network: Network = field(init=False)
    _files: dict[_Key, FileContext] = field(default_factory=dict)
    """The last file."""
    _known: dict[tuple[_Key, int, int], list[tuple[Repair, float]]] = field(default_factory=dict)

    def __reduce__(self) -> tuple[type[Generator], tuple[Vocabulary, Mapping[str, Floats]]]:
        """Leave out the repairs of functions when a solver is sent to another process."""
        return Generator, (self.vocabulary, self.weights)

    def __post_init__(self) -> None:
        self._network = Network(self.weights)

    def with_generated(
        self, source: ParsedSource, scope: Scope, repairs: Sequence[Repair], project: ProjectLines | None = None
    ) -> list[Repair]:
        """Return the repairs of one scope and the generated ones; the sum of the weights stays as it is.

        project: the lines of the other files; None to see the file alone.
        """
        written = self.repairs(source, scope, project)
        top = max((value for _, value in written), default=0.0)
        new = [replace(r, weight=max(math.exp(_FLATNESS * (value - top)), _LEAST)) for r, value in written]
        return with_share(repairs, new, lambda _: _SHARE)

    def repairs(
        self, source: ParsedSource, scope: Scope, project: ProjectLines | None = None
    ) -> list[tuple[Repair, float]]:
        """Return repairs with the logarithms of their probabilities, the likeliest first."""
        # Files can be equal, and so can the names of functions, such as of a property and its setter.
        key = (_key(source, project), scope.start, scope.end)
        known = self._known.get(key)
        if known is None:
            known = self._written(source, scope, project)
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            self._known[key] = known
        return known

    def _written(self, source: ParsedSource, scope: Scope, project: ProjectLines | None) -> list[tuple[Repair, float]]:
        holes = _spread(list(dict.fromkeys(holes_of(source, scope))))
        if not holes:
            return []
        key = _key(source, project)
        file = self._files.get(key) or FileContext(source, project)
        self._files = {key: file}
        of_scope = file.of(scope)
        contexts = [self.vocabulary.encode(of_scope.context(h), h.kind) for h in holes]
        result = dict[tuple[int, int, bytes], tuple[Repair, float]]()
        for written in write(self._network, self.vocabulary, contexts, 2 * MOST_REPAIRS):
            hole = holes[written.hole]
            repair = filled(source, scope, hole, written.texts, pattern=GENERATED)
            if repair is not None:
                (edit,) = repair.edits
                result.setdefault((edit.start, edit.end, edit.text), (repair, written.log_probability))
        return list(result.values())[:MOST_REPAIRS]

    @property
    def key(self) -> str:
        """A hash of the weights and of the common tokens."""
        weights = (self.weights[name].tobytes().hex() for name in sorted(self.weights))
        return key_of(*(text.hex() for text in self.vocabulary.texts), *weights)

    def to_bytes(self) -> bytes:
        """Return the content of a file with the generator."""
        buffer = io.BytesIO()
        texts = np.frombuffer(b"\0".join(self.vocabulary.texts[1:]), np.uint8)
        arrays: dict[str, Any] = {name: np.asarray(w, np.float32) for name, w in self.weights.items()}
        np.savez(buffer, texts=texts, **arrays)
        return buffer.getvalue()

    def save(self, path: Path) -> None:
        """Write the generator to a file."""
        write_bytes(path, self.to_bytes())


def _spread(holes: list[Hole]) -> list[Hole]:
    """Return at most so many holes as are worth the time, evenly over the function."""
    step = len(holes) / _MOST_HOLES
    return holes if step <= 1 else [holes[int(index * step)] for index in range(_MOST_HOLES)]


def load_generator(path: Path) -> Generator:
    """Return a saved generator; raises OSError or ValueError if it cannot be read."""
    texts = load_arrays(path, {"texts": ("u", 1)})["texts"].tobytes().split(b"\0")
    if len(texts) > _MOST_COMMON or len(set(texts)) != len(texts):
        raise ValueError(f"{path} is damaged: its tokens are repeated, or too many")
    if not all(0 < len(text) <= _LONGEST_TOKEN for text in texts):
        raise ValueError(f"{path} is damaged: a token is empty or too long")
    vocabulary = Vocabulary(texts)
    sizes = load_arrays(path, {"embedding": ("f", 2), "start.weight": ("f", 2)})
    width, hidden = sizes["embedding"].shape[1], sizes["start.weight"].shape[0]
    if not (0 < width <= _MOST_WIDTH and 0 < hidden <= _MOST_WIDTH):
        raise ValueError(f"{path} is damaged: a network of {width} and {hidden} units")
    expected = shapes(vocabulary.rows, len(vocabulary), width, hidden, PARTS, DISTANCES)
    arrays: dict[str, Any] = load_arrays(path, {name: ("f", len(shape)) for name, shape in expected.items()})
    for name, shape in expected.items():
        if arrays[name].shape != shape or not (np.abs(arrays[name]) <= _LARGEST_WEIGHT).all():
            raise ValueError(f"{path} is damaged: the array {name} has another shape, or a number out of range")
    return Generator(vocabulary, {name: array.astype(np.float32) for name, array in arrays.items()})
