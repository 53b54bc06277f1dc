"""Run tests: with pytest and our own reporter, or with an artifact's own script and parser."""
