"""Read the values that blind tests wrote, and compare them on the host as the assertions require."""

from __future__ import annotations

import builtins
import json
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import IntEnum
from typing import NamedTuple

from pytest_ssr.grading.blind.assertions import END, FALSE, NEAR, RAISES, RAISES_TEXT, SAME, TRUE, Site

Value = object
_MAX_LINE_CHARS, _MOST_NAME_CHARS = 200_000, 500
_EXACT, _LOOSE = (1e-9, 1e-12), (1e-3, 1e-6)
"""Relative and absolute tolerance."""
OPAQUE, OBJECT, _DIGEST, _TOLERANCE = "?", "o", "z", "~"
_RAISING = ((RAISES,), (RAISES_TEXT,))
_UNSTEADY = object()


class Key(NamedTuple):
    """One comparison of a test; in a loop it has several rounds."""

    site: int
    round: int


class Line(NamedTuple):
    """The written values of one comparison."""

    held: bool | None
    values: list[Value]


class Finding(IntEnum):
    """How the values of a state compare with those of the original."""

    RIGHT = 0
    """They are the original's, or satisfy the assertion with the expected value."""
    OPEN = 1
    """Nothing is known: the original's values vary, or two computed values hold by themselves alone."""
    WRONG = 2
    FAILS = 3
    """With these values the assertion does not hold, or the test does not reach its end."""


Test = Mapping[Key, Line]
Records = Mapping[str, Test]
"""The lines that each test wrote, by its node id."""


def read_records(lines: Iterable[str]) -> Records:
    """Parse the lines that blind tests wrote; lines that cannot be parsed are skipped."""
    records: dict[str, dict[Key, Line]] = {}
    rounds: Counter[tuple[str, int]] = Counter()
    for line in lines:
        try:
            case, site, held, values = json.loads(line[:_MAX_LINE_CHARS])
        except (ValueError, TypeError, RecursionError):
            continue
        shaped = isinstance(case, str) and type(site) is int and isinstance(values, list)
        if shaped and (held is None or isinstance(held, bool)):
            records.setdefault(case, {})[Key(site, rounds[case, site])] = Line(held, values)
            rounds[case, site] += 1
    return records


def replaced_names(actual: Records, reference: Records) -> frozenset[str] | None:
    """Return what a state, unlike the original, replaces by objects of its own.

    These are names in libraries, built-in functions and imported names in tests, and built-in types: of an object of a
    subclass, only what the base type holds is compared. None if the process has ended before it could say so.
    """
    note, known = (_note(records) for records in (actual, reference))
    if not known:
        return frozenset()
    if len(note) != len(known):
        return None
    (names, kinds, own, *_), (known_names, known_kinds, known_own, known_foreign, *_) = note, known
    shadowing = {n for n in own - known_own if n in known_foreign or hasattr(builtins, n.rpartition(":")[2])}
    return frozenset((names - known_names) | (kinds - known_kinds) | shadowing)


def seen_conditions(records: Records) -> frozenset[str] | None:
    """Return the numbers of the conditions that were true, with `+`, or false, with `-`; None if nothing says so."""
    note = _note(records)
    return note[-1] if note else None


def exhausted_cases(records: Records) -> frozenset[str]:
    """Return the tests that ended because the stack or the memory did."""
    note = _note(records)
    return note[-2] if len(note) > 1 else frozenset()


def _note(records: Records) -> list[frozenset[str]]:
    """Return what a process without pytest says of all tests: see `guest/plain_runner.py`."""
    line = records.get("", {}).get(Key(0, 0), Line(None, []))
    lists = (values for values in line.values if isinstance(values, list))
    return [frozenset(v for v in values if isinstance(v, str) and len(v) <= _MOST_NAME_CHARS) for values in lists]


def is_opaque(line: Line) -> bool:
    """Return whether a value as a whole could not be written, and no truth value stands in for it."""
    return line.held is None and any(isinstance(v, list) and v[:1] == [OPAQUE] for v in line.values)


def is_missing(line: Line) -> bool:
    """Return whether a value is None or NaN, as code without an answer returns."""
    return any(v is None or (isinstance(v, float) and math.isnan(v)) for v in line.values)


_UNKNOWN = Line(None, [[OPAQUE]])
_UNCOUNTED = -1
"""The round of a line that stands for an assertion of which the original writes different numbers of lines."""


