"""Build the five files of an artifact from a candidate that makes tests fail.

The oracle files are those with failing tests, plus as many others as are needed to keep the failing tests under the
blast-radius limit and to leave the weakened suite at least one test.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import PurePosixPath
from typing import Any

from pytest_ssr.errors import ArtifactError
from pytest_ssr.execution.baseline import Baseline
from pytest_ssr.execution.script_template import default_parser, script_of
from pytest_ssr.execution.test_runners import PYTEST, TestRunner
from pytest_ssr.injectors.protocol import Candidate
from pytest_ssr.patch import FileEntry
from pytest_ssr.project.snapshot import Snapshot
from pytest_ssr.project.state import CodebaseState
from pytest_ssr.records.artifact import SCHEMA_VERSION, BugArtifact
from pytest_ssr.records.test_run import abbreviate
from pytest_ssr.records.verdict import Verdict
from pytest_ssr.settings import RuleSettings
from pytest_ssr.weakening import Weakening, weaken


def candidate_state(snapshot: Snapshot, candidate: Candidate) -> CodebaseState:
    """Return the buggy state of a candidate; file modes are unchanged."""
    changes: dict[str, FileEntry | None] = {}
    for path, data in candidate.changes.items():
        mode = snapshot.files[path].mode if path in snapshot.files else 0o100644
        changes[path] = None if data is None else FileEntry(data, mode)
    return CodebaseState(snapshot).replace(changes)


def make_artifact(
    buggy: CodebaseState,
    failing: Collection[str],
    baseline: Baseline,
    settings: RuleSettings,
    *,
    test_runner: TestRunner = PYTEST,
) -> BugArtifact:
    """Return the artifact of a buggy state that makes the `failing` tests fail; its script uses the test runner.

    Raises ArtifactError if no artifact can be made of it.
    """
    original = CodebaseState(buggy.snapshot)
    failing = frozenset(failing) - baseline.doctests_in_code
    if not failing:
        raise ArtifactError("only doctests in the code itself fail, and these cannot be removed")
    weakening = _weaken(original, failing, baseline)
    broken = [p for p in baseline.files if any(i.startswith(f"{p}::") for i in failing)]
    files = _oracle_files(broken, set(failing), set(weakening.removed), baseline, settings)
    touched = [p for p in weakening.changes if p not in files]
    weakened = original.replace(
        {p: FileEntry(data, original.snapshot.files[p].mode) for p, data in weakening.changes.items()}
    )
    listed = sorted({*files, *touched})
    runnable = [p for p in listed if p in baseline.files]
    return BugArtifact(
        script=script_of(test_runner, runnable, options=baseline.addopts),
        test_files=tuple(listed),
        parser=default_parser(),
        bug=buggy.patch_from(original),
        weaken=weakened.patch_from(original),
    )


def _weaken(original: CodebaseState, failing: Collection[str], baseline: Baseline) -> Weakening:
    snapshot = original.snapshot
    paths = [p for p in baseline.defining_files if p in snapshot.files]
    weakening = weaken(
        snapshot.read,
        paths,
        failing=frozenset(failing),
        collected=baseline.collected,
        parameters=baseline.parameters,
        doctests=baseline.doctests,
    )
    if weakening.unremovable:
        raise ArtifactError(
            f"{abbreviate(weakening.unremovable)} cannot be removed from its file: no definition there can be edited"
        )
    return weakening


def _oracle_files(
    broken: list[str], failing: set[str], removed: set[str], baseline: Baseline, settings: RuleSettings
) -> list[str]:
    """Add the nearest and fastest files until the limits hold; raises ArtifactError if they cannot hold."""
    stable: dict[str, set[str]] = {}
    cost: dict[str, float] = {}
    for test_id in baseline.collected:
        if test_id in baseline.doctests_in_code:
            # The bug is in code, which cannot be an oracle file.
            continue
        path = test_id.split("::", 1)[0]
        cost[path] = cost.get(path, 0.0) + baseline.durations.get(test_id, 0.0)
        if test_id in baseline.stable:
            stable.setdefault(path, set()).add(test_id)
    folders = {str(PurePosixPath(p).parent) for p in broken}
    spare = sorted(
        (p for p in stable if p not in broken),
        key=lambda p: (str(PurePosixPath(p).parent) not in folders, round(cost[p]), -len(stable[p]), p),
    )
    chosen = list(broken)
    while True:
        tests = set().union(*(stable.get(p, set()) for p in chosen))
        enough = len(tests) >= settings.min_passing_tests and tests - removed
        if enough and len(failing) <= settings.max_broken_fraction * len(tests):
            return chosen
        if not spare:
            if not tests - removed:
                raise ArtifactError(f"removing the functions of the {len(failing)} failing tests leaves no test")
            raise ArtifactError(f"{len(failing)} of {len(tests)} tests break, more than the limit allows")
        chosen.append(spare.pop(0))


def artifact_info(
    artifact: BugArtifact, verdict: Verdict, candidate: Candidate, *, seed: int, repository: str
) -> dict[str, Any]:
    """Return the content of `artifact.json`; without times, so that equal artifacts have equal content."""
    return {
        "schema_version": SCHEMA_VERSION,
        "id": verdict.artifact_id,
        "parent": candidate.parent or None,
        "order": candidate.order,
        "repository": repository,
        "tree_hash": verdict.tree_hash,
        "injector": {
            "strategy": candidate.strategy,
            "operator": candidate.operator,
            "model": None,
            "seed": seed,
            "path": candidate.path,
            "line": candidate.line,
            "scope": candidate.scope,
            "detail": candidate.detail,
            **candidate.provenance,
        },
        "FAIL_TO_PASS": list(verdict.fail_to_pass),
        "PASS_TO_PASS": list(verdict.pass_to_pass),
        "sizes": artifact.sizes(),
        "verdict": verdict.without_times(),
    }


def diff_text(state: CodebaseState) -> str:
    """Return the diff from the original to a state as text, for people to read."""
    return state.patch_from(CodebaseState(state.snapshot)).data.decode("utf-8", "replace")


def candidate_fields(candidate: Candidate) -> Mapping[str, Any]:
    """Return the fields that a CandidateResult copies from its candidate."""
    return {
        "strategy": candidate.strategy,
        "operator": candidate.operator,
        "path": candidate.path,
        "line": candidate.line,
        "scope": candidate.scope,
        "detail": candidate.detail,
        "sign": candidate.sign,
    }
