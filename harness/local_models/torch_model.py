"""Score variants of a text by a model in this process (PyTorch, transformers).

The text is read once. The variants are read together as one sequence after it, in which each token sees the text up to
where its variant leaves it, and the tokens of its own variant: what variants have in common is not read again.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import os
import threading
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.local_models.scoring import Reader, Scores, Variant
from harness.local_models.weights import Weights, default_cache, require_extra
from pytest_ssr.errors import SettingsError

_ROWS = 64
"""Number of tokens whose log-probabilities are added up together, which bounds the memory."""
_PROBE = "pass"
LOADING = threading.Lock()
"""Held while a model is loaded: attempts in parallel load it once, and transformers is imported by one thread alone."""
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
        try:
            self.tokenizer, self.model = _load(weights)
            self.guard = threading.Lock() if _changes_while_reading(self.model.config) else contextlib.nullcontext()
            self._cache_name = cache_name(self.model)
            self.most_tokens = int(self.model.config.max_position_embeddings)
            self._try()
        # A file of a model can be damaged in any way.
        except Exception as error:
            reason = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
            folder = weights.adapters[-1] if weights.adapters else weights.folder
            raise SettingsError(
                f"the language model in {folder} cannot be loaded: {reason}{_remedy(folder)}",
                option="lm",
            ) from None

    def _try(self) -> None:
        """Raise ValueError, or another error, if the model or its tokenizer does not work."""
        import torch

        # The tokenizers of some models have tokens for padding besides, which no text has.
        if self.tokenizer.vocab_size > self.model.get_input_embeddings().num_embeddings:
            raise ValueError("its tokenizer has more words than the model")
        ids, _ = self.encode(_PROBE)
        with torch.inference_mode():
            logits = self.model(torch.tensor([ids])).logits
        if not logits.logsumexp(-1).isfinite().all():
            raise ValueError("what it computes is not a number")

    def open(self, text: str) -> Reader:
        """Read a text; see `Scorer`. The variants of one that is longer than the model's context have no scores."""
        ids, offsets = self.encode(text)
        return TorchReader(self, ids, offsets) if len(ids) <= self.most_tokens else Unread()

    def encode(self, text: str) -> tuple[list[int], list[tuple[int, int]]]:
        """Return the tokens of a text and the characters that each of them stands for.

        A token that begins a text stands before the first, so that this is given something, too.
        """
        encoded = self.tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
        return [self.tokenizer.bos_token_id or 0, *encoded.input_ids], [(0, 0), *encoded.offset_mapping]

    def forward(self, tokens: Any, cache: Any, **arguments: Any) -> Logs:
        """Return what follows each of some tokens, which are added to a cache."""
        with self.guard:
            output = self.model(tokens, use_cache=True, **{self._cache_name: cache}, **arguments)
        return Logs(output.logits[0])


def _changes_while_reading(config: Any) -> bool:
    """Return whether a model recalculates its rotary position embeddings when a text is long.

    One thread at a time can use it; other models are used by several threads at once, with the same results.
    """
    settings = getattr(config, "rope_parameters", None) or {}
    # Some models have settings for each kind of layer.
    parts = [part for part in (settings, *settings.values()) if isinstance(part, Mapping)]
    return any(part.get("rope_type") in ("dynamic", "longrope") for part in parts)


def cache_name(model: Any) -> str:
    """Return the name of the parameter for what a model has read; releases of transformers name it differently."""
    return "cache" if "cache" in inspect.signature(model.forward).parameters else "past_key_values"


class Logs:
    """The log-probabilities of all words after each of some tokens."""

    def __init__(self, logits: Any) -> None:
        """logits: shape (tokens, words). They are kept as they are: a copy takes hundreds of megabytes."""
        import torch

        self._logits = logits
        self._totals = torch.cat([rows.logsumexp(-1) for rows in logits.split(_ROWS)])

    def of(self, rows: Sequence[int], words: Sequence[int]) -> list[float]:
        """Return the log-probability of one word after each of some tokens. rows: the numbers of the tokens."""
        rows, words = list(rows), list(words)
        values: list[float] = (self._logits[rows, words] - self._totals[rows]).tolist()
        return values


