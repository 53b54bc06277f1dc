"""Turn the values of the plugin's options into settings, stores, sandboxes and the arguments of campaigns."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from pytest_ssr.campaign.factory import open_runner
from pytest_ssr.campaign.findings import Findings
from pytest_ssr.campaign.github import is_github
from pytest_ssr.campaign.report_files import ReportFiles
from pytest_ssr.campaign.results_json import without_results, write_json
from pytest_ssr.campaign.score import scored_injectors
from pytest_ssr.errors import NothingToDoError, SettingsError, SsrError
from pytest_ssr.escaping import escaped
from pytest_ssr.injectors.revision_filter import read_diff
from pytest_ssr.options import ANNOTATIONS, FAIL_ON, STORE_MARK
from pytest_ssr.plugin.session_without_tests import extensions_of_config
from pytest_ssr.plugin.sources import given, is_on, names, number, option, project_path, text_or_default
from pytest_ssr.project.interpreter import named_interpreter
from pytest_ssr.project.snapshot import take_snapshot
from pytest_ssr.records.candidate_result import Goal
from pytest_ssr.records.shard import COUNT_IS_NOT_SPLIT, SUGGEST_IS_NOT_SPLIT, Shard
from pytest_ssr.sandbox.protocol import Sandbox
from pytest_ssr.settings import RuleSettings, budget_seconds, limit_of
from pytest_ssr.storage.store import Store

_FOR_TESTS = {
    "keyword": "-k",
    "markexpr": "-m",
    "deselect": "--deselect",
    "ignore": "--ignore",
    "ignore_glob": "--ignore-glob",
    "inifilename": "-c",
    "override_ini": "-o",
}
"""Options of pytest that say which tests run, and how."""
_SELECTING = {"keyword": "-k", "deselect": "--deselect"}
"""Those that select changes by name, too."""
_MODEL_LIMITS = ("budget_usd", "rollout_usd", "budget_tokens", "budget_calls", "rollout_tokens", "steps")


def model_limits(config: pytest.Config) -> dict[str, float]:
    """Return the model limits that were given; raises SettingsError naming the option."""
    return {name: number(config, name) for name in _MODEL_LIMITS if option(config, name) is not None}


def budget(config: pytest.Config) -> float | None:
    """Return the time budget in seconds, or None without one; raises SettingsError."""
    value = given(config, "time")
    return None if value is None else budget_seconds(value.text, option=value.source)


def fail_under(config: pytest.Config) -> float | None:
    """Return the limit of the score in percent, or None without one; raises SettingsError."""
    fail_on: str | None = option(config, "fail_on")
    if fail_on is not None and fail_on not in FAIL_ON:
        raise SettingsError(f"--ssr-fail-on is one of {', '.join(FAIL_ON)}, not {fail_on!r}")
    return limit_of(number(config, "fail_under"), fail_on)


def goal(config: pytest.Config) -> Goal:
    """Return when the session has enough results; raises SettingsError."""
    changes, part = number(config, "changes"), shard(config)
    if part is not None:
        return Goal(number(config, "count"), changes, part.indices(changes))
    return Goal(number(config, "count"), changes if fail_under(config) is not None or is_review(config) else 0)


def shard(config: pytest.Config) -> Shard | None:
    """Return the part of the work that this session does, or None for all of it.

    Raises SettingsError for an option whose effect depends on the work of the other shards.
    """
    value = given(config, "shard")
    if value is None:
        return None
    part = Shard.parse(value.text, option=value.source)
    if not config.option.ssr_inject:
        return part
    count = given(config, "count")
    if count is not None and count.is_typed and fail_under(config) is None:
        raise SettingsError(f"{COUNT_IS_NOT_SPLIT.format(option=count.source)}; use --ssr-changes")
    if number(config, "suggest"):
        raise SettingsError(f"--ssr-suggest {SUGGEST_IS_NOT_SPLIT}")
    if selecting := [flag for name, flag in _SELECTING.items() if getattr(config.option, name, None)]:
        raise SettingsError(f"{' and '.join(selecting)} selects changes by name, which a shard does by number")
    return part


def judges_only(config: pytest.Config) -> bool:
    """Return whether the session makes no artifacts: a gate and a review do not, unless a number of them is wanted."""
    return given(config, "count") is None and (fail_under(config) is not None or is_review(config))


def is_review(config: pytest.Config) -> bool:
    """Return whether the session judges changed code, and proves no bug."""
    return option(config, "diff") is not None and all(given(config, name) is None for name in ("count", "shard"))


def require_no_shard(config: pytest.Config) -> None:
    """Raise SettingsError if a shard was asked for; a file sets options for all sessions."""
    value = given(config, "shard")
    if value is not None and value.is_typed:
        raise SettingsError(f"{value.source} is for --ssr-inject and --ssr-validate, not for --ssr-solve")


def json_path(config: pytest.Config) -> Path | None:
    """Return the file for the results, or None; raises SettingsError if it cannot be written."""
    name: str | None = config.option.ssr_json
    if not name:
        return None
    path = config.invocation_params.dir / name
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SettingsError(f"--ssr-json {name} cannot be written: {error.strerror}") from None
    if path.is_dir() or not os.access(path.parent, os.W_OK):
        raise SettingsError(f"--ssr-json {name} cannot be written; name a file in a folder that you may write")
    return path


def rule_settings(config: pytest.Config) -> RuleSettings:
    """Return the thresholds and limits; raises SettingsError naming the option."""
    return RuleSettings(
        min_passing_tests=number(config, "min_passing_tests"),
        min_changed_files=number(config, "min_changed_files"),
        min_failing_tests=number(config, "min_failing_tests"),
        max_broken_fraction=number(config, "max_broken_fraction"),
        per_hunk=is_on(config, "per_hunk"),
        allow_undefined_names=is_on(config, "allow_undefined_names"),
        by_script=_by_script(config),
        max_weakened_failing=number(config, "max_weakened_failing"),
        script_limit_s=number(config, "script_limit"),
        time_limit_s=number(config, "time_limit"),
    )


def _by_script(config: pytest.Config) -> bool:
    """Return whether artifacts are judged by their scripts alone.

    Raises SettingsError if that is wanted for an injection, whose own scripts run pytest. A file sets options for all
    sessions, so there it has no effect on an injection.
    """
    is_chosen = is_on(config, "by_script")
    if not is_chosen or not config.option.ssr_inject:
        return is_chosen
    value = given(config, "by_script")
    if value is not None and value.is_typed:
        raise SettingsError(f"{value.source} is for --ssr-validate and --ssr-solve, not for --ssr-inject")
    return False


def store_path(config: pytest.Config) -> Path:
    """Return the path of the store; a relative one starts where its source does."""
    value = given(config, "store")
    return value.folder / value.text if value is not None else project_path(config) / ".ssr"


def open_store(config: pytest.Config) -> Store:
    """Open the store, creating it if it does not exist."""
    return Store(store_path(config))


def report_files(config: pytest.Config, *, junit: Path | None) -> ReportFiles:
    """Return the files to write after the run; raises SettingsError or MissingExtraError if they cannot be written."""
    values = {name: given(config, name) for name in ("html", "sarif", "stryker")}
    paths = {name: value.folder / value.text for name, value in values.items() if value is not None}
    return ReportFiles.open(**paths, junit=junit)


def is_annotating(config: pytest.Config) -> bool:
    """Return whether to annotate the lines of survivors for GitHub; raises SettingsError for another value."""
    when = text_or_default(config, "annotations")
    if when not in ANNOTATIONS:
        raise SettingsError(f"--ssr-annotations is one of {', '.join(ANNOTATIONS)}, not {when!r}")
    return when == "on" or (when == "auto" and is_github(os.environ) and option(config, "diff") is not None)


def write_no_results(config: pytest.Config, **why: str | bool) -> None:
    """Write the file of `--ssr-json` for a session that has tried nothing: the results of an earlier one go.

    If there was nothing to do, so do those of the other reports. Raises UsageError if a file cannot be written. why:
    the reason, under its key.
    """
    with user_errors():
        path = json_path(config)
        if "nothing_to_do" in why:
            xml = config.option.xmlpath
            files = report_files(config, junit=Path(xml).absolute() if xml else None)
            list(files.write(Findings.nothing(project_path(config))))
        if path is not None:
            try:
                write_json(path, without_results(goal(config), **why))
            except OSError as error:
                raise SettingsError(f"--ssr-json {path} cannot be written: {error.strerror}") from None


def stored_artifact_ids(config: pytest.Config) -> list[str]:
    """Return the ids of the stored artifacts, sorted, without creating a store."""
    with user_errors():
        exists = (store_path(config) / STORE_MARK).is_file()
        return open_store(config).artifact_ids() if exists else []


def resolve_diff(config: pytest.Config) -> str | None:
    """Replace the revision of `--ssr-diff` by its commit; return the reason if there is nothing to do, else None."""
    with user_errors():
        revision = option(config, "diff")
        if revision is None:
            return None
        try:
            diff = read_diff(take_snapshot(project_path(config), open_store(config).trees), revision)
        except NothingToDoError as error:
            write_no_results(config, nothing_to_do=str(error))
            return str(error)
    config.option.ssr_diff = diff.commit
    return None


def python_path(config: pytest.Config) -> Path | None:
    """Return the path of the interpreter that was given, or None; a relative one starts where its source does."""
    value = given(config, "python")
    return named_interpreter(value.text, value.folder) if value is not None else None


def resolve_paths(config: pytest.Config) -> None:
    """Make paths absolute before xdist passes the options to workers, which may run elsewhere."""
    with user_errors():
        python, has_store = python_path(config), given(config, "store") is not None
        if python is not None:
            config.option.ssr_python = str(python)
        if has_store:
            config.option.ssr_store = str(store_path(config))


def runner_arguments(config: pytest.Config) -> dict[str, Any]:
    """Return the keyword arguments that `open_runner` and `open_campaign` share."""
    return {
        "settings": rule_settings(config),
        "sandbox": text_or_default(config, "sandbox"),
        "python": python_path(config),
        "extra_sandboxes": extensions_of_config(config).sandboxes(),
    }


def chosen_tests(config: pytest.Config) -> list[str]:
    """Return the tests that pytest would run, relative to the project; an empty list means all that it configures.

    These are the tests named on the command line, else those of the current folder if that is below the project's.
    """
    project, here = project_path(config).resolve(), config.invocation_params.dir.resolve()
    if config.args_source is not pytest.Config.ArgsSource.ARGS:
        return [here.relative_to(project).as_posix()] if project in here.parents else []
    tests = []
    for argument in config.args:
        path, mark, rest = argument.partition("::")
        location = config.invocation_params.dir / path
        if not location.exists() or not location.resolve().is_relative_to(project):
            raise SettingsError(f"{path} is not a file or folder of the project {project}")
        relative = location.resolve().relative_to(project).as_posix()
        tests.append(f"{relative}{mark}{rest}")
    return [] if tests == ["."] else tests


def options_without_effect(config: pytest.Config) -> list[str]:
    """Return the options for tests that were given to this session and do not reach the runs of the tests.

    The runs use the project's configuration, so that an artifact's script runs the same tests anywhere.
    """
    try:
        added = shlex.split(os.environ.get("PYTEST_ADDOPTS", ""))
    except ValueError:
        added = []
    given_ones = vars(config._parser.parse_known_args([*added, *map(str, config.invocation_params.args)]))
    return [flag for name, flag in _FOR_TESTS.items() if given_ones.get(name)]


def chosen_sources(config: pytest.Config) -> list[str]:
    """Return the files and folders that bugs may go into, relative to the project; an empty list means all."""
    value, project = given(config, "source"), project_path(config).resolve()
    sources = []
    for name in names(config, "source"):
        location = (value.folder / name).resolve() if value is not None else project / name
        is_inside = location.exists() and location.is_relative_to(project)
        sources.append(location.relative_to(project).as_posix() if is_inside else name)
    return sources


def campaign_arguments(config: pytest.Config) -> dict[str, Any]:
    """Return all keyword arguments of `open_campaign`."""
    injectors = text_or_default(config, "injector")
    return {
        **runner_arguments(config),
        "injectors": scored_injectors(injectors) if goal(config).changes else injectors,
        "seed": number(config, "seed"),
        "tests": chosen_tests(config),
        "sources": chosen_sources(config),
        "extra_injectors": extensions_of_config(config).injectors(),
        "extra_checks": extensions_of_config(config).checks(),
        "judges_only": judges_only(config),
        "jobs": jobs(config),
        "revision": option(config, "diff"),
    }


def jobs(config: pytest.Config) -> int:
    """Return the number of xdist's worker processes; 1 without xdist."""
    workers = getattr(config, "workerinput", {}).get("workercount")
    return int(workers or len(config.getoption("tx", None) or []) or 1)


@contextmanager
def open_sandbox(config: pytest.Config) -> Iterator[Sandbox]:
    """Open a sandbox on the project's current files."""
    with user_errors():
        runner = open_runner(project_path(config), open_store(config), **runner_arguments(config), compiled=False)
        sandbox = runner.open(runner.original)
    with sandbox:
        yield sandbox


@contextmanager
def user_errors() -> Iterator[None]:
    """Turn errors of this package into pytest usage errors: one message without a traceback."""
    try:
        yield
    except NothingToDoError:
        raise
    except SsrError as error:
        raise pytest.UsageError(f"ssr: {escaped(str(error))}") from None
