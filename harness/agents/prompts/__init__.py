"""Load prompts from files and fill in their `$name` placeholders; a user may replace them by templates of their own.

A user's templates are checked when they are read: each must be one that exists, and have every placeholder without
which a model could not do its task, and none that gets no value.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from string import Template
from typing import NamedTuple

from pytest_ssr.errors import SettingsError
from pytest_ssr.storage.store import key_of

_FOLDER = Path(__file__).parent
_SUFFIX = ".md"


class Placeholders(NamedTuple):
    """The placeholders of a template."""

    required: frozenset[str] = frozenset()
    """Without them a model could not do its task."""
    others: frozenset[str] = frozenset()


_THRESHOLDS = ("min_passing_tests", "min_changed_files", "min_failing_tests", "max_broken_percent", "script_seconds")
_STRATEGY = Placeholders(others=frozenset(("min_changed_files",)))
TEMPLATES: Mapping[str, Placeholders] = {
    "solver_system": Placeholders(frozenset(("submission",))),
    "solver_task": Placeholders(frozenset(("specification",)), frozenset(("root", "command"))),
    "solver_statement": Placeholders(frozenset(("statement",)), frozenset(("root", "command"))),
    "solver_instruction": Placeholders(frozenset(("statement",)), frozenset(("root",))),
    "submit_tree": Placeholders(),
    "submit_patch_file": Placeholders(),
    "submit_again": Placeholders(others=frozenset(("most",))),
    "injector_system": Placeholders(),
    "injector_task": Placeholders(
        frozenset(("folder", "strategy")), frozenset(("root", "tests", "weakened", *_THRESHOLDS))
    ),
    "strategy_direct": _STRATEGY,
    "strategy_removal": _STRATEGY,
    "strategy_history": _STRATEGY,
    "single_system": Placeholders(),
    "lm_modify": Placeholders(frozenset(("function",)), frozenset(("path",))),
    "lm_rewrite": Placeholders(frozenset(("function",)), frozenset(("path",))),
    "pr_mirror": Placeholders(frozenset(("change", "files"))),
}
"""The templates that a user may replace, by the names of their files without the suffix."""


@dataclass(frozen=True, slots=True)
class Prompts:
    """The prompts of both roles."""

    templates: Mapping[str, str] = field(default_factory=dict)
    """Templates of a user, by name; the others are those of this package."""

    @property
    def key(self) -> str:
        """A hash of the user's templates; empty without one."""
        return key_of("prompts", sorted(self.templates.items())) if self.templates else ""

    def fill(self, name: str, **values: object) -> str:
        """Return a prompt with its placeholders filled in; raises KeyError for a missing value."""
        text = self.templates.get(name) or default_template(name)
        return Template(text).substitute({k: str(v) for k, v in values.items()}).strip() + "\n"

    @classmethod
    def read(cls, folder: Path) -> Prompts:
        """Return the prompts with the templates of a folder; raises SettingsError for a folder or file without use."""
        if not folder.is_dir():
            raise SettingsError(f"--prompt-dir {folder} is not a folder", option="prompt-dir")
        paths = sorted(folder.glob(f"*{_SUFFIX}"))
        if not paths:
            raise SettingsError(
                f"--prompt-dir {folder} has no template; `ssr prompts {folder}` writes those to start from",
                option="prompt-dir",
            )
        return cls({path.stem: _read(path) for path in paths})


def _read(path: Path) -> str:
    if path.stem not in TEMPLATES:
        raise SettingsError(f"{path} is not a template; the templates are {', '.join(TEMPLATES)}", option="prompt-dir")
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise SettingsError(f"{path} cannot be read: {error}", option="prompt-dir") from None
    template = Template(text)
    if not template.is_valid():
        raise SettingsError(
            f"{path} has a `$` that begins no placeholder; write `$$` for a dollar", option="prompt-dir"
        )
    names, known = set(template.get_identifiers()), TEMPLATES[path.stem]
    if unknown := sorted(names - known.required - known.others):
        allowed = ", ".join(f"${name}" for name in sorted(known.required | known.others)) or "none"
        raise SettingsError(
            f"{path}: ${unknown[0]} gets no value; its placeholders are: {allowed}", option="prompt-dir"
        )
    if missing := sorted(known.required - names):
        raise SettingsError(
            f"{path} lacks ${missing[0]}, without which a model could not do its task", option="prompt-dir"
        )
    if not text.strip():
        raise SettingsError(f"{path} is empty; remove it to use the default", option="prompt-dir")
    return text


def default_template(name: str) -> str:
    """Return a template of this package, unfilled."""
    return (_FOLDER / f"{name}{_SUFFIX}").read_text(encoding="utf-8")


def default_files() -> dict[str, str]:
    """Return the default templates that a user may replace, by the names of their files."""
    return {f"{name}{_SUFFIX}": default_template(name) for name in TEMPLATES}


DEFAULT = Prompts()


def prompt(name: str, **values: object) -> str:
    """Return a prompt of this package with its placeholders filled in; raises KeyError for a missing value."""
    return DEFAULT.fill(name, **values)
