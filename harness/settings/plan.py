"""The plan of a command: a frozen class of settings, from which its flags, files, variables, forms and schemas follow.

A field that `pytest_ssr.options.option` makes declares an option, one that `section` makes a group of options. A
`Leaf` is an option in its place: the command line makes flags of it, the service fields of a form and a schema.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import MISSING, dataclass, field, fields
from enum import StrEnum
from pathlib import Path
from types import UnionType
from typing import Any, ClassVar, NamedTuple, Union, get_args, get_origin, get_type_hints

from pytest_ssr.errors import SettingsError
from pytest_ssr.options import Option, declared, option, switch


def section(kind: type[Any], *, is_named: bool = True) -> Any:
    """Return a field for a section; is_named: its options also have dotted names, which begin with the field's."""
    return field(default_factory=kind, metadata={"section": kind, "is_named": is_named})


class OriginKind(StrEnum):
    """The kinds of sources of a value."""

    FLAG = "flag"
    VARIABLE = "variable"
    FILE = "file"


class Origin(NamedTuple):
    """The source of a value."""

    kind: OriginKind
    name: str
    """The variable, or the path of the file; empty for a flag."""

    @property
    def suffix(self) -> str:
        """The end of a message about the value: where it comes from, if that is not a flag."""
        return f" (from {self.name})" if self.name else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandSettings:
    """What every command has."""

    example: ClassVar[str]
    """A command line, shown in the help."""
    json: bool = switch("print one JSON object instead of text", is_own=True)
    config: Path | None = option(None, "FILE", "read settings from this YAML file")
    origins: Mapping[str, Origin] = field(default_factory=dict)
    """The source of every value that is not a default, by the option's flag."""

    without: ClassVar[frozenset[str]] = frozenset()
    """Flags of options of its sections that have no effect on this command, and so do not exist for it."""

    def check(self) -> None:
        """Raise SettingsError, naming the option, for one without an effect, and for options that exclude each other.

        Reads no file and opens nothing, so that whoever takes an order can check it.
        """

    @property
    def typed(self) -> frozenset[str]:
        """The options that a flag or a variable has set. Files set options for many commands, so that one of them may
        have no effect on this command."""
        return frozenset(name for name, origin in self.origins.items() if origin.kind is not OriginKind.FILE)


@dataclass(frozen=True, slots=True)
class Leaf:
    """An option of a command, in its place among the settings."""

    option: Option
    kind: Any
    """Its type, without None."""
    default: Any
    """`MISSING` if it is required."""
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
    def is_required(self) -> bool:
        """Whether it has no default."""
        return self.default is MISSING

    @property
    def is_list(self) -> bool:
        """Whether it can have several values."""
        return get_origin(self.kind) is tuple

    @property
    def is_path(self) -> bool:
        """Whether its values are paths."""
        return self.kind is Path or Path in get_args(self.kind)


def leaves_of(settings: type[Any]) -> Iterator[Leaf]:
    """Yield all options of a command, with those of its sections; those that have no effect on it do not exist."""
    without: frozenset[str] = getattr(settings, "without", frozenset())
    yield from (leaf for leaf in _leaves(settings) if leaf.flag not in without)


def _leaves(settings: type[Any], section: str = "", title: str = "") -> Iterator[Leaf]:
    hints = get_type_hints(settings)
    for item in fields(settings):
        inner = item.metadata.get("section")
        if inner is not None:
            named = item.metadata["is_named"]
            yield from _leaves(inner, item.name if named else "", (inner.__doc__ if named else "") or "")
        elif (declaration := declared(item)) is not None:
            yield Leaf(declaration, _without_none(hints[item.name]), item.default, section, item.name, title)


def _without_none(hint: Any) -> Any:
    if get_origin(hint) in (Union, UnionType):
        return next(kind for kind in get_args(hint) if kind is not type(None))
    return hint


def build(settings: type[CommandSettings], values: Mapping[str, Any], origins: Mapping[str, Origin]) -> CommandSettings:
    """Return a command's settings. values: by flag; what is missing has its default.

    Raises SettingsError for a value out of bounds; what goes together is for `CommandSettings.check`.
    """
    for leaf in leaves_of(settings):
        bound = leaf.option.bound
        if bound is not None and leaf.flag in values and (problem := bound.problem(values[leaf.flag])):
            origin = origins.get(leaf.flag)
            raise SettingsError(f"--{leaf.flag} {problem}{origin.suffix if origin else ''}", option=leaf.flag)
    try:
        built: CommandSettings = _build(settings, values, origins=origins)
    except SettingsError as error:
        # A section refuses its own values.
        origin = origins.get(error.option)
        raise SettingsError(f"{error}{origin.suffix if origin else ''}", option=error.option) from None
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
