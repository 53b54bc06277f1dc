"""Rank candidate repairs by a policy that was learned from other bugs (`ssr train search`).

A policy is a folder: `policy.json` with its settings and what it was trained on, `ranker.txt` with the trees in
LightGBM's text format, `tokens.npz` with the counts of a token model, and maybe `generator.npz` with the weights of a
network that writes further repairs. Reading them runs no code, and takes bounded time and memory. A policy that was
trained with a language model names it, and it must be on this machine; see `LanguageRanking`.

The softmax of the trees' logits gives each repair of a function a probability. It is mixed with the weights of the
patterns, as logarithms: a ranker alone does worse on operators that it was not trained on.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from harness.solvers.search.arrays import load_arrays, read_file
from harness.solvers.search.features import NAMES, ScopeFeatures
from harness.solvers.search.language import LanguageRanking
from harness.solvers.search.namesakes import with_namesakes
from harness.solvers.search.patterns import Repair
from harness.solvers.search.project_files import ProjectFiles
from harness.solvers.search.token_model import BUCKETS, TokenModel
from harness.storage.atomic_write import write_bytes
from pytest_ssr.errors import MissingExtraError, SettingsError
from pytest_ssr.source.syntax_tree import ParsedSource, Scope
from pytest_ssr.storage.store import key_of

if TYPE_CHECKING:
    from harness.solvers.search.generator.generator import Generator
    from harness.solvers.search.trees import Trees

_FORMAT, _WITH_LANGUAGE = 1, 2
_MOST_SHARPNESS = 100.0
_MOST_SETTINGS_BYTES = 1 << 22
_UNREADABLE = (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError)
_SETTINGS, _RANKER, _TOKENS, GENERATOR = "policy.json", "ranker.txt", "tokens.npz", "generator.npz"


SHARPNESS = 3.0
"""On 6 packages that a policy was not trained on, 3 solved 0.13 of all static bugs with the first candidate, 1 0.08."""


@dataclass(slots=True)
class Policy:
    """A ranker of candidate repairs."""

    ranker: Trees
    """From the features of a repair to its logit."""
    tokens: TokenModel
    """The model of tokens that the features were made with."""
    share: float = 0.5
    """Share of the ranker in the mixture; the rest is for the weights of the patterns."""
    sharpness: float = SHARPNESS
    """Factor on the logits of the mixture: a higher one draws the likeliest repairs more often."""
    trained_on: Mapping[str, object] = field(default_factory=dict)
    """What it was trained on, for reports: projects, numbers of bugs, operators, seed."""
    key: str = ""
    """A hash of its files."""
    generator: Generator | None = None
    """Writes repairs that no pattern gives; None for the patterns alone."""
    language: LanguageRanking | None = None
    """Ranks the first candidates again by what a language model says of them; None without one."""

    def completed(
        self,
        source: ParsedSource,
        scope: Scope,
        repairs: Sequence[Repair],
        project: ProjectFiles | None = None,
        *,
        generate: bool = True,
    ) -> list[Repair]:
        """Return the repairs of one scope and further ones; the sum of the weights stays as it is.

        These have pieces of functions of the same name, or are generated. project: the other files that may be seen.
        generate: whether the generator is used, if there is one.
        """
        return completed(source, scope, repairs, self.generator if generate else None, project)

    def scores(self, source: ParsedSource, scope: Scope, repairs: Sequence[Repair]) -> list[float]:
        """Return the logarithms of scores of the repairs of one scope, which compare with those of other scopes."""
        if not repairs:
            return []
        total = sum(r.weight for r in repairs)
        return self.mixed_logits(self.logits(source, scope, repairs), [r.weight / total for r in repairs])

    def unsharpened(self, source: ParsedSource, scope: Scope, repairs: Sequence[Repair]) -> list[float]:
        """Return the scores of the repairs of one scope, without the factor `sharpness`."""
        return [score / self.sharpness for score in self.scores(source, scope, repairs)]

    def logits(self, source: ParsedSource, scope: Scope, repairs: Sequence[Repair]) -> list[float]:
        """Return the trees' logit of each repair of one scope."""
        rows = ScopeFeatures(source, scope, self.tokens).rows(repairs)
        return [float(v) for v in self.ranker.predict(rows)]

    def mixed_logits(self, learned: Sequence[float], shares: Sequence[float]) -> list[float]:
        """Return the logits of the mixture. learned: those of the trees. shares: the patterns' weights, of sum 1."""
        return [
            self.sharpness * (self.share * value + (1 - self.share) * math.log(max(weight, 1e-12)))
            for value, weight in zip(_log_softmax(learned), shares, strict=True)
        ]

    def save(self, folder: Path) -> None:
        """Write the policy; `policy.json` is written last, and names the hashes of the other files.

        The hashes are those of what is written here: if two runs write to one folder at once, their files are not
        taken for one policy.
        """
        files = {_RANKER: self.ranker.text.encode(), _TOKENS: _tokens_bytes(self.tokens)}
        if self.generator is not None:
            files[GENERATOR] = self.generator.to_bytes()
        for name, data in files.items():
            write_bytes(folder / name, data)
        values = {
            "format": _FORMAT if self.language is None else _WITH_LANGUAGE,
            "features": NAMES,
            "share": self.share,
            "sharpness": self.sharpness,
            "trained_on": dict(self.trained_on),
            "hashes": {name: hashlib.sha256(data).hexdigest() for name, data in files.items()},
            **({"language": self.language.to_json()} if self.language is not None else {}),
        }
        write_bytes(folder / _SETTINGS, json.dumps(values, indent=2).encode() + b"\n")
        if self.generator is None:
            # That of an earlier policy would count as a model that writes code.
            (folder / GENERATOR).unlink(missing_ok=True)


