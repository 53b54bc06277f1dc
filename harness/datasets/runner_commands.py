"""Read which test runner a shell command starts: that of a row's `test_cmd`, `eval_script` or of a tox.ini.

Only commands of a few known forms are read; nothing runs. Options that only change what is printed are dropped.
"""

from __future__ import annotations

import configparser
import re
import shlex
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from harness.datasets.repositories import Tree
from pytest_ssr.execution.test_runners import (
    PYTEST_ADDOPTS,
    RESERVED_VARIABLES,
    RUNNERS,
    Environment,
    ProgramRunner,
    TestRunner,
)

_START, _END = ">>>>> Start Test Output", ">>>>> End Test Output"
_HEREDOC = re.compile(r"<<-?\s*(['\"]?)(\w+)\1")
MAX_LINE = 20_000
"""Characters of a line; longer ones hold data, and are not read as commands."""
_TELLING = re.compile(r"pytest|py\.test|runtests|bin/test|unittest|tox|export")
"""What a line with a known runner, or with a variable for it, contains."""
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)
_SEPARATORS = frozenset(";&|()<>")
_WRAPPERS = re.compile(r"env|time|timeout|nice|xvfb-run|uv|poetry|pdm|pipenv|hatch|run|coverage|exec|-.*|\d+[smh]?")
"""Words that may stand before the program: other programs that start it, their options and numbers."""
_PYTHON = re.compile(r"python[\d.]*")
_UTF_8 = re.compile(r".*\.utf-?8", re.IGNORECASE)
_INTERPRETER_OPTIONS = {"dev": ("PYTHONDEVMODE", "1"), "warn_default_encoding": ("PYTHONWARNDEFAULTENCODING", "1")}
"""Variables with the same effect as values of Python's option -X."""

_PRINTING = re.compile(
    r"-r.*|-[vql]+|--verbose|--quiet|--no-header|--no-summary|--tb=.*|--color=.*|--showlocals|--durations.*"
    r"|--disable-(pytest-)?warnings|--junit-?xml=.*|--verbosity=.*|--html=.*|--self-contained-html|--capture=.*"
)
_PRINTING_WITH_VALUE = frozenset(("--tb", "--color", "--verbosity", "--durations", "--junitxml", "--junit-xml"))
_WITH_VALUE = frozenset(
    (
        *("-k", "-m", "-p", "-o", "-c", "-W", "-n", "--ignore", "--ignore-glob", "--deselect"),
        *("--import-mode", "--rootdir", "--confcutdir", "--settings", "--ds"),
    )
)
_PRINTING_PAIRS = frozenset((("-p", "no:cacheprovider"), ("-o", "console_output_style=classic")))


@dataclass(frozen=True, slots=True)
class RunnerCommand:
    """A test runner, with what changes the outcomes of its tests."""

    runner: str
    """A name in `RUNNERS`."""
    arguments: tuple[str, ...] = ()
    """Options of the runner."""
    environment: Environment = ()
    """Environment variables of the tests."""
    tox: str = ""
    """The environment of the repository's tox.ini that the runner is started in; empty for none."""

    def test_runner(self, tree: Tree) -> TestRunner:
        """Return the runner for a repository in a folder."""
        command = under_tox(self, tree)
        runner = RUNNERS[command.runner]
        environment = dict(runner.environment) | dict(command.environment)
        if isinstance(runner, ProgramRunner):
            arguments = [a for a in command.arguments if a not in runner.program]
            runner = replace(runner, program=(*runner.program, *arguments))
        elif command.arguments:
            # So they are treated as options of the project: those that choose tests, processes or order are dropped.
            options = f"{environment.get(PYTEST_ADDOPTS, '')} {shlex.join(command.arguments)}"
            environment[PYTEST_ADDOPTS] = options.strip()
        return replace(runner, environment=tuple(sorted(environment.items())))


def read_command(text: str) -> RunnerCommand | None:
    """Return the first test runner that a command, or a script of several lines, starts; None if it is not known.

    In a script of SWE-bench, only the commands between its markers count, with the variables exported before them.
    """
    exported: dict[str, str] = {}
    lines = _lines(text)
    marked = any(_START in line for line in lines)
    for line in lines:
        marked = marked and _START not in line
        if _END in line:
            break
        for words in _commands(line) if _TELLING.search(line) else ():
            if words[0] == "export":
                exported |= _assignments(words[1:])
            elif not marked and (command := _read_words(words)) is not None:
                environment = exported | dict(command.environment)
                return replace(command, environment=tuple(sorted(environment.items())))
    return None


def under_tox(command: RunnerCommand, tree: Tree) -> RunnerCommand:
    """Return a command with the variables and options of the tox environment that it runs in, read from tox.ini."""
    if not command.tox:
        return command
    parser = configparser.RawConfigParser(strict=False)
    try:
        parser.read_string((tree / "tox.ini").read_text(encoding="utf-8", errors="replace"))
    except (OSError, configparser.Error):
        return command
    environment = dict(command.environment)
    for line in _tox_lines(parser, command.tox, ("setenv", "set_env")):
        name, _, value = line.partition("=")
        environment |= _assignments([f"{name.strip()}={value.strip()}"])
    added = next(_commands(environment.pop(PYTEST_ADDOPTS, "")), [])
    for line in _tox_lines(parser, command.tox, ("commands",)):
        inner = read_command(line)
        if inner is not None and inner.runner != "pytest":
            return replace(inner, environment=tuple(sorted((environment | dict(inner.environment)).items())))
        if inner is not None:
            environment |= dict(inner.environment)
            added += inner.arguments
            break
    arguments = (*_outcome_options(added), *command.arguments)
    return replace(command, arguments=arguments, environment=tuple(sorted(environment.items())))


