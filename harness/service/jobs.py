"""Validate the settings of jobs, and make the commands that run them: lists of arguments, never a shell's text."""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import MISSING, asdict, dataclass, field
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from harness.models.factory import NAMED
from harness.models.registry import Registry
from harness.service.projects import IMAGE, Project
from harness.service.queue import Job, JobKind
from harness.service.registered_models import NAME, ROLES, for_use, models_in
from harness.settings.commands import InjectSettings, PlaySettings, SolveSettings, ValidateSettings
from harness.settings.plan import CommandSettings, Leaf, Origin, OriginKind, build, leaves_of
from harness.settings.results import ExportSettings, LeaderboardSettings
from harness.settings.service import MODEL_KEYS
from pytest_ssr.errors import ProjectError, SettingsError
from pytest_ssr.options import INJECTOR_NAMES, Option
from pytest_ssr.storage.store import Store, resolve_artifact

Value = bool | int | float | str
_MODEL = rf"{NAMED}{NAME.pattern}"
"""A registered model: addresses, files and providers are not for clients to name."""
_OPERATORS = "|".join(INJECTOR_NAMES)
_CAP = "(function|operator|repository)=[1-9][0-9]{0,6}"
_NAME_PATTERNS = {
    "injector": re.compile(rf"({_OPERATORS})(,({_OPERATORS}))*|{_MODEL}"),
    "solver": re.compile(rf"search|(mini-swe-agent:)?{_MODEL}"),
    "judge": re.compile(rf"({_MODEL})?"),
    "image": re.compile(rf"({IMAGE.pattern})?"),
    "most-per": re.compile(rf"({_CAP}(,{_CAP})*)?"),
    "time": re.compile(r"[0-9]{1,6}|([0-9]{1,4}h)?([0-9]{1,4}m)?([0-9]{1,6}s)?(?<=[hms])"),
}
"""What the text of an option may be. Names that stand for files, programs or addresses are not for clients."""
_HELP = {
    "injector": f"{', '.join(INJECTOR_NAMES)} (several with commas), or model:NAME, a registered model",
    "solver": "search, model:NAME or mini-swe-agent:model:NAME, with the name of a registered model",
    "judge": "model:NAME, a registered model that scores the solver's steps",
}
"""In place of the help of options whose values are others in a job."""
_ARTIFACT = re.compile(r"[0-9a-f]{6,64}")
_NOT_OFFERED = frozenset(
    (
        *("json", "config", "store", "sandbox", "python", "conftest", "by-script"),
        # The command is for a project here, not for a dataset, and nobody sees its terminal.
        *("shuffle", "images", "annotations", "diffs", "vllm-ready", "without-failure"),
        # It needs the file of an audit.
        "min-sharpness",
    )
)
"""Options of commands that the service sets itself, or that have no effect in a job."""
_LOWEST = {"seed": 0}
_HIGHEST = {
    "jobs": 64,
    "attempts": 64,
    "higher-order": 64,
    "submissions": 64,
    "count": 1_000,
    "changes": 10_000,
    "rounds": 1_000,
    "tries": 100_000,
}
"""The largest values that clients may choose: what they ask for occupies a worker that others wait for."""
_MOST, _LONGEST_S, _MAX_TEXT = 2**31 - 1, 86_400, 200


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting of a job: an option of its command, within the limits of the service."""

    leaf: Leaf
    choices: Sequence[str] = ()
    pattern: re.Pattern[str] | None = None

    @property
    def name(self) -> str:
        """Its name: that of the flag, with underscores."""
        return self.leaf.flag.replace("-", "_")

    @property
    def kind(self) -> type[Value]:
        """The type of its values."""
        return self.leaf.kind if self.leaf.kind in (bool, int, float) else str

    @property
    def takes_model(self) -> bool:
        """Whether it can be a registered model."""
        return self.leaf.flag in ROLES

    @property
    def help(self) -> str:
        """What it is for."""
        return _HELP.get(self.leaf.flag, self.leaf.option.help)

    @property
    def unit(self) -> str:
        """The unit of a number: SECONDS, USD; empty without one."""
        return self.leaf.option.metavar.lower() if self.leaf.option.metavar in _UNITS else ""

    @property
    def default(self) -> Value | None:
        """What the command uses without it; None if the setting is required, or if nothing is used."""
        default = None if self.leaf.is_required else self.leaf.default
        return str(default) if isinstance(default, str) else default

    @property
    def low(self) -> float:
        """The least value of a number."""
        bound = self.leaf.option.bound
        low = bound.low if bound is not None else -_MOST
        return max(low, _LOWEST.get(self.leaf.flag, -_MOST))

    @property
    def high(self) -> float:
        """The largest value of a number."""
        bound = self.leaf.option.bound
        high = bound.high if bound is not None else _MOST
        return min(high, _HIGHEST.get(self.leaf.flag, _LONGEST_S if self.unit == "seconds" else _MOST))

    def check(self, value: object) -> Value:
        """Return the value in the setting's type; raises SettingsError."""
        if self.kind is float and type(value) is int:
            # A float holds no such number as 10**400.
            value = float(value) if abs(value) <= _MOST else math.inf if value > 0 else -math.inf
        if type(value) is not self.kind:
            raise self._wrong(f"should be {_TYPE_NAMES[self.kind]}")
        if isinstance(value, str):
            return self._check_text(value)
        assert isinstance(value, bool | int | float)
        bound = self.leaf.option.bound
        if not isinstance(value, bool) and bound is not None and (problem := bound.problem(value)):
            raise self._wrong(problem)
        if not self.low <= value <= self.high:
            raise self._wrong(f"should be from {self.low:g} to {self.high:g}")
        return value

    def _check_text(self, value: str) -> str:
        if self.choices and value not in self.choices:
            raise self._wrong(f"should be one of {', '.join(self.choices)}")
        if len(value) > _MAX_TEXT or (self.pattern is not None and not self.pattern.fullmatch(value)):
            raise self._wrong(f"{value[:40]!r} is not possible in a job: {self.help}")
        return value

    def _wrong(self, problem: str) -> SettingsError:
        return SettingsError(f"{self.name} {problem}", option=self.name)

    def schema(self) -> dict[str, Any]:
        """Return its JSON schema."""
        schema: dict[str, Any] = {"type": _JSON_TYPES[self.kind], "description": self.help}
        if self.default is not None:
            schema["default"] = self.default
        if self.choices:
            schema["enum"] = list(self.choices)
        if self.pattern is not None:
            schema |= {"pattern": f"^({self.pattern.pattern})$", "maxLength": _MAX_TEXT}
        if self.kind in (int, float):
            bound = self.leaf.option.bound
            is_open = bound is not None and bound.is_above_low and self.low == bound.low
            schema["exclusiveMinimum" if is_open else "minimum"] = self.low
            is_open = bound is not None and bound.is_below_high and self.high == bound.high
            schema["exclusiveMaximum" if is_open else "maximum"] = self.high
        return schema


