"""Provide the injectors that need no model; each is deterministic given the tree and a seed."""