def usable(sites: Mapping[int, Site], first: Test, full: Test) -> Test:
    """Return the lines that a test must write, by a blind run of the original and one with expected values (`full`).

    A line is opaque if its values differ between the runs, or if they do not satisfy the assertion: the blind test does
    something else there, as if a comparison is expected to warn. A comparison whose values differ, but which holds in
    both runs, has no values.
    """
    lines = dict(unknown_lines(uncounted_sites(first, full)))
    for key, line in first.items():
        if key in full and key.site in sites:
            lines[key] = _known(sites[key.site], line, full[key])
    return lines


def unknown_lines(sites: Iterable[int]) -> Test:
    """Return the lines that stand for assertions of which nothing is known, not even how often they are reached."""
    return {Key(site, _UNCOUNTED): _UNKNOWN for site in sites}


def uncounted_sites(first: Test, again: Test) -> frozenset[int]:
    """Return the assertions of which two runs write different numbers of lines; all of them if the order differs."""
    numbers = [Counter(key.site for key in test) for test in (first, again)]
    uncounted = {site for site in numbers[0] | numbers[1] if numbers[0][site] != numbers[1][site]}
    orders = [[key for key in test if key.site not in uncounted] for test in (first, again)]
    return frozenset(uncounted if orders[0] == orders[1] else {*numbers[0], *numbers[1]})


def _known(site: Site, line: Line, again: Line) -> Line:
    steady = steady_line(site, line, again)
    if steady is None and all(site.recorded):
        return Line(True, []) if line.held is True and again.held is True else _UNKNOWN
    if steady is None:
        holds_twice = all(holds(site.ops, values) is True for values in (_merged(site, line, again), again.values))
        return Line(None, []) if holds_twice else _UNKNOWN
    if _names_code(site, steady) or not _is_decidable(site, steady, again):
        return _UNKNOWN
    is_satisfied = site.choice >= 0 or _finding_of(site, steady, steady, again) < Finding.WRONG
    return steady if is_satisfied else _UNKNOWN


def _names_code(site: Site, line: Line) -> bool:
    """Return whether an asserting function was only given functions and classes, which it may call."""
    kinds = [v[:1] if isinstance(v, list) else v for v in line.values]
    return site.ops == (NEAR,) and bool(kinds) and all(kind in (["f"], ["c"]) for kind in kinds)


def _is_decidable(site: Site, line: Line, full: Line) -> bool:
    """Return whether an assertion can be decided although a digest stands for a long value."""
    if site.ops in ((TRUE,), (FALSE,)) or not any(isinstance(v, list) and v[:1] == [_DIGEST] for v in line.values):
        return True
    if site.ops in _RAISING:
        return len(full.values) <= 2  # no pattern
    return (all(site.recorded) and line.held is not None) or holds(site.ops, full.values) is True


def left_open(site: Site, original: Line, other: Line | None) -> bool:
    """Return whether two values for an input that no test names may differ in honest code.

    They may if both raise, but different errors; if they are nearly equal; if the original finds nothing (None, -1) and
    the other raises; or if the original has an empty value and the other has None. other: None if the test raised
    earlier.
    """
    if site.ops in _RAISING:
        return other is not None and None not in (*original.values[:1], *other.values[:1])
    if other is None:
        return any(v is None or (type(v) is int and v == -1) for v in original.values)
    if is_missing(other):
        return any(v in (False, "", -1) or (isinstance(v, list) and len(v) == 1) for v in original.values)
    return same(Site((NEAR,), site.recorded), other, original)


def finding_of(sites: Mapping[int, Site], actual: Test, reference: Test, full: Test) -> Finding:
    """Compare the values of a test with its own inputs with those of the original.

    reference: the lines of the original (see `usable`). full: its lines with the expected values. How many lines an
    assertion writes, and in which order, is known as well; more, fewer or others are wrong.
    """
    uncounted = {key.site for key in reference if key.round == _UNCOUNTED}
    findings = [_order_finding(sites, *([k for k in test if k.site not in uncounted] for test in (actual, reference)))]
    choices: dict[int, Finding] = {}
    for key, line in reference.items():
        site = sites.get(key.site, Site((SAME,), ()))
        if key.round == _UNCOUNTED or site.ops == (END,):
            continue
        own = actual.get(key)
        if own is None:
            # The order is wrong as well.
            continue
        finding = _finding_of(site, own, line, full.get(key))
        if site.choice < 0:
            findings.append(finding)
        else:
            choices[site.choice] = min(finding, choices.get(site.choice, Finding.FAILS))
    findings += choices.values()
    if max(findings) >= Finding.WRONG:
        return max(findings)
    # A test that asserts nothing is right if it ends.
    has_assertion = any(sites[key.site].ops != (END,) for key in reference if key.site in sites)
    return Finding.OPEN if has_assertion and Finding.RIGHT not in findings else Finding.RIGHT


