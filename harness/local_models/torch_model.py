"""Score variants of a text by a model in this process (PyTorch, transformers).

The text is read once. The variants are read together as one sequence after it, in which each token sees the text up to
where its variant leaves it, and the tokens of its own variant: what variants have in common is not read again.
"""

from __future__ import annotations

import functools
import inspect
import os
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.local_models.scoring import Scored, Scores, Variant
from harness.local_models.weights import Weights, require_extra
from pytest_ssr.errors import SettingsError

_MOST_TOGETHER = 512
"""Most tokens of variants that are read together."""


@dataclass(frozen=True, slots=True)
class _Branch:
    """The part of a variant that differs from the text, in tokens."""

    ids: tuple[int, ...]
    """Its tokens from where it leaves the text, up to the last that is scored."""
    start: int
    """Number of the text's tokens before it."""
    first: int
    """The number of the first token of the region; those before `start` are the text's."""
    end: int
    """The number of the first token after the region."""
    last: int
    """The number of the first token that is not scored."""


class TorchModel:
    """A causal language model."""

    def __init__(self, weights: Weights) -> None:
        """Load the model; raises MissingExtraError or SettingsError."""
        require_extra()
        os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
        self.key = weights.key
        self._tokenizer, self._model = _load(weights.folder)
        self._lock = threading.Lock()
        # Releases of transformers name it differently.
        parameters = inspect.signature(self._model.forward).parameters
        self._cache_name = "cache" if "cache" in parameters else "past_key_values"
        self._most = int(self._model.config.max_position_embeddings)

    def score(self, text: str, variants: Sequence[Variant], *, after: int) -> Scored:
        """Return the scores of variants of a text; see `Scorer`."""
        trunk, offsets = self._encode(text)
        branches = [self._branch(trunk, offsets, variant, after) for variant in variants]
        fitting = [b for b in dict.fromkeys(branches) if max(len(trunk), b.start + len(b.ids)) <= self._most]
        if not fitting:
            return Scored((None,) * len(variants), 0)
        with self._lock:
            read = dict(zip(fitting, self._read(trunk, fitting), strict=True))
        return Scored(tuple(read.get(b) for b in branches), len(trunk) + sum(len(b.ids) for b in fitting))

    def _encode(self, text: str) -> tuple[list[int], list[tuple[int, int]]]:
        encoded = self._tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
        # The first token is given nothing: a token that begins a text stands before it.
        return [self._tokenizer.bos_token_id or 0, *encoded.input_ids], [(0, 0), *encoded.offset_mapping]

    def _branch(
        self, trunk: Sequence[int], offsets: Sequence[tuple[int, int]], variant: Variant, after: int
    ) -> _Branch:
        ids, own = self._encode(variant.text)
        common = next(
            (i for i, (a, b) in enumerate(zip(ids, trunk, strict=False)) if a != b), min(len(ids), len(trunk))
        )
        end = next((i for i, (start, _) in enumerate(own) if i and start >= variant.end), len(ids))
        # The text's tokens decide where a region begins, so that old and new are counted from the same place.
        first = next((i for i, (_, stop) in enumerate(offsets) if i and stop > variant.start), len(trunk))
        first = max(1, min(first, common, end))
        last = min(len(ids), end + after)
        return _Branch(tuple(ids[common:last]), common, first, end, last)

    def _read(self, trunk: Sequence[int], branches: Sequence[_Branch]) -> list[Scores]:
        import torch
        from transformers import DynamicCache

        with torch.inference_mode():
            cache = DynamicCache(config=self._model.config)
            output = self._model(torch.tensor([trunk]), use_cache=True, **{self._cache_name: cache})
            logs = output.logits[0].log_softmax(-1)
            own = torch.cat([torch.zeros(1), logs[:-1].gather(1, torch.tensor(trunk[1:])[:, None])[:, 0]]).tolist()
            results = list[Scores]()
            for together in _batches(branches):
                read = self._read_together(cache, logs, len(trunk), together)
                results += [_scores(part, own, values) for part, values in zip(together, read, strict=True)]
        return results

    def _read_together(self, cache: Any, logs: Any, size: int, branches: Sequence[_Branch]) -> list[list[float]]:
        """Return the log-probabilities of the tokens of each branch. logs: those of the text. size: its tokens."""
        import torch

        ids = [i for b in branches for i in b.ids]
        if not ids:
            return [[] for _ in branches]
        positions = torch.tensor([b.start + i for b in branches for i in range(len(b.ids))])
        owner = torch.tensor([n for n, b in enumerate(branches) for _ in b.ids])
        starts = torch.tensor([b.start for b in branches for _ in b.ids])
        sees_text = torch.arange(size)[None, :] < starts[:, None]
        sees_own = (owner[:, None] == owner[None, :]) & (positions[:, None] >= positions[None, :])
        sees = torch.cat([sees_text, sees_own], dim=1)
        mask = torch.zeros(sees.shape).masked_fill(~sees, torch.finfo(torch.float32).min)
        tokens = torch.tensor([ids])
        output = self._model(
            tokens,
            position_ids=positions[None],
            attention_mask=mask[None, None],
            use_cache=True,
            **{self._cache_name: cache},
        )
        cache.crop(-len(ids))
        after = output.logits[0].log_softmax(-1)
        results, place = list[list[float]](), 0
        for branch in branches:
            length = len(branch.ids)
            before = torch.cat([logs[branch.start - 1 : branch.start], after[place : place + length - 1]])[:length]
            results.append(before.gather(1, tokens[0, place : place + length, None])[:, 0].tolist())
            place += length
        return results


def _batches(branches: Sequence[_Branch]) -> Iterator[list[_Branch]]:
    """Yield the branches, as many together as are read at once."""
    together, tokens = list[_Branch](), 0
    for branch in branches:
        if together and tokens + len(branch.ids) > _MOST_TOGETHER:
            yield together
            together, tokens = [], 0
        together.append(branch)
        tokens += len(branch.ids)
    if together:
        yield together


def _scores(branch: _Branch, own: Sequence[float], values: Sequence[float]) -> Scores:
    """Return the scores of a variant. own: those of the text's tokens. values: those of the branch."""
    line, middle = [*own[branch.first : branch.start], *values], branch.end - branch.first
    return Scores(tuple(line[:middle]), tuple(line[middle : branch.last - branch.first]))


@functools.lru_cache(maxsize=2)
def open_model(weights: Weights) -> TorchModel:
    """Return a loaded model, which all of this process shares; see `TorchModel`."""
    return TorchModel(weights)


def _load(folder: Path) -> tuple[Any, Any]:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from transformers.utils import logging

    logging.disable_progress_bar()
    logging.set_verbosity_error()
    # More threads take more processor time for the same scores, and attempts run in parallel already.
    torch.set_num_threads(1)
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder)
        model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    # A file of a model can be damaged in any way.
    except Exception as error:
        raise SettingsError(
            f"--lm {folder} cannot be loaded: {type(error).__name__}: {' '.join(str(error).split())[:300]}", option="lm"
        ) from None
    return tokenizer, model.eval()
