"""Read pytest's options into settings, stores, sandboxes and the arguments of campaigns."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from pytest_ssr.campaign.factory import open_runner
from pytest_ssr.checks import Check
from pytest_ssr.errors import NothingToDoError, SettingsError, SsrError
from pytest_ssr.escaping import escaped
from pytest_ssr.injectors.revision_filter import read_diff
from pytest_ssr.options import PluginSettings, declared
from pytest_ssr.project.interpreter import named_interpreter
from pytest_ssr.project.snapshot import take_snapshot
from pytest_ssr.sandbox.protocol import Sandbox
from pytest_ssr.settings import RuleSettings, budget_seconds
from pytest_ssr.storage.store import Store

_MARKS = (
    *("pytest.toml", ".pytest.toml", "pytest.ini", ".pytest.ini"),
    *("pyproject.toml", "tox.ini", "setup.cfg", "setup.py"),
)
_MODEL_LIMITS = ("budget_usd", "rollout_usd", "budget_tokens", "budget_calls", "rollout_tokens", "steps")
_KINDS: Mapping[str, tuple[type[int] | type[float], str]] = {
    "int": (int, "a whole number"),
    "float": (float, "a number"),
}


_table_key = pytest.StashKey[Mapping[str, Any]]()


def option(config: pytest.Config, name: str) -> str | None:
    """Return an option's string: from the command line, its `SSR_*` variable, the ini file or `[tool.ssr]`.

    The first of these that has the option counts. Raises SettingsError if pyproject.toml cannot be read.
    """
    given = config.getoption(f"ssr_{name}")
    if given is None:
        given = os.environ.get(f"SSR_{name.upper()}") or config.getini(f"ssr_{name}") or _table(config).get(name)
    if isinstance(given, list):
        given = ",".join(map(str, given))
    return str(given) if given not in (None, "") else None


def _table(config: pytest.Config) -> Mapping[str, Any]:
    """Return `[tool.ssr]` of the project's pyproject.toml; `ssr` reads the same table, and knows its other keys."""
    if _table_key not in config.stash:
        path = project_path(config) / "pyproject.toml"
        try:
            table = tomllib.loads(path.read_text(encoding="utf-8")).get("tool", {}).get("ssr", {})
            values = dict(_flat(table))
        except FileNotFoundError:
            values = {}
        except (OSError, ValueError, AttributeError) as error:
            raise SettingsError(f"[tool.ssr] in {path} cannot be read: {error}") from None
        config.stash[_table_key] = values
    return config.stash[_table_key]