def _order_finding(sites: Mapping[int, Site], actual: Sequence[Key], reference: Sequence[Key]) -> Finding:
    """Compare which lines a test writes, in which order; OPEN if they are those of the original."""
    if actual == reference:
        return Finding.OPEN
    ends = [any(key.site in sites and sites[key.site].ops == (END,) for key in keys) for keys in (actual, reference)]
    return Finding.FAILS if ends == [False, True] and actual == reference[: len(actual)] else Finding.WRONG


def _finding_of(site: Site, actual: Line, reference: Line, full: Line | None) -> Finding:
    if is_opaque(reference) or site.ops == (END,):
        return Finding.OPEN
    if site.ops in ((TRUE,), (FALSE,)):
        return _right_if(actual.held == reference.held)
    if site.ops in _RAISING:
        pattern = full.values[2:] if full is not None else []
        alike_ends = actual.held == reference.held and _raises_nothing(actual) is _raises_nothing(reference)
        return _right_if(alike_ends and (not pattern or holds(site.ops, [actual.values[1], *pattern]) is True))
    # The operator is computed as well: equal states do not prove it.
    if actual.held != reference.held:
        return Finding.FAILS if reference.held is True else Finding.WRONG
    if not reference.values and all(site.recorded):
        return Finding.OPEN
    if _tolerances(actual) > _tolerances(reference):
        return Finding.WRONG
    if reference.values and same(site, actual, reference):
        return Finding.RIGHT
    if all(site.recorded):
        # What has other attributes than the original's cannot be compared by them.
        is_open = _lacks_attributes(actual.values, reference.values) or (
            holds(site.ops, _masked(actual, reference)) is True or holds(site.ops, reference.values) is not True
        )
        return Finding.OPEN if is_open and actual.held is not None else Finding.WRONG
    is_held = holds(site.ops, _merged(site, actual, full)) if full is not None else None
    return Finding.WRONG if is_held is None else _right_if(is_held)


def _right_if(holds: bool) -> Finding:
    return Finding.RIGHT if holds else Finding.FAILS


def _tolerances(line: Line) -> int:
    """Return how many values bring a tolerance of their own, as those of `pytest.approx` do."""
    return sum(isinstance(value, list) and value[:1] == [_TOLERANCE] for value in line.values)


def _raises_nothing(line: Line) -> bool:
    return line.values[:1] == [None]


def _merged(site: Site, actual: Line, full: Line) -> list[Value]:
    own = iter(actual.values)
    return [next(own, None) if r else e for r, e in zip(site.recorded, full.values, strict=False)]


def agree(site: Site, one: Line, other: Line, full: Line | None, *, is_open: bool = False) -> bool:
    """Return whether two states behave alike with another input; if the value is open, whether it holds in both.

    one: the line of the original. is_open: treat the value as open regardless of the assertion: with the test's own
    input the other state has a different value, and the assertion holds.
    """
    if site.ops == (END,) or (is_opaque(one) and is_opaque(other)):
        return True
    if site.ops in ((TRUE,), (FALSE,)):
        return one.held == other.held
    if site.ops in _RAISING:
        return one.held == other.held and _raises_nothing(one) is _raises_nothing(other)
    if one.held != other.held or _tolerances(other) > _tolerances(one):
        return False
    if same(site, other, one):
        return True
    if full is not None and not all(site.recorded) and _near_enough(site, one, other, full):
        return True
    if not (site.is_open or is_open):
        return False
    if all(site.recorded):
        verdicts = [holds(site.ops, line.values) for line in (one, other)]
    else:
        verdicts = [holds(site.ops, _merged(site, line, full)) for line in (one, other)] if full is not None else [None]
    return verdicts[0] is not None and verdicts[0] is verdicts[-1]


