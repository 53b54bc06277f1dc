"""Run mini-swe-agent as a solver, in its own interpreter with its commands in our sandbox, and read its files."""

PREFIX = "mini-swe-agent:"


def is_mini(name: str) -> bool:
    """Return whether a solver's name selects mini-swe-agent."""
    return name.startswith(PREFIX)
