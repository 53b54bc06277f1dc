"""Turn the options of a command into parameters of cyclopts."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Union

from cyclopts import Group, Parameter, Token

from harness.settings.plan import Leaf
from pytest_ssr.project.interpreter import named_interpreter


def signature_of(leaves: list[Leaf]) -> inspect.Signature:
    """Return the signature of a function with one parameter for each option, named by the option's index."""
    parameters = []
    groups: dict[str, Group] = {}
    for index, leaf in enumerate(leaves):
        is_argument = leaf.option.is_argument
        kind = inspect.Parameter.POSITIONAL_ONLY if is_argument else inspect.Parameter.KEYWORD_ONLY
        if leaf.title and leaf.title not in groups:
            groups[leaf.title] = Group(leaf.title.rstrip("."), sort_key=len(groups) + 1)
        annotation: Any = Annotated[_annotation(leaf), _parameter(leaf, groups.get(leaf.title))]
        default = inspect.Parameter.empty if leaf.is_required else leaf.default
        parameters.append(inspect.Parameter(f"_{index}", kind, default=default, annotation=annotation))
    return inspect.Signature(sorted(parameters, key=lambda parameter: parameter.kind))


def _annotation(leaf: Leaf) -> Any:
    """Return the type that cyclopts converts to; choices are a Literal, so that an error lists them."""
    kind = leaf.kind if leaf.option.choices is None else Literal[leaf.option.choices()]
    # Cyclopts validates defaults, too, in a process that has imported pydantic.
    return Union[kind, None] if leaf.default is None else kind  # noqa: UP007 - a type that is not known here


def _parameter(leaf: Leaf, group: Group | None) -> Parameter:
    option = leaf.option
    more: dict[str, Any] = {}
    if group is not None:
        more["group"] = group
    if option.takes_many:
        more["consume_multiple"] = True
    if leaf.kind is int:
        more["converter"] = _whole_number
    elif option.is_interpreter:
        more["converter"] = _interpreter
    elif leaf.kind is Path:
        more["converter"] = _path
    names = [option.short, f"--{leaf.flag}", f"--{leaf.dotted}" if leaf.dotted else ""]
    if leaf.dotted.startswith(f"{leaf.flag}."):
        names.reverse()  # cyclopts takes the first name that a flag begins with
    if option.is_argument:
        names = [option.metavar]
    return Parameter(
        name=[name for name in dict.fromkeys(names) if name],
        help=option.help,
        metavar=option.metavar or None,
        show_default=leaf.default is not False and leaf.default not in (None, "", ()),
        json_list=False,
        negative=(),
        allow_repeating=True,
        allow_leading_hyphen=option.takes_stdin,
        **more,
    )


def _whole_number(kind: object, tokens: Sequence[Token]) -> int:
    """Return an integer; cyclopts itself rounds."""
    try:
        return int(tokens[0].value)
    except ValueError:
        raise ValueError(f'unable to convert "{tokens[0].value}" into int') from None


def _path(kind: object, tokens: Sequence[Token]) -> Path:
    """Return a path. An empty one, as of a shell's variable that is not set, would be the current directory."""
    if not tokens[0].value:
        raise ValueError("the path is empty")
    return Path(tokens[0].value)


def _interpreter(kind: object, tokens: Sequence[Token]) -> Path:
    """Return the path of an interpreter; a relative one starts at the current directory."""
    return named_interpreter(str(_path(kind, tokens)), Path.cwd())
