"""Choose the examples that may call a function, and vary the literals in them."""

from __future__ import annotations

import ast
import itertools
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from pytest_ssr.source.parsing import parse_module
from pytest_ssr.suggestions.calls import Phrase, names_in
from pytest_ssr.suggestions.expressions import near_expressions
from pytest_ssr.suggestions.functions import Function, functions_of
from pytest_ssr.suggestions.literals import Expression, Literal

_MOST_EXAMPLES = 40
_MOST_STEPS = 3
"""How many functions lead from the one that an example calls to the changed one."""
_SHARE_OF_SINGLE = 0.7


def phrases_for(
    function: Function, examples: Sequence[Expression], callers: Mapping[str, frozenset[Function]]
) -> list[tuple[int, Phrase]]:
    """Return the examples that mention a function or one that leads to it, with the number of steps, the nearest first.

    callers: as of `callers_in`.
    """
    found: dict[Expression, tuple[int, Phrase]] = {}
    words_in = {example: frozenset(names_in(example)) for example in examples}
    level, seen = {function}, {function}
    for steps in range(_MOST_STEPS + 1):
        for target in sorted(level, key=lambda f: (f.path, f.first)):
            words = _words_of(target)
            for example in examples:
                if example not in found and words <= words_in[example]:
                    # The result of a call around it is less near.
                    found[example] = steps + int(not _is_outermost(example, words)), Phrase(target, example)
        level = {caller for target in level for caller in callers.get(target.name, ())} - seen
        if function.name.startswith("__"):
            # Whoever makes or uses an instance; its own methods are found by their names.
            level = set()
        seen |= level
    ordered = sorted(found.values(), key=lambda item: (item[0], len(item[1].expression), item[1].expression))
    return ordered[:_MOST_EXAMPLES]


def callers_in(sources: Mapping[str, bytes]) -> dict[str, frozenset[Function]]:
    """Return for each name the functions of the project whose code mentions it."""
    found: dict[str, set[Function]] = {}
    for path, source in sources.items():
        tree = parse_module(source)
        functions = functions_of(path, source)
        for node in ast.walk(tree) if tree is not None else ():
            name = node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
            line = getattr(node, "lineno", 0)
            user = next((f for f in functions if f.first <= line <= f.last), None) if name else None
            if user is not None and user.name != name:
                found.setdefault(name, set()).add(user)
    return {name: frozenset(functions) for name, functions in found.items()}


def varied_phrases(phrases: Iterable[Phrase], constants: Sequence[Literal], *, most: int, seed: int) -> list[Phrase]:
    """Return phrases and variations of them, at most `most`; constants: values that matter, the nearest first."""
    rng = random.Random(seed)
    found = {phrase.expression: phrase for phrase in itertools.islice(phrases, most)}
    groups = [list(_neighbours(phrase, constants)) for phrase in found.values()]
    for turn in itertools.zip_longest(*groups):
        for phrase in turn:
            if phrase is not None and len(found) < _SHARE_OF_SINGLE * most:
                found.setdefault(phrase.expression, phrase)
    singles = [phrase for phrase in found.values() if phrase.steps == 1]
    for _ in range(most if singles else 0):
        if len(found) >= most:
            break
        following = list(_neighbours(rng.choice(singles), constants))
        if following:
            phrase = rng.choice(following)
            found.setdefault(phrase.expression, phrase)
    return list(found.values())


def _neighbours(phrase: Phrase, constants: Sequence[Literal]) -> Iterator[Phrase]:
    """Yield phrases in which one literal differs."""
    for content, oddness in near_expressions(phrase.content, constants):
        yield replace(phrase, content=content, steps=phrase.steps + 1, oddness=phrase.oddness + oddness)


def _words_of(function: Function) -> frozenset[str]:
    """Return the names that an expression contains if it calls a function."""
    names = function.names
    if len(names) > 1 and names[-1].startswith("__"):
        return frozenset((names[-2],))
    return frozenset((names[-1],))


def _is_outermost(example: Expression, names: frozenset[str]) -> bool:
    """Return whether an expression is a call of one of the names, or is no call, such as an operation of objects."""
    node = ast.parse(example.source, mode="eval").body
    if not isinstance(node, ast.Call):
        return True
    name = node.func.attr if isinstance(node.func, ast.Attribute) else ast.unparse(node.func)
    return name in names