def _flat(table: Mapping[str, Any], section: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the values of a table and its sections by their own names; `solver.name` is the option `solver`."""
    for key, value in table.items():
        if isinstance(value, Mapping):
            yield from _flat(value, key)
        else:
            yield (section if section and key == "name" else key).replace("-", "_"), value


def number(config: pytest.Config, name: str) -> Any:
    """Return an option as the number that its declaration states; raises SettingsError naming the option."""
    item = PluginSettings.__dataclass_fields__[name]
    declaration = declared(item)
    assert declaration is not None
    text = option(config, name)
    if text is None:
        return item.default
    kind, article = _KINDS[str(item.type).partition(" ")[0]]
    try:
        value = kind(text)
    except ValueError:
        raise SettingsError(f"--ssr-{declaration.flag} takes {article}, not {text!r}") from None
    if declaration.bound is not None and (problem := declaration.bound(value)):
        raise SettingsError(f"--ssr-{declaration.flag} {problem}")
    return value


def text_or_default(config: pytest.Config, name: str) -> str:
    """Return an option's string, or its declared default."""
    return option(config, name) or str(getattr(PluginSettings, name))


def model_limits(config: pytest.Config) -> dict[str, float]:
    """Return the model limits that were given; raises SettingsError naming the option."""
    return {name: number(config, name) for name in _MODEL_LIMITS if option(config, name) is not None}


def budget(config: pytest.Config) -> float | None:
    """Return the time budget in seconds, or None without one; raises SettingsError."""
    text = option(config, "time")
    return None if text is None else budget_seconds(text, option="--ssr-time")


def rule_settings(config: pytest.Config) -> RuleSettings:
    """Return the thresholds and limits; raises SettingsError naming the option."""
    return RuleSettings(
        min_passing_tests=number(config, "min_passing_tests"),
        min_changed_files=number(config, "min_changed_files"),
        min_failing_tests=number(config, "min_failing_tests"),
        time_limit_s=number(config, "time_limit"),
    )


def project_path(config: pytest.Config) -> Path:
    """Return the project's directory: the nearest one with a configuration file at or above the tests' paths.

    pytest's own root is used only if it was given (`--rootdir`, `-c`). Otherwise pytest takes the values of options
    that it does not know yet (`--ssr-python PATH`) for tests, and may find the root of another project.
    """
    if config.getoption("rootdir") or config.getoption("inifilename"):
        return config.rootpath
    here = config.invocation_params.dir
    named = config.args if config.args_source is pytest.Config.ArgsSource.ARGS else []
    folders = [p if p.is_dir() else p.parent for p in (here / a.partition("::")[0] for a in named) if p.exists()]
    start = Path(os.path.commonpath(folders or [here])).resolve()
    marked = (f for f in (start, *start.parents) if any((f / name).is_file() for name in _MARKS))
    return next(marked, here)


def store_path(config: pytest.Config) -> Path:
    """Return the path of the store."""
    return project_path(config) / (option(config, "store") or ".ssr")


def open_store(config: pytest.Config) -> Store:
    """Open the store, creating it if it does not exist."""
    return Store(store_path(config))


def stored_artifact_ids(config: pytest.Config) -> list[str]:
    """Return the ids of the stored artifacts, sorted, without creating a store."""
    folder = store_path(config) / "artifacts"
    return sorted(p.name for p in folder.iterdir()) if folder.is_dir() else []


def resolve_diff(config: pytest.Config) -> str | None:
    """Replace the revision of `--ssr-diff` by its commit; return the reason if there is nothing to do, else None."""
    revision = option(config, "diff")
    if revision is None:
        return None
    with user_errors():
        try:
            diff = read_diff(take_snapshot(project_path(config), open_store(config).trees), revision)
        except NothingToDoError as error:
            return str(error)
    config.option.ssr_diff = diff.commit
    return None


def extra_checks(config: pytest.Config) -> list[tuple[str, Check]]:
    """Return the checks that plugins add, sorted by name."""
    offered: list[list[tuple[str, Check]]] = config.hook.pytest_ssr_checks(config=config)
    return sorted((pair for group in offered for pair in group), key=lambda pair: pair[0])


def offered(config: pytest.Config, kind: str) -> dict[str, Any]:
    """Return what plugins offer by name; kind is `injectors` or `sandboxes`."""
    groups: list[Mapping[str, Any]] = getattr(config.hook, f"pytest_ssr_{kind}")(config=config)
    return {name: thing for group in groups for name, thing in group.items()}


def python_path(config: pytest.Config) -> Path | None:
    """Return the path of the interpreter that was given, or None.

    A relative path on the command line or in the environment is relative to the current directory; one in a file is
    relative to the file's directory.
    """
    text = option(config, "python")
    if text is None:
        return None
    is_typed = config.getoption("ssr_python") is not None or "SSR_PYTHON" in os.environ
    if is_typed:
        folder = config.invocation_params.dir
    elif config.getini("ssr_python"):
        folder = config.inipath.parent if config.inipath is not None else config.rootpath
    else:
        folder = project_path(config)
    return named_interpreter(text, folder)


def runner_arguments(config: pytest.Config) -> dict[str, Any]:
    """Return the keyword arguments that `open_runner` and `open_campaign` share."""
    return {
        "settings": rule_settings(config),
        "sandbox": text_or_default(config, "sandbox"),
        "python": python_path(config),
        "extra_sandboxes": offered(config, "sandboxes"),
    }


def chosen_tests(config: pytest.Config) -> list[str]:
    """Return the tests named on the command line, relative to the project; an empty list means all tests."""
    if config.args_source is not pytest.Config.ArgsSource.ARGS:
        return []
    project = project_path(config).resolve()
    tests = []
    for argument in config.args:
        path, mark, rest = argument.partition("::")
        location = config.invocation_params.dir / path
        if not location.exists() or not location.resolve().is_relative_to(project):
            raise SettingsError(f"{path} is not a file or folder of the project {project}")
        relative = location.resolve().relative_to(project).as_posix()
        tests.append(f"{relative}{mark}{rest}")
    return [] if tests == ["."] else tests


def campaign_arguments(config: pytest.Config) -> dict[str, Any]:
    """Return all keyword arguments of `open_campaign`."""
    sources = option(config, "source")
    return {
        **runner_arguments(config),
        "injectors": text_or_default(config, "injector"),
        "seed": number(config, "seed"),
        "tests": chosen_tests(config),
        "sources": [s.strip() for s in sources.split(",")] if sources else [],
        "extra_injectors": offered(config, "injectors"),
        "extra_checks": extra_checks(config),
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
