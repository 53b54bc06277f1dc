"""Order the candidates of a campaign: spread over modules, functions and operators, and those of little use last.

The order depends only on the candidates, never on results, so it is the same for one process, for several, and for a
run that is resumed.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterator
from itertools import islice

from pytest_ssr.injectors.protocol import Candidate
from pytest_ssr.storage.store import key_of

LOOKAHEAD = 64
"""Candidates that are known when the next one is chosen: each holds the text of its file."""
_MAX_HELD_BACK = 500


def without_repeats(candidates: Iterator[Candidate]) -> Iterator[Candidate]:
    """Yield each set of changes once."""
    seen: set[str] = set()
    for candidate in candidates:
        name = key_of(sorted(candidate.changes.items(), key=lambda pair: pair[0]))
        if name not in seen:
            seen.add(name)
            yield candidate


def spread(
    candidates: Iterator[Candidate], cost_of: Callable[[Candidate], int], ahead: int = LOOKAHEAD
) -> Iterator[Candidate]:
    """Yield the candidates so that modules, then functions, then operators take equal shares of the time.

    cost_of: how long a candidate takes to try, compared with others. ahead: how many are known when the next one is
    chosen. Among the next candidates comes first the one
    after which its module has taken the least: a module with expensive candidates has its turn less often, but has it.
    """
    waiting: list[tuple[Candidate, int]] = []
    modules: Counter[str] = Counter()
    functions: Counter[tuple[str, str]] = Counter()
    operators: Counter[str] = Counter()

    def taken(index: int) -> tuple[int, int, int, int]:
        candidate, cost = waiting[index]
        function = functions[candidate.path, candidate.scope] + cost
        return modules[candidate.path] + cost, function, operators[candidate.operator], index

    while True:
        waiting += ((c, cost_of(c)) for c in islice(candidates, ahead - len(waiting)))
        if not waiting:
            return
        candidate, cost = waiting.pop(min(range(len(waiting)), key=taken))
        modules[candidate.path] += cost
        functions[candidate.path, candidate.scope] += cost
        operators[candidate.operator] += 1
        yield candidate


def held_back(candidates: Iterator[Candidate], is_useless: Callable[[Candidate], bool]) -> Iterator[Candidate]:
    """Yield the candidates that are probably useless last; the oldest earlier if more than 500 wait."""
    waiting: deque[Candidate] = deque()
    for candidate in candidates:
        if not is_useless(candidate):
            yield candidate
            continue
        waiting.append(candidate)
        if len(waiting) > _MAX_HELD_BACK:
            yield waiting.popleft()
    yield from waiting
