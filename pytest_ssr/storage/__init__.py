"""Store artifacts, verdicts and baselines on disk."""
