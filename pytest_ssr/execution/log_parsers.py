"""Read the outcomes of tests from a printed log, by the names that SWE-bench and related datasets give their parsers.

Ids are those that the datasets' own parsers find, but pytest's are not cut at spaces. A log is untrusted text: only
whole lines of a fixed form count, every pattern takes linear time, and if a test has several results, a failure counts
more than success.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping

from pytest_ssr.records.test_run import Outcome

Result = tuple[str, Outcome]
LogParser = Callable[[Iterable[str]], Iterator[Result]]
"""Yields the ids and outcomes that it finds in the lines of a log."""

_MAX_LINE = 10_000
"""Characters of a line; longer ones are no results but output of the tests."""
_CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|[\x00-\x08\x0b-\x1f\x7f]")
"""Colours and other control sequences of terminals."""
_PRECEDENCE = (
    *(Outcome.SKIPPED, Outcome.XFAILED, Outcome.PASSED, Outcome.XPASSED),
    *(Outcome.FAILED, Outcome.ERROR),
)
"""Of several results under one id, such as a docstring that two tests share, the last in this order counts."""


def parse_log(name: str, log: bytes) -> dict[str, Outcome]:
    """Return the outcomes in a log by test id; raises KeyError for a name that `LOG_PARSERS` does not have."""
    text = log.decode("utf-8", "replace").replace("\r\n", "\n")
    lines = (_CONTROL.sub("", line) for line in text.split("\n") if len(line) <= _MAX_LINE)
    outcomes: dict[str, Outcome] = {}
    for test, outcome in LOG_PARSERS[name](lines):
        if test:
            outcomes[test] = max(outcomes.get(test, outcome), outcome, key=_PRECEDENCE.index)
    return outcomes


_PYTEST_STATUS = {
    "PASSED": Outcome.PASSED,
    "FAILED": Outcome.FAILED,
    "ERROR": Outcome.ERROR,
    "SKIPPED": Outcome.SKIPPED,
    "XFAIL": Outcome.XFAILED,
    "XPASS": Outcome.XPASSED,
}


def _pytest(lines: Iterable[str]) -> Iterator[Result]:
    """Read the summary of `-rA` (`PASSED id`, `FAILED id - reason`) and the lines of `-v` (`id PASSED [ 5%]`)."""
    for line in map(str.rstrip, lines):
        status, _, rest = line.partition(" ")
        # `SKIPPED [2] file:line: reason` names no test.
        if status in _PYTEST_STATUS and not rest.lstrip().startswith("["):
            yield _pytest_id(rest.strip()), _PYTEST_STATUS[status]
            continue
        head = line.rpartition(" [")[0] if line.endswith("%]") else line
        test, _, status = head.rstrip().rpartition(" ")
        if status in _PYTEST_STATUS and "::" in test.partition(" ")[0]:
            yield test.strip(), _PYTEST_STATUS[status]


def _pytest_id(text: str) -> str:
    """Return the id at the beginning of a text; parameters may hold spaces, and ` - ` comes before a reason."""
    first = text.partition(" ")[0]
    if "[" not in first:
        return first
    test, closing, _ = text.partition("] - ")
    if closing:
        return f"{test}]"
    return text if text.endswith("]") else first


def _pytest_options(lines: Iterable[str]) -> Iterator[Result]:
    """Read pytest's results; a parameter that is an absolute path is reduced to its last part."""
    for test, outcome in _pytest(lines):
        function, bracket, parameter = test.partition("[")
        # The datasets' parser reads up to the last bracket, and keeps ids that are cut before it.
        parameter, closing, _ = parameter.rpartition("]")
        if (
            bracket
            and closing
            and parameter.startswith("/")
            and not parameter.startswith("//")
            and "*" not in parameter
        ):
            yield f"{function}[/{parameter.rpartition('/')[2]}]", outcome
        else:
            yield test, outcome


def _matplotlib(lines: Iterable[str]) -> Iterator[Result]:
    """Read pytest's results; older and newer releases write the members of one enumeration differently."""
    return _pytest(line.replace("MouseButton.LEFT", "1").replace("MouseButton.RIGHT", "3") for line in lines)