def completed(
    source: ParsedSource,
    scope: Scope,
    repairs: Sequence[Repair],
    generator: Generator | None,
    project: ProjectFiles | None,
) -> list[Repair]:
    """Return the repairs of one scope and further ones; see `Policy.completed`."""
    repairs = with_namesakes(source, scope, repairs, project) if project is not None else list(repairs)
    if generator is None:
        return repairs
    return generator.with_generated(source, scope, repairs, project.lines if project is not None else None)


def save_tokens(tokens: TokenModel, path: Path) -> None:
    """Write a token model to a file."""
    write_bytes(path, _tokens_bytes(tokens))


def _tokens_bytes(tokens: TokenModel) -> bytes:
    import numpy as np

    buffer = io.BytesIO()
    keys = np.fromiter(tokens.counts.keys(), dtype=np.uint32)
    counts = np.fromiter(tokens.counts.values(), dtype=np.uint32)
    np.savez_compressed(buffer, keys=keys, counts=counts, total=np.array([tokens.total]))
    return buffer.getvalue()


def load_tokens(path: Path) -> TokenModel:
    """Return a written token model; raises OSError or ValueError if it cannot be read."""
    arrays = load_arrays(path, {"keys": ("u", 1), "counts": ("u", 1), "total": ("i", 1)})
    if len(arrays["keys"]) != len(arrays["counts"]) or len(arrays["total"]) != 1:
        raise ValueError(f"{path} is damaged: its columns have different lengths")
    total = int(arrays["total"][0])
    if len(arrays["keys"]) > BUCKETS or total < 0:
        raise ValueError(f"{path} is damaged: a number is out of range")
    pairs = zip(arrays["keys"].tolist(), arrays["counts"].tolist(), strict=True)
    return TokenModel(Counter(dict(pairs)), total)


def _hash(path: Path) -> str:
    return hashlib.sha256(read_file(path)).hexdigest()


def has_generator(folder: Path) -> bool:
    """Return whether the policy in a folder writes code of its own."""
    return (folder / GENERATOR).exists()


def load_policy(folder: Path, language_model: str = "") -> Policy:
    """Return a saved policy. language_model: see `LanguageRanking.from_json`.

    Raises SettingsError for a folder without one, MissingExtraError without the extra, ModelError if the server of its
    language model does not answer.
    """
    try:
        from harness.solvers.search.trees import read_trees
    except ImportError as error:
        raise MissingExtraError("NumPy", "search") from error
    try:
        settings = json.loads(read_file(folder / _SETTINGS, _MOST_SETTINGS_BYTES))
        if settings["format"] not in (_FORMAT, _WITH_LANGUAGE) or tuple(settings["features"]) != NAMES:
            raise SettingsError(f"{folder} was written by another version; train it again: ssr train search")
        names = settings["hashes"].keys()
        if names - {GENERATOR} != {_RANKER, _TOKENS}:
            raise ValueError(
                f"{_SETTINGS} must name the hashes of {_RANKER}, {_TOKENS} and maybe {GENERATOR}, no others"
            )
        share, sharpness = float(settings["share"]), float(settings["sharpness"])
        if not (0 <= share <= 1 and 0 < sharpness <= _MOST_SHARPNESS):
            raise ValueError(f"share {share} or sharpness {sharpness} is out of range")
        changed = [name for name, digest in settings["hashes"].items() if _hash(folder / name) != digest]
        if changed:
            raise SettingsError(f"{folder / changed[0]} is not the file that policy.json names; train the policy again")
        tokens = load_tokens(folder / _TOKENS)
        ranker = read_trees(read_file(folder / _RANKER).decode(), len(NAMES))
        with_language = settings["format"] == _WITH_LANGUAGE
        if language_model and not with_language:
            raise SettingsError(f"the policy {folder} was trained without a language model: ssr train search --lm")
        language = LanguageRanking.from_json(settings["language"], language_model) if with_language else None
        key = key_of(settings["share"], settings["sharpness"], *settings["hashes"].values())
        return Policy(
            ranker,
            tokens,
            share,
            sharpness,
            settings["trained_on"],
            key_of(key, settings["language"]) if with_language else key,
            _load_generator(folder / GENERATOR) if GENERATOR in names else None,
            language,
        )
    except (OSError, *_UNREADABLE) as error:
        raise SettingsError(f"{folder} has no policy of ssr train search: {_reason(error)}") from None


def _reason(error: Exception) -> str:
    return f"{_SETTINGS} has no field {error}" if isinstance(error, KeyError) else str(error)


def _load_generator(path: Path) -> Generator:
    from harness.solvers.search.generator.generator import load_generator

    return load_generator(path)


def _log_softmax(values: Sequence[float]) -> list[float]:
    top = max(values)
    total = top + math.log(sum(math.exp(v - top) for v in values))
    return [v - total for v in values]
