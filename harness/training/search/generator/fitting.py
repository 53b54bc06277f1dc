"""Fit the generator's network to holes in code; the learning rate falls to almost nothing over the given holes."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

from harness.solvers.search.generator.generator import Generator
from harness.solvers.search.generator.vocabulary import Vocabulary, padded
from harness.training.search.generator.holes_data import HoleExample, hole_examples, vocabulary_of
from harness.training.search.generator.network import Network
from harness.training.search.sources import SourceFolder
from pytest_ssr.errors import ProjectError

_BATCH = 16
_RATE, _LAST_SHARE, _WARM_UP = 2e-3, 0.03, 100
_SHARD = 2500
"""Number of holes that are shuffled together; each has holes of many projects."""
_HOLES_PER_VISIT = 80
_MOST_VISITS = 100
"""Most passes over the projects; each cuts other holes."""
_LARGEST_GRADIENT = 1.0


def fit_generator(
    sources: Sequence[SourceFolder], *, holes: int, seed: int, progress: Callable[[int, float], None]
) -> Generator:
    """Return a generator that was trained on holes in the code of projects.

    holes: the number of holes. progress: called with the number of holes so far and the mean loss of a token since the
    last call. Raises ProjectError if no hole can be cut.
    """
    rng = random.Random(f"generator:{seed}")
    vocabulary = vocabulary_of(sources, rng)
    torch.manual_seed(seed)
    network = Network(vocabulary.rows, len(vocabulary))
    optimizer = torch.optim.AdamW(network.parameters(), lr=_RATE, weight_decay=0.01)
    seen, step = 0, 0
    for shard in _shards(sources, vocabulary, rng, holes):
        total = count = 0.0
        for batch in _batches(shard, rng):
            for group in optimizer.param_groups:
                group["lr"] = _RATE * min(1.0, (step + 1) / _WARM_UP) * (1 - (1 - _LAST_SHARE) * min(1.0, seen / holes))
            loss, tokens = network.loss(_tensors(batch))
            optimizer.zero_grad()
            (loss / tokens).backward()
            torch.nn.utils.clip_grad_norm_(network.parameters(), _LARGEST_GRADIENT)
            optimizer.step()
            total, count = total + loss.item(), count + tokens.item()
            seen, step = seen + len(batch), step + 1
        progress(seen, total / count)
    if not seen:
        raise ProjectError("the projects have no code with a hole that can be filled; add projects")
    return Generator(vocabulary, network.arrays())


def _shards(
    sources: Sequence[SourceFolder], vocabulary: Vocabulary, rng: random.Random, holes: int
) -> Iterator[list[HoleExample]]:
    """Yield lists of holes, of `holes` in all; each pass over the projects cuts other holes."""
    order, shard, left = list(sources), list[HoleExample](), holes
    for _ in range(_MOST_VISITS):
        rng.shuffle(order)
        for source in order:
            shard += hole_examples(source, vocabulary, rng, min(_HOLES_PER_VISIT, left - len(shard)))
            if len(shard) >= min(_SHARD, left):
                yield shard
                left -= len(shard)
                shard = []
            if left <= 0:
                return
    if shard:
        yield shard


def _batches(shard: Sequence[HoleExample], rng: random.Random) -> list[list[HoleExample]]:
    """Return batches in random order, each of holes whose missing code has about the same length."""
    ordered = sorted(shard, key=lambda e: (len(e.numbers), rng.random()))
    batches = [ordered[i : i + _BATCH] for i in range(0, len(ordered), _BATCH)]
    rng.shuffle(batches)
    return batches


def _tensors(batch: Sequence[HoleExample]) -> dict[str, Tensor]:
    arrays = padded([e.context for e in batch])
    length = max(len(e.numbers) for e in batch)
    for name in ("numbers", "target_rows", "target_mask"):
        arrays[name] = np.zeros((len(batch), length), bool if name == "target_mask" else np.int64)
    for index, example in enumerate(batch):
        size = len(example.numbers)
        arrays["numbers"][index, :size] = example.numbers
        arrays["target_rows"][index, :size] = example.rows
        arrays["target_mask"][index, :size] = True
    return {name: torch.from_numpy(array) for name, array in arrays.items()}
