"""Find the licence that a project's own files name: its pyproject.toml, else the beginning of its licence file."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable
from pathlib import Path

UNKNOWN = "unknown"
_FILES = ("LICENSE", "LICENCE", "COPYING")
_MAX_BYTES = 4096
_PATTERNS = (
    ("Apache-2.0", r"apache license,?\s+version 2\.0"),
    ("MIT", r"\bmit license\b|permission is hereby granted, free of charge"),
    ("BSD-3-Clause", r"redistribution and use in source and binary forms[\s\S]*neither the name"),
    ("BSD-2-Clause", r"redistribution and use in source and binary forms"),
    ("MPL-2.0", r"mozilla public license,?\s+version 2\.0|mozilla public license version 2\.0"),
    ("AGPL-3.0", r"gnu affero general public license"),
    ("LGPL-3.0", r"gnu lesser general public license\s+version 3"),
    ("GPL-3.0", r"gnu general public license\s+version 3"),
    ("GPL-2.0", r"gnu general public license\s+version 2"),
    ("ISC", r"\bisc license\b"),
    ("PSF-2.0", r"python software foundation license"),
)


def licence_of(trees: Iterable[Path]) -> str:
    """Return the licence that a project's files name, as an SPDX identifier if it is recognised, else `unknown`.

    trees: folders that may hold copies of the files. The result is not legal advice.
    """
    for tree in trees:
        licence = _in_pyproject(tree / "pyproject.toml") or _in_file(tree)
        if licence:
            return licence
    return UNKNOWN


def _in_pyproject(path: Path) -> str:
    try:
        field = tomllib.loads(_begin(path, 256 * 1024)).get("project", {}).get("license", "")
    except (OSError, ValueError, AttributeError, RecursionError):
        return ""
    text = field.get("text", "") if isinstance(field, dict) else field
    if not isinstance(text, str) or not re.fullmatch(r"[\w .+()-]{1,60}", text):
        return ""
    return text


def _in_file(tree: Path) -> str:
    try:
        names = sorted(p.name for p in tree.iterdir() if p.name.upper().startswith(_FILES))
        text = "\n".join(_begin(tree / name, _MAX_BYTES) for name in names).lower()
    except OSError:
        return ""
    return next((name for name, pattern in _PATTERNS if re.search(pattern, text)), "")


def _begin(path: Path, limit: int) -> str:
    with path.open("rb") as file:
        return file.read(limit).decode("utf-8", "replace")
