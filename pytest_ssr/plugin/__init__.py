"""Define the plugin's options, hooks and fixtures; everything else is imported when an option needs it.

A run without any `--ssr-*` option must cost almost nothing, so this module imports only pytest and light parts of the
standard library.
"""

from __future__ import annotations

import os
import warnings
from typing import TYPE_CHECKING

import pytest

from pytest_ssr.options import STORE_MARK, PluginSettings, options_of

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator
    from pathlib import Path

    from pytest_ssr.records.artifact import BugArtifact
    from pytest_ssr.sandbox.protocol import Sandbox


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options; each one with a value is also an ini option, `--ssr-count` as `ssr_count`."""
    group = parser.getgroup("ssr", "self-play SWE-RL: proven bugs from this project's tests")
    group.addoption("--ssr-inject", action="store_true", help="inject bugs into this project; keep the proven ones")
    group.addoption(
        "--ssr-validate",
        action="append",
        default=[],
        metavar="PATH",
        help="validate artifacts: seven items each",
    )
    group.addoption(
        "--ssr-solve",
        action="append",
        default=[],
        metavar="PATH",
        help="run a solver on artifacts: one item for each attempt",
    )
    group.addoption("--ssr-diffs", action="store_true", help="show the diff of each change that no test noticed")
    group.addoption("--ssr-json", metavar="FILE", help="write the results of --ssr-inject to this file")
    for item, option in options_of(PluginSettings):
        text = option.help if item.default in (None, ()) else f"{option.help} (default {item.default})"
        if item.default is False:
            group.addoption(f"--ssr-{option.flag}", action="store_const", const="true", help=option.help)
        else:
            group.addoption(f"--ssr-{option.flag}", default=None, metavar=option.metavar, help=text)
        parser.addini(f"ssr_{item.name}", text, default=None)


def pytest_addhooks(pluginmanager: pytest.PytestPluginManager) -> None:
    """Register the hook specifications."""
    from pytest_ssr import hookspecs

    pluginmanager.add_hookspecs(hookspecs)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_load_initial_conftests(
    early_config: pytest.Config, parser: pytest.Parser, args: list[str]
) -> Generator[None, object, object]:
    """Drop the project's `addopts`, before another plugin acts on them: this session does not run the tests itself."""
    options = early_config.known_args_namespace
    if options.ssr_inject or options.ssr_validate or options.ssr_solve:
        from pytest_ssr.plugin.addopts import drop_addopts

        drop_addopts(early_config, parser, args)
    return (yield)


def pytest_configure(config: pytest.Config) -> None:
    """Register the plugin of the command that an option selects."""
    config.addinivalue_line("markers", "ssr: a step of pytest-ssr itself")
    jobs = [f"--ssr-{job}" for job in ("inject", "validate", "solve") if config.getoption(f"ssr_{job}")]
    if len(jobs) > 1:
        raise pytest.UsageError(f"{' and '.join(jobs)} are {len(jobs)} jobs; give one of them")
    if jobs:
        from pytest_ssr.plugin.addopts import unregister_watchdogs
        from pytest_ssr.plugin.interrupts import Interrupts
        from pytest_ssr.plugin.options import resolve_paths

        resolve_paths(config)
        unregister_watchdogs(config)
        config.pluginmanager.register(Interrupts(config), "ssr-interrupts")
    if config.option.ssr_inject:
        from pytest_ssr.plugin.inject import InjectPlugin

        inject = InjectPlugin(config)
        config.pluginmanager.register(inject, "ssr-inject")
        if not inject.worker:
            from pytest_ssr.plugin.reports import ReportsPlugin

            config.pluginmanager.register(ReportsPlugin(inject), "ssr-reports")
    elif config.option.ssr_validate:
        from pytest_ssr.plugin.validate import ValidatePlugin

        config.pluginmanager.register(ValidatePlugin(config), "ssr-validate")
    elif config.option.ssr_solve:
        from pytest_ssr.plugin.solve import SolvePlugin

        config.pluginmanager.register(SolvePlugin(config), "ssr-solve")


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> int | pytest.ExitCode | None:
    """Exit at once if `--ssr-diff` leaves nothing to inject into; otherwise resolve the revision for all workers.

    If pytest has taken the value of an option for a test, the session starts again with the root of the tests.
    """
    if hasattr(config, "workerinput"):
        return None
    if any("--ssr-" in str(part) for part in (*config.invocation_params.args, os.environ.get("PYTEST_ADDOPTS"))):
        from pytest_ssr.plugin.arguments import with_joined_values

        arguments = with_joined_values(config.invocation_params.args)
        if arguments is not None:
            return pytest.main(arguments, plugins=config.invocation_params.plugins)
    if not config.option.ssr_inject:
        return None
    from pytest_ssr.plugin.options import resolve_diff

    reason = resolve_diff(config)
    if reason is None:
        return None
    print(f"ssr: {reason}")
    return int(pytest.ExitCode.OK)


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Leave a store out of any session: a project's own `norecursedirs` may not exclude hidden folders."""
    return True if (collection_path / STORE_MARK).is_file() else None


@pytest.hookimpl(tryfirst=True)
def pytest_pycollect_makemodule(module_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """Never import an artifact's parser: it is named like a test module, but its content is untrusted."""
    if module_path.name not in ("test_parser.py", "parse_test_output.py"):
        return None
    siblings = set(os.listdir(module_path.parent))
    if not siblings & {"bug_inject.diff", "bug_patch.diff", "test_script.sh"}:
        return None
    return _UntrustedModule.from_parent(parent, path=module_path)


class _UntrustedModule(pytest.File):
    """A placeholder for an artifact's parser: it has no items, and warns why."""

    def collect(self) -> Iterable[pytest.Item]:
        """Warn, and yield no item."""
        warnings.warn(
            pytest.PytestCollectionWarning(
                f"{self.path} belongs to a bug artifact and is not imported; use --ssr-validate {self.path.parent}"
            ),
            stacklevel=1,
        )
        return ()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test that uses the fixture `ssr_artifact` once for each artifact in the store."""
    if "ssr_artifact" in metafunc.fixturenames:
        from pytest_ssr.plugin.options import stored_artifact_ids

        metafunc.parametrize("ssr_artifact", stored_artifact_ids(metafunc.config), indirect=True)


@pytest.fixture
def ssr_artifact(request: pytest.FixtureRequest) -> BugArtifact:
    """Return one artifact of the project's store; the test runs once for each of them."""
    from pytest_ssr.plugin.options import open_store

    return open_store(request.config).artifact(request.param)


@pytest.fixture
def ssr_sandbox(request: pytest.FixtureRequest) -> Iterator[Sandbox]:
    """Yield an open sandbox on a fresh copy-on-write view of the project's files; it is closed after the test."""
    from pytest_ssr.plugin.options import open_sandbox

    with open_sandbox(request.config) as sandbox:
        yield sandbox
