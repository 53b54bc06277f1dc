"""Keep the tasks of evaluation sets out of training: their repositories, and their instances.

Repositories are compared by owner and name if both owners are known, otherwise by name. A clone's owner is that of its
remote `origin`. Mirrors that have the owner in their name (`swesmith/pallets__flask.bc098031`) count as the original.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from pytest_ssr.errors import SettingsError

SWE_BENCH = (
    *("astropy/astropy", "django/django", "matplotlib/matplotlib", "mwaskom/seaborn", "pallets/flask", "psf/requests"),
    *("pydata/xarray", "pylint-dev/pylint", "pytest-dev/pytest", "scikit-learn/scikit-learn", "sphinx-doc/sphinx"),
    "sympy/sympy",
)
"""The repositories of SWE-bench and of its parts, Lite and Verified."""
_FORMER = ("pycqa/pylint", "kennethreitz/requests", "mitsuhiko/flask")
"""Their names under earlier owners."""
_VERSION = re.compile(r"(\.[0-9a-f]{7,40}|-v?\d[\w.]*)$")
"""What a mirror appends to a name, or the archive of a release to its folder."""
_ORIGIN = re.compile(r'^\[remote "origin"\][^\[]*?^\s*url\s*=\s*(\S+)', re.MULTILINE | re.DOTALL)
_HOST = re.compile(r"\w+://[^/]+/|[\w.-]+@[\w.-]+:")
"""The begin of an address on a server, after which owner and name follow."""


@dataclass(frozen=True, slots=True)
class Name:
    """The name of a repository or an instance, in lower case."""

    owner: str
    """Empty if it is unknown."""
    name: str

    @classmethod
    def of(cls, text: str) -> Name:
        """Return the name in `owner/name`, `owner__name`, `mirror/owner__name` or `name`."""
        above, _, last = text.lower().rstrip("/").rpartition("/")
        if "__" in last:
            owner, _, name = last.partition("__")
            return cls(owner, name)
        return cls(above.rpartition("/")[2], last)

    def variants(self) -> Iterator[Name]:
        """Yield the name, and the same without the version that it ends with, if it has one."""
        yield self
        if shorter := _VERSION.sub("", self.name):
            yield Name(self.owner, shorter)


class Excluded:
    """The names of what must not be trained on."""

    def __init__(self, given: Sequence[str] = ()) -> None:
        """given: repositories, ids of instances, or `.jsonl` files of rows, besides the repositories of SWE-bench."""
        names = [*SWE_BENCH, *_FORMER]
        for item in given:
            names += _names_of_rows(Path(item)) if item.endswith(".jsonl") else [item]
        self._owners: dict[str, set[str]] = {}
        for name in map(Name.of, names):
            self._owners.setdefault(name.name, set()).add(name.owner)

    def has(self, text: str) -> bool:
        """Return whether a repository or an instance is one of them."""
        return any(not name.owner or "" in owners or name.owner in owners for name, owners in self._of_same_name(text))

    def is_namesake(self, text: str) -> bool:
        """Return whether it has the name of one of them, but another owner: it may be a fork."""
        return not self.has(text) and any(True for _ in self._of_same_name(text))

    def _of_same_name(self, text: str) -> Iterator[tuple[Name, set[str]]]:
        for name in Name.of(text).variants():
            if name.name in self._owners:
                yield name, self._owners[name.name]


def _names_of_rows(path: Path) -> list[str]:
    names: list[str] = []
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError) as error:
        raise SettingsError(f"--exclude {path} cannot be read: {error}", option="exclude") from None
    for number, line in enumerate(lines, 1):
        try:
            row = json.loads(line)
        except ValueError:
            raise SettingsError(f"--exclude {path}, line {number} is not JSON", option="exclude") from None
        values = [row.get(name) for name in ("repo", "instance_id")] if isinstance(row, dict) else []
        if not any(isinstance(value, str) and value for value in values):
            raise SettingsError(f"--exclude {path}, line {number} has neither repo nor instance_id", option="exclude")
        names += [value for value in values if isinstance(value, str) and value]
    return names


def require_clean(names: Iterable[str], excluded: Excluded, *, forced: bool) -> list[str]:
    """Return the names that only another owner distinguishes from an evaluation set.

    names: of repositories and tasks that are trained on. Raises SettingsError if one of them belongs to an evaluation
    set, unless forced.
    """
    known = sorted({name for name in names if name})
    evaluated = [name for name in known if excluded.has(name)]
    if evaluated and not forced:
        raise SettingsError(
            f"in an evaluation set: {', '.join(evaluated[:5])}; a model trained on it cannot be evaluated there; "
            "leave it out, or use --allow-contaminated",
            option="source",
        )
    return [name for name in known if excluded.is_namesake(name)]


def names_of_project(folder: Path) -> list[str]:
    """Return the names of a project: that of its remote `origin`, and that of its folder if it differs."""
    folder = folder.resolve()
    origin = _origin(folder)
    same = origin is not None and Name.of(origin).name == folder.name.lower()
    return [*([origin] if origin else []), *([] if same else [folder.name])]


def with_owner(name: str, projects: Sequence[Path]) -> str:
    """Return a name of a repository with the owner that one of the projects has in its remote `origin`."""
    for project in projects:
        folder = project.resolve()
        if folder.name == name and (origin := _origin(folder)):
            return origin
    return name


def _origin(folder: Path) -> str | None:
    """Return `owner/name` of a clone's remote `origin`; only `name` if the remote is on this machine."""
    try:
        remote = _ORIGIN.search((folder / ".git" / "config").read_text(encoding="utf-8", errors="replace"))
    except OSError:
        return None
    if remote is None:
        return None
    address = remote[1].rstrip("/").removesuffix(".git")
    host = _HOST.match(address)
    return "/".join(address[host.end() :].split("/")[-2:]) if host else address.rpartition("/")[2]