_TYPE_NAMES = {bool: "true or false", int: "a whole number", float: "a number", str: "a string"}
_JSON_TYPES = {bool: "boolean", int: "integer", float: "number", str: "string"}
_UNITS = ("SECONDS", "USD", "TOKENS")
_COMMANDS: Mapping[JobKind, type[CommandSettings]] = {
    JobKind.PLAY: PlaySettings,
    JobKind.INJECT: InjectSettings,
    JobKind.VALIDATE: ValidateSettings,
    JobKind.SOLVE: SolveSettings,
    JobKind.EXPORT: ExportSettings,
    JobKind.LEADERBOARD: LeaderboardSettings,
}
"""The plan of the command that a job of each kind runs."""
NEED_PROJECT = frozenset({JobKind.PLAY, JobKind.INJECT, JobKind.VALIDATE, JobKind.SOLVE})
"""Kinds of jobs that work on a project; the others work on the whole store."""
_MODELS_FILE = "models.json"
EXPORT = "export"
"""A folder in the one that a job runs in: `ssr export` does not write into the store that it reads."""
_POSITIONAL = "artifact"
_ARTIFACT_SETTING = Setting(
    Leaf(Option("ID", "the id of an artifact", flag=_POSITIONAL, is_argument=True), str, MISSING), pattern=_ARTIFACT
)


