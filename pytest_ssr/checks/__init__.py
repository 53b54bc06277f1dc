"""The seven checks in the paper's order, one module each."""

from __future__ import annotations

from collections.abc import Callable

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

SEVEN: tuple[tuple[str, Check], ...] = tuple(
    (module.NAME, module.check)
    for module in (oracle_files, parser, script, bug_scope, bug_validity, weakening, inverse_mutation)
)

__all__ = ["SEVEN", "Check", "Finding", "ValidationContext"]
