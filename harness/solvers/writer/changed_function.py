"""Find the one function that differs between two versions of a file."""

from __future__ import annotations

from dataclasses import dataclass

from harness.solvers.writer.regions import function_text
from pytest_ssr.source.syntax_tree import ParsedSource, Scope, parse, scopes


@dataclass(frozen=True, slots=True)
class Version:
    """A function in a version of its file."""

    source: ParsedSource
    scope: Scope

    @property
    def text(self) -> str | None:
        """The function as whole lines; see `function_text`."""
        return function_text(self.source, self.scope)


def changed_function(path: str, before: bytes, after: bytes) -> tuple[Version, Version] | None:
    """Return both versions of the function that has all of the change of a file.

    None if the change is elsewhere, too, or a version cannot be parsed. Functions of the same name as another one of
    the file are not looked at.
    """
    original, changed = parse(path, before), parse(path, after)
    if original is None or changed is None:
        return None
    functions = _functions(changed)
    for scope in _functions(original).values():
        later = functions.get(scope.qualname)
        if later is None or original.text(scope.node) == changed.text(later.node):
            continue
        rest = before[: scope.node.start_byte], before[scope.node.end_byte :]
        if after != changed.text(later.node).join(rest):
            return None
        return Version(original, scope), Version(changed, later)
    return None


def _functions(source: ParsedSource) -> dict[str, Scope]:
    """Return the functions of a file by name, without those of the same name as another one."""
    found: dict[str, Scope | None] = {}
    for scope in scopes(source):
        if scope.kind == "function":
            found[scope.qualname] = scope if scope.qualname not in found else None
    return {name: scope for name, scope in found.items() if scope is not None}
