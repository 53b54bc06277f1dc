"""Keep the replies of a model in a store, so that no run samples again what another has."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path

from harness.local_models.sampling import Question, Sampled, Sampler
from harness.storage.code_version import code_hash
from pytest_ssr.storage.store import Store, key_of

REPLIES = "replies"
"""The folder of a store with the replies."""


@dataclass(frozen=True, slots=True)
class StoredSampler:
    """A sampler that looks a question up in a store first."""

    sampler: Sampler
    root: Path
    """The folder of the store, which is made with the first reply."""

    @property
    def key(self) -> str:
        """A hash of the model."""
        return self.sampler.key

    def sample(self, question: Question, *, count: int, temperature: float, tokens: int, seed: int) -> Sampled:
        """Return replies; see `Sampler`. A process that asks the same at the same time waits for the other."""
        store = Store(self.root)
        name = key_of(code_hash(), self.key, asdict(question), count, temperature, tokens, seed)
        with store.alone(f"{REPLIES}-{name}"):
            data = store.record(REPLIES, name)
            if data is not None:
                return Sampled(tuple(data["replies"]), data["tokens"])
            sampled = self.sampler.sample(question, count=count, temperature=temperature, tokens=tokens, seed=seed)
            store.put_record(REPLIES, name, asdict(sampled))
            return sampled
