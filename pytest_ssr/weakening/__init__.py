"""Remove failing tests from test files, together with what only these tests used."""

from pytest_ssr.weakening.weaken import Weakening, weaken

__all__ = ["Weakening", "weaken"]
