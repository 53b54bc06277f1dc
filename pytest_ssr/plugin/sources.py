"""Read the values of the plugin's options from their four sources: flags, variables, the ini file and `[tool.ssr]`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from pytest_ssr.errors import SettingsError
from pytest_ssr.options import Option, PluginSettings, declared, options_of
from pytest_ssr.project.settings_table import project_file, read_project_table, require_known, require_single

_MARKS = (
    *("pytest.toml", ".pytest.toml", "pytest.ini", ".pytest.ini"),
    *("pyproject.toml", "tox.ini", "setup.cfg", "setup.py"),
)
_KINDS: Mapping[str, tuple[type[int] | type[float], str]] = {
    "int": (int, "a whole number"),
    "float": (float, "a number"),
}


_ON, _OFF = ("1", "true", "yes", "on"), ("0", "false", "no", "off")


class Given(NamedTuple):
    """A value that was given for an option."""

    text: str
    """A list is separated by commas."""
    source: str
    """Its flag, variable or key and file, as messages show it."""
    folder: Path
    """The folder that a relative path starts at."""
    is_typed: bool = False
    """Whether it is a flag or a variable, and not in a file."""


_table_key = pytest.StashKey[Mapping[str, Given]]()


def given(config: pytest.Config, name: str) -> Given | None:
    """Return an option's value from the first source that has it, or None if it has its default.

    Raises SettingsError if pyproject.toml cannot be read, or has a wrong key.
    """
    here = config.invocation_params.dir
    typed = config.getoption(f"ssr_{name}")
    if typed is not None:
        return Given(typed, f"--ssr-{name.replace('_', '-')}", here, is_typed=True) if typed else None
    variable = f"SSR_{name.upper()}"
    if os.environ.get(variable):
        return Given(os.environ[variable], variable, here, is_typed=True)
    ini = config.getini(f"ssr_{name}")
    if ini not in (None, "", []):
        path = config.inipath or config.rootpath / "pytest.ini"
        return Given(_text(ini), f"ssr_{name} in {path}", path.parent)
    return _table(config).get(name)


def option(config: pytest.Config, name: str) -> str | None:
    """Return an option's string, or None if it has its default; raises SettingsError as `given` does."""
    value = given(config, name)
    return value.text if value is not None else None


def text_or_default(config: pytest.Config, name: str) -> str:
    """Return an option's string, or its declared default."""
    return option(config, name) or str(getattr(PluginSettings, name))


def number(config: pytest.Config, name: str) -> Any:
    """Return an option as the number that its declaration states; raises SettingsError naming its source."""
    item = PluginSettings.__dataclass_fields__[name]
    value = given(config, name)
    if value is None:
        return item.default
    kind, article = _KINDS[str(item.type).partition(" ")[0]]
    try:
        result = kind(value.text)
    except ValueError:
        raise SettingsError(f"{value.source} takes {article}, not {value.text!r}") from None
    bound = _declaration(name).bound
    if bound is not None and (problem := bound.problem(result)):
        raise SettingsError(f"{value.source} {problem}")
    return result


def is_on(config: pytest.Config, name: str) -> bool:
    """Return an option that is on or off; raises SettingsError naming its source for another value."""
    value = given(config, name)
    if value is None:
        return bool(getattr(PluginSettings, name))
    shown = value.text.strip().lower()
    if shown not in (*_ON, *_OFF):
        raise SettingsError(f"{value.source} takes true or false, not {value.text!r}")
    return shown in _ON


def names(config: pytest.Config, name: str) -> list[str]:
    """Return the values of an option that takes several, separated by commas."""
    return [part.strip() for part in (option(config, name) or "").split(",") if part.strip()]


def project_path(config: pytest.Config) -> Path:
    """Return the project's directory: pytest's root directory, which has the configuration that the tests need.

    If pytest has found no configuration, it is the nearest folder with a project file at or above the named tests.
    """
    root = config.rootpath
    if config.inipath is not None or config.getoption("rootdir"):
        return root
    named = config.args if config.args_source is pytest.Config.ArgsSource.ARGS else []
    paths = (config.invocation_params.dir / argument.partition("::")[0] for argument in named)
    folders = [path if path.is_dir() else path.parent for path in paths if path.exists()]
    start = Path(os.path.commonpath(folders or [root])).resolve()
    marked = (f for f in (start, *start.parents) if any((f / name).is_file() for name in _MARKS))
    return next(marked, root)


def _table(config: pytest.Config) -> Mapping[str, Given]:
    """Return the plugin's options of `[tool.ssr]`, by their names."""
    if _table_key not in config.stash:
        path = project_file(project_path(config))
        config.stash[_table_key] = _options_of_table(path) if path is not None else {}
    return config.stash[_table_key]


def _options_of_table(path: Path) -> dict[str, Given]:
    table = read_project_table(path)
    names = {key: item.name for item, option in options_of(PluginSettings) for key in (option.flag, option.key) if key}
    # Only a key that the plugin does not have is worth the import of the command line.
    if any(key not in names for key in table) and (known := _keys_of_the_command_line()):
        require_known(table, known.union(names), str(path))
    values: dict[str, Given] = {}
    for key, value in table.items():
        name = names.get(key)
        if name is None:
            continue
        if name in values:
            raise SettingsError(f"{path}: {key} is set twice, by its short and its dotted name")
        declaration = _declaration(name)
        if not str(PluginSettings.__dataclass_fields__[name].type).startswith("tuple"):
            require_single(key, value, str(path))
        if not declaration.may_be_set_by_project(value):
            raise SettingsError(
                f"{path}: a project cannot set {key} = {value!r}, which its user has to trust; "
                f"use --ssr-{declaration.flag} or SSR_{name.upper()}"
            )
        values[name] = Given(_text(value), f"{key} in {path}", path.parent)
    return values


def _keys_of_the_command_line() -> set[str]:
    """Return the keys of `ssr`, which reads the same table; empty if it is not installed."""
    return {key for entry in entry_points(group="pytest_ssr.settings") for key in entry.load()()}


def _declaration(name: str) -> Option:
    declaration = declared(PluginSettings.__dataclass_fields__[name])
    assert declaration is not None
    return declaration


def _text(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)
