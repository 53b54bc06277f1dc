"""The fixture with a proven bug."""

from proven import project, proven

__all__ = ["project", "proven"]
