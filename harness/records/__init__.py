"""Records that the harness writes and reads."""
