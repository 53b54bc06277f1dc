"""`test_weaken.diff` from the failing tests: they are taken out of their files, with what only they used."""

from pytest_ssr.weakening.weaken import Weakening, weaken

__all__ = ["Weakening", "weaken"]
