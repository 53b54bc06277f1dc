"""Sandboxes by the names that users type; each lives in a module of its own that is imported when it is asked for."""

from __future__ import annotations

import importlib
from collections.abc import Mapping

from pytest_ssr.errors import SandboxUnavailableError, SettingsError
from pytest_ssr.sandbox.folders import reap
from pytest_ssr.sandbox.protocol import Availability, SandboxProvider

__all__ = ["SANDBOXES", "choose", "load_provider", "probe_all", "reap"]

SANDBOXES = {
    "bubblewrap": "pytest_ssr.sandbox.bubblewrap:BubblewrapProvider",
    "process": "pytest_ssr.sandbox.process:ProcessProvider",
}


def load_provider(name: str, extra: Mapping[str, SandboxProvider] | None = None) -> SandboxProvider:
    """Return the sandbox of a name, one of ours or one that a plugin adds; raises SettingsError for another."""
    if extra and name in extra:
        return extra[name]
    if name not in SANDBOXES:
        known = ", ".join(["auto", *sorted({*SANDBOXES, *(extra or {})})])
        raise SettingsError(f"there is no sandbox {name!r}; choose among {known}")
    module, _, attribute = SANDBOXES[name].partition(":")
    provider: SandboxProvider = getattr(importlib.import_module(module), attribute)()
    return provider


def choose(
    name: str, *, model_written: bool = False, extra: Mapping[str, SandboxProvider] | None = None
) -> SandboxProvider:
    """Return the named sandbox, tried on the spot; `auto` takes the strongest that works.

    What killed runs left on this machine is removed first.
    model_written: what will run was written by a model, so `auto` does not fall back to `process`.
    Raises SandboxUnavailableError, with what to install, when it does not work.
    """
    reap()
    if name != "auto":
        provider = load_provider(name, extra=extra)
        found = provider.probe()
        if not found.works:
            raise SandboxUnavailableError(f"the sandbox {name} does not work here: {found.detail}; {found.remedy}")
        return provider
    provider = load_provider("bubblewrap", extra)
    found = provider.probe()
    if found.works:
        return provider
    if model_written:
        raise SandboxUnavailableError(
            f"no sandbox that isolates works here (bubblewrap: {found.detail}; {found.remedy}), and model-written "
            "code is not run without one; to run it all the same, say --sandbox process"
        )
    return load_provider("process", extra)


def probe_all() -> dict[str, Availability]:
    """Try every sandbox of ours on this machine."""
    return {name: load_provider(name).probe() for name in SANDBOXES}
