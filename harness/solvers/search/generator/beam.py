"""Write the likeliest codes for all holes of a function together, by a beam search."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from harness.solvers.search.generator.network import Floats, Network
from harness.solvers.search.generator.vocabulary import END, Encoded, Vocabulary, padded

_WIDTH = 128
"""Most unfinished codes of all holes."""
_CHOICES = 12
"""Most next tokens of one unfinished code."""
MOST_TOKENS = 40
"""Most tokens of missing code."""


@dataclass(frozen=True, slots=True)
class Written:
    """Code for a hole."""

    hole: int
    """The index of the hole."""
    texts: tuple[bytes, ...]
    """Its tokens, without the end."""
    log_probability: float


@dataclass(frozen=True, slots=True)
class _Open:
    hole: int
    texts: tuple[bytes, ...]
    log_probability: float


def write(network: Network, vocabulary: Vocabulary, contexts: Sequence[Encoded], most: int) -> list[Written]:
    """Return the likeliest codes of all contexts, the likeliest first; a code without tokens is left out."""
    if not contexts:
        return []
    prepared = network.read(padded(contexts))
    # The tokens that a context can give: the common ones, then its own.
    own = max(len(c.copied) for c in contexts)
    outputs = np.full((len(contexts), prepared.keys.shape[1]), network.common + own, np.int64)
    for index, context in enumerate(contexts):
        outputs[index, : len(context.outputs)] = context.outputs
    beam = [_Open(index, (), 0.0) for index in range(len(contexts))]
    states = prepared.start
    rows = np.array([c.rows[c.hole] for c in contexts])
    done = list[Written]()
    for _ in range(MOST_TOKENS + 1):
        holes = np.array([b.hole for b in beam])
        states, logs = network.step(prepared, holes, states, rows)
        values = _by_token(logs, outputs[holes], network.common, own)
        values += np.array([b.log_probability for b in beam], np.float32)[:, None]
        chosen = _best(values)
        least = done[most - 1].log_probability if len(done) >= most else -np.inf
        following, parents = list[_Open](), list[int]()
        for parent, number, value in chosen:
            if value <= least:
                continue
            before, context = beam[parent], contexts[beam[parent].hole]
            if number == END:
                if before.texts:
                    done.append(Written(before.hole, before.texts, value))
            elif len(following) < _WIDTH and len(before.texts) < MOST_TOKENS:
                text = vocabulary.texts[number] if number < network.common else context.copied[number - network.common]
                following.append(_Open(before.hole, (*before.texts, text), value))
                parents.append(parent)
        done.sort(key=lambda w: (-w.log_probability, w.hole, w.texts))
        if not following:
            break
        beam, states = following, states[parents]
        rows = np.array([vocabulary.row(b.texts[-1]) for b in beam])
    return done[:most]


def _by_token(logs: Floats, outputs: np.ndarray, common: int, own: int) -> Floats:
    """Return the logarithm of the probability of each token, of which several copies may exist."""
    size = common + own + 1
    shares = np.exp(logs)
    index = (np.arange(len(logs))[:, None] * size + outputs).ravel()
    sums = np.bincount(index, shares[:, common:].ravel(), len(logs) * size).reshape(len(logs), size)
    sums[:, :common] += shares[:, :common]
    result: Floats = np.log(np.maximum(sums[:, : common + own], 1e-30)).astype(np.float32)
    return result


def _best(values: Floats) -> list[tuple[int, int, float]]:
    """Return (row, token, value) of the best tokens of each row, the best of all first; ties are in a fixed order."""
    count = min(_CHOICES, values.shape[1])
    top = np.argpartition(-values, count - 1, axis=1)[:, :count]
    pairs = [(row, int(token), float(values[row, token])) for row in range(len(values)) for token in top[row]]
    # Numbers with few digits, so that the order does not depend on the machine's last bit.
    return sorted(pairs, key=lambda item: (-round(item[2], 4), item[0], item[1]))
