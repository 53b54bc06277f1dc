"""How tests are run: by pytest with our own reporter, and by an artifact's own script and parser."""
