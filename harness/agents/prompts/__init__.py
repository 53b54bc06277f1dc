"""Prompts as files: `$name` in them is filled in; a name without a value is an error, never a hole in a prompt."""

from __future__ import annotations

from pathlib import Path
from string import Template

_FOLDER = Path(__file__).parent


def prompt(name: str, **values: object) -> str:
    """Return the prompt of a file in this folder; raises KeyError for a value that is missing."""
    text = (_FOLDER / f"{name}.md").read_text(encoding="utf-8")
    return Template(text).substitute({k: str(v) for k, v in values.items()}).strip() + "\n"
