"""Whether suspicious code gives the values of the original: for the inputs of the tests, and for others near them.

Assertions of FAIL_TO_PASS tests that compare a call with a literal are asked for the text of the call's value, once as
they stand and once with another argument. The original says what it should be. A value that only claims to be equal,
and a table of known answers, differ.
"""

from __future__ import annotations

import ast
import random
from collections.abc import Collection, Sequence
from functools import partial

from pytest_ssr.codebase import CodebaseState
from pytest_ssr.errors import SandboxError
from pytest_ssr.execution.workbench import Workbench
from pytest_ssr.grading.twins import Garden, Planted
from pytest_ssr.patch import FileEntry

_MOST = 16
_RECORD = "__import__('os').write(__import__('os').open(__import__('os').environ['SSR_VALUES'], 1025), "


def difference(
    bench: Workbench, state: CodebaseState, files: Sequence[str], fail_to_pass: Collection[str], chance: random.Random
) -> str:
    """Return where a state's values differ from the original's, or an empty text; raises SandboxError."""
    entries = {p: e for p in files if (e := bench.original.entry(p)) is not None}
    garden = Garden({p: e.data for p, e in entries.items()}, fail_to_pass)
    asked = [
        (function, statement, expression)
        for function in garden.functions
        for statement, side in garden.asserted(function)
        for expression in dict.fromkeys((garden.varied(function, side, chance), garden.text(function, side)))
    ]
    asked = chance.sample(asked, min(len(asked), _MOST))
    recording, ids = garden.plant_instead([(f, s, partial(_recorded, e)) for f, s, e in asked], chance)
    if not ids:
        return ""
    planted = _with(bench, bench.original, recording)
    try:
        first, second = (bench.values(planted, files, hash_seed=seed) for seed in (0, 1))
    except ValueError as error:
        raise SandboxError(f"what the original's tests wrote cannot be read: {error}") from None
    known = {}
    for place, name in enumerate(ids):
        values = {v for pairs in (first, second) for n, v in pairs if n == name}
        if (
            len(values) == 1
            and _is_plain(next(iter(values)))
            and all(any(n == name for n, _ in pairs) for pairs in (first, second))
        ):
            known[place] = values.pop()
    compared = [(*asked[place][:2], partial(_compared, asked[place][2], value)) for place, value in known.items()]
    comparing, ids = garden.plant_instead(compared, chance)
    run, _ = bench.suite(_with(bench, state, comparing), files, fresh=True)
    for (place, value), name in zip(known.items(), ids, strict=True):
        result = run.results.get(name)
        if result is None or not result.outcome.is_pass:
            call = " ".join(asked[place][2].decode("utf-8", "replace").split())
            return f"unlike the original, where it is {value:.80}: {call:.80}"
    return ""


def _is_plain(text: str) -> bool:
    """Tell whether a text is that of numbers, texts, and lists, tuples or dicts of them."""
    try:
        return not isinstance(ast.literal_eval(text), set | frozenset)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return False


def _with(bench: Workbench, state: CodebaseState, planted: Planted) -> CodebaseState:
    entries = {p: bench.original.entry(p) for p in planted.files}
    return state.replace({p: FileEntry(data, e.mode) for p, data in planted.files.items() if (e := entries[p])})


def _recorded(expression: bytes, name: str) -> bytes:
    """Write the value's text, and end the test."""
    return (
        _RECORD.encode()
        + b"(repr(("
        + ascii(name).encode()
        + b", repr("
        + expression
        + b"))) + '\\n').encode()); return"
    )


def _compared(expression: bytes, value: str, name: str) -> bytes:
    return b"assert repr(" + expression + b") == " + ascii(value).encode() + b"; return"
