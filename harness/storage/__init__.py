"""Atomic writes, and the version of the code that stored results belong to."""
