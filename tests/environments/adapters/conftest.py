"""Skip the tests of packages that are not installed: each has a tox environment, `adapter-NAME`."""

import importlib.util

import pytest
from proven import project, proven

from harness.environments.solve_tasks import SolveWork
from harness.environments.task import Outcome

__all__ = ["project", "proven"]

PACKAGES = {
    "openenv": "openenv",
    "skyrl": "skyrl_gym",
    "slime": "slime",
    "trl": "trl",
    "verifiers": "verifiers",
    "verl": "verl",
}
collect_ignore_glob = [
    f"test_{name}*.py" for name, package in PACKAGES.items() if importlib.util.find_spec(package) is None
]


@pytest.fixture
def ungraded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every sandbox fail when an episode is graded."""
    monkeypatch.setattr(SolveWork, "outcome", lambda self, done: Outcome(None, None, "sandbox-failed", "it is gone"))
