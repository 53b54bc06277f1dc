"""Skip the tests that need a separate environment."""

import importlib.util
import os

_APART = {
    "test_litellm.py": ("SSR_TEST_LITELLM", "litellm"),
    "test_small_model.py": ("SSR_TEST_SMALL_MODEL", "xllamacpp"),
}
# Their tox environments set the variables; there a missing package is an error.
collect_ignore = [
    name
    for name, (variable, package) in _APART.items()
    if variable not in os.environ and importlib.util.find_spec(package) is None
]
