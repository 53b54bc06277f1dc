"""Choose how the tests of a row are run."""

from __future__ import annotations

import re

from harness.datasets.family_table import family_entry
from harness.datasets.instance import Instance, InstanceError
from harness.datasets.repositories import Tree
from harness.datasets.row_command import command_runner, parser_of
from harness.datasets.runner_commands import RunnerCommand, read_command
from pytest_ssr.execution.command_runner import CommandRunner
from pytest_ssr.execution.test_runners import DJANGO, PYTEST, SYMPY, UNITTEST, PytestRunner, TestRunner
from pytest_ssr.records.test_run import abbreviate

_UNITTEST_ID = re.compile(r"\w+ \([\w.]+\)")
_PROGRAMS = ((DJANGO, ("tests/runtests.py", "django/__init__.py")), (SYMPY, ("bin/test", "sympy/__init__.py")))
"""Runners of one project, and the files by which a tree is known to be that project, or a fork of it."""
_UNITTEST_PARSERS = ("", "parse_log_unittest", "parse_log_django")
"""Parsers of rows whose tests may be unittest's; other tools give such ids as well."""


def choose_runner(instance: Instance, tree: Tree) -> TestRunner:
    """Return the runner for a row, whose repository's files are in a tree.

    It is the one that the row's own test command starts, or else the one that the family tables have for the
    repository. Otherwise the ids decide: node ids are run by pytest, others by the project's own runner, or else by
    the row's own command, whose log is read. Raises InstanceError if no runner gives such ids.
    """
    ids = (*instance.fail_to_pass, *instance.pass_to_pass)
    paths = {name.partition("::")[0] for name in ids if "::" in name}
    if paths and not any((tree / path).is_file() for path in paths):
        # Other languages have such ids, too, but no such files.
        own = command_runner(instance)
        if own is not None:
            return own
    command = _own_command(instance)
    if command is None and (entry := family_entry(instance.repo, instance.version)):
        command = entry.command
    # Other ids than node ids have not been recorded with pytest.
    if command is not None and (paths or command.runner != PYTEST.name):
        return command.test_runner(tree)
    if paths:
        return PYTEST
    for runner, marks in _PROGRAMS:
        if all((tree / path).is_file() for path in marks):
            return runner
    if parser_of(instance) in _UNITTEST_PARSERS and any(_UNITTEST_ID.fullmatch(name) for name in ids):
        return UNITTEST
    own = command_runner(instance)
    if own is not None:
        return own
    raise InstanceError(f"{instance.id}: no test runner gives ids such as {abbreviate(instance.fail_to_pass)}")


def _own_command(instance: Instance) -> RunnerCommand | None:
    """Return the test command that a row names; None if it names none, or one that starts no known runner."""
    commands = instance.install.get("test_cmd") or ()
    commands = [commands] if isinstance(commands, str) else [c for c in commands if isinstance(c, str)]
    return read_command(instance.eval_script) or read_command("\n".join(commands))


def files_of_tests(instance: Instance, runner: TestRunner, tree: Tree) -> list[str]:
    """Return the files of the row's tests, sorted; raises InstanceError for one that the repository does not have.

    Ids of other runners than pytest may name no file: as in SWE-bench, the files of the test patch are run. A row's own
    command itself names what it runs.
    """
    if isinstance(runner, CommandRunner):
        return sorted(path for path in instance.test_patch.paths if (tree / path).is_file())
    ids = (*instance.fail_to_pass, *instance.pass_to_pass)
    if isinstance(runner, PytestRunner) or all("::" in name for name in ids):
        named = {name.split("::", 1)[0] for name in ids}
        unknown = sorted(path for path in named if not (tree / path).is_file())
        if unknown:
            raise InstanceError(f"{instance.id}: the repository has no such test files: {abbreviate(unknown)}")
        return sorted(named)
    changed = [path for path in instance.test_patch.paths if path.endswith(".py") and (tree / path).is_file()]
    if not changed:
        raise InstanceError(f"{instance.id}: its test patch changes no Python file, so no test file is known")
    return sorted(changed)
