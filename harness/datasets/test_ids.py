"""Bring the test ids of rows into the form in which runs report them."""

from __future__ import annotations

import re

_ROOT = re.compile(r"(?:\./|/testbed/|/app/|/workspace/[\w.-]+/|/home/[\w.-]+/)+(?=[^:]*\.py::)")
"""The folder of the repository in node ids: the working folder, or that of a family's images."""


def plain_id(name: str) -> str:
    """Return an id without blanks around it, and a node id without the folder of the repository before its path."""
    name = name.strip()
    root = _ROOT.match(name)
    return name[root.end() :] if root is not None else name
