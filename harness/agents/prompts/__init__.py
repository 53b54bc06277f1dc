"""Load prompts from files and substitute their `$name` placeholders; a missing value is an error."""

from __future__ import annotations

from pathlib import Path
from string import Template

_FOLDER = Path(__file__).parent


def prompt(name: str, **values: object) -> str:
    """Return the prompt of a file in this folder with its placeholders filled; raises KeyError for a missing value."""
    text = (_FOLDER / f"{name}.md").read_text(encoding="utf-8")
    return Template(text).substitute({k: str(v) for k, v in values.items()}).strip() + "\n"
