"""Find the command that runs the tests of a row, and the parser of its log.

The command is the part of `eval_script` that runs tests, or `test_cmd` of `install_config`. The rest of an
`eval_script` resets files, applies the test patch and installs packages: a state of ours already has all of that.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Mapping

from harness.datasets.instance import Instance, InstanceError
from harness.datasets.runner_commands import MAX_LINE
from pytest_ssr.execution.command_runner import CommandRunner, exports
from pytest_ssr.execution.log_parsers import LOG_PARSERS

_START, _END = ">>>>> Start Test Output", ">>>>> End Test Output"
_HEREDOC = re.compile(r"""(?<!<)<<-?\s*(['"]?)([A-Za-z_]\w*)\1""")
_COMMAND = re.compile(r"""(?:[^;&'"#]|(?<!&)&(?!&)|(?<!\s)#|'[^']*'|"(?:[^"\\]|\\.)*"|['"])+""")
"""One command of a line: `;` and `&&` inside of quotes do not end it."""
_SETUP = re.compile(
    r"""
    (?:sudo\s+)?
    (?: (?:git|apt|apt-get|apk|yum|dnf|conda|mamba|source|\.|pip3?|chmod|chown|patch|locale-gen)(?:\s|$)
      | cd\s+/\S*$
      | python[\d.]*\s+-m\s+pip\s
      | python[\d.]*\s+setup\.py\s+(?:develop|install)
      | uv\s+(?:pip|sync|venv)\b
      | (?:poetry|npm|pnpm|yarn|bundle|composer)\s+(?:install|ci|add)\b
      | yarn\s*$
    )
    """,
    re.VERBOSE,
)
"""Commands that prepare a machine or a tree."""
_VARIABLE = re.compile(r"export\s+[A-Za-z_]\w*=|set\s+[-+]")
"""Lines before the tests that hold for them as well."""


def parser_of(instance: Instance) -> str:
    """Return the name of the parser that a row names, without the folder that some datasets put before it."""
    name = instance.log_parser or instance.install.get("log_parser")
    return name.rpartition("/")[2].strip() if isinstance(name, str) else ""


def command_of(instance: Instance) -> str:
    """Return the lines of bash that run a row's tests; empty if it has none."""
    if instance.eval_script.strip():
        return _test_part(instance.eval_script)
    value = instance.install.get("test_cmd")
    commands = [value] if isinstance(value, str) else value if isinstance(value, list) else []
    lines = [c for c in commands if isinstance(c, str) and c.strip()]
    variables = instance.install.get("env_vars")
    valid = variables.items() if isinstance(variables, Mapping) else ()
    environment = {k: str(v) for k, v in valid if isinstance(k, str) and k.isidentifier() and isinstance(v, str | int)}
    return exports(environment) + "\n".join(lines) if lines else ""


def has_known_command(instance: Instance) -> bool:
    """Return whether a row has its own test command, and a parser of its log that is known."""
    return parser_of(instance) in LOG_PARSERS and bool(command_of(instance))


def command_runner(instance: Instance) -> CommandRunner | None:
    """Return the runner of a row's own command, or None if it has none; raises InstanceError without a known parser."""
    command = command_of(instance)
    if not command:
        return None
    name = parser_of(instance)
    if name not in LOG_PARSERS:
        problem = f"there is no log parser {name!r}" if name else "its test command has no log_parser"
        raise InstanceError(f"{instance.id}: {problem}; known are {', '.join(sorted(LOG_PARSERS))}")
    return CommandRunner(command, name)


def _test_part(script: str) -> str:
    """Return the lines of an `eval_script` between its two markers, or else all that do not prepare something."""
    lines = list(_statements(script))
    begin = next((n for n, line in enumerate(lines) if _START in line), None)
    end = next((n for n, line in enumerate(lines) if _END in line and begin is not None and n > begin), None)
    if begin is not None and end is not None and end > begin + 1:
        kept = [line for line in lines[:begin] if _VARIABLE.match(line.strip())]
        return "\n".join([*kept, *lines[begin + 1 : end]])
    kept = [_without_setup(line) for line in lines if not line.lstrip().startswith("#")]
    return "\n".join(kept) if any(_runs_something(line) for line in kept) else ""


def _statements(script: str) -> Iterator[str]:
    """Yield the lines of a script; one that a backslash or a here-document continues, together with the next."""
    lines = script.replace("\r\n", "\n").split("\n")
    numbers: dict[str, list[int]] = defaultdict(list)
    for number, line in enumerate(lines):
        numbers[line.strip()].append(number)
    begin = 0
    while begin < len(lines):
        end = begin + 1
        while lines[end - 1].endswith("\\") and end < len(lines):
            end += 1
        for _, word in _HEREDOC.findall("\n".join(lines[begin:end])):
            following = numbers.get(word, ())
            position = bisect_left(following, end)
            end = following[position] + 1 if position < len(following) else end
        yield "\n".join(lines[begin:end])
        begin = end


def _without_setup(statement: str) -> str:
    """Return a statement in which `:` stands for each command that prepares something, and for its here-document."""
    first, newline, rest = statement.partition("\n")
    if len(first) > MAX_LINE:
        return statement
    if _HEREDOC.search(statement) and _SETUP.match(first.strip()):
        return ":"
    parts = _COMMAND.sub(lambda m: _inert(m[0]) if _SETUP.match(m[0].strip()) else m[0], first)
    return parts if parts.strip() == ":" else parts + newline + rest


def _inert(command: str) -> str:
    """Return `:` between the spaces of a command."""
    return command.replace(command.strip(), ":")


def _runs_something(statement: str) -> bool:
    if len(statement) > MAX_LINE:
        return True
    commands = (command.strip() for command in _COMMAND.findall(statement))
    return any(c and c != ":" and not _VARIABLE.match(c) and not c.startswith("echo ") for c in commands)
