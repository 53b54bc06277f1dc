"""Read settings from environment variables, a YAML file and the project's pyproject.toml, for cyclopts.

Each source fills what the sources before it have left: flags, variables, `--config FILE`, `[tool.ssr]`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from cyclopts import Argument, ArgumentCollection, Token

from harness.settings.plan import Leaf, Origin, OriginKind
from pytest_ssr.errors import SettingsError
from pytest_ssr.project.interpreter import named_interpreter
from pytest_ssr.project.settings_table import (
    flat_values,
    project_file,
    read_project_table,
    require_known,
    require_single,
)


class Sources:
    """The sources of a command's values besides its flags. cyclopts calls it with the parsed flags."""

    def __init__(
        self,
        leaves: Sequence[Leaf],
        known_keys: Callable[[], Collection[str]],
        argument_names: Callable[[], Collection[str]],
    ) -> None:
        """Prepare the sources. known_keys, argument_names: of all commands, which share files."""
        self.origins: dict[str, Origin] = {}
        """The source of each value, by the option's flag; filled by the call."""
        self._leaves = leaves
        self._known_keys, self._argument_names = known_keys, argument_names

    def __call__(self, app: object, commands: tuple[str, ...], arguments: ArgumentCollection) -> None:
        """Add the values that are not given by flags; raises SettingsError for an unknown key or an unreadable file."""
        by_flag = {self._leaves[int(a.field_info.name.removeprefix("_"))].flag: a for a in arguments}
        self.origins.update({flag: Origin(OriginKind.FLAG, "") for flag, a in by_flag.items() if a.tokens})
        self._add(by_flag, _variables(self._leaves))
        if by_flag["config"].tokens:
            path = Path(by_flag["config"].tokens[-1].value)
            self._add(by_flag, self._values(_read_yaml(path), path))
        project = project_file(Path.cwd())
        if project is not None:
            self._add(by_flag, self._values(read_project_table(project), project, is_project=True))

    def _add(self, arguments: Mapping[str, Argument], values: Iterable[tuple[Leaf, Any, Origin]]) -> None:
        for leaf, value, origin in values:
            argument = arguments[leaf.flag]
            if argument.tokens:
                continue
            is_variable = origin.kind is OriginKind.VARIABLE
            # cyclopts names the keyword in its errors, so the keyword names the source.
            keyword = origin.name if is_variable else f"{leaf.dotted or leaf.flag} in {origin.name}"
            for index, single in enumerate(value if isinstance(value, list) else [value]):
                argument.append(Token(keyword=keyword, value=str(single), source="cli", index=index))
            self.origins[leaf.flag] = origin

    def _values(
        self, table: Mapping[str, Any], path: Path, *, is_project: bool = False
    ) -> Iterator[tuple[Leaf, Any, Origin]]:
        """Yield the values of a file for this command; raises SettingsError for an unknown key."""
        shown = str(path)
        leaves = {key: leaf for leaf in self._leaves for key in leaf.keys}
        if table:
            require_known(table, self._known_keys(), shown, self._argument_names())
        flags: set[str] = set()
        for key, value in table.items():
            leaf = leaves.get(key)
            if leaf is None or value is None:
                continue
            if leaf.flag in flags:
                raise SettingsError(f"{shown}: {key} is set twice, by its short and its dotted name")
            flags.add(leaf.flag)
            _require_shape(leaf, value, key, shown)
            if is_project and not leaf.option.may_be_set_by_project(value):
                raise SettingsError(
                    f"{shown}: a project cannot set {key} = {value!r}, which its user has to trust; "
                    f"use --{leaf.flag}, {leaf.variable or 'a variable'} or --config FILE"
                )
            yield leaf, _resolved(leaf, value, path.parent), Origin(OriginKind.FILE, shown)


def _variables(leaves: Iterable[Leaf]) -> Iterator[tuple[Leaf, Any, Origin]]:
    """Yield the values of environment variables; an empty one is not set, and a list is separated by commas."""
    for leaf in leaves:
        text = os.environ.get(leaf.variable) if leaf.variable else None
        if text:
            value = [part.strip() for part in text.split(",") if part.strip()] if leaf.is_list else text
            yield leaf, value, Origin(OriginKind.VARIABLE, leaf.variable)


def _require_shape(leaf: Leaf, value: Any, key: str, shown: str) -> None:
    """Raise SettingsError for a list in place of a single value, and for a list of anything but single values."""
    if not leaf.is_list:
        require_single(key, value, shown)
    elif isinstance(value, list) and any(single is None or isinstance(single, list | dict) for single in value):
        raise SettingsError(f"{shown}: {key} takes a list of single values")


def _resolved(leaf: Leaf, value: Any, folder: Path) -> Any:
    """Return a value of a file in which a relative path starts at the file's folder; an empty one stays empty.

    What may be a name as well is a path only if there is such a folder beside the file.
    """
    if isinstance(value, list):
        return [_resolved(leaf, single, folder) for single in value]
    if value == "":
        return value
    if leaf.option.is_interpreter:
        return named_interpreter(str(value), folder)
    if leaf.option.may_be_folder and value is not None:
        beside = folder.absolute() / str(value)
        return str(beside) if beside.is_dir() else value
    return folder.absolute() / str(value) if leaf.is_path else value


def _read_yaml(path: Path) -> dict[str, Any]:
    """Return the flat values of a YAML file; raises SettingsError if it cannot be read."""
    import yaml

    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError, yaml.YAMLError) as error:
        raise SettingsError(f"--config {path} cannot be read: {' '.join(str(error).split())}") from None
    return flat_values({} if content is None else content, str(path))
