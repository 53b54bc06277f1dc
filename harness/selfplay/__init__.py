"""Play rounds of bugs and repairs, and learn from their results."""
