"""Collect what other plugins add through the hooks of `pytest_ssr.hookspecs`, for pytest and for the command line."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pytest_ssr.checks import NamedCheck
from pytest_ssr.errors import SettingsError, SsrError
from pytest_ssr.injectors.protocol import Injector
from pytest_ssr.records.verdict import Verdict
from pytest_ssr.sandbox.protocol import SandboxProvider

CallHook = Callable[..., list[Any]]
"""Takes a hook's name and its arguments besides `config`; returns what the implementations returned."""


def _without_plugins(name: str, **arguments: object) -> list[Any]:
    return []


@dataclass(frozen=True, slots=True)
class Extensions:
    """What plugins add; each method raises SettingsError if a hook fails or returns something else."""

    call: CallHook = _without_plugins

    def injectors(self) -> dict[str, Injector]:
        """Return the injectors by name."""
        return self._named("injectors")

    def sandboxes(self) -> dict[str, SandboxProvider]:
        """Return the sandboxes by name."""
        return self._named("sandboxes")

    def solvers(self) -> dict[str, Any]:
        """Return the solvers by name."""
        return self._named("solvers")

    def models(self) -> dict[str, Callable[[], Any]]:
        """Return the functions that open models, by the name after `plugin:`."""
        return self._named("models")

    def checks(self) -> list[NamedCheck]:
        """Return the checks, sorted by name."""
        return sorted(self._listed("checks"), key=lambda pair: pair[0])

    def exporters(self) -> list[Any]:
        """Return the formats of exports."""
        return self._listed("exporters")

    def observe(self, verdict: Verdict) -> None:
        """Pass a verdict to the plugins that observe verdicts."""
        self._call("pytest_ssr_verdict", verdict=verdict)

    def _named(self, kind: str) -> dict[str, Any]:
        hook = f"pytest_ssr_{kind}"
        offered: dict[str, Any] = {}
        for group in self._call(hook):
            if not isinstance(group, Mapping):
                raise SettingsError(f"the hook {hook} returned a {type(group).__name__}, not a mapping of names")
            offered.update(group)
        return offered

    def _listed(self, kind: str) -> list[Any]:
        hook = f"pytest_ssr_{kind}"
        offered: list[Any] = []
        for group in self._call(hook):
            if not isinstance(group, list | tuple):
                raise SettingsError(f"the hook {hook} returned a {type(group).__name__}, not a list")
            offered.extend(group)
        return offered

    def _call(self, name: str, **arguments: object) -> list[Any]:
        try:
            return self.call(name, **arguments)
        except SsrError:
            raise
        except Exception as error:
            raise SettingsError(f"the hook {name} of a plugin failed: {type(error).__name__}: {error}") from error
