from __future__ import annotations

import os

# `benchmarks/old_interpreters.py` creates the environments that it needs, and sets the variable.
collect_ignore = [] if "SSR_TEST_OLD" in os.environ else ["test_old_interpreters.py"]
