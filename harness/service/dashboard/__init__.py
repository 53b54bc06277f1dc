"""Render the store as pages: served live, or as one file."""
