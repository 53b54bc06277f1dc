"""Prepare, run, grade and record a solver's attempts at a task."""
