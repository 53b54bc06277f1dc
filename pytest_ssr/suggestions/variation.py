"""Vary recorded calls: nearby values, boundaries, empty containers, constants of the function, swapped arguments.

The order is fixed by the recorded calls and a seed: first the calls themselves, then calls that differ from them in one
value, then in two: values of other calls, and any. The variations of a value are in `nearby_values`.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from pytest_ssr.suggestions.calls import Argument, Call
from pytest_ssr.suggestions.expressions import near_expressions
from pytest_ssr.suggestions.literals import Expression, Literal, source_of
from pytest_ssr.suggestions.nearby_values import values_near
from pytest_ssr.suggestions.oddness import oddness_of

_MOST_RECORDED, _MOST_CONSTANTS = 30, 12
_SHARE_OF_SINGLE, _SHARE_OF_POOLED = 0.6, 0.8
"""Shares of the calls up to which one value differs, and up to which two values come from other calls."""
_Slot = tuple[bool, int]
"""Whether a value belongs to the constructor, and its index."""


def varied(recorded: Sequence[Call], constants: Sequence[Literal], *, most: int, seed: int) -> list[Call]:
    """Return different calls of one function, at most `most`; constants: values that matter, the nearest first."""
    rng = random.Random(seed)
    chosen = _spread(sorted(recorded, key=lambda c: (len(c.expression), c.expression)), _MOST_RECORDED)
    pools = _pools(recorded)
    once = [list(_neighbours(call, constants[:_MOST_CONSTANTS], pools)) for call in chosen]
    found = {call.expression: call for call in itertools.islice(chosen, most)}
    # Each group begins elsewhere, so that all values of all arguments are varied even if the calls are many.
    turned = [group[(start := len(group) * n // len(once)) :] + group[:start] for n, group in enumerate(once)]
    for share, calls in ((_SHARE_OF_SINGLE, _in_turns(turned)), (_SHARE_OF_POOLED, _pooled(chosen, pools))):
        for call in calls:
            if len(found) >= share * most:
                break
            found.setdefault(call.expression, call)
    singles = [call for group in once for call in group]
    for _ in range(most if singles else 0):
        if len(found) >= most:
            break
        following = list(_neighbours(rng.choice(singles), constants[:_MOST_CONSTANTS], pools))
        if following:
            call = rng.choice(following)
            found.setdefault(call.expression, call)
    return list(found.values())


def _neighbours(call: Call, constants: Sequence[Literal], pools: dict[_Slot, list[Literal]]) -> Iterator[Call]:
    """Yield the calls that differ in one value, or by a swap of two."""
    for slot in _slots(call):
        value = _argument(call, slot).value
        near = [(other, oddness_of(other, value)) for other in values_near(value, constants)]
        if isinstance(value, Expression):
            near = list(near_expressions(value, constants))
        # A value that a test uses somewhere is not odd.
        used = [(other, 0) for other in pools.get(slot, ())]
        plain = {source_of(other) for other, _ in used}
        for other, oddness in _distinct([*near, *used], value):
            yield _with(call, slot, other, 0 if source_of(other) in plain else oddness)
    for first, second in itertools.pairwise(range(len(call.given))):
        a, b = call.given[first], call.given[second]
        if a.kind == b.kind == "" and type(a.value) is type(b.value) and a.value != b.value:
            yield replace(_with(_with(call, (False, first), b.value), (False, second), a.value), steps=call.steps + 1)


def _pooled(calls: Sequence[Call], pools: dict[_Slot, list[Literal]]) -> Iterator[Call]:
    """Yield calls with values of other calls for two parameters: often both decide, as a name and where it is known."""
    slots = sorted({pair for call in calls for pair in itertools.combinations(_slots(call), 2)})
    pairs = [(a, b, v, w) for a, b in slots for v in pools[a] for w in pools[b]]
    random.Random(len(pairs)).shuffle(pairs)
    for first, second, value, other in pairs:
        call = next(c for c in calls if {first, second} <= set(_slots(c)))
        yield _with(_with(call, first, value), second, other)


def _pools(calls: Sequence[Call]) -> dict[_Slot, list[Literal]]:
    """Return for each parameter the values that tests use, the shortest first."""
    pools: dict[_Slot, dict[str, Literal]] = {}
    for call in calls:
        for slot in _slots(call):
            value = _argument(call, slot).value
            pools.setdefault(slot, {}).setdefault(source_of(value), value)
    return {slot: [pool[text] for text in sorted(pool, key=len)[:8]] for slot, pool in pools.items()}


def _slots(call: Call) -> Iterator[_Slot]:
    yield from ((False, n) for n, a in enumerate(call.given) if a.kind != "**")
    yield from ((True, n) for n, a in enumerate(call.init) if a.kind != "**")


def _argument(call: Call, slot: _Slot) -> Argument:
    return (call.init if slot[0] else call.given)[slot[1]]


def _with(call: Call, slot: _Slot, value: Literal, oddness: int = 0) -> Call:
    arguments = list(call.init if slot[0] else call.given)
    arguments[slot[1]] = replace(arguments[slot[1]], value=value)
    changed = {"init" if slot[0] else "given": tuple(arguments)}
    return replace(call, steps=call.steps + 1, oddness=call.oddness + oddness, **changed)  # type: ignore[arg-type]


def _distinct(values: Iterable[tuple[Literal, int]], value: Literal) -> Iterator[tuple[Literal, int]]:
    seen = {source_of(value)}
    for other, oddness in values:
        text = source_of(other)
        if text not in seen:
            seen.add(text)
            yield other, oddness


def _in_turns(groups: Sequence[Sequence[Call]]) -> Iterator[Call]:
    for turn in itertools.zip_longest(*groups):
        yield from (call for call in turn if call is not None)


def _spread(calls: Sequence[Call], most: int) -> list[Call]:
    """Return some of the calls, evenly spaced."""
    if len(calls) <= most:
        return list(calls)
    return [calls[n * len(calls) // most] for n in range(most)]
