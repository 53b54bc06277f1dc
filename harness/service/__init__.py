"""Serve a store: an API, a dashboard, and workers that run jobs."""
