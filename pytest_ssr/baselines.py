"""Baselines in the store: for the content of a tree, its interpreter's environment and our own version."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any

from pytest_ssr.execution.baseline import Baseline, Verification, measure_baseline, verify, warm_processes
from pytest_ssr.execution.root import root_options
from pytest_ssr.execution.warm import Warm
from pytest_ssr.execution.workbench import Workbench
from pytest_ssr.snapshot import Snapshot
from pytest_ssr.stopping import Background, background
from pytest_ssr.store import Store, code_hash, key_of
from pytest_ssr.surface import is_test_surface

# Files that may change without a new baseline, where no test has opened them.
_DOCUMENTS = frozenset((".md", ".rst", ".txt", ".html", ".css", ".svg", ".png", ".jpg", ".gif", ".pdf"))
_MOST_AGAIN = 200


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


class Verifying:
    """The second run of a baseline: made once, by whoever comes first, beside other work, and kept in the store."""

    def __init__(self, bench: Workbench, store: Store, name: str, baseline: Baseline, tests: Sequence[str]) -> None:
        """name: that of the baseline in the store."""
        self._bench, self._store, self._baseline, self._tests = bench, store, baseline, tests
        self._name = f"verification-{name}"
        self._lock = threading.Lock()
        self._task: Background[Verification] | None = None

    def start(self) -> None:
        """Make it beside this thread, unless the store has it."""
        with self._lock:
            if self._task is None:
                self._task = background(self._made, name="verification")

    def result(self) -> Verification:
        """Return what it shows, waiting for its end; raises ProjectError if the tests do not run in another order."""
        self.start()
        assert self._task is not None
        return self._task.result()

    def close(self) -> None:
        """Stop it, if nobody else needs it."""
        if self._task is not None:
            self._task.stop()

    def _made(self) -> Verification:
        with self._store.alone(self._name):
            data = self._store.record("baselines", self._name)
            known = Verification.from_json(data) if data is not None else None
            if known is None:
                known = verify(self._bench, self._baseline, self._tests)
                self._store.put_record("baselines", self._name, known.to_json())
            return known


def baseline_of(bench: Workbench, store: Store, tests: Sequence[str]) -> tuple[Baseline, Warm, Verifying]:
    """Return the baseline of a tree, measured unless the store holds one, and what goes with it.

    That is warm processes, and the second run, which is not started yet. The bench gets a shelf: scripts on the
    original are then run once for all runs and workers.
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
    baseline = _known(store, name)
    if baseline is None:
        baseline = _carried_over(bench, store, family) or measure_baseline(bench, tests)
        store.put_record("baselines", name, baseline.to_json())
        store.put_record("baselines", f"files-{name}", _stamps(bench.snapshot))
    store.put_record("baselines", f"last-{family}", {"name": name})
    warm = warm_processes(bench, baseline, tests)
    return baseline, warm, Verifying(bench, store, name, baseline, tests)


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