_UNITTEST_STATUS = {
    "ok": Outcome.PASSED,
    "OK": Outcome.PASSED,
    "FAIL": Outcome.FAILED,
    "ERROR": Outcome.ERROR,
    "expected failure": Outcome.XFAILED,
    "unexpected success": Outcome.FAILED,
}
_UNITTEST_HEADER = re.compile(r"(FAIL|ERROR): (\w+)( \([\w.<>]+\))?")
_UNITTEST_ID = re.compile(r"\w+ \([\w.<>]+\)")
_MIGRATION = re.compile(r"Applying [^\s.]+\.[^\s.]+\.\.\.(?=\S)")
"""What a test of Django's migrations prints before the id of the next test."""
_DOTS = " ... "


def _unittest(lines: Iterable[str]) -> Iterator[Result]:
    """Read the verbose output of unittest and of Django: `id ... ok`, where output may stand before the status.

    A test with a docstring is called by its first line.
    """
    waiting = ""
    for line in map(str.strip, lines):
        if header := _UNITTEST_HEADER.match(line):
            # Tests whose subtests fail may have no other line.
            yield header[2] + (header[3] or ""), _UNITTEST_STATUS[header[1]]
        head, status = _split_status(line)
        if head:
            # If the test before has no status, its line goes on: `id ... id ... ok`. A docstring may hold dots as well.
            last = _MIGRATION.sub("", head.rpartition(_DOTS)[2])
            waiting = last if _UNITTEST_ID.fullmatch(last) else head
        if outcome := Outcome.SKIPPED if status.startswith("skipped") else _UNITTEST_STATUS.get(status):
            yield waiting, outcome
            waiting = ""


def _split_status(line: str) -> tuple[str, str]:
    """Return what stands before the last ` ... ` of a line, or an empty string, and the rest."""
    if line.endswith(_DOTS.rstrip()):
        return line.removesuffix(_DOTS.rstrip()), ""
    head, skipped, reason = line.partition(f"{_DOTS}skipped")
    if skipped:
        return head, f"skipped{reason}"
    head, _, rest = line.rpartition(_DOTS)
    return head, rest.strip()


_SYMPY_STATUS = {
    "ok": Outcome.PASSED,
    "F": Outcome.FAILED,
    "E": Outcome.ERROR,
    "f": Outcome.XFAILED,
    "X": Outcome.XPASSED,
    "s": Outcome.SKIPPED,
    "w": Outcome.SKIPPED,
}


def _sympy(lines: Iterable[str]) -> Iterator[Result]:
    """Read the verbose output of `bin/test`: `test_x ok`, and the headings of failures, `____ file.py:test_x ____`.

    The line of a file's last test ends with the result of the file.
    """
    for line in lines:
        fields = line.split()
        if len(fields) == 3 and {*fields[0], *fields[2]} == {"_"} and ".py:" in fields[1]:
            yield fields[1], Outcome.FAILED
            continue
        if fields and fields[-1] in ("[OK]", "[FAIL]"):
            fields.pop()
        if len(fields) > 1 and fields[0].startswith("test_") and fields[-1] in _SYMPY_STATUS:
            yield fields[0], _SYMPY_STATUS[fields[-1]]


_WORDS = {
    **dict.fromkeys(("PASS", "PASSED", "pass", "ok", "OK", "SUCCESS", ".", "✓", "✔"), Outcome.PASSED),
    **dict.fromkeys(("FAIL", "FAILED", "ERR", "err", "not ok", "FAILURE", "F", "E", "✕", "×", "✘"), Outcome.FAILED),
    **dict.fromkeys(("SKIP", "skip", "ignore", "ignored", "S", "O", "○", "↓", "↩"), Outcome.SKIPPED),
}


def _lines_like(pattern: str) -> LogParser:
    """Return a parser of lines that match a pattern with the groups `status` and `name`."""
    form = re.compile(pattern)

    def read(lines: Iterable[str]) -> Iterator[Result]:
        for line in lines:
            if match := form.fullmatch(line.strip()):
                yield match["name"].strip(), _WORDS[match["status"]]

    return read


_PHPUNIT_SUITE = re.compile(r"(\w[^(]*) \(.+\)")
_PHPUNIT_TEST = re.compile(r"\s*([✔✘↩])\s*(\S.*)")


