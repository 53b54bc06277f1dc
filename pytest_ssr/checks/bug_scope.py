"""Check 4, `bug-scope`: the bug changes enough files, only code, none of the test surface, nothing that a
comment `# ssr: skip` excludes, is not a time bomb, and reads no name that nothing binds.

A file that no longer parses is refused: the bug would be that it cannot be imported, and nothing could read its code.
"""

from __future__ import annotations

from pytest_ssr.checks.context import Finding, ValidationContext, failed, passed
from pytest_ssr.checks.forbidden_uses import forbidden_uses
from pytest_ssr.grading.repaired_state import shadowing
from pytest_ssr.project.file_roles import is_code, is_source, is_test_surface
from pytest_ssr.project.state import CodebaseState
from pytest_ssr.records.check_reasons import CheckCode
from pytest_ssr.source.module_names import ModuleNames
from pytest_ssr.source.parsing import parse_module
from pytest_ssr.source.skip_comments import skipped_lines
from pytest_ssr.source.syntax_tree import parse


def undefined_names(before: CodebaseState, after: CodebaseState) -> tuple[str, ...]:
    """Return the names, with their files, that the changed files read in the second state and nothing binds.

    Such a bug is a NameError, which any linter finds. A name that the same function, or the module, bound before is not
    reported: the bug removed it, and did not make it up.
    """
    found = []
    for path in sorted(p for p in after.changes if before.entry(p) != after.entry(p)):
        entry, old = after.entry(path), before.entry(path)
        now = ModuleNames.of(entry.data) if entry is not None else None
        then = ModuleNames.of(old.data) if old is not None else ModuleNames()
        if now is None or then is None:
            continue
        found += [f"{path} reads {name}" for scope, name in now.unbound() if not then.has(scope, name)]
    return tuple(dict.fromkeys(found))


NAME = "bug-scope"


def check(context: ValidationContext) -> Finding:
    """Check statically: the names of the touched files, and that the diff applies exactly to the original."""
    bug = context.artifact.bug
    least = context.settings.min_changed_files
    if len(bug.files) < least:
        return failed(CheckCode.TOO_FEW_FILES, count=len(bug.files), required=least)
    for path in sorted(shadowing(context.original, bug.paths, context.artifact.test_files)):
        return failed(CheckCode.MODULE_SHADOWED, file=path)
    for path in bug.paths:
        if path in context.artifact.test_files or path in context.surface or is_test_surface(path):
            return failed(CheckCode.TEST_SURFACE_CHANGED, file=path)
        if not (is_source(path) if context.by_script else is_code(path)):
            return failed(CheckCode.NOT_CODE, file=path)
    state = context.buggy
    if not state.changes:
        return failed(CheckCode.NOTHING_CHANGED)
    unreadable = [path for path in bug.paths if path.endswith(".py") and _is_unreadable(context, path)]
    if unreadable:
        return failed(CheckCode.NOT_PARSABLE, file=unreadable[0])
    for path, entry in sorted(state.changes.items()):
        before = context.original.entry(path)
        touched = (
            skipped_lines(path, before.data).first_touched(before.data, entry.data if entry is not None else None)
            if before is not None
            else None
        )
        if touched is not None:
            return failed(CheckCode.EXCLUDED_CHANGED, file=path, line=touched[0] + 1)
    forbidden = forbidden_uses(context.original, state)
    if forbidden:
        return failed(CheckCode.FORBIDDEN_USE, use=forbidden[0])
    undefined = () if context.settings.allow_undefined_names else undefined_names(context.original, state)
    if undefined:
        return failed(CheckCode.UNDEFINED_NAME, name=undefined[0])
    return passed(CheckCode.CODE_CHANGED, count=len(bug.files))


def _is_unreadable(context: ValidationContext, path: str) -> bool:
    """Return whether the bug makes a Python file that cannot be parsed.

    The project may run under another version of Python than this process. A file of the project is therefore judged
    by the first parser that reads the original: the grammar of this Python, or the tolerant one of tree-sitter, which
    also reads older and newer versions. If neither reads it, nothing is refused.
    """
    before, after = context.original.entry(path), context.buggy.entry(path)
    if after is None:
        return False
    if before is None or parse_module(before.data) is not None:
        return parse_module(after.data) is None
    return parse(path, before.data) is not None and parse(path, after.data) is None
