"""Update a baseline after an edit of the project by running only the tests that the edit can affect.

`plan_for` compares the old tree and its baseline with the new tree and returns a plan; the plan and a run of its tests
give the new baseline. It returns a plan only if it is certain which tests the edit affects: bodies of functions that no
import runs, test files that nothing else imports, and documents.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import Any

from pytest_ssr.execution.baseline import (
    FIRST_SEEDS,
    SECOND_SEEDS,
    Baseline,
    Verification,
    baseline_from_run,
    verification_from_run,
)
from pytest_ssr.execution.coverage_map import CoverageMap
from pytest_ssr.execution.identities import by_position
from pytest_ssr.execution.runner import Runner
from pytest_ssr.execution.selection import Selection
from pytest_ssr.project.file_roles import is_test_surface
from pytest_ssr.records.decoding import decode_or_none
from pytest_ssr.source.function_diff import changed_functions
from pytest_ssr.source.parsing import parse_source, recorded_warnings

_DOCUMENTS = frozenset((".md", ".rst", ".txt", ".html", ".css", ".svg", ".png", ".jpg", ".gif", ".pdf"))
_MAX_RERUN_SHARE = 0.5
"""Largest share of the tests that a plan may run; beyond it, the whole suite is measured again."""
_REGULAR_MODES = ("100644", "100755")


@dataclass(frozen=True, slots=True)
class Plan:
    """The tests to run again after an edit."""

    tests: frozenset[str]
    """Ids of tests that may behave differently or may reach other statements."""
    files: frozenset[str]
    """Test files that were edited: all tests that they hold now."""
    code: frozenset[str]
    """Modules that were edited: which tests reach their statements is measured again."""

    def is_rerun(self, test: str) -> bool:
        """Return whether a test runs again."""
        return test in self.tests or test.split("::", 1)[0] in self.files

    def to_json(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return {"tests": sorted(self.tests), "files": sorted(self.files), "code": sorted(self.code)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Plan | None:
        """Read plain data back; return None if it is incomplete."""
        return decode_or_none(cls, data)


def plan_for(
    baseline: Baseline,
    old: Mapping[str, str],
    new: Mapping[str, str],
    read_old: Callable[[str], bytes],
    read_new: Callable[[str], bytes],
) -> Plan | None:
    """Return what has to run again, or None if that is uncertain or too much.

    old, new: path to mode and hash of each file of the two trees. read_old, read_new: return a file's content; raise
    OSError if it is gone.
    """
    if old.keys() != new.keys() or baseline.reach is None:
        return None
    bits = baseline.reach.always
    files = set[str]()
    code = set[str]()
    for path in (p for p in new if old[p] != new[p]):
        modes = {stamps[path].partition(" ")[0] for stamps in (old, new)}
        if len(modes) > 1 or not modes.issubset(_REGULAR_MODES):
            return None
        bits |= baseline.reach.opens.get(path, 0)
        try:
            before, after = read_old(path), read_new(path)
        except OSError:
            return None
        if path in baseline.files and path.endswith(".py"):
            if _is_imported_elsewhere(path, new, read_new) or _at_import(before) != _at_import(after):
                return None
            files.add(path)
        elif path in baseline.reach.spots:
            functions = changed_functions(before, after)
            at_import = baseline.reach.at_import.get(path, set())
            if functions is None or any(f.inside & at_import for f in functions):
                return None
            code.add(path)
            for reached in baseline.reach.spots[path].values():
                bits |= reached
        elif PurePosixPath(path).suffix not in _DOCUMENTS or is_test_surface(path):
            return None
    plan = Plan(baseline.reach.names(bits), frozenset(files), frozenset(code))
    reruns = sum(plan.is_rerun(test) for test in baseline.collected)
    return plan if reruns <= _MAX_RERUN_SHARE * len(baseline.collected) else None


def remeasure(runner: Runner, tests: Sequence[str], old: Baseline, plan: Plan) -> Baseline | None:
    """Return the baseline of the new tree, or None if the run shows that the plan does not hold."""
    if not plan.tests and not plan.files:
        return old
    runner = by_position(runner, old.by_position)
    run, log = runner.probe(runner.snapshot.code_paths(), tests, *FIRST_SEEDS, selection=_selection(plan))
    if run.fault or not run.passing or not _same_tests(old, run.before_selection, plan):
        return None
    new = baseline_from_run(run, log, runner, tests, collected=run.before_selection)
    assert old.reach is not None
    if new.reach is None:
        return None
    return replace(
        new,
        stable=frozenset(t for t in old.stable if not plan.is_rerun(t)) | new.stable,
        set_aside={t: reason for t, reason in old.set_aside.items() if not plan.is_rerun(t)} | dict(new.set_aside),
        messages={t: text for t, text in old.messages.items() if not plan.is_rerun(t)} | dict(new.messages),
        durations={t: s for t, s in old.durations.items() if not plan.is_rerun(t)} | dict(new.durations),
        parameters={t: p for t, p in old.parameters.items() if not plan.is_rerun(t)} | dict(new.parameters),
        sources=tuple(sorted({*old.sources, *new.sources})),
        surface=tuple(sorted({*old.surface, *new.surface})),
        seconds=old.seconds,
        longest_setup_s=max(old.longest_setup_s, new.longest_setup_s),
        doctests=frozenset(t for t in old.doctests if not plan.is_rerun(t)) | new.doctests,
        by_collectors=frozenset(t for t in old.by_collectors if not plan.is_rerun(t)) | new.by_collectors,
        disturbed=frozenset(t for t in old.disturbed if not plan.is_rerun(t)) | new.disturbed,
        reach=_merged_reach(old.reach, new.reach, plan),
    )


def reverify(
    runner: Runner, tests: Sequence[str], old: Verification, new_baseline: Baseline, plan: Plan
) -> Verification | None:
    """Return the second run's results on the new tree, or None if the run shows that the plan does not hold."""
    if not plan.tests and not plan.files:
        return old
    run, log = runner.probe(runner.snapshot.code_paths(), tests, *SECOND_SEEDS, selection=_selection(plan))
    if run.fault or old.reach is None or frozenset(run.before_selection) != frozenset(new_baseline.collected):
        return None
    first = old.reach
    update = verification_from_run(
        run, log, runner, tests, new_baseline, only=plan.is_rerun, join=lambda reach: _merged_reach(first, reach, plan)
    )
    if update.reach is None:
        return None
    set_aside = {t: reason for t, reason in old.set_aside.items() if not plan.is_rerun(t)}
    return replace(update, set_aside=set_aside | dict(update.set_aside))


