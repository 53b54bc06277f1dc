"""The routes of the API, below /api/v1."""