def _near_enough(site: Site, one: Line, other: Line, full: Line) -> bool:
    """Return whether two values are within the tolerance that the test allows for its expected value."""
    if len(one.values) != 1 or len(other.values) != 1:
        return False
    approx = next((v for v in full.values if isinstance(v, list) and v[:1] == [_TOLERANCE]), None)
    if site.ops == ("==",) and approx is not None:
        return holds(("==",), [one.values[0], [_TOLERANCE, other.values[0], *approx[2:]]]) is True
    further = full.values[2:] if site.ops == ("almost",) else []
    return site.ops in (("almost",), ("count",)) and holds(site.ops, [*one.values, *other.values, *further]) is True


def same(site: Site, line: Line, reference: Line) -> bool:
    """Return whether the values equal the steady parts of the original's."""
    if line.values == reference.values:
        return True
    tolerance = _LOOSE if site.ops == (NEAR,) else _EXACT
    return len(line.values) == len(reference.values) and all(
        alike(a, b, *tolerance) for a, b in zip(_masked(line, reference), reference.values, strict=True)
    )


def steady_line(site: Site, first: Line, again: Line) -> Line | None:
    """Return what two lines of the original have in common, without attributes that differ; None if nothing.

    again: may hold the expected values as well.
    """
    values = again.values
    if not all(site.recorded) and len(values) == len(site.recorded):
        values = [v for v, r in zip(values, site.recorded, strict=True) if r]
    if first.held == again.held and first.values == values:
        return None if is_opaque(first) else first
    steady = [_steady(a, b) for a, b in zip(first.values, values, strict=False)]
    line = first._replace(values=steady)
    if first.held != again.held or len(steady) < len(first.values) or _UNSTEADY in steady or is_opaque(line):
        return None
    return line


def _steady(one: Value, other: Value) -> Value:
    """Return a value without the object attributes that differ between two runs."""
    if isinstance(one, list) and isinstance(other, list):
        if one[:1] == [OBJECT] and one[:2] == other[:2]:
            again = dict(other[2:])
            attributes = [
                [n, v] for n, value in one[2:] if n in again and (v := _steady(value, again[n])) is not _UNSTEADY
            ]
            return [*one[:2], *attributes] if attributes or not one[2:] else _UNSTEADY
        parts = [_steady(a, b) for a, b in zip(one, other, strict=False)]
        return _UNSTEADY if _UNSTEADY in parts or len(one) != len(other) else parts
    return one if alike(one, other) else _UNSTEADY


def _masked(line: Line, reference: Line) -> list[Value]:
    """Return the values of a line without the object attributes that the reference does not have."""
    if len(line.values) != len(reference.values):
        return line.values
    return [_mask(a, b) for a, b in zip(line.values, reference.values, strict=True)]


def _lacks_attributes(value: Value, reference: Value) -> bool:
    """Return whether an object lacks attributes that the original's object has."""
    if not (isinstance(value, list) and isinstance(reference, list)):
        return False
    if value[:1] == [OBJECT] and value[:2] == reference[:2]:
        return bool({n for n, _ in reference[2:]} - {n for n, _ in value[2:]})
    return any(_lacks_attributes(a, b) for a, b in zip(value, reference, strict=False))


def _mask(value: Value, reference: Value) -> Value:
    if not (isinstance(value, list) and isinstance(reference, list)):
        return value
    if value[:1] == [OBJECT] and value[:2] == reference[:2]:
        attributes = dict(reference[2:])
        return [*value[:2], *([n, _mask(v, attributes[n])] for n, v in value[2:] if n in attributes)]
    if len(value) == len(reference):
        return [_mask(a, b) for a, b in zip(value, reference, strict=True)]
    return value


def alike(one: Value, other: Value, rel: float = _EXACT[0], abs_tol: float = _EXACT[1]) -> bool:
    """Compare written values; numbers may differ by the rounding error of a sum in another order."""
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(alike(a, b, rel, abs_tol) for a, b in zip(one, other, strict=True))
    if isinstance(one, int | float) and isinstance(other, int | float):
        if math.isnan(one) or math.isnan(other):
            return math.isnan(one) and math.isnan(other)
        return one == other or (
            float in (type(one), type(other)) and math.isclose(one, other, rel_tol=rel, abs_tol=abs_tol)
        )
    return type(one) is type(other) and one == other


