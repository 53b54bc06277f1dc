"""Specify the plugin's hooks: add injectors, sandboxes, checks, solvers, models and formats, and observe verdicts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pytest_ssr.checks import NamedCheck
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
def pytest_ssr_checks(config: pytest.Config) -> Sequence[NamedCheck]:  # type: ignore[empty-body]
    """Return extra checks, each a name and a function of a ValidationContext.

    They run after the seven checks and before the controls.
    """


@pytest.hookspec
def pytest_ssr_solvers(config: pytest.Config) -> Mapping[str, object]:  # type: ignore[empty-body]
    """Return solvers by the names that `--ssr-solver` accepts; see `harness.solvers.protocol.Solver`."""


@pytest.hookspec
def pytest_ssr_models(config: pytest.Config) -> Mapping[str, Callable[[], object]]:  # type: ignore[empty-body]
    """Return functions that open a model, by name; `plugin:NAME` selects one. See `harness.models.protocol.Model`."""


@pytest.hookspec
def pytest_ssr_exporters(config: pytest.Config) -> Sequence[object]:  # type: ignore[empty-body]
    """Return formats of `ssr export`; see `harness.exporters.protocol.Format`."""


@pytest.hookspec
def pytest_ssr_verdict(config: pytest.Config, verdict: Verdict) -> None:
    """Observe each verdict as it is reached, in the process that reached it."""
