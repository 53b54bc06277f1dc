"""Compare solvers and injectors over runs, as text, JSON, CSV, Markdown, a page and submissions."""
