"""Hand out the skill that tells a coding agent how to use ssr; it ships in this package."""

from __future__ import annotations

import os
from pathlib import Path

from harness.storage.atomic_write import write_bytes
from pytest_ssr.errors import SettingsError

FOLDER = Path(__file__).parent / "skills" / "pytest-ssr"
SKILL_FILE = "SKILL.md"


def skill_text() -> str:
    """Return the skill."""
    return (FOLDER / SKILL_FILE).read_text(encoding="utf-8")


def copy_skill(out: Path) -> list[Path]:
    """Copy the skill's folder into a folder, and return the files.

    Files that are the same already stay. Raises SettingsError, before anything is written, if another file or a link is
    in the way, OSError if one cannot be written.
    """
    contents = {path.relative_to(FOLDER): path.read_bytes() for path in sorted(FOLDER.rglob("*.md"))}
    targets = {out / FOLDER.name / name: data for name, data in contents.items()}
    for target, data in targets.items():
        linked = next((p for p in target.parents if p.is_relative_to(out / FOLDER.name) and p.is_symlink()), None)
        if linked is not None:
            raise SettingsError(f"{linked} is a link to another place; remove it, or name another folder", option="out")
        if os.path.lexists(target) and (not target.is_file() or target.is_symlink() or target.read_bytes() != data):
            raise SettingsError(f"{target} exists already and differs; remove it, or name another folder", option="out")
    for target, data in targets.items():
        write_bytes(target, data)
    return list(targets)