def _phpunit(lines: Iterable[str]) -> Iterator[Result]:
    """Read the output of `phpunit --testdox`: the name of a class, then its tests."""
    suite = "None"
    for line in map(str.rstrip, lines):
        if header := _PHPUNIT_SUITE.fullmatch(line):
            suite = header[1]
        elif test := _PHPUNIT_TEST.fullmatch(line):
            yield f"{suite} > {test[2]}", _WORDS[test[1]]


_GRADLE_TEST = re.compile(r"[^>\s]\S*\s+>\s+\S.*")


def _gradle(lines: Iterable[str]) -> Iterator[Result]:
    """Read `class > method PASSED`, where output may stand before the status."""
    waiting = ""
    for line in map(str.strip, lines):
        name, _, status = line.rpartition(" ")
        if status in ("PASSED", "FAILED"):
            test = name.strip() or waiting
            if test and not test.startswith(">"):
                yield test, _WORDS[status]
            waiting = ""
        elif _GRADLE_TEST.fullmatch(line):
            waiting = line


_MAVEN_TEST = re.compile(r"-Dtest=(\S+)")


def _maven(lines: Iterable[str]) -> Iterator[Result]:
    """Read a log of `set -x` with one `mvn -Dtest=NAME` for each test, and the result of each build."""
    tests: list[str] = []
    results: list[Outcome] = []
    for line in map(str.strip, lines):
        if test := _MAVEN_TEST.search(line):
            tests.append(test[1])
        _, build, status = line.rpartition("BUILD ")
        if build and status in ("SUCCESS", "FAILURE"):
            results.append(_WORDS[status])
    return zip(tests, results, strict=False)


_LINES: Mapping[str, str] = {
    "parse_log_gotest": r"--- (?P<status>PASS|FAIL|SKIP): (?P<name>.+) \([^()]*\)",
    "parse_log_cargo": r"test\s+(?P<name>\S.*?) \.\.\. (?P<status>ok|FAILED|ignored)",
    "parse_log_googletest": r"[^\[]*\[\s*(?P<status>OK|FAILED)\s*\] (?P<name>.+) \([^()]*\)",
    "parse_log_jest": r"(?P<status>[✓✕○]) (?P<name>.+?)(?: \(\d+ ?m?s\))?",
    "parse_log_jest_json": r"\[(?P<status>PASSED|FAILED)\] (?P<name>.+)",
    "parse_log_vitest": r"(?P<status>[✓×↓]) (?P<name>.+?)(?: \d+ ?m?s| \[skipped\])?",
    "parse_log_tap": r"(?P<status>ok|not ok) \d+ (?P<name>.+)",
    "parse_log_ant": r"\[junit\]\s+\[(?P<status>PASS|FAIL|ERR)\]\s+(?P<name>\S.*)",
    "parse_log_redis": r"\[(?P<status>ok|(err)|skip|ignore)\]: (?P<name>.+?)(?(2)(?: in \S+)?|(?: \(\d+ ?m?s\))?)",
    "parse_log_jq": r"(?P<status>PASS|FAIL): (?P<name>.+)",
    "parse_log_micropython_test": r"(?P<status>pass|FAIL|skip)\s+(?P<name>\S.*)",
    "parse_log_minitest": r"(?P<name>.+?)\.? = [\d.]+ s = (?P<status>[.FES])",
    "parse_log_ruby_unit": r"(?:test: )?(?P<name>.+):\s+(?P<status>[.EFO])(?:: \([\d.]+\))?",
}
_PYTEST_NAMES = (
    *("pytest", "pytest_v2", "pytest_v3", "seaborn", "astroid", "flask", "marshmallow", "pvlib", "pyvista"),
    *("sqlfluff", "xarray", "astropy", "scikit", "sphinx"),
)
LOG_PARSERS: Mapping[str, LogParser] = {
    **{f"parse_log_{name}": _pytest for name in _PYTEST_NAMES},
    **{f"parse_log_{name}": _pytest_options for name in ("pytest_options", "pydicom", "requests", "pylint")},
    "parse_log_matplotlib": _matplotlib,
    "parse_log_django": _unittest,
    "parse_log_unittest": _unittest,
    "parse_log_sympy": _sympy,
    "parse_log_phpunit": _phpunit,
    "parse_log_gradle_custom": _gradle,
    "parse_log_maven": _maven,
    **{name: _lines_like(pattern) for name, pattern in _LINES.items()},
}
"""The parsers, by the names that rows give them."""
