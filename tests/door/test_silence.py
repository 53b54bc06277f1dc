"""What users see of a run in logs, pipes and terminals: that it is alive, what it left out, and a score that is true."""

from __future__ import annotations

import contextlib
import io
import os
import re
import subprocess
import sys
import unicodedata
from collections.abc import Callable
from pathlib import Path

import pytest
from plain import plain_python

from harness.cli.main import main
from harness.cli.terminal import Terminal
from pytest_ssr.campaign.score import LeftOut, Score
from pytest_ssr.progress import counted

RUNNING = ["--python", str(plain_python()), "--sandbox", "process"]


@pytest.mark.parametrize(
    ("noticed", "tried", "is_complete", "percent"),
    [
        (299, 300, False, 99),
        (1, 300, False, 1),
        (999, 1000, True, 99),
        (300, 300, False, 100),
        (0, 25, False, 0),
        (13, 20, False, 65),
        (1, 1, True, 100),
        (2, 3, True, 67),
        (19, 19, False, None),
        (1, 1, False, None),
        (0, 1, False, None),
        (0, 0, False, None),
        (0, 0, True, None),
    ],
)
def test_a_score_has_a_figure_only_if_it_is_known(
    noticed: int, tried: int, is_complete: bool, percent: int | None
) -> None:
    line = Score(noticed, tried, is_complete).line
    figure = re.match(r"score (\d+) %", line)
    assert (int(figure[1]) if figure else None) == percent
    if tried:
        assert f"{noticed} of {counted(tried, 'change')} noticed" in line


def test_what_does_not_count_is_beside_the_score() -> None:
    left_out = {LeftOut.TIMED_OUT: 2, LeftOut.NOT_JUDGED: 0, LeftOut.EQUIVALENT: 1}
    for score in (Score(0, 0, True, left_out=left_out), Score(5, 8, False, left_out=left_out)):
        assert score.line.endswith("; not counted: 1 probably equivalent, 2 timed out")


ADD = "def add(a, b):\n    return a + b\n"
CHECKED = "import calc\n\n\ndef test_add():\n    assert calc.add(1, 2) == 3\n\n\ndef test_other():\n    pass\n"
UNCHECKED = "import calc\n\n\ndef test_add():\n    calc.add(1, 2)\n\n\ndef test_other():\n    pass\n"
OPTIONAL = "import a_missing_package\n\n\ndef test_x():\n    pass\n"


def write(folder: Path, **files: str) -> Path:
    folder.mkdir(exist_ok=True)
    for name, text in files.items():
        (folder / f"{name}.py").write_text(text)
    (folder / "pytest.ini").write_text("[pytest]\n")
    return folder


def lines_of(capsys: pytest.CaptureFixture[str], *argv: object) -> list[str]:
    capsys.readouterr()
    main([str(word) for word in argv])
    return capsys.readouterr().out.splitlines()


def test_a_suite_that_checks_nothing_scores_zero(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    project = write(tmp_path / "p", calc=ADD, test_calc=UNCHECKED)
    lines = lines_of(capsys, "inject", project, "--count", "1", "--injector", "mutation", *RUNNING)
    assert "valid artifacts: 0" in lines
    (missed,) = (line for line in lines if line.startswith("what the tests missed: "))
    survived, tried = map(int, re.findall(r"\d+", missed)[:2])
    assert (survived, missed.endswith(", in 1 place")) == (tried, True)
    (score,) = (line for line in lines if line.startswith("score"))
    assert f"0 of {counted(tried, 'change')} noticed" in score


def test_a_project_without_any_change_to_try_has_no_score(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tests = "import calc\n\n\ndef test_a():\n    assert calc\n\n\ndef test_b():\n    pass\n"
    project = write(tmp_path / "p", calc='"""Nothing."""\n', test_calc=tests)
    lines = lines_of(capsys, "inject", project, "--count", "1", *RUNNING)
    assert not any(re.match(r"score \d", line) for line in lines)


@pytest.mark.parametrize(("files", "others"), [(1, ""), (2, "; 1 more file ")])
def test_what_cannot_be_collected_is_counted_by_every_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], files: int, others: str
) -> None:
    project = write(tmp_path / "p", calc=ADD, test_calc=CHECKED, **{f"test_x{n}": OPTIONAL for n in range(files)})
    for command in (("init", "--dry-run"), ("inject", "--changes", "1", "--fail-under", "1")):
        lines = lines_of(capsys, command[0], project, *command[1:], *RUNNING)
        (line,) = (line for line in lines if "test_x0.py" in line)
        assert "a_missing_package" in line
        assert others in line
        assert ("more file" in line) == bool(others)


