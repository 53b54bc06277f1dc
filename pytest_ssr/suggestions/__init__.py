"""Suggest a test for a change that no test noticed: inputs for which the original and the changed code differ."""
