"""Baselines in the store: for the content of a tree, its interpreter's environment and our own version."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from pytest_ssr.errors import SsrError
from pytest_ssr.execution.baseline import Baseline, Verification, measure_baseline, verify, warm_processes
from pytest_ssr.execution.baseline_parts import Parts
from pytest_ssr.execution.remeasure import Plan, plan_for, remeasured, reverified
from pytest_ssr.execution.root import root_options
from pytest_ssr.execution.warm import Warm
from pytest_ssr.execution.workbench import Workbench
from pytest_ssr.snapshot import Snapshot
from pytest_ssr.stopping import Background, TimeIsUpError, background
from pytest_ssr.store import Store, code_hash, key_of


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


class _PartRecords:
    """Where a baseline that is being measured is kept."""

    def __init__(self, store: Store, name: str) -> None:
        self._store, self._name = store, f"parts-{name}"

    def get(self) -> dict[str, Any] | None:
        """Return what is kept."""
        return self._store.record("baselines", self._name)

    def put(self, data: Mapping[str, Any]) -> None:
        """Keep it, in place of what was kept."""
        self._store.put_record("baselines", self._name, data)


class Verifying:
    """The second run of a baseline: made once, by whoever comes first, beside other work, and kept in the store."""

    def __init__(self, bench: Workbench, store: Store, name: str, baseline: Baseline, tests: Sequence[str]) -> None:
        """name: that of the baseline in the store."""
        self._bench, self._store, self._baseline, self._tests = bench, store, baseline, tests
        self._name = name
        self._lock = threading.Lock()
        self._task: Background[Verification] | None = None

    def start(self) -> None:
        """Make it beside this thread, unless the store has it."""
        with self._lock:
            if self._task is None:
                self._task = background(self._made, name="verification")

    @property
    def known(self) -> Verification | None:
        """What it shows, without waiting for its end; None if that is not known, or it failed."""
        if self._task is None:
            return _verification(self._store, self._name)
        try:
            return self._task.result() if self._task.is_done else None
        except (SsrError, KeyboardInterrupt, TimeIsUpError):
            return None

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
        with self._store.alone(f"verification-{self._name}"):
            known = _verification(self._store, self._name)
            if known is None:
                known = self._after_edit() or verify(self._bench, self._baseline, self._tests)
                self._store.put_record("baselines", f"verification-{self._name}", known.to_json())
            return known

    def _after_edit(self) -> Verification | None:
        """Run again only the tests that an edit concerns, if the baseline was made so; None if all have to run."""
        edit = self._store.record("baselines", f"edit-{self._name}")
        plan = Plan.from_json(edit) if edit is not None else None
        old = _verification(self._store, str(edit.get("from"))) if edit is not None else None
        if plan is None or old is None:
            return None
        return reverified(self._bench, self._tests, old, self._baseline, plan)


def baseline_of(bench: Workbench, store: Store, tests: Sequence[str]) -> tuple[Baseline, Warm, Verifying]:
    """Return the baseline of a tree, measured unless the store holds one, and what goes with it.

    That is warm processes, and the second run, which is not started yet. The bench gets a shelf: scripts on the
    original are then run once for all runs and workers.
    """
    name, baseline = _stored(bench, store, tests)
    bench.shelf = Scripts(store, name)
    warm = warm_processes(bench, baseline, tests)
    return baseline, warm, Verifying(bench, store, name, baseline, tests)


def project_baseline(bench: Workbench, store: Store) -> Baseline:
    """Return the baseline of all tests of a tree, measured unless the store holds one; the bench stays as it is."""
    key = ("baseline", store.root)
    if key not in bench.memo:
        other = bench.scoped()
        other.warm = other.selection = None
        bench.memo[key] = _stored(other, store, ())[1]
    baseline: Baseline = bench.memo[key]
    return baseline


def _stored(bench: Workbench, store: Store, tests: Sequence[str]) -> tuple[str, Baseline]:
    """Return the baseline of a tree and its name in the store, measured unless the store holds it."""
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
    baseline = _known(store, name)
    if baseline is None:
        baseline = _after_edit(bench, store, family, name, tests)
        if baseline is None:
            baseline = measure_baseline(bench, tests, Parts(_PartRecords(store, name)))
        store.put_record("baselines", f"files-{name}", _stamps(bench.snapshot))
        store.put_record("baselines", name, baseline.to_json())
        store.remove_record("baselines", f"parts-{name}")
    store.put_record("baselines", f"last-{family}", {"name": name, "tree_hash": bench.snapshot.tree_hash})
    return name, baseline


def _after_edit(bench: Workbench, store: Store, family: str, name: str, tests: Sequence[str]) -> Baseline | None:
    """Return the baseline made from the last one of this project; None if the whole suite has to be measured."""
    last = store.record("baselines", f"last-{family}")
    old = _known(store, str(last.get("name"))) if last is not None else None
    stamps = store.record("baselines", f"files-{last.get('name')}") if last is not None else None
    if last is None or old is None or stamps is None:
        return None
    verification = _verification(store, str(last["name"]))
    if verification is None:
        # The first run alone does not tell which tests find in a cache what others have put there.
        return None
    tree = store.trees / str(last.get("tree_hash")) / "tree"
    sure = replace(old, reach=verification.reach)
    plan = plan_for(sure, stamps, _stamps(bench.snapshot), lambda path: (tree / path).read_bytes(), bench.snapshot.read)
    baseline = remeasured(bench, tests, old, plan) if plan is not None else None
    if baseline is not None and plan is not None:
        store.put_record("baselines", f"edit-{name}", {"from": last["name"], **plan.to_json()})
    return baseline


def _verification(store: Store, name: str) -> Verification | None:
    data = store.record("baselines", f"verification-{name}")
    return Verification.from_json(data) if data is not None else None


def _known(store: Store, name: str) -> Baseline | None:
    data = store.record("baselines", name)
    return Baseline.from_json(data) if data is not None else None


def _stamps(snapshot: Snapshot) -> dict[str, str]:
    return {path: f"{stamp.mode:o} {stamp.sha256}" for path, stamp in snapshot.files.items()}
