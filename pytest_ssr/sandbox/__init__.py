"""Sandboxes by the names that users type; each lives in a module of its own that is imported when it is asked for."""

from __future__ import annotations

import importlib
from collections.abc import Mapping

from pytest_ssr.errors import SandboxUnavailableError, SettingsError
from pytest_ssr.sandbox.folders import reap
from pytest_ssr.sandbox.protocol import Availability, SandboxProvider

__all__ = ["SANDBOXES", "choose", "load_provider", "probe_all", "reap"]

SANDBOXES = {
    "apptainer": "pytest_ssr.sandbox.apptainer:ApptainerProvider",
    "bubblewrap": "pytest_ssr.sandbox.bubblewrap:BubblewrapProvider",
    "docker": "pytest_ssr.sandbox.docker:DockerProvider",
    "gvisor": "pytest_ssr.sandbox.docker:GvisorProvider",
    "process": "pytest_ssr.sandbox.process:ProcessProvider",
}
_WITH_IMAGE = ("apptainer", "docker", "gvisor")
_STRENGTH = ("bubblewrap", "docker", "apptainer")


def load_provider(name: str, extra: Mapping[str, SandboxProvider] | None = None) -> SandboxProvider:
    """Return the sandbox of a name, one of ours or one that a plugin adds; raises SettingsError for another.

    Some take an image: `docker:python:3.12`.
    """
    if extra and name in extra:
        return extra[name]
    kind, _, image = name.partition(":")
    if kind not in SANDBOXES or (":" in name and (kind not in _WITH_IMAGE or not image)):
        known = ", ".join(["auto", *sorted({*SANDBOXES, *(extra or {})}), *(f"{k}:IMAGE" for k in _WITH_IMAGE)])
        raise SettingsError(f"there is no sandbox {name!r}; choose among {known}")
    module, _, attribute = SANDBOXES[kind].partition(":")
    provider: SandboxProvider = getattr(importlib.import_module(module), attribute)(*([image] if image else []))
    return provider


def choose(
    name: str, *, model_written: bool = False, extra: Mapping[str, SandboxProvider] | None = None
) -> SandboxProvider:
    """Return the named sandbox, tried on the spot; `auto` takes the strongest that works.

    What killed runs left on this machine is removed first.
    model_written: what will run was written by a model or by others, so `auto` does not fall back to `process`.
    Raises SandboxUnavailableError, with what to install, when it does not work.
    """
    reap()
    if name != "auto":
        provider = load_provider(name, extra=extra)
        found = provider.probe()
        if not found.works:
            raise SandboxUnavailableError(f"the sandbox {name} does not work here: {found.detail}; {found.remedy}")
        return provider
    refused = []
    for kind in _STRENGTH:
        provider = load_provider(kind, extra)
        found = provider.probe()
        if found.works:
            return provider
        refused.append(f"{kind}: {found.detail}; {found.remedy}")
    if model_written:
        raise SandboxUnavailableError(
            f"no sandbox that isolates works here ({' | '.join(refused)}), and what a model or others wrote is not run "
            "without one; to run it all the same, say --sandbox process (--ssr-sandbox process under pytest)"
        )
    return load_provider("process", extra)


def probe_all() -> dict[str, Availability]:
    """Try every sandbox of ours on this machine."""
    return {name: load_provider(name).probe() for name in SANDBOXES}