@cache
def settings_of(kind: JobKind) -> Mapping[str, Setting]:
    """Return what a client may set in jobs of a kind, by its name: all of the command that names nothing of a machine.

    Left out are paths, lists, free text, and what a project may not set either.
    """
    settings = [_ARTIFACT_SETTING] if kind in (JobKind.VALIDATE, JobKind.SOLVE) else []
    for leaf in leaves_of(_COMMANDS[kind]):
        setting = Setting(leaf, _choices_of(leaf), _NAME_PATTERNS.get(leaf.flag))
        is_free = setting.kind is str and not setting.choices and setting.pattern is None
        if not (leaf.option.is_argument or leaf.option.is_personal or is_free or leaf.flag in _NOT_OFFERED):
            settings.append(setting)
    return {setting.name: setting for setting in settings}


def _choices_of(leaf: Leaf) -> Sequence[str]:
    if leaf.option.choices is not None:
        return leaf.option.choices()
    if isinstance(leaf.kind, type) and issubclass(leaf.kind, StrEnum):
        return tuple(leaf.kind)
    return get_args(leaf.kind) if get_origin(leaf.kind) is Literal else ()


def schema_of(kind: JobKind) -> dict[str, Any]:
    """Return the JSON schema of the settings of a kind of job."""
    settings = settings_of(kind)
    return {
        "type": "object",
        "properties": {name: setting.schema() for name, setting in settings.items()},
        "required": [name for name, setting in settings.items() if setting.leaf.is_required],
        "additionalProperties": False,
    }


def validated(kind: JobKind, settings: Mapping[str, object], models: Collection[str]) -> dict[str, Value]:
    """Return the settings of a job that differ from the defaults of its command.

    models: the names of those that are registered. Raises SettingsError, with the setting as its option, for one that
    is wrong, and for those that the command refuses.
    """
    known = settings_of(kind)
    for name in settings:
        if name not in known:
            message = f"{name[:40]!r} is not a setting of {kind}; choose from {', '.join(known)}"
            raise SettingsError(message, option=name[:40])
    for setting in known.values():
        if setting.leaf.is_required and setting.name not in settings:
            raise SettingsError(f"{setting.name} is missing: {setting.help}", option=setting.name)
    checked = {name: known[name].check(value) for name, value in settings.items()}
    for name, model in models_in(checked).items():
        if model not in models:
            registered = ", ".join(models) or "none is"
            message = f"the model {model!r} is not registered ({registered}); an administrator registers it"
            raise SettingsError(message, option=name)
    chosen = {n: v for n, v in checked.items() if known[n].leaf.is_required or v != known[n].default}
    _require_accepted(kind, {known[name].leaf.flag: value for name, value in chosen.items()})
    return chosen


def _require_accepted(kind: JobKind, values: Mapping[str, Value]) -> None:
    """Raise SettingsError for settings that the command refuses. values: by flag."""
    command = _COMMANDS[kind]
    required = {leaf.flag: _placeholder(leaf) for leaf in leaves_of(command) if leaf.is_required}
    origins = {flag: Origin(OriginKind.FLAG, "") for flag in values}
    try:
        build(command, {**required, **values}, origins).check()
    except SettingsError as error:
        name = error.option.replace("-", "_")
        message = str(error).replace(f"--{error.option}", name) if error.option else str(error)
        raise SettingsError(message, option=name) from None


def _placeholder(leaf: Leaf) -> Any:
    """Return a value for an argument that the service adds when the job runs."""
    return () if leaf.is_list else Path() if leaf.is_path else EXPORT


@dataclass(frozen=True, slots=True)
class Plan:
    """The commands of a job, one after another."""

    argv: Sequence[str]
    """The command of `ssr`, which ends the job."""
    before: Sequence[Sequence[str]] = ()
    """Commands that fetch the project."""
    checkout: Path | None = None
    """A folder that exists for this job only."""
    export: str = ""
    """The folder of the store that keeps what the job exports; until then, it is in `EXPORT`."""
    board: str = ""
    """The name of the leaderboard that the job prints."""
    files: Mapping[str, str] = field(default_factory=dict)
    """Files in the folder in which the job runs, by name."""
    unset: frozenset[str] = frozenset()
    """Variables of the worker that the commands do not get, because what is not set has the default that is shown."""


