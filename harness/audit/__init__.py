"""Measure how good the tests of a benchmark's tasks are."""
