"""Declare the options that the plugin and the command line share: names, types, defaults and help, once.

A dataclass field made by `option` holds an option's default, and its metadata the rest. The plugin makes pytest options
of the declarations; the command line makes flags, `SSR_*` variables and keys of files. pytest imports this module in
every run, so it must be light: no class here is a dataclass with generated methods.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import Field, dataclass, field, fields
from pathlib import Path
from typing import Any, NamedTuple

INJECTOR_NAMES = ("mutation", "removal", "history", "combination", "mutmut")
FAIL_ON = ("new",)
ANNOTATIONS = ("auto", "on", "off")
SANDBOX_NAMES = ("apptainer", "bubblewrap", "docker", "gvisor", "process", "user")
STORE_MARK = "ssr-store.json"
"""The file that marks a store, so that one inside a project is neither copied with the project nor collected."""
_KEY = "option"


class Bound(NamedTuple):
    """What a number must meet."""

    text: str
    """The end of a message about one that does not."""
    low: float = -math.inf
    high: float = math.inf
    is_above_low: bool = False
    """Whether `low` itself is too low."""
    is_below_high: bool = False

    def problem(self, value: float) -> str:
        """Return the end of a message about a value that is out of bounds, empty for any other."""
        is_high = value > self.low if self.is_above_low else value >= self.low
        is_low = value < self.high if self.is_below_high else value <= self.high
        shown = f"{value:g}" if isinstance(value, float) else str(value)
        return "" if is_high and is_low else f"{self.text}, not {shown}"


AT_LEAST_0 = Bound("must be at least 0", low=0)
AT_LEAST_1 = Bound("must be at least 1", low=1)
MORE_THAN_0 = Bound("must be more than 0", low=0, is_above_low=True)
NOT_NEGATIVE = Bound("must be at least 0, and finite", low=0, is_below_high=True)
FINITE = Bound("must be finite", is_above_low=True, is_below_high=True)
FRACTION = Bound("must be in (0, 1]", low=0, high=1, is_above_low=True)
FRACTION_OR_0 = Bound("must be in [0, 1]", low=0, high=1)
PERCENT = Bound("must be from 0 to 100", low=0, high=100)
INNER_FRACTION = Bound("must be in (0, 1)", low=0, high=1, is_above_low=True, is_below_high=True)


class Option(NamedTuple):
    """What an option is besides its name, its type and its default."""

    metavar: str = ""
    """The name of its value in help texts."""
    help: str = ""
    flag: str = ""
    """Its name on the command line; empty for the field's name with dashes."""
    bound: Bound | None = None
    choices: Callable[[], tuple[str, ...]] | None = None
    """Returns the values it accepts; called only if its command is used."""
    short: str = ""
    """A second, short flag."""
    is_argument: bool = False
    """Whether it is an argument of the command line, without a flag."""
    is_interpreter: bool = False
    """Whether it is a path to an interpreter, whose bare name is looked up on PATH."""
    may_be_folder: bool = False
    """Whether it names a folder or something that is not on this machine, such as a model on the hub."""
    takes_many: bool = False
    """Whether one flag takes several values."""
    variable: str = ""
    """Its environment variable; empty for SSR_ and the flag."""
    takes_stdin: bool = False
    """Whether its value may be `-`, for standard input."""
    is_own: bool = False
    """Whether it has no variable and no short key in files, because other commands use its name for something else."""
    is_personal: bool = False
    """Whether a project must not set it: it names a program to start, a server that receives a key, or any file."""
    key: str = ""
    """The dotted name in files of an option of the plugin, if it has one."""

    def may_be_set_by_project(self, value: object) -> bool:
        """Whether a project's own file may set it to this value: someone else may have written the project."""
        text = str(value)
        if self.flag == "sandbox":
            # `process` isolates nothing, and the server of a remote sandbox receives a token and all that is run.
            is_unsafe = text.partition(":")[0].strip() in ("process", "remote")
        else:
            # A server receives code, and perhaps a key. `vllm:PATH` starts one, and an ARN may hold a host's name.
            is_unsafe = any(part in text for part in ("://", "vllm:", "arn:"))
        return not self.is_personal and not is_unsafe


