"""Make wrong solutions that hard-code what the tests show: the results of the calls in them, and the bug otherwise."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from pytest_ssr.campaign.campaign import Campaign
from pytest_ssr.injectors.protocol import Candidate
from pytest_ssr.project.state import CodebaseState
from pytest_ssr.suggestions.calls import Call
from pytest_ssr.suggestions.functions import Function, FunctionKind, functions_of
from pytest_ssr.suggestions.literals import Expression, Literal, imports_of, source_of
from pytest_ssr.suggestions.outcomes import OutcomeKind, evaluate
from pytest_ssr.suggestions.recording import record_calls

OPERATOR = "hard-coded"
_MOST_FUNCTIONS, _MOST_CALLS = 4, 200
_WRAPPER = """

def _ssr_hard_coded(function, shown, skipped):
    import inspect

    signature = inspect.signature(function)

    def wrapper(*args, **kwargs):
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        key = repr(sorted(list(bound.arguments.items())[skipped:]))
        return eval(shown[key]) if key in shown else function(*args, **kwargs)

    return wrapper


{name} = _ssr_hard_coded({name}, {shown}, {skipped})
"""


def hard_coded(campaign: Campaign, unsolved: CodebaseState, failing: Collection[str]) -> Iterator[Candidate]:
    """Yield a candidate for each function of the solution whose calls in FAIL_TO_PASS tests can be written down.

    campaign: on the solved tree. unsolved: the code without the solution. Raises SandboxError.
    """
    changed = [function for function in _changed_functions(campaign) if _can_be_wrapped(function, unsolved)]
    for function in changed[:_MOST_FUNCTIONS]:
        if shown := _shown(campaign, function, sorted(failing)):
            yield _candidate(function, unsolved, shown)


def _changed_functions(campaign: Campaign) -> Iterator[Function]:
    lines = campaign.diff.lines if campaign.diff is not None else {}
    for path, spans in sorted(lines.items()):
        for function in functions_of(path, campaign.runner.snapshot.read(path)):
            if any(first < function.last and function.first <= end for first, end in spans):
                yield function


def _can_be_wrapped(function: Function, unsolved: CodebaseState) -> bool:
    """Return whether a function can be replaced, in the code without the solution, after its definition."""
    is_plain = function.kind in (FunctionKind.FUNCTION, FunctionKind.METHOD) and not function.name.startswith("__")
    entry = unsolved.entry(function.path) if is_plain else None
    return entry is not None and function.names in {f.names for f in functions_of(function.path, entry.data)}


def _shown(campaign: Campaign, function: Function, tests: Sequence[str]) -> dict[str, str]:
    """Return the results of the calls that tests make, as source, by the arguments; none that differ for equal ones."""
    runner, sources = campaign.runner, sorted(campaign.snapshot.allowed or ())
    seconds = sum(campaign.baseline.durations.get(test, 0.0) for test in tests)
    recorded = record_calls(runner, function, tests, sources, like_s=seconds)
    calls = [call for call in recorded.calls.get(function, ()) if _is_plain(call)][:_MOST_CALLS]
    outcomes = evaluate(runner, runner.original, calls, hash_seed=0) if calls else {}
    results: dict[str, set[str]] = {}
    for number, call in enumerate(calls):
        outcome = outcomes.get((number, ""))
        if outcome is not None and outcome.kind is OutcomeKind.VALUE and not imports_of(outcome.value):
            key = repr(sorted((argument.name, argument.value) for argument in call.given))
            results.setdefault(key, set()).add(source_of(outcome.value))
    return {key: next(iter(values)) for key, values in results.items() if len(values) == 1}


def _is_plain(call: Call) -> bool:
    """Return whether the arguments have the same text in every process."""
    return not any(_has_expression(argument.value) for argument in call.given)


def _has_expression(value: Literal) -> bool:
    if isinstance(value, dict):
        return any(map(_has_expression, (*value, *value.values())))
    if isinstance(value, list | tuple):
        return any(map(_has_expression, value))
    return isinstance(value, Expression | set | frozenset)


def _candidate(function: Function, unsolved: CodebaseState, shown: dict[str, str]) -> Candidate:
    entry = unsolved.entry(function.path)
    assert entry is not None
    name, skipped = ".".join(function.names), int(function.kind is FunctionKind.METHOD)
    wrapper = _WRAPPER.format(name=name, shown=repr(shown), skipped=skipped)
    return Candidate(
        strategy=OPERATOR,
        operator=OPERATOR,
        changes={function.path: entry.data.rstrip(b"\n") + b"\n" + wrapper.encode()},
        path=function.path,
        line=function.last,
        scope=name,
        detail=f"the results of {len(shown)} calls in the tests, and otherwise the bug",
    )
