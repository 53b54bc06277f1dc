"""Store baselines by the content of a tree, its interpreter's environment and the version of this package."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from pytest_ssr.errors import SsrError
from pytest_ssr.execution.baseline import (
    Baseline,
    Verification,
    fork_server_for,
    measure_baseline,
    verify,
)
from pytest_ssr.execution.baseline_parts import Parts
from pytest_ssr.execution.baseline_update import Plan, plan_for, remeasure, reverify
from pytest_ssr.execution.identities import by_position
from pytest_ssr.execution.runner import Runner
from pytest_ssr.execution.test_runners import PYTEST, PytestRunner
from pytest_ssr.interrupts import Background, TimeBudgetError, background
from pytest_ssr.project.pytest_config import root_options
from pytest_ssr.project.snapshot import Snapshot
from pytest_ssr.storage.store import Store, code_hash, key_of
from pytest_ssr.storage.stored_records import StoredRecords


class _PartRecords:
    """The stored part of a baseline that is still being measured."""

    def __init__(self, store: Store, name: str) -> None:
        self._store, self._name = store, f"parts-{name}"

    def get(self) -> dict[str, Any] | None:
        """Return the stored part, or None."""
        return self._store.record("baselines", self._name)

    def put(self, data: Mapping[str, Any]) -> None:
        """Store the part, replacing the previous one."""
        self._store.put_record("baselines", self._name, data)


class SecondRun:
    """The second run of a baseline: made once, in the background, by the first process that needs it, and stored."""

    def __init__(self, runner: Runner, store: Store, name: str, baseline: Baseline, tests: Sequence[str]) -> None:
        """name: the baseline's name in the store."""
        self._runner, self._store, self._baseline, self._tests = runner, store, baseline, tests
        self._name = name
        self._lock = threading.Lock()
        self._task: Background[Verification] | None = None

    def start(self) -> None:
        """Start the run in the background, unless the store has its result."""
        with self._lock:
            if self._task is None:
                self._task = background(self._run, name="verification")

    @property
    def result_so_far(self) -> Verification | None:
        """The result if there is one already, without waiting; None if the run is not finished or has failed."""
        if self._task is None:
            return _verification(self._store, self._name)
        try:
            return self._task.result() if self._task.is_done else None
        except (SsrError, KeyboardInterrupt, TimeBudgetError):
            return None

    def result(self) -> Verification:
        """Wait for the result and return it; raises ProjectError if the tests do not run in another order."""
        self.start()
        assert self._task is not None
        return self._task.result()

    def close(self) -> None:
        """Stop the run if this process has started it."""
        if self._task is not None:
            self._task.stop()

    def _run(self) -> Verification:
        with self._store.alone(f"verification-{self._name}", here=True):
            verification = _verification(self._store, self._name)
            if verification is None:
                verification = self._after_edit() or verify(self._runner, self._baseline, self._tests)
                self._store.put_record("baselines", f"verification-{self._name}", verification.to_json())
            return verification

    def _after_edit(self) -> Verification | None:
        """Run only the tests that an edit affects, if the baseline was updated so; None if all tests have to run."""
        edit = self._store.record("baselines", f"edit-{self._name}")
        plan = Plan.from_json(edit) if edit is not None else None
        old = _verification(self._store, str(edit.get("from"))) if edit is not None else None
        if plan is None or old is None:
            return None
        return reverify(self._runner, self._tests, old, self._baseline, plan)


def open_baseline(runner: Runner, store: Store, tests: Sequence[str]) -> tuple[Baseline, Runner, SecondRun]:
    """Return the baseline of a tree, a runner with a fork server (for pytest), and the second run, not started yet.

    The baseline is measured unless the store has it. The runner keeps the runs of scripts on the original in the
    store, so that each is made once for all workers.
    """
    runner = replace(runner, pytest_options=root_options(runner.snapshot, tests))
    name, baseline = _stored(runner, store, tests)
    runner = by_position(runner, baseline.by_position)
    second_run = SecondRun(replace(runner, progress=None), store, name, baseline, tests)
    # Warm processes hold a session of pytest.
    is_pytest = isinstance(runner.test_runner, PytestRunner)
    fork_server = fork_server_for(runner, baseline, tests) if is_pytest else None
    return (
        baseline,
        replace(runner, fork_server=fork_server, script_store=StoredRecords(store, f"baselines/scripts-{name}")),
        second_run,
    )


