"""Read the settings of files: flat keys from nested tables, and `[tool.ssr]` of a project's pyproject.toml.

The plugin and the command line read the same table, so they share this module.
"""

from __future__ import annotations

import tomllib
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from pytest_ssr.errors import SettingsError

_NEAR, _NEAR_IN_SECTION = 0.7, 0.4
"""The similarity of a suggested name to the unknown one, from 0 to 1; less is needed between few names."""


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


def require_known(keys: Iterable[str], known: Collection[str], shown: str, arguments: Collection[str] = ()) -> None:
    """Raise SettingsError that names every unknown key, each with the nearest known one.

    arguments: what the arguments of commands are called.
    """
    if problems := [_problem(key, known, arguments) for key in keys if key not in known]:
        raise SettingsError(f"{shown}: {' | '.join(problems)}")


def _problem(key: str, known: Collection[str], arguments: Collection[str]) -> str:
    """Return what is wrong with an unknown key."""
    if key in arguments:
        return f"{key} is not a setting but an argument of a command; write it on the command line"
    if any(other.startswith(f"{key}.") for other in known):
        return f"{key} is a table of settings, and takes no value"
    return f"{key} is not a setting of ssr{suggestion(key, known)}"


def suggestion(name: str, known: Collection[str], *, prefix: str = "") -> str:
    """Return the end of a message that suggests the known name nearest to an unknown one; empty without a near one.

    Of dotted names, the nearest is one with the same last part, else one of the same section. prefix: of the suggested
    name, such as `--`.
    """
    nearest = _nearest(name, known)
    return f"; did you mean {prefix}{nearest}?" if nearest else ""


def _nearest(name: str, known: Collection[str]) -> str:
    import difflib

    section, _, last = name.rpartition(".")
    sections = {other.rpartition(".")[0] for other in known}
    if section:
        alike = [other for other in known if other.endswith(f".{last}")]
        if alike:
            return difflib.get_close_matches(name, alike, n=1, cutoff=0.0)[0]
        own = [other.rpartition(".")[2] for other in known if other.rpartition(".")[0] == section]
        if close := difflib.get_close_matches(last, sorted(own), n=1, cutoff=_NEAR_IN_SECTION):
            return f"{section}.{close[0]}"
        if last in known:
            return last
    # A section is no setting, even if a flag has its name; the settings of the name's own were compared before.
    others = [other for other in known if other not in sections and other.rpartition(".")[0] != section]
    settings = sorted(others if section else known)
    return next(iter(difflib.get_close_matches(name, settings, n=1, cutoff=_NEAR)), "")


def require_single(key: str, value: Any, shown: str) -> None:
    """Raise SettingsError for a list in place of a single value."""
    if isinstance(value, list):
        raise SettingsError(f"{shown}: {key} takes one value, not a list")