@pytest.mark.parametrize(("count", "text"), [(0, "0 files"), (1, "1 file"), (2, "2 files")])
def test_one_is_not_many(count: int, text: str) -> None:
    assert counted(count, "file") == text


SLOW = """\
import sys
from harness.cli import main, terminal

terminal.Heartbeat.__init__.__kwdefaults__["every_s"] = 0.05
sys.exit(main.main(sys.argv[1:]))
"""


def piped(project: Path, *argv: object) -> list[str]:
    """Run a command whose output is two pipes, and return the lines on standard error."""
    env = {k: v for k, v in os.environ.items() if not k.startswith(("PYTEST", "TOX", "COV", "SSR_"))}
    command = [sys.executable, "-c", SLOW, *map(str, argv), *RUNNING]
    done = subprocess.run(command, cwd=project, env=env, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode in (0, 1), done.stderr
    assert "\r" not in done.stdout + done.stderr
    assert "\x1b" not in done.stdout + done.stderr
    return done.stderr.splitlines()


@pytest.mark.long
def test_every_command_writes_to_a_pipe_while_it_works(tmp_path: Path) -> None:
    slow = CHECKED.replace("import calc\n", "import time\nimport calc\n").replace("    pass", "    time.sleep(0.2)")
    project = write(tmp_path / "p", calc=ADD, test_calc=slow)
    assert any("measuring" in line for line in piped(project, "inject", ".", "--count", "1"))
    (artifact,) = (project / ".ssr/artifacts").iterdir()
    assert any("attempt" in line for line in piped(project, "solve", artifact, "--solver", "search", "--attempts", "1"))
    assert any(" of 1" in line for line in piped(project, "eval", ".ssr", "--predictions", "gold", "--out", "graded"))


class FakeTty(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def narrow(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Set the variables of a terminal with 20 columns."""
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "20")
    monkeypatch.delenv("NO_COLOR", raising=False)
    return monkeypatch


def on_screen(act: Callable[[Terminal], None], *, quiet: bool = False) -> str:
    """Return what a terminal gets."""
    screen = FakeTty()
    with contextlib.redirect_stdout(screen), contextlib.redirect_stderr(screen):
        act(Terminal(quiet=quiet))
    return screen.getvalue()


def columns_of(text: str) -> int:
    return sum(2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


@pytest.mark.parametrize("line", ["x" * 50, "项目" * 20, "проект " * 9, "a\nb" * 20, "\U0001f600" * 15, "\x1b[31m" * 9])
def test_a_status_line_fits_into_one_line_of_a_narrow_terminal(narrow: pytest.MonkeyPatch, line: str) -> None:
    shown = on_screen(lambda terminal: terminal.status(line))
    assert 10 < columns_of(shown) < 20
    assert "\n" not in shown


@pytest.mark.parametrize("width", ["1", "0", "-3", "many", ""])
def test_a_terminal_without_a_useful_width_does_no_harm(narrow: pytest.MonkeyPatch, width: str) -> None:
    narrow.setenv("COLUMNS", width)

    def act(terminal: Terminal) -> None:
        terminal.status("measuring the tests")
        terminal.echo("done")

    assert on_screen(act).endswith("done\n")


@pytest.mark.parametrize(
    ("name", "value", "colour"),
    [("NO_COLOR", "1", False), ("NO_COLOR", "", True), ("TERM", "dumb", False), ("TERM", "xterm", True)],
)
def test_colour_is_for_terminals_that_want_it(narrow: pytest.MonkeyPatch, name: str, value: str, colour: bool) -> None:
    narrow.setenv(name, value)
    assert ("\x1b[" in on_screen(lambda terminal: terminal.echo("missed", "missed"))) == colour


def test_a_command_for_programs_writes_nothing_but_its_result(narrow: pytest.MonkeyPatch) -> None:
    assert on_screen(lambda terminal: terminal.note("measuring"), quiet=True) == ""
    assert on_screen(lambda terminal: terminal.echo("valid", "valid"), quiet=True) == ""
