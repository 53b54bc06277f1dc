"""Look up sandboxes by the names that users type; each has its own module, which is imported on first use."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from importlib.metadata import entry_points

from pytest_ssr.errors import SandboxUnavailableError, SettingsError
from pytest_ssr.sandbox.filesystem.workdirs import reap
from pytest_ssr.sandbox.protocol import Availability, SandboxProvider

__all__ = ["SANDBOXES", "choose", "load_provider", "probe_all", "reap"]

SANDBOXES = {
    "apptainer": "pytest_ssr.sandbox.apptainer:ApptainerProvider",
    "bubblewrap": "pytest_ssr.sandbox.bubblewrap:BubblewrapProvider",
    "docker": "pytest_ssr.sandbox.docker.provider:DockerProvider",
    "gvisor": "pytest_ssr.sandbox.docker.provider:GvisorProvider",
    "process": "pytest_ssr.sandbox.process:ProcessProvider",
    "user": "pytest_ssr.sandbox.other_user:OtherUserProvider",
}
GROUP = "pytest_ssr.sandboxes"
"""Entry points of other packages: the name is the kind, and the function takes what follows its colon."""
_WITH_IMAGE = ("apptainer", "docker", "gvisor")
_STRENGTH = ("bubblewrap", "docker", "apptainer")


def load_provider(name: str, extra: Mapping[str, SandboxProvider] | None = None) -> SandboxProvider:
    """Return the named sandbox, built in or added by a plugin; raises SettingsError for an unknown name.

    Some accept an image: `docker:python:3.12`. Other packages add kinds with an address, such as `remote:URL`.
    """
    if extra and name in extra:
        return extra[name]
    kind, _, image = name.partition(":")
    if image and kind not in SANDBOXES:
        for entry in entry_points(group=GROUP, name=kind):
            load: Callable[[str], SandboxProvider] = entry.load()
            return load(image)
    if kind not in SANDBOXES or (":" in name and (kind not in _WITH_IMAGE or not image)):
        with_value = [*(f"{k}:IMAGE" for k in _WITH_IMAGE), *(f"{e.name}:ADDRESS" for e in entry_points(group=GROUP))]
        choices = ", ".join(["auto", *sorted({*SANDBOXES, *(extra or {})}), *with_value])
        raise SettingsError(f"there is no sandbox {name!r}; choose among {choices}")
    module, _, attribute = SANDBOXES[kind].partition(":")
    provider: SandboxProvider = getattr(importlib.import_module(module), attribute)(*([image] if image else []))
    return provider


def choose(
    name: str, *, model_written: bool = False, extra: Mapping[str, SandboxProvider] | None = None
) -> SandboxProvider:
    """Return the named sandbox after probing it; `auto` selects the strongest one that works.

    Leftovers of killed runs on this machine are removed first.
    model_written: a model or someone else wrote the code to run, so `auto` does not fall back to `process`.
    Raises SandboxUnavailableError, with what to install, if the sandbox does not work.
    """
    reap()
    if name != "auto":
        provider = load_provider(name, extra=extra)
        availability = provider.probe()
        if not availability.works:
            message = f"the sandbox {name} does not work here: {availability.detail}; {availability.remedy}"
            raise SandboxUnavailableError(message)
        return provider
    failures = []
    for kind in _STRENGTH:
        provider = load_provider(kind, extra)
        availability = provider.probe()
        if availability.works:
            return provider
        failures.append(f"{kind}: {availability.detail}; {availability.remedy}")
    if model_written:
        raise SandboxUnavailableError(
            f"no isolating sandbox works here ({' | '.join(failures)}), and code that a model or someone else wrote is "
            "not run without one; to run it anyway, use --sandbox process (--ssr-sandbox process under pytest)"
        )
    return load_provider("process", extra)


def probe_all() -> dict[str, Availability]:
    """Probe every built-in sandbox on this machine."""
    availability_by_name = {}
    for name in SANDBOXES:
        provider = load_provider(name)
        availability_by_name[name] = provider.probe()
        if close := getattr(provider, "close", None):
            close()
    return availability_by_name
