"""Which of these tests belong to an environment of their own."""

import importlib.util
import os

# `tox -e litellm` has it; there it is an error that the package is missing.
here = "SSR_TEST_LITELLM" in os.environ or importlib.util.find_spec("litellm") is not None
collect_ignore = [] if here else ["test_litellm.py"]
