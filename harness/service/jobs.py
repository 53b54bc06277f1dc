"""Validate the settings of jobs, and make the commands that run them: lists of arguments, never a shell's text."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.service.projects import IMAGE, Project
from harness.service.queue import Job, JobKind
from pytest_ssr.errors import ProjectError, SettingsError
from pytest_ssr.options import INJECTOR_NAMES
from pytest_ssr.storage.store import Store, resolve_artifact

Value = bool | int | float | str
_MODEL = r"[a-z0-9][a-z0-9_.-]*/[A-Za-z0-9][A-Za-z0-9_./:-]*"
_OPERATORS = "|".join(INJECTOR_NAMES)
INJECTOR = re.compile(rf"({_OPERATORS})(,({_OPERATORS}))*|{_MODEL}")
"""Names that stand for files or programs of the worker's machine, such as replay:PATH, are not for clients."""
SOLVER = re.compile(rf"search|(mini-swe-agent:)?{_MODEL}")
_IMAGE = re.compile(rf"({IMAGE.pattern})?")
_ARTIFACT = re.compile(r"[0-9a-f]{6,64}")
_TIME = re.compile(r"[0-9]{1,6}|([0-9]{1,4}h)?([0-9]{1,4}m)?([0-9]{1,6}s)?(?<=[hms])")
_MAX_TEXT = 200
_SEEDS = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting of a job; its name with dashes is the flag of the command."""

    name: str
    kind: type[bool] | type[int] | type[float] | type[str]
    help: str
    default: Value | None = None
    """What the command uses without it; None if the setting is required."""
    low: float = -math.inf
    high: float = math.inf
    pattern: re.Pattern[str] | None = None
    choices: Callable[[], Sequence[str]] | None = None

    def check(self, value: object) -> Value:
        """Return the value in the setting's type; raises SettingsError."""
        if self.kind is float and type(value) is int:
            # The range of an integer is checked before it is a float, which holds no such number as 10**400.
            value = float(value) if self.low <= value <= self.high else math.inf
        if type(value) is not self.kind:
            raise self._wrong(f"should be {_TYPE_NAMES[self.kind]}")
        if isinstance(value, str):
            return self._check_text(value)
        assert isinstance(value, bool | int | float)
        if not self.low <= value <= self.high:
            raise self._wrong(f"should be from {self.low:g} to {self.high:g}")
        return value

    def _check_text(self, value: str) -> str:
        if self.choices is not None and value not in self.choices():
            raise self._wrong(f"should be one of {', '.join(self.choices())}")
        if len(value) > _MAX_TEXT or (self.pattern is not None and not self.pattern.fullmatch(value)):
            raise self._wrong(f"{value[:40]!r} is not {self.help}")
        return value

    def _wrong(self, problem: str) -> SettingsError:
        return SettingsError(f"{self.name} {problem}", option=self.name)


_TYPE_NAMES = {bool: "true or false", int: "a whole number", float: "a number", str: "a string"}


def _formats() -> Sequence[str]:
    from harness.exporters.formats import FORMATS

    return tuple(FORMATS)


