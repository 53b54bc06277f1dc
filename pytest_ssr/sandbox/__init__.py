"""Look up sandboxes by the names that users type; each has its own module, which is imported on first use."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points

from pytest_ssr.errors import SandboxMissingError, SandboxUnavailableError, SettingsError
from pytest_ssr.progress import counted
from pytest_ssr.sandbox.filesystem.workdirs import reap
from pytest_ssr.sandbox.protocol import Availability, SandboxProvider, Slotted

__all__ = [
    "SANDBOXES",
    "SandboxName",
    "choose",
    "load_provider",
    "probe_all",
    "reap",
    "require_sandbox_name",
    "require_slots",
]

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


@dataclass(frozen=True, slots=True)
class SandboxName:
    """The name of a sandbox in its parts."""

    kind: str
    image: str = ""
    """What follows the colon of a kind that takes an image."""
    address: str = ""
    """What follows the colon of another kind, such as the URL of `remote:URL`."""

    @classmethod
    def parse(cls, name: str) -> SandboxName:
        """Return the parts of a name, whether or not there is such a sandbox."""
        kind, _, value = name.partition(":")
        return cls(kind, image=value) if kind in _WITH_IMAGE else cls(kind, address=value)

    @property
    def has_own_system(self) -> bool:
        """Whether its sandboxes show another system than this machine's, with interpreters of its own."""
        return bool(self.image or self.address)


def require_sandbox_name(name: str, extra: Collection[str] | None = None) -> None:
    """Raise SettingsError if there is no sandbox of this name, `auto` excepted. extra: names that plugins add."""
    parts, added = SandboxName.parse(name), extra or ()
    if name == "auto" or name in added or _with_address(parts):
        return
    if parts.kind not in SANDBOXES or (":" in name and not parts.image):
        with_value = [*(f"{k}:IMAGE" for k in _WITH_IMAGE), *(f"{e.name}:ADDRESS" for e in entry_points(group=GROUP))]
        choices = ", ".join(["auto", *sorted({*SANDBOXES, *added}), *with_value])
        raise SettingsError(f"there is no sandbox {name!r}; choose among {choices}")


def _with_address(parts: SandboxName) -> Sequence[EntryPoint]:
    """Return the entry points of another package that open the sandbox of an address."""
    is_other = parts.address and parts.kind not in SANDBOXES
    return list(entry_points(group=GROUP, name=parts.kind)) if is_other else []


def load_provider(name: str, extra: Mapping[str, SandboxProvider] | None = None) -> SandboxProvider:
    """Return the named sandbox, built in or added by a plugin; raises SettingsError for an unknown name.

    Some accept an image: `docker:python:3.12`. Other packages add kinds with an address, such as `remote:URL`.
    """
    if extra and name in extra:
        return extra[name]
    require_sandbox_name(name, extra)
    parts = SandboxName.parse(name)
    for entry in _with_address(parts):
        load: Callable[[str], SandboxProvider] = entry.load()
        return load(parts.address)
    module, _, attribute = SANDBOXES[parts.kind].partition(":")
    given = [parts.image] if parts.image else []
    provider: SandboxProvider = getattr(importlib.import_module(module), attribute)(*given)
    return provider


def choose(
    name: str, *, model_written: bool = False, extra: Mapping[str, SandboxProvider] | None = None
) -> SandboxProvider:
    """Return the named sandbox after probing it; `auto` selects the strongest one that works.

    Leftovers of killed runs on this machine are removed first.
    model_written: a model or someone else wrote the code to run, so `auto` does not fall back to `process`.
    Raises SandboxUnavailableError if the sandbox does not work, SandboxMissingError, with what to install, if it is not
    there.
    """
    reap()
    if name != "auto":
        provider = load_provider(name, extra=extra)
        availability = provider.probe()
        if not availability.works:
            message = f"the sandbox {name} does not work here: {availability.detail}; {availability.remedy}"
            raise (SandboxMissingError if availability.is_missing else SandboxUnavailableError)(message)
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


def require_slots(provider: SandboxProvider, needed: int) -> None:
    """Raise SettingsError for a provider that cannot have so many sandboxes open: a run would wait for itself."""
    slots = provider.slots if isinstance(provider, Slotted) else 0
    if 0 < slots < needed:
        raise SettingsError(
            f"this run needs {needed} sandboxes at the same time, and the servers of {provider.name} have "
            f"{counted(slots, 'slot')} in all; start them with more --slots, or choose fewer --jobs",
            option="sandbox",
        )


def probe_all() -> dict[str, Availability]:
    """Probe every built-in sandbox on this machine."""
    availability_by_name = {}
    for name in SANDBOXES:
        provider = load_provider(name)
        availability_by_name[name] = provider.probe()
        if close := getattr(provider, "close", None):
            close()
    return availability_by_name
