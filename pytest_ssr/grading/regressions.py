"""Run tests outside an artifact's files that reach what a patch changed: a repair must not break them either."""

from __future__ import annotations

from collections.abc import Callable, Collection

from pytest_ssr.execution.baseline import Baseline
from pytest_ssr.execution.runner import Runner
from pytest_ssr.execution.selection import Selection
from pytest_ssr.project.state import CodebaseState
from pytest_ssr.records.test_run import SuiteRun

BaselineSource = Callable[[], Baseline]
"""Returns the baseline of the project; measures it if the store does not hold it."""


def regressions(runner: Runner, baseline: Baseline, files: Collection[str], state: CodebaseState) -> list[str]:
    """Return the tests outside of `files` that pass on the original and fail twice on a state, sorted.

    Raises SandboxError when the sandbox fails.
    """
    reaching = {i for i in _reaching(baseline, state) & baseline.stable if i.partition("::")[0] not in files}
    failing = reaching - _passing(runner, baseline, reaching, state)
    if failing:
        # They may depend on time, or on tests that did not run before them this time.
        failing &= _passing(runner, baseline, failing, runner.original)
        failing -= _passing(runner, baseline, failing, state)
    return sorted(failing)


def _reaching(baseline: Baseline, state: CodebaseState) -> frozenset[str]:
    """Return the tests that reach the changed functions, or any part of a file whose changes take effect at import."""
    if not state.changes or baseline.reach is None:
        return baseline.stable if state.changes else frozenset()
    if baseline.reach.touched_by(state).tests is not None:
        return baseline.reach.near(state)
    return baseline.reach.inside(state.changes)


def _passing(runner: Runner, baseline: Baseline, tests: Collection[str], state: CodebaseState) -> frozenset[str]:
    if not tests:
        return frozenset()
    files = sorted({i.partition("::")[0] for i in tests})
    run: SuiteRun = runner.fresh(
        state, files, selection=Selection(tests=tests), like_s=baseline.seconds_of_files(files)
    )
    return run.passing & frozenset(tests)