def plan_of(
    job: Job,
    project: Project | None,
    store: Store,
    *,
    sandbox: str = "auto",
    models: Registry | None = None,
    model_keys: Sequence[str] = MODEL_KEYS,
) -> Plan:
    """Return the commands of a job.

    sandbox: the one of the worker, unless the project has an image. models: the registered ones. model_keys: patterns
    of the variables whose keys they may use. Raises ProjectError if the project is not here, ArtifactError if the
    artifact is not in the store, KeyNotAllowedError for a model with another key.
    """
    models = models or {}
    checked = validated(job.kind, job.settings, models)
    unset = frozenset(setting.leaf.variable for setting in settings_of(job.kind).values()) - {""}
    flags = [_flag(name, value) for name, value in checked.items() if name != _POSITIONAL and value is not False]
    command = [sys.executable, "-m", "harness.cli", str(job.kind)]
    if job.kind is JobKind.LEADERBOARD:
        return Plan([*command, str(store.root), "--json", *flags], board=job.id, unset=unset)
    if job.kind is JobKind.EXPORT:
        argv = [*command, str(store.root), f"--out={EXPORT}", "--json", *flags]
        return Plan(argv, export=f"exports/{job.id}", unset=unset)
    if project is None:
        raise ProjectError("the project of this job was removed; add it again and submit a new job")
    # The folder's name is the project's, which results show.
    parent = store.root / "checkouts" / job.id
    folder_of_project = parent / project.name if project.is_address else Path(project.source)
    if not project.is_address:
        _require_folder(folder_of_project)
    flags += [f"--store={store.root}", "--json", *_environment(project, sandbox)]
    files = {}
    if used := {name: asdict(for_use(name, models[name], model_keys)) for name in models_in(checked).values()}:
        # The command learns of no other, and readers of its errors nothing of their servers.
        files[_MODELS_FILE] = json.dumps(used)
        flags.append(f"--models={_MODELS_FILE}")
    if job.kind in (JobKind.PLAY, JobKind.INJECT):
        argv = [*command, str(folder_of_project), *flags]
    else:
        artifact = resolve_artifact(str(checked[_POSITIONAL]), store)
        target = str(artifact) if job.kind is JobKind.VALIDATE else artifact.name
        argv = [*command, target, f"--repo={folder_of_project}", *flags]
    if not project.is_address:
        return Plan(argv, files=files, unset=unset)
    return Plan(argv, before=_checkout(project, folder_of_project), checkout=parent, files=files, unset=unset)


def _require_folder(folder: Path) -> None:
    if not folder.is_dir():
        raise ProjectError(f"the folder {folder} is not on this machine; run a worker where it is")
    # It was below the allowed roots, without links, when it was added.
    if folder.resolve() != folder:
        raise ProjectError(f"the folder {folder} is reached through a link; add the project again with its real path")


def _environment(project: Project, sandbox: str) -> list[str]:
    chosen = f"docker:{project.image}" if project.image else sandbox
    python = project.python
    has_image = ":" in chosen
    if project.is_address and not python and not has_image:
        # A `.venv` in a clone is whatever its authors have committed, and it is started outside the sandbox.
        python = sys.executable
    return [f"--sandbox={chosen}", *([f"--python={python}"] if python else [])]


def _flag(name: str, value: Value) -> str:
    flag = f"--{name.replace('_', '-')}"
    return flag if value is True else f"{flag}={value}"


def _checkout(project: Project, folder: Path) -> list[list[str]]:
    """Return the commands that check a repository out, which run nothing of its own and ask nobody."""
    limits = ("protocol.allow=never", "protocol.https.allow=always", "core.hooksPath=/dev/null")
    git = ["git", *(word for limit in limits for word in ("-c", limit))]
    clone = [*git, "clone", "--quiet", "--no-recurse-submodules", "--", project.source, str(folder)]
    if not project.commit:
        return [clone]
    return [clone, [*git, "-C", str(folder), "checkout", "--quiet", "--detach", project.commit]]


JOB_ENVIRONMENT = {"GIT_TERMINAL_PROMPT": "0", "GIT_LFS_SKIP_SMUDGE": "1", "SSR_STATUS_LINES": "1"}
"""Variables that jobs have besides the worker's own."""