def option(default: Any, metavar: str = "", help: str = "", **more: Any) -> Any:
    """Return a dataclass field that declares an option; more: fields of Option."""
    return field(default=default, metadata={_KEY: Option(metavar, help, **more)})


def switch(help: str, **more: Any) -> Any:
    """Return a field that declares a flag without a value; more: fields of Option."""
    return option(False, "", help, **more)


def required(metavar: str, help: str, **more: Any) -> Any:
    """Return a field that declares an option without a default; more: fields of Option."""
    return field(metadata={_KEY: Option(metavar, help, **more)})


def declared(item: Field[Any]) -> Option | None:
    """Return what a field declares, with its flag; None if it is not an option."""
    declaration: Option | None = item.metadata.get(_KEY)
    return declaration and declaration._replace(flag=declaration.flag or item.name.replace("_", "-"))


def shared(name: str, **changes: Any) -> Any:
    """Return a field that declares the same option as the plugin's; changes: its default, and fields of Option."""
    item = PluginSettings.__dataclass_fields__[name]
    declaration = declared(item)
    assert declaration is not None
    default = changes.pop("default", item.default)
    return field(default=default, metadata={_KEY: declaration._replace(**changes)})


def options_of(settings: type[Any]) -> Iterator[tuple[Field[Any], Option]]:
    """Yield the fields of a dataclass that declare options."""
    for item in fields(settings):
        declaration = declared(item)
        if declaration is not None:
            yield item, declaration


