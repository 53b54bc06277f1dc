"""Verdicts in the store: for an artifact, the environment that judged it, the rule and our own version."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pytest_ssr.artifact import read_artifact
from pytest_ssr.errors import ArtifactError, StoreError
from pytest_ssr.execution.workbench import Workbench
from pytest_ssr.store import Store, code_hash, key_of
from pytest_ssr.verdict import Verdict

_KIND = "verdicts"


class Verdicts:
    """What was judged as a workbench would judge it: by the same rule, in the same environment and sandbox."""

    def __init__(self, store: Store, bench: Workbench, *, extra_checks: Sequence[str] = ()) -> None:
        """extra_checks: names of those that are made besides the seven."""
        self._store = store
        self._key = key_of(
            code_hash(),
            bench.interpreter.environment_hash,
            bench.provider.name,
            bench.settings.key(),
            list(extra_checks),
        )

    def get(self, artifact_id: str) -> Verdict | None:
        """Return the verdict on an artifact, or None when there is none that can be read."""
        data = self._store.record(f"{_KIND}/{artifact_id}", self._key)
        try:
            return Verdict.from_json(data) if data is not None else None
        except StoreError:
            return None

    def put(self, verdict: Verdict) -> None:
        """Keep a verdict."""
        self._store.put_record(f"{_KIND}/{verdict.artifact_id}", self._key, verdict.to_json())


def trusts(store: Store, directory: Path) -> bool:
    """Tell whether what an artifact's folder holds was made and proven in a store, and without a model.

    What others wrote may be a model's, and so may a failed repair. One that cannot be read runs nothing.
    """
    try:
        injector = read_artifact(directory).info.get("injector")
    except ArtifactError:
        return True
    return (
        isinstance(injector, dict)
        and injector.get("model") is None
        and injector.get("strategy") != "higher-order"
        and directory.resolve().parent == (store.root / "artifacts").resolve()
        and was_judged(store, directory.resolve().name)
    )


def was_judged(store: Store, artifact_id: str) -> bool:
    """Tell whether a store holds any verdict of ours on an artifact, whatever it was judged by.

    Earlier versions wrote one for each artifact and not what it was judged by: it proves nothing today.
    """
    kept = store.root / _KIND
    return (kept / f"{artifact_id}.json").is_file() or any((kept / artifact_id).glob("*.json"))