def _selection(plan: Plan) -> Selection:
    return Selection(plan.tests, files=plan.files, reports_collected=True)


def _same_tests(old: Baseline, collected: Sequence[str], plan: Plan) -> bool:
    """Return whether the files that were not edited hold the same tests as before."""
    before = [t for t in old.collected if t.split("::", 1)[0] not in plan.files]
    after = [t for t in collected if t.split("::", 1)[0] not in plan.files]
    return before == after


def _merged_reach(old: CoverageMap, new: CoverageMap, plan: Plan) -> CoverageMap:
    """Return which tests of the new tree reach what: from `new` if they ran again, from `old` otherwise."""
    bit_of = {name: 1 << index for index, name in enumerate(new.tests)}
    cache: dict[int, int] = {}

    def translate(bits: int) -> int:
        if bits == old.everything:
            return new.everything
        if bits not in cache:
            unchanged = (t for t in old.names(bits) if not plan.is_rerun(t))
            cache[bits] = sum(bit_of.get(t, 0) for t in unchanged)
        return cache[bits]

    merged = CoverageMap(
        new.tests,
        always=translate(old.always) | new.always,
        collected_by_processes=old.collected_by_processes or new.collected_by_processes,
    )
    for path in {*old.spots, *new.spots}:
        spots = {} if path in plan.code else {spot: translate(bits) for spot, bits in old.spots.get(path, {}).items()}
        for spot, bits in new.spots.get(path, {}).items():
            spots[spot] = spots.get(spot, 0) | bits
        merged.spots[path] = spots
        at_import = set() if path in plan.code else old.at_import.get(path, set())
        merged.at_import[path] = at_import | new.at_import.get(path, set())
    for path in {*old.opens, *new.opens}:
        merged.opens[path] = translate(old.opens.get(path, 0)) | new.opens.get(path, 0)
    return merged


def _at_import(source: bytes) -> list[str] | None:
    """Return what a test file runs at import besides definitions of functions and classes; others may rely on it."""
    definitions = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
    try:
        with recorded_warnings():
            body = parse_source(source).body
    except (SyntaxError, ValueError, RecursionError):
        return None
    return [ast.dump(node) for node in body if not isinstance(node, definitions)]


def _is_imported_elsewhere(path: str, files: Mapping[str, str], read: Callable[[str], bytes]) -> bool:
    """Return whether another file of the tests mentions the module of a test file."""
    pattern = re.compile(rb"\b" + re.escape(PurePosixPath(path).stem.encode()) + rb"\b")
    others = (p for p in files if p != path and p.endswith(".py") and is_test_surface(p))
    return any(pattern.search(read(p)) for p in others)
