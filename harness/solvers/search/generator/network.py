"""Run the generator's network in NumPy, so that the solver needs no torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]
Integers = npt.NDArray[np.int64]

DILATIONS = (1, 2, 4)
WINDOW = 5
_NEVER = np.float32(-1e9)


def shapes(rows: int, common: int, width: int, hidden: int, parts: int, distances: int) -> dict[str, tuple[int, ...]]:
    """Return the shape of each array of weights by its name."""
    layers: dict[str, tuple[int, int]] = {
        "start": (hidden, 2 * width),
        "query": (width, hidden),
        "keys": (width, width),
        "mixed": (hidden, hidden + 2 * width),
        "copy_query": (width, hidden),
        "copy_keys": (width, 2 * width),
        "written": (width, hidden),
        **{f"convolutions.{i}": (width, WINDOW * width) for i in range(len(DILATIONS))},
    }
    return {
        "embedding": (rows, width),
        "parts": (parts, width),
        "distances": (distances, width),
        "bias": (common,),
        **{f"{name}.weight": shape for name, shape in layers.items()},
        **{f"{name}.bias": shape[:1] for name, shape in layers.items()},
        **{f"norms.{i}.{kind}": (width,) for i in range(len(DILATIONS) + 1) for kind in ("weight", "bias")},
        "recurrent.weight_ih_l0": (3 * hidden, width),
        "recurrent.weight_hh_l0": (3 * hidden, hidden),
        "recurrent.bias_ih_l0": (3 * hidden,),
        "recurrent.bias_hh_l0": (3 * hidden,),
    }


@dataclass(frozen=True, slots=True)
class Prepared:
    """What decoding needs of some contexts; the first axis is that of the contexts."""

    encoded: Floats
    keys: Floats
    copy_keys: Floats
    holes: Floats
    start: Floats
    """The state of the decoder before the first token."""
    blocked: npt.NDArray[np.bool_]


class Network:
    """The network's weights, and its two steps: reading contexts, and one token of the missing code."""

    def __init__(self, weights: Mapping[str, Floats]) -> None:
        """Use weights, which have the `shapes` of a network."""
        self._weights = weights
        self._width = weights["embedding"].shape[1]
        self.common = len(weights["bias"])
        """The number of common tokens."""

    def _layer(self, name: str, x: Floats) -> Floats:
        result: Floats = x @ self._weights[f"{name}.weight"].T + self._weights[f"{name}.bias"]
        return result

    def _norm(self, number: int, x: Floats) -> Floats:
        centred = x - x.mean(-1, keepdims=True)
        scaled = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5)
        result: Floats = scaled * self._weights[f"norms.{number}.weight"] + self._weights[f"norms.{number}.bias"]
        return result

    def read(self, batch: Mapping[str, Any]) -> Prepared:
        """Read contexts. batch: as `vocabulary.padded` returns it."""
        mask = batch["mask"][..., None]
        embedded = self._weights["embedding"][batch["rows"]]
        x = embedded + self._weights["parts"][batch["parts"]] + self._weights["distances"][batch["distances"]]
        for number, dilation in enumerate(DILATIONS):
            around = _windows(self._norm(number, x) * mask, dilation)
            x = x + np.maximum(self._layer(f"convolutions.{number}", around), 0)
        x = self._norm(len(DILATIONS), x) * mask
        holes = x[np.arange(len(x)), batch["hole"]]
        mean = x.sum(1) / mask.sum(1)
        start = np.tanh(self._layer("start", np.concatenate([holes, mean], 1)))
        before = np.concatenate([np.zeros_like(x[:, :1]), x[:, :-1]], 1)
        copy_keys = self._layer("copy_keys", np.concatenate([before, embedded], -1))
        return Prepared(x, self._layer("keys", x), copy_keys, holes, start, ~batch["mask"])

    def step(self, prepared: Prepared, contexts: Integers, states: Floats, rows: Integers) -> tuple[Floats, Floats]:
        """Return the next states, and the logarithms of the probabilities of common tokens, then of copies.

        contexts: of each hypothesis, its index among the prepared ones. rows: of the embeddings of the last tokens.
        """
        states = self._recurrent(self._weights["embedding"][rows], states)
        scale = np.float32(self._width**-0.5)
        blocked = prepared.blocked[contexts]
        scores = _products(prepared.keys, contexts, self._layer("query", states)) * scale
        attention = _softmax(np.where(blocked, _NEVER, scores))
        seen = np.empty((len(contexts), self._width), np.float32)
        for context in np.unique(contexts):
            own = contexts == context
            seen[own] = attention[own] @ prepared.encoded[context]
        mixed = np.maximum(self._layer("mixed", np.concatenate([states, seen, prepared.holes[contexts]], 1)), 0)
        copied = _products(prepared.copy_keys, contexts, self._layer("copy_query", mixed)) * scale
        written = self._layer("written", mixed) @ self._weights["embedding"][: self.common].T + self._weights["bias"]
        both = np.concatenate([written, np.where(blocked, _NEVER, copied)], 1)
        top = both.max(-1, keepdims=True)
        result: Floats = both - (top + np.log(np.exp(both - top).sum(-1, keepdims=True)))
        return states, result

    def _recurrent(self, x: Floats, states: Floats) -> Floats:
        """Return the next states of gated recurrent units (Cho et al., EMNLP 2014)."""
        weights = self._weights
        new = x @ weights["recurrent.weight_ih_l0"].T + weights["recurrent.bias_ih_l0"]
        old = states @ weights["recurrent.weight_hh_l0"].T + weights["recurrent.bias_hh_l0"]
        size = states.shape[1]
        reset = _sigmoid(new[:, :size] + old[:, :size])
        kept = _sigmoid(new[:, size : 2 * size] + old[:, size : 2 * size])
        proposed = np.tanh(new[:, 2 * size :] + reset * old[:, 2 * size :])
        result: Floats = (1 - kept) * proposed + kept * states
        return result


def _products(keys: Floats, contexts: Integers, queries: Floats) -> Floats:
    """Return for each query its products with the keys of its context; grouped, so that keys are not copied."""
    result = np.empty((len(contexts), keys.shape[1]), np.float32)
    for context in np.unique(contexts):
        own = contexts == context
        result[own] = queries[own] @ keys[context].T
    return result


def _windows(x: Floats, dilation: int) -> Floats:
    reach, length = WINDOW // 2 * dilation, x.shape[1]
    around = np.pad(x, ((0, 0), (reach, reach), (0, 0)))
    return np.concatenate([around[:, k * dilation : k * dilation + length] for k in range(WINDOW)], -1)


def _softmax(x: Floats) -> Floats:
    weights = np.exp(x - x.max(-1, keepdims=True))
    result: Floats = weights / weights.sum(-1, keepdims=True)
    return result


def _sigmoid(x: Floats) -> Floats:
    return np.asarray(1 / (1 + np.exp(-np.clip(x, -60, 60))), np.float32)