class TorchReader:
    """A text that a model has read."""

    def __init__(self, model: TorchModel, ids: Sequence[int], offsets: Sequence[tuple[int, int]]) -> None:
        """Read the text. ids: its tokens. offsets: the characters that each of them stands for."""
        import torch
        from transformers import DynamicCache

        self._model, self._trunk, self._offsets = model, ids, offsets
        self._cache = DynamicCache(config=model.model.config)
        with torch.inference_mode():
            self._logs = model.forward(torch.tensor([ids]), self._cache)
        self.tokens = len(ids)

    def glance(self, variants: Sequence[Variant]) -> list[float | None]:
        """Return how likely the first token is with which each variant leaves the text; see `Reader`."""
        return [self._glance(self._branch(variant, 1)) for variant in variants]

    def _glance(self, branch: _Branch) -> float:
        if not branch.ids or branch.start >= len(self._trunk):
            return 0.0
        before = branch.start - 1
        new, old = self._logs.of([before, before], [branch.ids[0], self._trunk[branch.start]])
        return new - old

    def read(self, variants: Sequence[Variant], *, after: int) -> list[Scores | None]:
        """Return the scores of variants; see `Reader`."""
        branches = [self._branch(variant, after) for variant in variants]
        fitting = [b for b in dict.fromkeys(branches) if b.start + len(b.ids) <= self._model.most_tokens]
        read = dict(zip(fitting, self._read(fitting), strict=True)) if fitting else {}
        self.tokens += sum(len(branch.ids) for branch in fitting)
        return [read.get(branch) for branch in branches]

    def _branch(self, variant: Variant, after: int) -> _Branch:
        trunk = self._trunk
        ids, own = self._model.encode(variant.text)
        differing = (i for i, (a, b) in enumerate(zip(ids, trunk, strict=False)) if a != b)
        common = next(differing, min(len(ids), len(trunk)))
        end = next((i for i, (start, _) in enumerate(own) if i and start >= variant.end), len(ids))
        # The text's tokens decide where a region begins, so that old and new are counted from the same place.
        first = next((i for i, (_, stop) in enumerate(self._offsets) if i and stop > variant.start), len(trunk))
        first = max(1, min(first, common, end))
        last = min(len(ids), end + after)
        return _Branch(tuple(ids[common:last]), common, first, end, last)

    def _read(self, branches: Sequence[_Branch]) -> list[Scores]:
        import torch

        with torch.inference_mode():
            own = [0.0, *self._logs.of(range(len(self._trunk) - 1), self._trunk[1:])]
            results = list[Scores]()
            for together in _batches(branches):
                read = self._read_together(together)
                results += [_scores(part, own, values) for part, values in zip(together, read, strict=True)]
        return results

    def _read_together(self, branches: Sequence[_Branch]) -> list[list[float]]:
        """Return the log-probabilities of the tokens of each branch."""
        import torch

        ids = [i for b in branches for i in b.ids]
        if not ids:
            return [[] for _ in branches]
        positions = torch.tensor([b.start + i for b in branches for i in range(len(b.ids))])
        owner = torch.tensor([n for n, b in enumerate(branches) for _ in b.ids])
        starts = torch.tensor([b.start for b in branches for _ in b.ids])
        sees_text = torch.arange(len(self._trunk))[None, :] < starts[:, None]
        sees_own = (owner[:, None] == owner[None, :]) & (positions[:, None] >= positions[None, :])
        sees = torch.cat([sees_text, sees_own], dim=1)
        mask = torch.zeros(sees.shape).masked_fill(~sees, torch.finfo(torch.float32).min)
        tokens = torch.tensor([ids])
        after = self._model.forward(tokens, self._cache, position_ids=positions[None], attention_mask=mask[None, None])
        self._cache.crop(-len(ids))
        results, place = list[list[float]](), 0
        for branch in branches:
            length = len(branch.ids)
            first = self._logs.of([branch.start - 1], branch.ids[:1]) if length else []
            results.append([*first, *after.of(range(place, place + max(0, length - 1)), branch.ids[1:])])
            place += length
        return results


@dataclass(frozen=True, slots=True)
class Unread:
    """A text that is longer than the model's context."""

    tokens: int = 0

    def glance(self, variants: Sequence[Variant]) -> list[float | None]:
        """Return None for each variant."""
        return [None] * len(variants)

    def read(self, variants: Sequence[Variant], *, after: int) -> list[Scores | None]:
        """Return None for each variant."""
        del after
        return [None] * len(variants)


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


def open_model(weights: Weights) -> TorchModel:
    """Return a loaded model, which all of this process shares; see `TorchModel`."""
    with LOADING:
        return _open_once(weights)


@functools.lru_cache(maxsize=2)
def _open_once(weights: Weights) -> TorchModel:
    return TorchModel(weights)


def _load(weights: Weights) -> tuple[Any, Any]:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from transformers.utils import logging

    logging.disable_progress_bar()
    logging.set_verbosity_error()
    # More threads take more processor time for the same scores, and attempts run in parallel already.
    _default_threads()
    torch.set_num_threads(1)
    # Otherwise a folder with code of its own asks on the terminal whether it may run.
    own: dict[str, Any] = {"trust_remote_code": False, "local_files_only": True}
    tokenizer = AutoTokenizer.from_pretrained(weights.tokenizer, **own)
    model, loading = AutoModelForCausalLM.from_pretrained(
        weights.folder, dtype=torch.float32, output_loading_info=True, **own
    )
    if missing := sorted(loading["missing_keys"]):
        # transformers gives them random numbers, other ones in each process.
        raise ValueError(f"it has no weights {missing[0]}")
    return tokenizer, merged(model, weights).eval()


@functools.cache
def _default_threads() -> int:
    """Return the number of threads that PyTorch chose before a model was loaded here."""
    import torch

    threads: int = torch.get_num_threads()
    return threads


@contextlib.contextmanager
def all_threads() -> Iterator[None]:
    """Let PyTorch use as many threads as without a model that was loaded here, which leaves it one."""
    import torch

    default, before = _default_threads(), torch.get_num_threads()
    torch.set_num_threads(default)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def merged(model: Any, weights: Weights) -> Any:
    """Return a model with its adapters merged into its weights; raises ValueError for an adapter of another model."""
    for adapter in weights.adapters:
        from peft import PeftConfig, PeftModelForCausalLM

        with warnings.catch_warnings():
            # PEFT calls what a later release of transformers will not have.
            warnings.simplefilter("ignore", FutureWarning)
            adapted = PeftModelForCausalLM(model, PeftConfig.from_pretrained(adapter))
            loaded = adapted.load_adapter(adapter, adapted.active_adapter)
            if loaded.missing_keys:
                raise ValueError(f"{adapter} has no weights {loaded.missing_keys[0]}")
            model = adapted.merge_and_unload()
    return model


def _remedy(folder: Path) -> str:
    """Return what to do about a folder that cannot be loaded; empty if it is not one that is made here."""
    return "; remove this folder, and it is made again" if folder.parent == default_cache() else ""