def project_baseline(runner: Runner, store: Store) -> Baseline:
    """Return the baseline of all tests of a tree, measured unless the store has it."""
    key = ("baseline", store.root)
    if key not in runner.cache.memo:
        options = root_options(runner.snapshot, ())
        other = replace(
            runner.scoped(), pytest_options=options, fork_server=None, selection=None, progress=runner.progress
        )
        runner.cache.memo[key] = _stored(other, store, ())[1]
    baseline: Baseline = runner.cache.memo[key]
    return baseline


def baseline_files(runner: Runner, store: Store, tests: Sequence[str]) -> dict[str, bytes]:
    """Return the records of a baseline in a store, by their paths, for the store of another machine."""
    name = key_of(_family(runner, tests), runner.snapshot.tree_hash)
    paths = [f"{prefix}{name}.json" for prefix in ("", "files-", "verification-")]
    found = {f"baselines/{path}": store.file("baselines", path) for path in paths}
    return {path: data for path, data in found.items() if data is not None}


def _family(runner: Runner, tests: Sequence[str]) -> str:
    """Return a hash of everything but the tree that a baseline depends on."""
    return key_of(
        code_hash(),
        str(runner.snapshot.origin),
        runner.interpreter.environment_hash,
        runner.provider.name,
        runner.settings.time_limit_s,
        tests,
        *([runner.test_runner] if runner.test_runner != PYTEST else ()),
    )


def _stored(runner: Runner, store: Store, tests: Sequence[str]) -> tuple[str, Baseline]:
    """Return the baseline of a tree and its name in the store; it is measured unless the store has it."""
    family = _family(runner, tests)
    name = key_of(family, runner.snapshot.tree_hash)
    baseline = _load_baseline(store, name)
    if baseline is None:
        # Others that need it, in this process or another, wait for it: suites beside each other take longer.
        with store.alone(f"baseline-{name}", here=True):
            baseline = _load_baseline(store, name) or _measured(runner, store, family, name, tests)
    store.put_record("baselines", f"last-{family}", {"name": name, "tree_hash": runner.snapshot.tree_hash})
    return name, baseline


def _measured(runner: Runner, store: Store, family: str, name: str, tests: Sequence[str]) -> Baseline:
    """Measure a baseline, or update the project's last one, and store it."""
    baseline = _after_edit(runner, store, family, name, tests)
    if baseline is None:
        baseline = measure_baseline(runner, tests, Parts(_PartRecords(store, name)))
    store.put_record("baselines", f"files-{name}", _stamps(runner.snapshot))
    store.put_record("baselines", name, baseline.to_json())
    store.remove_record("baselines", f"parts-{name}")
    return baseline


def _after_edit(runner: Runner, store: Store, family: str, name: str, tests: Sequence[str]) -> Baseline | None:
    """Return the baseline updated from the project's last one; None if the whole suite has to be measured."""
    last = store.record("baselines", f"last-{family}")
    old = _load_baseline(store, str(last.get("name"))) if last is not None else None
    stamps = store.record("baselines", f"files-{last.get('name')}") if last is not None else None
    if last is None or old is None or stamps is None:
        return None
    verification = _verification(store, str(last["name"]))
    if verification is None:
        # The first run alone does not show which tests use cache entries that other tests have written.
        return None
    tree = store.trees / str(last.get("tree_hash")) / "tree"
    verified = replace(old, reach=verification.reach)
    plan = plan_for(
        verified, stamps, _stamps(runner.snapshot), lambda path: (tree / path).read_bytes(), runner.snapshot.read
    )
    baseline = remeasure(runner, tests, old, plan) if plan is not None else None
    if baseline is not None and plan is not None:
        store.put_record("baselines", f"edit-{name}", {"from": last["name"], **plan.to_json()})
    return baseline


def _verification(store: Store, name: str) -> Verification | None:
    data = store.record("baselines", f"verification-{name}")
    return Verification.from_json(data) if data is not None else None


def _load_baseline(store: Store, name: str) -> Baseline | None:
    data = store.record("baselines", name)
    return Baseline.from_json(data) if data is not None else None


def _stamps(snapshot: Snapshot) -> dict[str, str]:
    return {path: f"{stamp.mode:o} {stamp.sha256}" for path, stamp in snapshot.files.items()}
