"""Store verdicts by artifact, environment, sandbox, settings, and the version of this package."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pytest_ssr.errors import ArtifactError, StoreError
from pytest_ssr.execution.runner import Runner
from pytest_ssr.records.artifact import read_artifact
from pytest_ssr.records.verdict import Verdict
from pytest_ssr.storage.store import Store, code_hash, key_of

_KIND = "verdicts"


class Verdicts:
    """The verdicts reached under a runner's conditions: the same settings, environment and sandbox."""

    def __init__(self, store: Store, runner: Runner, *, extra_checks: Sequence[str] = ()) -> None:
        """extra_checks: names of the checks that run besides the seven."""
        self._store = store
        self._key = key_of(
            code_hash(),
            runner.interpreter.environment_hash,
            runner.provider.name,
            runner.settings.key(),
            list(extra_checks),
        )

    def get(self, artifact_id: str) -> Verdict | None:
        """Return the verdict on an artifact, or None if it does not exist or it cannot be read."""
        data = self._store.record(f"{_KIND}/{artifact_id}", self._key)
        try:
            return Verdict.from_json(data) if data is not None else None
        except StoreError:
            return None

    def put(self, verdict: Verdict) -> None:
        """Store a verdict."""
        self._store.put_record(f"{_KIND}/{verdict.artifact_id}", self._key, verdict.to_json())


def is_trusted(store: Store, directory: Path) -> bool:
    """Return whether an artifact was made and validated in a store, without a model.

    Artifacts from elsewhere may have been written by a model, and so may a failed repair. An artifact that cannot be
    read is trusted, because it runs nothing.
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
        and has_verdict(store, directory.resolve().name)
    )


def has_verdict(store: Store, artifact_id: str) -> bool:
    """Return whether a store has any verdict on an artifact, under any conditions.

    Earlier versions stored one verdict for each artifact without its conditions; it is not used as evidence today.
    """
    return store.record(_KIND, artifact_id) is not None or bool(store.fetch(f"{_KIND}/{artifact_id}"))
