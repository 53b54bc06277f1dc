"""The routes of the API, below /api/v1."""

PREFIX = "/api/v1"
