"""Solve tasks without a model: spectrum-based fault localisation, candidate repairs, and fast test execution."""
