"""Failing test ids in; the test files without these tests, and without what only they used, out."""

from pytest_ssr.weakening.weaken import Weakening, weaken

__all__ = ["Weakening", "weaken"]