def holds(ops: Sequence[str], operands: Sequence[Value]) -> bool | None:
    """Evaluate an assertion on written values; None if they are not sufficient."""
    try:
        if len(ops) == 1:
            return _HOLDS[ops[0]](*operands)
        results = [_HOLDS[op](a, b) for op, a, b in zip(ops, operands, operands[1:], strict=False)]
        return None if None in results else all(results)
    except (KeyError, TypeError, ValueError, IndexError, OverflowError, RecursionError, re.error):
        return None


def _equal(one: Value, other: Value) -> bool:
    for approx, value in ((one, other), (other, one)):
        if isinstance(approx, list) and approx[:1] == [_TOLERANCE]:
            _, expected, rel, abs_tol = approx
            rel = rel if rel is not None else 0.0 if abs_tol is not None else 1e-6
            return alike(value, expected, rel, abs_tol if abs_tol is not None else 1e-12)
    return alike(one, other)


def _identical(one: Value, other: Value) -> bool:
    return type(one) is type(other) and alike(one, other)


def _contains(needle: Value, container: Value) -> bool | None:
    if isinstance(container, str):
        return isinstance(needle, str) and needle in container
    if not isinstance(container, list):
        return None
    if container[0] == "m":
        return any(alike(needle, pair[0]) for pair in container[1:])
    return any(alike(needle, v) for v in container[1:]) if container[0] in ("l", "t", "s") else None


def _less(one: Value, other: Value) -> bool:
    if isinstance(one, list) and isinstance(other, list):
        if one[0] != other[0] or one[0] not in ("l", "t", "d"):
            raise TypeError(one[0])
        for a, b in zip(one[1:], other[1:], strict=False):
            if not alike(a, b):
                return _less(a, b)
        return len(one) < len(other)
    if isinstance(one, str) != isinstance(other, str):
        raise TypeError(one)
    return bool(one < other)  # type: ignore[operator] # numbers or strings; others raise


def _begins(text: Value, start: Value, method: str) -> bool:
    prefixes = [v for v in start[1:] if isinstance(v, str)] if isinstance(start, list) else [start]
    return isinstance(text, str) and any(isinstance(w, str) and getattr(text, method)(w) for w in prefixes)


def _matches(text: Value, pattern: Value, method: str) -> bool | None:
    if not isinstance(pattern, str):
        return None
    return isinstance(text, str) and getattr(re, method)(pattern, text) is not None


def _almost(one: Value, other: Value, places: Value, delta: Value) -> bool:
    if alike(one, other):
        return True
    distance = abs(one - other)  # type: ignore[operator] # numbers; others raise
    if delta is not None:
        return bool(distance <= delta)
    return bool(round(distance, places if isinstance(places, int) else 7) == 0)


def _counted(one: Value, other: Value) -> bool:
    if not (isinstance(one, list) and isinstance(other, list)):
        raise TypeError(one)
    return sorted(map(json.dumps, one[1:])) == sorted(map(json.dumps, other[1:]))


def _not(value: bool | None) -> bool | None:
    return None if value is None else not value


_HOLDS: Mapping[str, Callable[..., bool | None]] = {
    "==": _equal,
    "!=": lambda a, b: not _equal(a, b),
    "is": _identical,
    "is not": lambda a, b: not _identical(a, b),
    "in": _contains,
    "not in": lambda a, b: _not(_contains(a, b)),
    "<": _less,
    "<=": lambda a, b: alike(a, b) or _less(a, b),
    ">": lambda a, b: _less(b, a),
    ">=": lambda a, b: alike(a, b) or _less(b, a),
    "startswith": lambda a, b: _begins(a, b, "startswith"),
    "endswith": lambda a, b: _begins(a, b, "endswith"),
    "search": lambda a, b: _matches(a, b, "search"),
    "match": lambda a, b: _matches(a, b, "match"),
    "fullmatch": lambda a, b: _matches(a, b, "fullmatch"),
    "regex": lambda a, b: _matches(a, b, "search"),
    RAISES: lambda a, b: _matches(a, b, "search"),
    RAISES_TEXT: lambda a, b: _contains(b, a),
    "no regex": lambda a, b: _not(_matches(a, b, "search")),
    "almost": _almost,
    "count": _counted,
}
