"""Vary recorded calls: nearby values, boundaries, empty containers, constants of the function, swapped arguments.

The order is fixed by the recorded calls and a seed: first the calls themselves, then calls that differ from them in one
value, then in two.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from pytest_ssr.suggestions.calls import Argument, Call
from pytest_ssr.suggestions.literals import Literal, source_of

_MOST_RECORDED, _MOST_CONSTANTS = 40, 12
_LARGE = 1e15
"""From here on, floating point numbers have no room for a half."""
_Slot = tuple[bool, int]
"""Whether a value belongs to the constructor, and its index."""


def varied(recorded: Sequence[Call], constants: Sequence[Literal], *, most: int, seed: int) -> list[Call]:
    """Return different calls of one function, at most `most`; constants: values that matter, the nearest first."""
    rng = random.Random(seed)
    chosen = _spread(sorted(recorded, key=lambda c: (len(c.expression), c.expression)), _MOST_RECORDED)
    pools = _pools(recorded)
    once = [list(_neighbours(call, constants[:_MOST_CONSTANTS], pools)) for call in chosen]
    found = {call.expression: call for call in itertools.islice(chosen, most)}
    for call in _in_turns(once):
        if len(found) >= most:
            return list(found.values())
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
        for other in _distinct([*values_near(value, constants), *pools.get(slot, ())], value):
            yield _with(call, slot, other)
    for first, second in itertools.pairwise(range(len(call.given))):
        a, b = call.given[first], call.given[second]
        if a.kind == b.kind == "" and type(a.value) is type(b.value) and a.value != b.value:
            yield replace(_with(_with(call, (False, first), b.value), (False, second), a.value), steps=call.steps + 1)


def values_near(value: Literal, constants: Iterable[Literal] = ()) -> Iterator[Literal]:
    """Yield values of the same type that differ from a value; those that are most likely to matter first."""
    if isinstance(value, bool):
        yield not value
    elif isinstance(value, int):
        numbers = [c for c in constants if type(c) is int]
        yield from (n + d for n in numbers for d in (0, -1, 1))
        yield from (value + 1, value - 1, 0, 1, -1, 2, -value, 10 * value)
    elif isinstance(value, float):
        limits = [float(c) for c in constants if isinstance(c, int | float) and abs(c) < _LARGE]
        yield from (n + d for n in limits for d in (0.0, -0.5, 0.5))
        yield from (value + 0.5, value - 1.0, 0.0, 1.0, -value, 10.0 * value)
    elif isinstance(value, str):
        yield from _texts_near(value, [c for c in constants if isinstance(c, str) and len(c) <= 20])
    elif isinstance(value, bytes):
        parts = [c for c in constants if isinstance(c, bytes) and len(c) <= 20]
        yield from (b"", value[:1], value[1:], value + value, value.upper(), *parts, *(value + c for c in parts))
    elif isinstance(value, list | tuple):
        yield from _sequences_near(value, constants)
    elif isinstance(value, set):
        yield set()
        yield set(sorted(value, key=source_of)[:1])
    elif isinstance(value, dict):
        yield {}
        yield dict(itertools.islice(value.items(), 1))
        for key in itertools.islice(value, 2):
            yield from ({**value, key: other} for other in itertools.islice(values_near(value[key], constants), 4))


def _texts_near(value: str, parts: Sequence[str]) -> Iterator[str]:
    for part in parts:
        yield from (part, value + part, part + value)
        middle = len(value) // 2
        yield value[:middle] + part + value[middle:]
    yield from ("", value[:1], value[1:], value[:-1], value.upper(), value.lower(), value.title(), value.swapcase())
    yield from (
        f" {value}",
        f"{value} ",
        value.replace(" ", ""),
        f"{value} {value}",
        f"{value}1",
        f"{value}é",
        value[::-1],
    )


def _sequences_near(value: list[Literal] | tuple[Literal, ...], constants: Iterable[Literal]) -> Iterator[Literal]:
    yield from (value[:0], value[:1], value[1:], value[::-1])
    yield value + value  # type: ignore[operator] # both are lists, or both are tuples
    for index in sorted({0, len(value) - 1}) if value else ():
        for other in itertools.islice(values_near(value[index], constants), 8):
            changed = [*value[:index], other, *value[index + 1 :]]
            yield changed if isinstance(value, list) else tuple(changed)


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


def _with(call: Call, slot: _Slot, value: Literal) -> Call:
    arguments = list(call.init if slot[0] else call.given)
    arguments[slot[1]] = replace(arguments[slot[1]], value=value)
    changed = {"init" if slot[0] else "given": tuple(arguments)}
    return replace(call, steps=call.steps + 1, **changed)  # type: ignore[arg-type]


def _distinct(values: Iterable[Literal], value: Literal) -> Iterator[Literal]:
    seen = {source_of(value)}
    for other in values:
        text = source_of(other)
        if text not in seen:
            seen.add(text)
            yield other


def _in_turns(groups: Sequence[Sequence[Call]]) -> Iterator[Call]:
    for turn in itertools.zip_longest(*groups):
        yield from (call for call in turn if call is not None)


def _spread(calls: Sequence[Call], most: int) -> list[Call]:
    """Return some of the calls, evenly spaced."""
    if len(calls) <= most:
        return list(calls)
    return [calls[n * len(calls) // most] for n in range(most)]
