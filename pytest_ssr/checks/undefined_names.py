"""Find names that a bug reads and that nothing binds: such a bug is a NameError, which any linter finds.

A name that the same function, or the module, bound before is not reported: the bug removed it, and did not make it up.
"""

from __future__ import annotations

from pytest_ssr.project.state import CodebaseState
from pytest_ssr.source.module_names import ModuleNames


def undefined_names(before: CodebaseState, after: CodebaseState) -> tuple[str, ...]:
    """Return the names, with their files, that the changed files read in the second state and nothing binds."""
    found = []
    for path in sorted(p for p in after.changes if before.entry(p) != after.entry(p)):
        entry, old = after.entry(path), before.entry(path)
        now = ModuleNames.of(entry.data) if entry is not None else None
        then = ModuleNames.of(old.data) if old is not None else ModuleNames()
        if now is None or then is None:
            continue
        found += [f"{path} reads {name}" for scope, name in now.unbound() if not then.has(scope, name)]
    return tuple(dict.fromkeys(found))
