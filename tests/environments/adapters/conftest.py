"""Skip the tests of packages that are not installed: each has a tox environment, `adapter-NAME`."""

import importlib.util

from proven import project, proven

__all__ = ["project", "proven"]

PACKAGES = {
    "openenv": "openenv",
    "skyrl": "skyrl_gym",
    "slime": "slime",
    "trl": "trl",
    "verifiers": "verifiers",
    "verl": "verl",
}
collect_ignore = [f"test_{name}.py" for name, package in PACKAGES.items() if importlib.util.find_spec(package) is None]
