"""The plugin's hooks: what a conftest.py or another plugin may add to injection and validation, and watch."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pytest_ssr.checks import Check
    from pytest_ssr.injectors.protocol import Injector
    from pytest_ssr.sandbox.protocol import SandboxProvider
    from pytest_ssr.verdict import Verdict


@pytest.hookspec
def pytest_ssr_injectors(config: pytest.Config) -> Mapping[str, Injector]:  # type: ignore[empty-body]
    """Return injectors by the names that `--ssr-injector` takes."""


@pytest.hookspec
def pytest_ssr_sandboxes(config: pytest.Config) -> Mapping[str, SandboxProvider]:  # type: ignore[empty-body]
    """Return sandboxes by the names that `--ssr-sandbox` takes."""


@pytest.hookspec
def pytest_ssr_checks(config: pytest.Config) -> Sequence[tuple[str, Check]]:  # type: ignore[empty-body]
    """Return further checks, each a name and a function of a Case; they run after the seven, before the controls."""


@pytest.hookspec
def pytest_ssr_verdict(config: pytest.Config, verdict: Verdict) -> None:
    """Watch each verdict as it is reached, in the process that reached it."""
