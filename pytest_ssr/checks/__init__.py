"""The seven checks in the paper's order, one module each."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pytest_ssr.checks import (
    bug_scope,
    bug_validity,
    inverse_mutation,
    oracle_files,
    parser,
    script,
    weakening,
)
from pytest_ssr.checks.context import Finding, ValidationContext

Check = Callable[[ValidationContext], Finding]
NamedCheck = tuple[str, Check]

SEVEN: tuple[tuple[str, Check], ...] = tuple(
    (module.NAME, module.check)
    for module in (oracle_files, parser, script, bug_scope, bug_validity, weakening, inverse_mutation)
)


def names_of(checks: Sequence[NamedCheck]) -> list[str]:
    """Return the names of checks."""
    return [name for name, _ in checks]


__all__ = ["SEVEN", "Check", "Finding", "NamedCheck", "ValidationContext", "names_of"]
