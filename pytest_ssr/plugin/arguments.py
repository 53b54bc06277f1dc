"""Write the options with paths so that pytest does not take their values for tests.

pytest looks for the root directory and the configuration before it loads plugins. It skips options that it does not
know, but reads the value after one, as in `--ssr-store /abs/store`, as the path of a test, if that path exists.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence

from pytest_ssr.options import PluginSettings, options_of

_VARIABLE = "PYTEST_ADDOPTS"
_ALWAYS = ("--ssr-validate", "--ssr-solve", "--ssr-json")


def with_joined_values(arguments: Sequence[str | os.PathLike[str]]) -> list[str] | None:
    """Return the arguments of a session with `--ssr-store=/abs/store` for two of them; None if no value is a path.

    Options in the variable PYTEST_ADDOPTS are rewritten there.
    """
    given = [os.fspath(argument) for argument in arguments]
    variable = os.environ.get(_VARIABLE, "")
    try:
        added = shlex.split(variable)
    except ValueError:
        # pytest reports it.
        added = []
    own, of_variable = _joined(given), _joined(added)
    if (own, of_variable) == (given, added):
        return None
    if of_variable != added:
        os.environ[_VARIABLE] = shlex.join(of_variable)
    return own


def _joined(arguments: Sequence[str]) -> list[str]:
    """Join each option of this package with its value if that exists as a path."""
    result: list[str] = []
    rest, with_value = iter(arguments), _with_value()
    for argument in rest:
        value = next(rest, None) if argument in with_value else None
        if value is None:
            result.append(argument)
        elif os.path.exists(value.partition("::")[0]):
            result.append(f"{argument}={value}")
        else:
            result += [argument, value]
        if argument == "--":
            result.extend(rest)
    return result


def _with_value() -> frozenset[str]:
    """Return the options of this package that take a value."""
    settings = (f"--ssr-{option.flag}" for item, option in options_of(PluginSettings) if item.default is not False)
    return frozenset((*_ALWAYS, *settings))
