"""Distribute units of work over processes."""
