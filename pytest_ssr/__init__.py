"""Self-play SWE-RL (arXiv 2512.18552) as a pytest plugin: bugs proven by seven checks, from any test suite."""

__version__ = "0.3.0"
