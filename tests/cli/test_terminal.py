"""Untrusted text never controls a terminal: every output path escapes it."""

from __future__ import annotations

import io
import logging
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from harness.cli import terminal as terminal_module
from harness.cli.main import main
from harness.cli.terminal import NoteHandler, Terminal
from pytest_ssr.escaping import escaped, escaped_line
from pytest_ssr.patch import Patch
from pytest_ssr.progress import waits

HOSTILE = "a\x1b[31mred\x07\x9b1mb\u202e"


def is_harmless(text: str) -> bool:
    return all(c.isprintable() or c in "\n\t\r" for c in text.replace("\r\x1b[K", ""))


@pytest.mark.parametrize("text", [HOSTILE, "\udcff", "\r\x08"])
def test_control_characters_are_escaped(text: str) -> None:
    assert escaped_line(text).isprintable()
    assert is_harmless(escaped(f"{text}\n\t"))
    assert escaped("plain é\n") == "plain é\n"


def test_every_output_line_is_escaped(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(terminal_module.sys.stderr, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    terminal = Terminal()
    terminal.status(HOSTILE)
    terminal.note(HOSTILE)
    terminal.echo(HOSTILE)
    captured = capsys.readouterr()
    assert "red" in captured.out
    assert captured.err.count("red") == 2
    assert is_harmless(captured.out + captured.err)


def test_the_status_line_shows_what_the_run_waits_for(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(terminal_module.sys.stderr, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    terminal = Terminal()
    terminal.status("1 of 2")
    with waits.waiting("a slot"):
        pass
    terminal.status("")
    with waits.waiting("a slot"):
        pass
    shown = capsys.readouterr().err.replace("\r\x1b[K", "\n").split("\n")
    assert shown == ["1 of 2", "1 of 2, waits for a slot", "1 of 2", ""]


def test_a_log_line_is_written_between_the_lines_of_a_command(capsys: pytest.CaptureFixture[str]) -> None:
    terminal, handler, logger = Terminal(), NoteHandler(), logging.Logger("x")
    logger.addHandler(handler)
    logger.warning("%s is lost", HOSTILE)
    terminal.close()
    assert capsys.readouterr().err == f"{escaped(HOSTILE)} is lost\n"


def test_the_quoted_path_of_a_patch_is_escaped_in_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    twice = b'diff --git "a/x\\033[31m" "b/x\\033[31m"\nold mode 100644\nnew mode 100755\n' * 2
    with pytest.raises(Exception, match="changed twice"):
        Patch.parse(twice)
    (tmp_path / "p.diff").write_bytes(b"")
    (tmp_path / "artifact").mkdir()
    for name, text in {
        "test_script.sh": "true\n",
        "test_files.txt": "test_x.py\n",
        "test_parser.py": "print({})\n",
        "bug_inject.diff": twice.decode(),
        "test_weaken.diff": "",
    }.items():
        (tmp_path / "artifact" / name).write_text(text)
    code = main(["grade", str(tmp_path / "artifact"), "--repo", str(tmp_path), "--patch", str(tmp_path / "p.diff")])
    captured = capsys.readouterr()
    assert code == 2
    assert "changed twice" in captured.err
    assert is_harmless(captured.out + captured.err)


def test_the_name_of_an_artifacts_folder_is_escaped(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    missing = tmp_path / HOSTILE
    assert main(["grade", str(missing), "--repo", str(tmp_path), "--patch", "x"]) == 2
    captured = capsys.readouterr()
    assert "red" in captured.err
    assert is_harmless(captured.out + captured.err)


class Slow(io.StringIO):
    """A stream in whose writes other threads go on."""

    def write(self, text: str) -> int:
        time.sleep(0.002)
        return super().write(text)


def test_lines_that_several_threads_write_are_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Slow()
    monkeypatch.setattr(sys, "stdout", stream)
    terminal = Terminal()
    lines = [f"line {number}" for number in range(20)]
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(terminal.echo, lines))
    assert sorted(stream.getvalue().splitlines()) == sorted(lines)
