"""Name tests whose parameter ids change from process to process; `guest/identities.py` does so inside of pytest.

The ids that one process has collected are kept, and the first run compares them with its own.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from pytest_ssr.execution.bytecode import OTHER_SEED
from pytest_ssr.execution.run_cache import RecordStore
from pytest_ssr.execution.runner import Runner
from pytest_ssr.project.pytest_config import position_options
from pytest_ssr.records.test_run import SuiteRun

_COLLECTED = "collected"


def by_position(runner: Runner, functions: Sequence[str]) -> Runner:
    """Return a runner that names the parameter sets of these functions by position."""
    return replace(runner, pytest_options=(*runner.pytest_options, *position_options(functions)))


def put_collected(store: RecordStore, tests: Sequence[str], run: SuiteRun) -> None:
    """Keep the ids of the parametrized tests that a run has collected, for the comparison with another process."""
    files = sorted({i.partition("::")[0] for i in run.collected})
    store.put({"ids": list(run.parametrized), "files": files}, _COLLECTED, tuple(tests))


def ids_elsewhere(runner: Runner, tests: Sequence[str]) -> Sequence[str]:
    """Return the ids of the parametrized tests in another process with another hash seed.

    They are known if the project was compiled with these tests; otherwise the tests are collected once more.
    """
    for key in (tuple(tests), ()):
        known = runner.reference_store.get(_COLLECTED, key)
        if known is not None and (key == tuple(tests) or _holds(known["files"], tests)):
            ids: Sequence[str] = known["ids"]
            return ids
    run = runner.fresh(runner.original, tests, hash_seed=OTHER_SEED, collect_only=True)
    put_collected(runner.reference_store, tests, run)
    return ids_elsewhere(runner, tests)


def renamed_tests(tests: Collection[str], original: SuiteRun, other: SuiteRun) -> frozenset[str]:
    """Return those parametrized tests of the original that another state collects under other ids.

    Ids can hold a line number of the code, or its text. Such a test is not broken by a change that moves a line.
    """
    known, collected = frozenset(original.collected), frozenset(other.collected)
    appeared = {i.partition("[")[0] for i in collected - known}
    return frozenset(i for i in tests if i not in collected and i.partition("[")[0] in appeared)


def _holds(files: Sequence[str], tests: Sequence[str]) -> bool:
    """Return whether files hold tests of each of these files or folders."""
    paths = [test.partition("::")[0].rstrip("/") for test in tests]
    return all(any(file == path or file.startswith(f"{path}/") for file in files) for path in paths)
