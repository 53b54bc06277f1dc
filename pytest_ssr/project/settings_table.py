"""Read the settings of files: flat keys from nested tables, and `[tool.ssr]` of a project's pyproject.toml.

The plugin and the command line read the same table, so they share this module.
"""

from __future__ import annotations

import tomllib
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from pytest_ssr.errors import SettingsError

_NEAR = 0.7
"""The similarity of a suggested name to the unknown one, from 0 to 1."""


def project_file(folder: Path) -> Path | None:
    """Return the nearest pyproject.toml in a folder or above it, or None."""
    paths = (parent / "pyproject.toml" for parent in (folder, *folder.parents))
    return next((path for path in paths if path.is_file()), None)


def read_project_table(path: Path) -> dict[str, Any]:
    """Return `[tool.ssr]` of a pyproject.toml as flat values; raises SettingsError if it cannot be read."""
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise SettingsError(f"{path} cannot be read: {error}") from None
    tools = content.get("tool", {})
    table = tools.get("ssr", {}) if isinstance(tools, Mapping) else tools
    return flat_values(table, f"{path}: [tool.ssr]")


def flat_values(content: Any, shown: str) -> dict[str, Any]:
    """Return the values of nested tables by their dotted keys, with dashes.

    shown: the name of the file in messages. Raises SettingsError for what is not a table, and for a key that occurs
    twice.
    """
    if not isinstance(content, Mapping):
        raise SettingsError(f"{shown} must be a table of settings, not {type(content).__name__}")
    values: dict[str, Any] = {}
    try:
        for key, value in _flat(content):
            if key in values:
                raise SettingsError(f"{shown}: {key} is set twice")
            values[key] = value
    except RecursionError:
        raise SettingsError(f"{shown} cannot be read: its tables are nested too deeply") from None
    return values


def _flat(table: Mapping[Any, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in table.items():
        key = f"{prefix}{str(name).replace('_', '-')}"
        if isinstance(value, Mapping):
            yield from _flat(value, f"{key}.")
        else:
            yield key, value


def require_known(key: str, known: Collection[str], shown: str) -> None:
    """Raise SettingsError, with the nearest known key, for an unknown one."""
    if key in known:
        return
    if any(other.startswith(f"{key}.") for other in known):
        raise SettingsError(f"{shown}: {key} is a table of settings, and takes no value")
    raise SettingsError(f"{shown}: {key} is not a setting of ssr{suggestion(key, known)}")


def suggestion(name: str, known: Collection[str], *, prefix: str = "") -> str:
    """Return the end of a message that suggests the known name nearest to an unknown one; empty without a near one.

    Of dotted names, the nearest is one with the same last part. prefix: of the suggested name, such as `--`.
    """
    import difflib

    last = name.rpartition(".")[2]
    alike = [other for other in known if "." in name and other.rpartition(".")[2] == last]
    close = difflib.get_close_matches(name, alike or sorted(known), n=1, cutoff=0.0 if alike else _NEAR)
    return f"; did you mean {prefix}{close[0]}?" if close else ""


def require_single(key: str, value: Any, shown: str) -> None:
    """Raise SettingsError for a list in place of a single value."""
    if isinstance(value, list):
        raise SettingsError(f"{shown}: {key} takes one value, not a list")
