"""Turn the settings of a command into parameters of cyclopts, and parsed values into settings."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from cyclopts import Group, Parameter, Token

from harness.settings.commands import CommandSettings, Origin
from pytest_ssr.options import Option, declared
from pytest_ssr.project.interpreter import named_interpreter


@dataclass(frozen=True, slots=True)
class Leaf:
    """An option of a command, in its place among the settings."""

    option: Option
    kind: Any
    """Its type, without None."""
    default: Any
    """`inspect.Parameter.empty` if it is required."""
    section: str = ""
    """The name of its section; empty if it has none."""
    field: str = ""
    title: str = ""
    """The title of its group in the help."""

    @property
    def flag(self) -> str:
        """Its name on the command line, without dashes."""
        return self.option.flag

    @property
    def dotted(self) -> str:
        """Its dotted name, such as `solver.tries`; empty without a section."""
        return f"{self.section}.{self.field.replace('_', '-')}" if self.section else ""

    @property
    def keys(self) -> frozenset[str]:
        """Its names in files; `--config` has none, because a file does not include others."""
        if self.option.is_argument or self.flag == "config":
            return frozenset()
        short = set() if self.option.is_own else {self.flag}
        return frozenset(short | {self.dotted}) - {""}

    @property
    def variable(self) -> str:
        """Its environment variable; empty without one."""
        if self.option.is_own or self.option.is_argument:
            return ""
        return self.option.variable or f"SSR_{self.flag.upper().replace('-', '_')}"

    @property
    def is_list(self) -> bool:
        """Whether it can have several values."""
        return get_origin(self.kind) is tuple

    @property
    def is_path(self) -> bool:
        """Whether its values are paths."""
        return self.kind is Path or Path in get_args(self.kind)


def leaves_of(settings: type[Any], section: str = "", title: str = "") -> Iterator[Leaf]:
    """Yield all options of a dataclass, with those of its sections."""
    hints = get_type_hints(settings)
    for item in fields(settings):
        inner = item.metadata.get("section")
        if inner is not None:
            named = item.metadata["is_named"]
            yield from leaves_of(inner, item.name if named else "", (inner.__doc__ if named else "") or "")
        elif (declaration := declared(item)) is not None:
            default = inspect.Parameter.empty if item.default is MISSING else item.default
            yield Leaf(declaration, _without_none(hints[item.name]), default, section, item.name, title)


def _without_none(hint: Any) -> Any:
    if get_origin(hint) in (Union, UnionType):
        return next(kind for kind in get_args(hint) if kind is not type(None))
    return hint


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
        parameters.append(inspect.Parameter(f"_{index}", kind, default=leaf.default, annotation=annotation))
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


def build(settings: type[CommandSettings], values: Mapping[str, Any], origins: Mapping[str, Origin]) -> CommandSettings:
    """Return a command's settings. values: by flag; what is missing has its default."""
    built: CommandSettings = _build(settings, values, origins=origins)
    return built


def _build(settings: type[Any], values: Mapping[str, Any], **more: Any) -> Any:
    arguments = dict(more)
    for item in fields(settings):
        inner = item.metadata.get("section")
        declaration = declared(item)
        if inner is not None:
            arguments[item.name] = _build(inner, values)
        elif declaration is not None and declaration.flag in values:
            arguments[item.name] = values[declaration.flag]
    return settings(**arguments)
