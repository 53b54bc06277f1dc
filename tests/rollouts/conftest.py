"""Provide the project with a validated bug."""

from proven import project, proven

__all__ = ["project", "proven"]
