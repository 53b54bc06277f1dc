"""A predicted patch in, a grade out, judged on a tree made from the pristine snapshot.

Order (arXiv 2512.18552, section 2.4): original, bug, weakening, predicted patch, then the oracle tests and all of the
test surface as they were in the original; then the artifact's script and parser, and pytest itself, by exact ids.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from pytest_ssr.artifact import BugArtifact
from pytest_ssr.codebase import CodebaseState
from pytest_ssr.errors import ArtifactError, SandboxError
from pytest_ssr.execution.workbench import Workbench
from pytest_ssr.outcomes import some
from pytest_ssr.patch import Patch
from pytest_ssr.surface import is_test_surface


@dataclass(frozen=True, slots=True)
class Grade:
    """What a predicted patch achieved."""

    id: str
    """The artifact's content id."""
    resolved: bool | None
    """None: no grade, because the infrastructure failed."""
    reason: str
    """One sentence."""
    fail_to_pass: Mapping[str, str] = field(default_factory=dict)
    """Id to passed, failed or missing."""
    pass_to_pass: Mapping[str, str] = field(default_factory=dict)
    """Likewise, for tests that must stay passing."""
    flags: tuple[str, ...] = ()
    """What is notable about the patch: test files that it changed and that were restored."""

    def to_json(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return asdict(self)


def repaired_state(bench: Workbench, artifact: BugArtifact, patch: Patch) -> tuple[CodebaseState, tuple[str, ...]]:
    """Return the state to grade and the paths of the patch that were dropped because they belong to the tests.

    Raises ArtifactError when the rest of the patch does not apply to the weakened state.
    """
    oracle = set(artifact.test_files)
    dropped = tuple(p for p in patch.paths if p in oracle or is_test_surface(p))
    kept = patch.select([p for p in patch.paths if p not in dropped])
    state = bench.original.apply(artifact.bug).apply(artifact.weaken)
    return state.apply(kept).restore({*oracle, *dropped}), dropped


def grade_patch(
    bench: Workbench,
    artifact: BugArtifact,
    patch: Patch,
    *,
    fail_to_pass: Collection[str],
    pass_to_pass: Collection[str],
    like_s: float | None = None,
) -> Grade:
    """Grade one patch by the recorded ids; an id that did not run counts as not passed.

    like_s: seconds the oracle tests take on the original. Raises nothing for a broken sandbox: that is no grade.
    """
    name = artifact.content_id(bench.snapshot.tree_hash)
    if not fail_to_pass:
        raise ArtifactError("the artifact records no FAIL_TO_PASS test; validate it first")
    try:
        state, dropped = repaired_state(bench, artifact, patch)
    except ArtifactError as error:
        return Grade(name, False, f"the patch does not apply: {error}")
    flags = tuple(f"changed and restored: {p}" for p in dropped)
    try:
        run, _ = bench.script(state, artifact, like_s=like_s)
        files = [p for p in artifact.test_files if p.endswith(".py") and not p.endswith("conftest.py")]
        evidence, _ = bench.suite(state, files, like_s=like_s)
    except SandboxError as error:
        return Grade(name, None, f"no grade: the sandbox failed: {error}", flags=flags)
    proven = run.passing & evidence.passing
    statuses = {
        i: "passed" if i in proven else "failed" if i in run.statuses else "missing"
        for i in (*fail_to_pass, *pass_to_pass)
    }
    missed = [i for i, s in statuses.items() if s != "passed"]
    fault = run.fault or run.contradiction or evidence.fault
    resolved = not missed and not fault
    if resolved:
        reason = f"all {len(fail_to_pass)} FAIL_TO_PASS and {len(pass_to_pass)} PASS_TO_PASS tests pass"
    else:
        reason = fault or f"{len(missed)} of {len(statuses)} tests do not pass: {some(missed)}"
    return Grade(
        name,
        resolved,
        reason,
        {i: statuses[i] for i in sorted(fail_to_pass)},
        {i: statuses[i] for i in sorted(pass_to_pass)},
        flags,
    )
