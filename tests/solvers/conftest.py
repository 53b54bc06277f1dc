"""The fixture with a proven bug; skip the tests that need a separate environment."""

import os

from proven import project, proven

__all__ = ["project", "proven"]

# `tox -e mini` sets the variable to an interpreter with mini-swe-agent.
collect_ignore = [] if "SSR_MINI_PYTHON" in os.environ else ["test_mini_agent.py"]
