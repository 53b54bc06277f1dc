"""Manage the files of sandboxes: working directories, overlays, and safe access to files of untrusted code."""
