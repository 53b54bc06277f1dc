"""Keep the tasks of evaluation sets out of training: their repositories, and their instances."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path

from pytest_ssr.errors import SettingsError

SWE_BENCH = (
    *("astropy/astropy", "django/django", "matplotlib/matplotlib", "mwaskom/seaborn", "pallets/flask", "psf/requests"),
    *("pydata/xarray", "pylint-dev/pylint", "pytest-dev/pytest", "scikit-learn/scikit-learn", "sphinx-doc/sphinx"),
    "sympy/sympy",
)
"""The repositories of SWE-bench and of its parts, Lite and Verified."""


def excluded_names(given: Sequence[str]) -> frozenset[str]:
    """Return the names of what must not be trained on: those of SWE-bench, and the given ones.

    given: repositories, ids of instances, or `.jsonl` files of rows of the SWE-bench family.
    """
    names = {_plain(name) for name in SWE_BENCH}
    for item in given:
        names |= _names_of_rows(Path(item)) if item.endswith(".jsonl") else {_plain(item)}
    return frozenset(names)


def _names_of_rows(path: Path) -> set[str]:
    names: set[str] = set()
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError) as error:
        raise SettingsError(f"--exclude {path} cannot be read: {error}", option="exclude") from None
    for number, line in enumerate(lines, 1):
        try:
            row = json.loads(line)
        except ValueError:
            raise SettingsError(f"--exclude {path}, line {number} is not JSON", option="exclude") from None
        found = [row.get(name) for name in ("repo", "instance_id")] if isinstance(row, dict) else []
        if not any(isinstance(value, str) and value for value in found):
            raise SettingsError(f"--exclude {path}, line {number} has neither repo nor instance_id", option="exclude")
        names |= {_plain(value) for value in found if isinstance(value, str) and value}
    return names


def require_clean(names: Iterable[str], excluded: frozenset[str], *, forced: bool) -> None:
    """Raise SettingsError if one of the names belongs to an evaluation set, unless forced.

    names: of repositories and tasks that are trained on.
    """
    found = sorted({name for name in names if name and _plain(name) in excluded})
    if found and not forced:
        raise SettingsError(
            f"{', '.join(found[:5])} {'belong' if len(found) > 1 else 'belongs'} to an evaluation set: a model that is "
            "trained on it cannot be evaluated there; leave it out, or use --allow-contaminated",
            option="source",
        )


def _plain(name: str) -> str:
    """Return a name for comparison: the last part of `owner/name` or `owner__name`, without the case."""
    return name.rpartition("/")[2].rpartition("__")[2].lower()
