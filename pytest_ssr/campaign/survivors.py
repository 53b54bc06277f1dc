"""Rank the changes that no test noticed by how much they matter."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from tree_sitter import Node

from pytest_ssr.campaign.acceptances import NO_ACCEPTANCES, Acceptance, Acceptances
from pytest_ssr.injectors.recorded import changes_of
from pytest_ssr.records.candidate_result import CandidateResult, CandidateStatus
from pytest_ssr.source.equivalence import Equivalence, common_equivalence, equivalence_named
from pytest_ssr.source.syntax_tree import parse, scopes

_PUBLIC, _EXERCISED, _EQUIVALENT, _NOT_USEFUL = 2.0, 1.0, -4.0, -8.0
_HALF_COMPLEX = 10
"""The cyclomatic complexity with half of the most that complexity can add; more is often called too complex."""
_DECISIONS = frozenset(
    (
        "if_statement",
        "elif_clause",
        "for_statement",
        "while_statement",
        "except_clause",
        "except_group_clause",
        "case_clause",
        "conditional_expression",
        "boolean_operator",
        "if_clause",
        "for_in_clause",
        "assert_statement",
    )
)


@dataclass(frozen=True, slots=True)
class Survivor:
    """A change that no test noticed, and how much it matters."""

    result: CandidateResult
    """The change."""
    equivalence: Equivalence | None
    """Why it is equivalent, a proof or a sign; None without either."""
    weight: float
    """How much it matters, from -12 to below 4.

    2 for a public function (no leading underscore in any part of its name or of its module's, dunder names aside), 1 if
    tests ran the changed code, c / (c + 10) for a cyclomatic complexity c of the function; 4 less if it is
    equivalent, probably or for certain, and 8 less if such changes were called not useful. A public function thus comes
    before every private one, and exercised code before code that no test reaches.
    """
    acceptance: Acceptance | None = None
    """What the team has decided about it; None if nothing that holds."""

    @property
    def is_open(self) -> bool:
        """Whether a test for it is missing: it is neither equivalent nor accepted."""
        return self.equivalence is None and self.acceptance is None


def ranked(
    results: Sequence[CandidateResult], read: Callable[[str], bytes], acceptances: Acceptances = NO_ACCEPTANCES
) -> list[Survivor]:
    """Return the survivors among the results, those that matter most first, then by path and line.

    read: returns the original content of a file.
    """
    complexities: dict[str, dict[str, int]] = {}
    survivors: list[Survivor] = []
    for result in results:
        if result.status is not CandidateStatus.SURVIVED:
            continue
        if result.path not in complexities:
            complexities[result.path] = dict(_complexities(result.path, read))
        equivalence = equivalence_of(result, read)
        weight = _weight(result, complexities[result.path].get(result.scope, 1))
        weight += _EQUIVALENT if equivalence is not None else 0
        weight += _NOT_USEFUL if acceptances.is_of_no_use(result) else 0
        survivors.append(Survivor(result, equivalence, weight, acceptances.of(result)))
    return sorted(survivors, key=lambda s: (-s.weight, s.result.path, s.result.line, s.result.index))


def equivalence_of(result: CandidateResult, read: Callable[[str], bytes]) -> Equivalence | None:
    """Return why the change of a result is equivalent; None if neither a proof nor signs say so of all parts.

    The result says it, unless an earlier release has stored it.
    """
    if result.sign is not None:
        return equivalence_named(result.sign)
    changes = changes_of(result, read)
    return common_equivalence(changes) if changes else None


def _weight(result: CandidateResult, complexity: int) -> float:
    weight = complexity / (complexity + _HALF_COMPLEX)
    if _is_public(result.path, result.scope):
        weight += _PUBLIC
    if result.is_reached:
        weight += _EXERCISED
    return weight


def _is_public(path: str, scope: str) -> bool:
    names = (*path.removesuffix(".py").split("/"), *scope.split("."))
    return not any(name.startswith("_") and not name.endswith("__") for name in names)


def _complexities(path: str, read: Callable[[str], bytes]) -> Iterator[tuple[str, int]]:
    """Yield the functions of a file with their cyclomatic complexities."""
    try:
        source = parse(path, read(path))
    except FileNotFoundError:
        return
    for scope in scopes(source) if source is not None else ():
        if scope.kind == "function":
            yield scope.qualname, 1 + _decisions(scope.node)


def _decisions(node: Node) -> int:
    count, pending = 0, [node]
    while pending:
        current = pending.pop()
        count += current.type in _DECISIONS
        pending += current.named_children
    return count
