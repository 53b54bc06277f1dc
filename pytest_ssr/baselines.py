"""Baselines in the store: for the content of a tree, its interpreter's environment and our own version."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any

from pytest_ssr.execution.baseline import Baseline, measure_baseline, tried_warm, warm_processes
from pytest_ssr.execution.root import root_options
from pytest_ssr.execution.warm import Warm
from pytest_ssr.execution.workbench import Workbench
from pytest_ssr.snapshot import Snapshot
from pytest_ssr.store import Store, code_hash, key_of
from pytest_ssr.surface import is_test_surface

# Files that may change without a new baseline, where no test has opened them.
_DOCUMENTS = frozenset((".md", ".rst", ".txt", ".html", ".css", ".svg", ".png", ".jpg", ".gif", ".pdf"))
_MOST_AGAIN = 200


class Alone:
    """Which tests of a file do otherwise when it is collected on its own: found once for a baseline."""

    def __init__(self, store: Store, name: str) -> None:
        self._store, self._folder = store, f"baselines/alone-{name}"
        self._known: dict[str, frozenset[str]] = {}

    def get(self, path: str) -> frozenset[str] | None:
        """Return them; None where it was not tried."""
        if path not in self._known:
            data = self._store.record(self._folder, key_of(path))
            if data is None or not isinstance(data.get("unlike"), list):
                return None
            self._known[path] = frozenset(map(str, data["unlike"]))
        return self._known[path]

    def put(self, path: str, tests: frozenset[str], *, certain: bool) -> None:
        """Keep them; for this run only where a further try could find others."""
        self._known[path] = tests
        if certain:
            self._store.put_record(self._folder, key_of(path), {"path": path, "unlike": sorted(tests)})


class Scripts:
    """What artifacts' scripts do on the original: run once for a baseline, whoever needs it."""

    def __init__(self, store: Store, name: str) -> None:
        self._store, self._folder = store, f"baselines/scripts-{name}"

    def get(self, script: bytes, parser: bytes) -> dict[str, Any] | None:
        """Return what was kept."""
        return self._store.record(self._folder, key_of(script, parser))

    def put(self, script: bytes, parser: bytes, data: Mapping[str, Any]) -> None:
        """Keep it."""
        self._store.put_record(self._folder, key_of(script, parser), data)


def baseline_of(bench: Workbench, store: Store, tests: Sequence[str]) -> tuple[Baseline, Warm, Alone]:
    """Return the baseline of a tree, measured unless the store holds one, and warm processes to go with it.

    The bench gets a shelf: scripts on the original are then run once for all runs and workers.
    """
    bench.root = root_options(bench.snapshot, tests)
    family = key_of(
        code_hash(),
        str(bench.snapshot.origin),
        bench.interpreter.environment_hash,
        bench.provider.name,
        bench.settings.time_limit_s,
        tests,
    )
    name = key_of(family, bench.snapshot.tree_hash)
    bench.shelf = Scripts(store, name)
    known = _known(store, name)
    if known is not None:
        store.put_record("baselines", f"last-{family}", {"name": name})
        return known, warm_processes(bench, known, tests), Alone(store, name)
    baseline = _carried_over(bench, store, family)
    if baseline is not None:
        warm = warm_processes(bench, baseline, tests)
    else:
        baseline = measure_baseline(bench, tests)
        warm = warm_processes(bench, baseline, tests)
        baseline = tried_warm(baseline, warm, tests)
    store.put_record("baselines", name, baseline.to_json())
    store.put_record("baselines", f"files-{name}", _stamps(bench.snapshot))
    store.put_record("baselines", f"last-{family}", {"name": name})
    return baseline, warm, Alone(store, name)


def _known(store: Store, name: str) -> Baseline | None:
    data = store.record("baselines", name)
    return Baseline.from_json(data) if data is not None else None


def _stamps(snapshot: Snapshot) -> dict[str, str]:
    return {path: f"{stamp.mode:o} {stamp.sha256}" for path, stamp in snapshot.files.items()}


def _carried_over(bench: Workbench, store: Store, family: str) -> Baseline | None:
    """Return the last baseline of a tree that differs only in documents which no test has opened.

    Tests that start processes, which may open them unseen, are run once more and must pass as they did.
    """
    last = store.record("baselines", f"last-{family}")
    baseline = _known(store, last.get("name", "")) if last is not None else None
    old = store.record("baselines", f"files-{last.get('name', '')}") if last is not None else None
    if old is None or baseline is None or baseline.reach is None:
        return None
    new = _stamps(bench.snapshot)
    changed = [p for p in new if old.get(p) != new[p]]
    if old.keys() != new.keys() or any(
        PurePosixPath(p).suffix not in _DOCUMENTS
        or is_test_surface(p)
        or p in baseline.reach.opens
        or {old[p].split()[0], new[p].split()[0]} not in ({"100644"}, {"100755"})
        for p in changed
    ):
        return None
    again = sorted(baseline.reach.names(baseline.reach.always) & baseline.stable)
    if len(again) > _MOST_AGAIN:
        return None
    if again and not bench.suite(bench.original, again)[0].passing.issuperset(again):
        return None
    return baseline
