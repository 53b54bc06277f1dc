"""The fixture with a proven bug; skip the tests of packages that are not installed."""

import importlib.util

from proven import project, proven

__all__ = ["project", "proven"]

collect_ignore = [] if importlib.util.find_spec("gymnasium") is not None else ["test_gym.py"]
