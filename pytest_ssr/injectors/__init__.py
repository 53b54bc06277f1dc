"""Injectors that need no model, each deterministic from the tree and a seed."""