_SEED = Setting("seed", int, "random seed", 0, 0, _SEEDS)
_JOBS = Setting("jobs", int, "parallel processes", 1, 1, 64)
_INJECTOR_SETTING = Setting("injector", str, "an injector or a model", "mutation,removal,combination", pattern=INJECTOR)
_OF_SOLVER = (
    Setting("solver", str, "search or a model", "search", pattern=SOLVER),
    Setting("attempts", int, "attempts per bug", 8, 1, 64),
    Setting("tries", int, "candidates in one attempt of search; 0 for 800", 0, 0, 100_000),
    Setting("rollout_limit", float, "seconds for one attempt", 120.0, 1, 86_400),
    Setting("budget_usd", float, "cost limit of the job in USD", 10.0, 0.01, 100_000),
)
_BUGS = Setting("count", int, "bugs per project and round", 4, 1, 1_000)
_FULL_ARTIFACT = Setting("artifact", str, "the id of an artifact", pattern=_ARTIFACT)
SETTINGS: Mapping[JobKind, Sequence[Setting]] = {
    JobKind.PLAY: (
        _INJECTOR_SETTING,
        Setting("rounds", int, "rounds of self-play", 1, 1, 1_000),
        _BUGS,
        Setting("higher_order", int, "failed repairs of each bug that are tried as new bugs", 1, 0, 64),
        *_OF_SOLVER,
        _SEED,
        _JOBS,
    ),
    JobKind.INJECT: (
        _INJECTOR_SETTING,
        Setting("count", int, "number of valid bugs to make", 10, 1, 1_000),
        Setting("time", str, "a time limit such as 90s, 10m or 1h30m", "1h", pattern=_TIME),
        Setting("per_hunk", bool, "inverse mutation reverts hunks, not files", False),
        _SEED,
        _JOBS,
    ),
    JobKind.VALIDATE: (_FULL_ARTIFACT, Setting("per_hunk", bool, "inverse mutation reverts hunks, not files", False)),
    JobKind.SOLVE: (_FULL_ARTIFACT, *_OF_SOLVER, _SEED, _JOBS),
    JobKind.EXPORT: (
        Setting("format", str, "a format of ssr export", choices=_formats),
        Setting("image", str, "the container image with the project, which slime-prompts needs", "", pattern=_IMAGE),
        _SEED,
    ),
    JobKind.LEADERBOARD: (_SEED,),
}
"""What a client may set, by the kind of the job."""
NEED_PROJECT = frozenset({JobKind.PLAY, JobKind.INJECT, JobKind.VALIDATE, JobKind.SOLVE})
"""Kinds of jobs that work on a project; the others work on the whole store."""
EXPORT = "export"
"""A folder in the one that a job runs in: `ssr export` does not write into the store that it reads."""
_POSITIONAL = "artifact"


def validated(kind: JobKind, settings: Mapping[str, object]) -> dict[str, Value]:
    """Return the settings of a job; raises SettingsError, with the setting as its option, for one that is wrong.

    Settings that are left out keep the defaults of the command.
    """
    known = {setting.name: setting for setting in SETTINGS[kind]}
    for name in settings:
        if name not in known:
            message = f"{name[:40]!r} is not a setting of {kind}; choose from {', '.join(known)}"
            raise SettingsError(message, option=name[:40])
    for setting in known.values():
        if setting.default is None and setting.name not in settings:
            raise SettingsError(f"{setting.name} is missing: {setting.help}", option=setting.name)
    return {name: known[name].check(value) for name, value in settings.items()}


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


def plan_of(job: Job, project: Project | None, store: Store, *, sandbox: str = "auto") -> Plan:
    """Return the commands of a job.

    sandbox: the one of the worker, unless the project has an image. Raises ProjectError if the project is not here,
    ArtifactError if the artifact is not in the store.
    """
    checked = validated(job.kind, job.settings)
    flags = [_flag(name, value) for name, value in checked.items() if name != _POSITIONAL and value is not False]
    command = [sys.executable, "-m", "harness.cli", str(job.kind)]
    if job.kind is JobKind.LEADERBOARD:
        return Plan([*command, str(store.root), "--json", *flags], board=job.id)
    if job.kind is JobKind.EXPORT:
        argv = [*command, str(store.root), f"--out={EXPORT}", "--json", *flags]
        return Plan(argv, export=f"exports/{job.id}")
    if project is None:
        raise ProjectError("the project of this job was removed; add it again and submit a new job")
    # The folder's name is the project's, which results show.
    parent = store.root / "checkouts" / job.id
    folder_of_project = parent / project.name if project.is_address else Path(project.source)
    if not project.is_address:
        _require_folder(folder_of_project)
    flags += [f"--store={store.root}", "--json", *_environment(project, sandbox)]
    if job.kind in (JobKind.PLAY, JobKind.INJECT):
        argv = [*command, str(folder_of_project), *flags]
    else:
        artifact = resolve_artifact(str(checked[_POSITIONAL]), store)
        target = str(artifact) if job.kind is JobKind.VALIDATE else artifact.name
        argv = [*command, target, f"--repo={folder_of_project}", *flags]
    if not project.is_address:
        return Plan(argv)
    return Plan(argv, before=_checkout(project, folder_of_project), checkout=parent)


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