def _tox_lines(parser: configparser.RawConfigParser, name: str, options: Iterable[str]) -> Iterator[str]:
    """Yield the lines of options of a tox environment, with defaults in place of `{env:NAME:default}`."""
    for section in (f"testenv:{name}", "testenv"):
        for option in options:
            if not parser.has_option(section, option):
                continue
            for line in parser.get(section, option).splitlines():
                factors, colon, rest = line.partition(": ")
                conditional = bool(colon) and re.fullmatch(r"[\w.,-]+", factors.strip()) is not None
                if conditional and not set(re.split("[,-]", factors.strip())) & set(name.split("-")):
                    continue
                chosen = rest if conditional else line
                yield re.sub(r"\{posargs[^}]*\}", "", re.sub(r"\{env:\w+:([^{}]*)\}", r"\1", chosen)).strip()
            return


def _lines(text: str) -> list[str]:
    """Return the lines of a script, without those of here-documents; continued lines are joined."""
    result = []
    end = ""
    for line in re.sub(r"\\\n", " ", text).splitlines():
        if not end:
            result.append(line)
            match = _HEREDOC.search(line)
            end = match[2] if match else ""
        elif line.strip() == end:
            end = ""
    return result


def _commands(line: str) -> Iterator[list[str]]:
    """Yield the words of each command of a line, without redirections; none if it is long or has unbalanced quotes."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars=";&|()<>")
    lexer.whitespace_split = True
    words: list[str] = []
    redirected = False
    if len(line) > MAX_LINE:
        return
    try:
        for word in lexer:
            if not set(word) <= _SEPARATORS:
                words += [] if redirected else [word]
            elif set(word) & set("<>"):
                redirected = True
            else:
                yield from [words] if words else []
                words, redirected = [], False
    except ValueError:
        return
    yield from [words] if words else []


def _assignments(words: Iterable[str]) -> dict[str, str]:
    """Return the variables that words set to literal values."""
    variables = {}
    for word in words:
        match = _ASSIGNMENT.fullmatch(word)
        if match and not set("$`{") & set(match[2]) and not RESERVED_VARIABLES.fullmatch(match[1]):
            # Images need not have generated any other locale.
            is_locale = match[1] == "LANG" or match[1].startswith("LC_")
            variables[match[1]] = "C.UTF-8" if is_locale and _UTF_8.fullmatch(match[2]) else match[2]
    return variables


def _read_words(words: Sequence[str]) -> RunnerCommand | None:
    """Return the test runner that one command starts, if any."""
    environment: dict[str, str] = {}
    rest = list(words)
    while rest:
        word = rest.pop(0)
        known = _known(word, rest)
        if known is not None:
            return replace(known, environment=tuple(sorted(environment.items())))
        if _ASSIGNMENT.fullmatch(word):
            environment |= _assignments([word])
        elif word in ("-W", "-X") and rest:
            environment |= _interpreter_option(word + rest.pop(0))
        elif word.startswith(("-W", "-X")):
            environment |= _interpreter_option(word)
        elif not _WRAPPERS.fullmatch(word) and not _PYTHON.fullmatch(word.rpartition("/")[2]):
            return None
    return None


def _known(word: str, rest: Sequence[str]) -> RunnerCommand | None:
    """Return the runner for the name of a program, or of a module after `-m`, and the words after it."""
    path = word.removeprefix("./")
    if path.rpartition("/")[2] in ("pytest", "py.test"):
        return RunnerCommand("pytest", _outcome_options(rest))
    if path == "tests/runtests.py":
        # It runs in one process, however many a row names.
        options = _outcome_options(rest)
        return RunnerCommand("django", tuple(o for o in options if not o.startswith("--parallel")))
    if path == "bin/test":
        return RunnerCommand("sympy", _outcome_options(rest))
    if path == "unittest":
        return RunnerCommand("unittest")
    if path.rpartition("/")[2] == "tox":
        match = re.search(r"(?:^|\s)-e[\s=]*(\w[\w.-]*)", " ".join(rest).partition(" -- ")[0])
        return RunnerCommand("pytest", tox=match[1] if match else "testenv")
    return None


def _outcome_options(words: Sequence[str]) -> tuple[str, ...]:
    """Return the options that can change outcomes; tests that are named are left out."""
    kept: list[str] = []
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if word in _PRINTING_WITH_VALUE:
            del rest[:1]
        elif word in _WITH_VALUE and rest:
            pair = (word, rest.pop(0))
            kept += pair if pair not in _PRINTING_PAIRS else ()
        elif word.startswith("-") and word != "--" and not _PRINTING.fullmatch(word):
            kept.append(word)
    return tuple(kept)


def _interpreter_option(option: str) -> dict[str, str]:
    """Return the variables with the same effect as Python's option -W or -X, written as one word."""
    if option.startswith("-W"):
        return {"PYTHONWARNINGS": option[2:]}
    return dict([_INTERPRETER_OPTIONS[option[2:]]]) if option[2:] in _INTERPRETER_OPTIONS else {}
