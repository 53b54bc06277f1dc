"""Specify the plugin's hooks: add injectors, sandboxes and checks, and observe verdicts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pytest_ssr.checks import Check
    from pytest_ssr.injectors.protocol import Injector
    from pytest_ssr.records.verdict import Verdict
    from pytest_ssr.sandbox.protocol import SandboxProvider


@pytest.hookspec
def pytest_ssr_injectors(config: pytest.Config) -> Mapping[str, Injector]:  # type: ignore[empty-body]
    """Return injectors by the names that `--ssr-injector` accepts."""


@pytest.hookspec
def pytest_ssr_sandboxes(config: pytest.Config) -> Mapping[str, SandboxProvider]:  # type: ignore[empty-body]
    """Return sandboxes by the names that `--ssr-sandbox` accepts."""


@pytest.hookspec
def pytest_ssr_checks(config: pytest.Config) -> Sequence[tuple[str, Check]]:  # type: ignore[empty-body]
    """Return extra checks, each a name and a function of a ValidationContext.

    They run after the seven checks and before the controls.
    """


@pytest.hookspec
def pytest_ssr_verdict(config: pytest.Config, verdict: Verdict) -> None:
    """Observe each verdict as it is reached, in the process that reached it."""