@dataclass(init=False, repr=False, eq=False)
class PluginSettings:
    """The options of the plugin: `--ssr-count`, `SSR_COUNT`, the ini option `ssr_count`, and `count` in `[tool.ssr]`.

    The command line has them as `--count` and so on.
    """

    count: int = option(10, "N", "number of valid artifacts to make", bound=AT_LEAST_1)
    injector: str = option(
        "mutation,removal,combination",
        "NAMES",
        f"comma-separated: {', '.join(INJECTOR_NAMES)}, or one that a plugin adds",
    )
    seed: int = option(0, "N", "random seed: the same tree and seed give the same artifacts")
    source: tuple[str, ...] = option(
        (), "PATH", "inject only below these files or folders, comma-separated, relative to the project"
    )
    solver: str = option(
        "search", "NAME", "search, replay:PATH, or a model: PROVIDER/MODEL, vllm:PATH", key="solver.name"
    )
    attempts: int = option(8, "G", "attempts at each artifact", bound=AT_LEAST_1, key="solver.attempts")
    budget_usd: float | None = option(
        None,
        "USD",
        "cost limit of the whole run of a model, shared by its workers (default: no limit)",
        bound=MORE_THAN_0,
        key="budget.usd",
    )
    budget_tokens: int | None = option(
        None,
        "TOKENS",
        "token limit of the whole run, shared by its workers (default: no limit)",
        bound=MORE_THAN_0,
        key="budget.tokens",
    )
    budget_calls: int | None = option(
        None,
        "N",
        "request limit of the whole run, shared by its workers (default: no limit)",
        bound=MORE_THAN_0,
        key="budget.calls",
    )
    rollout_usd: float = option(
        5.0, "USD", "cost limit of one attempt of a model, if its prices are known", bound=MORE_THAN_0, key="limits.usd"
    )
    rollout_tokens: int = option(
        2_000_000, "TOKENS", "token limit of one attempt of a model", bound=MORE_THAN_0, key="limits.tokens"
    )
    steps: int = option(100, "N", "limit of replies in one attempt of a model", bound=MORE_THAN_0, key="limits.steps")
    sandbox: str = option(
        "auto",
        "NAME",
        f"auto, {', '.join(SANDBOX_NAMES)}; apptainer, docker and gvisor take :IMAGE; remote:URL",
        key="execution.sandbox",
    )
    store: Path | None = option(None, "DIR", "directory for results (default: .ssr in the project)")
    html: Path | None = option(
        None, "DIR", "write a page with the score, the map of the files, each change and each bug into this folder"
    )
    sarif: Path | None = option(
        None, "FILE", "write the changes that no test noticed into this file, for code scanning", is_personal=True
    )
    stryker: Path | None = option(
        None,
        "FILE",
        "write all changes into this file as Stryker's viewers and dashboard read them",
        is_personal=True,
    )
    annotations: str = option(
        "auto",
        "WHEN",
        "annotate the lines of survivors in GitHub Actions: auto (there, with a diff), on or off",
        choices=lambda: ANNOTATIONS,
    )
    python: Path | None = option(
        None,
        "PATH",
        "the interpreter whose environment runs the tests (default: the project's .venv, else this one)",
        is_interpreter=True,
        key="execution.python",
    )
    diff: str | None = option(None, "REV", "inject only into functions that have changed since this git revision")
    fail_under: float | None = option(
        None, "SCORE", "fail if the tests notice less than this share of the tried changes, in percent", bound=PERCENT
    )
    fail_on: str | None = option(
        None, "WHAT", "new: fail if a change survives that .ssr-accepted.toml does not accept", choices=lambda: FAIL_ON
    )
    changes: int = option(
        100,
        "N",
        "with a fail-under or a shard: changes to try, however many of them become artifacts",
        bound=AT_LEAST_1,
    )
    shard: str | None = option(
        None,
        "I/N",
        "do the work of one of N machines, such as 2/5: every Nth of the first --ssr-changes changes, or of the "
        "artifacts to validate; ssr merge joins the results",
    )
    suggest: int = option(
        0, "N", "suggest tests for this many of the changes that no test noticed (default: none)", bound=AT_LEAST_0
    )
    time: str | None = option(
        None, "BUDGET", "stop after this time and keep the results so far: 90, 90s, 10m, 1h30m (default: no limit)"
    )
    time_limit: float = option(
        1800.0, "SECONDS", "limit for one run of the whole suite", bound=MORE_THAN_0, key="execution.time-limit"
    )
    max_weakened_failing: float = option(
        0.0,
        "F",
        "largest share of the weakened tests that may fail, 1 in the paper; 0: the weakened suite passes",
        bound=FRACTION_OR_0,
        key="execution.max-weakened-failing",
    )
    script_limit: float = option(
        0.0,
        "SECONDS",
        "most seconds that an artifact's script may take on the original, 90 in the paper; 0: no limit",
        bound=NOT_NEGATIVE,
        key="execution.script-limit",
    )
    min_passing_tests: int = option(
        1, "N", "oracle tests that must pass on the original", bound=AT_LEAST_1, key="execution.min-passing-tests"
    )
    min_changed_files: int = option(
        1, "N", "files that the bug must change", bound=AT_LEAST_1, key="execution.min-changed-files"
    )
    min_failing_tests: int = option(
        1, "N", "tests that must go from pass to fail", bound=AT_LEAST_1, key="execution.min-failing-tests"
    )
    max_broken_fraction: float = option(
        0.5,
        "F",
        "largest share of the passing tests that may fail with the bug",
        bound=FRACTION,
        key="execution.max-broken-fraction",
    )
    per_hunk: bool = switch("inverse mutation reverts one hunk at a time instead of one file")
    allow_undefined_names: bool = switch(
        "accept bugs that read a name which nothing binds (as in the paper)", key="execution.allow-undefined-names"
    )
    by_script: bool = switch(
        "let the artifact's script and parser alone say which tests pass, in any language (as in the paper)"
    )
