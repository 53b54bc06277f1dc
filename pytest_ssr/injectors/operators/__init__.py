"""The table of mutation operators: those of SWE-smith, and those that developers' mistakes suggest."""

from pytest_ssr.injectors.operators import classes, expressions, statements
from pytest_ssr.injectors.operators.operator import Operator

OPERATORS: tuple[Operator, ...] = (*statements.OPERATORS, *expressions.OPERATORS, *classes.OPERATORS)

__all__ = ["OPERATORS", "Operator"]
