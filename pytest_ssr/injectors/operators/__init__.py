"""Provide the mutation operators: those of SWE-smith, and those that developers' mistakes suggest."""

from pytest_ssr.injectors.operators import calls, classes, conditions, expressions, flow, names, statements
from pytest_ssr.injectors.operators.operator import Operator

OPERATORS: tuple[Operator, ...] = (
    *statements.OPERATORS,
    *names.OPERATORS,
    *flow.OPERATORS,
    *expressions.OPERATORS,
    *conditions.OPERATORS,
    *calls.OPERATORS,
    *classes.OPERATORS,
)

__all__ = ["OPERATORS", "Operator"]
