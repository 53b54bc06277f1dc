"""Find variables whose names begin with SSR_ and that nothing reads: most are mistyped."""

from __future__ import annotations

import contextlib
import difflib
import os
from collections.abc import Mapping
from typing import NamedTuple

from harness import other_systems
from pytest_ssr.errors import SettingsError

NAMED = "SSR_VARIABLES_NAMED"
"""Set once they are named, so that a command that another one starts does not name them again."""
_PREFIX = "SSR_"
_NEAR = 0.6
_ALSO_READ = frozenset(
    {
        "SSR_DATABASE",
        "SSR_IMAGE_PREFIX",
        "SSR_MINI_PYTHON",
        "SSR_MIRROR",
        "SSR_NODE_CACHE",
        "SSR_NODE_CACHE_BYTES",
        "SSR_SANDBOX_TOKEN",
        "SSR_VLLM",
        "SSR_VLLM_KEY",
    }
)
"""Variables that are not options."""
_EXCEPTED = frozenset(
    {
        NAMED,
        "SSR_STATUS_LINES",
        # Of sandboxes, and of what runs in them.
        "SSR_SANDBOX_RUN",
        "SSR_SANDBOX_COUNTS",
        "SSR_CALLS",
        "SSR_CHANNEL",
        "SSR_COLLECT_ONLY",
        "SSR_COPIES",
        "SSR_COPY_S",
        "SSR_MEMORY",
        "SSR_NETWORK",
        "SSR_ORDER_SEED",
        "SSR_OTHER_IDS",
        "SSR_REACH",
        "SSR_REACH_FILES",
        "SSR_SEEN",
        "SSR_SELECTION",
        "SSR_TESTS",
        "SSR_VALUES",
        "SSR_WATCHED",
        # Of compose.yaml.
        "SSR_DATABASE_PASSWORD",
        "SSR_GGUF_MODEL",
        "SSR_KEYS",
        "SSR_MODELS",
        "SSR_OBJECTS_PASSWORD",
        "SSR_PORT",
        "SSR_PROJECTS",
        "SSR_PROMETHEUS_PORT",
        "SSR_VLLM_MODEL",
    }
)
_EXCEPTED_PREFIXES = ("SSR_MODEL_KEY_", "SSR_TEST_")


class UnknownVariable(NamedTuple):
    """A variable that nothing reads."""

    name: str
    nearest: str
    """The variable or the option that may be meant; empty without a near one."""


def unknown_variables(environment: Mapping[str, str]) -> list[UnknownVariable]:
    """Return the variables of an environment that nothing reads, sorted by name."""
    names = {name for name in environment if name.startswith(_PREFIX)} - _ALSO_READ - _EXCEPTED
    names = {name for name in names if not name.startswith(_EXCEPTED_PREFIXES)}
    if not names:
        # Without the settings of all commands, whose import takes a while.
        return []
    known = _variables_of_options() | _ALSO_READ
    return [UnknownVariable(name, _nearest(name, known)) for name in sorted(names - known)]


def name_unknown_variables() -> str:
    """Return a remark about the unknown variables of this process; empty without any, and after the first time."""
    found = [] if os.environ.get(NAMED) else unknown_variables(os.environ)
    if not found:
        return ""
    os.environ[NAMED] = "1"
    shown = (f"{name} (did you mean {nearest}?)" if nearest else name for name, nearest in found)
    return f"no setting, and ignored: {', '.join(shown)}"


def _variables_of_options() -> frozenset[str]:
    from harness.cli.app import all_commands
    from harness.settings.plan import leaves_of
    from pytest_ssr.options import PluginSettings, options_of

    found = {f"{_PREFIX}{item.name.upper()}" for item, _ in options_of(PluginSettings)}
    for command in all_commands().values():
        # A method of another package that cannot be imported is reported to those who use it.
        with contextlib.suppress(SettingsError):
            found |= {leaf.variable for leaf in leaves_of(command.load_settings())}
    return frozenset(found - {""})


def _nearest(name: str, known: frozenset[str]) -> str:
    if here := other_systems.VARIABLES.get(name):
        return here
    # Without the prefix, which would make all names alike.
    words = {other.removeprefix(_PREFIX): other for other in sorted(known)}
    close = difflib.get_close_matches(name.removeprefix(_PREFIX), words, n=1, cutoff=_NEAR)
    return words[close[0]] if close else ""
