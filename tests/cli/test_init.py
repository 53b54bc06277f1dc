"""`ssr init` and `ssr completion`."""

from __future__ import annotations

import json
import os
import subprocess
import tomllib

import pytest

from harness.cli.commands import init as module
from harness.cli.commands.init import Seen, section_text, source_roots
from harness.cli.exit_code import ExitCode
from harness.cli.main import main
from harness.settings.commands import SHELLS
from pytest_ssr.project.settings_table import read_project_table

SEEN = Seen(
    tests=8,
    passing=7,
    test_files=1,
    sources=("src/shop", 'odd "name".py'),
    code_files=3,
    collection_s=1.0,
    run_s=2.0,
    interpreter="/usr/bin/python3",
    python="3.12.1",
    sandbox="bubblewrap",
)


@pytest.fixture
def seen(monkeypatch):
    """What is found out about every project."""
    monkeypatch.setattr(module, "_look", lambda settings, terminal: SEEN)


@pytest.mark.parametrize(
    "before",
    [
        "",
        "[project]\nname = 'a'\n",
        "[project]\nname = 'a'",
        "[project]\r\nname = 'ä'\r\n\r\n# the end\r\n",
        "[tool.other]\nssr = 1\n",
        "[tool.black]\nline-length = 88\n[[tool.x.y]]\nz = 1",
    ],
)
def test_the_section_is_appended_and_the_rest_stays(seen, tmp_path, before):
    path = tmp_path / "pyproject.toml"
    path.write_bytes(before.encode())
    path.chmod(0o640)
    assert main(["init", str(tmp_path)]) == ExitCode.DONE
    after = path.read_bytes()
    assert after.startswith(before.encode())
    assert path.stat().st_mode & 0o777 == 0o640
    assert (b"\r\n" in after) == ("\r\n" in before)
    assert read_project_table(path) == {"source": list(SEEN.sources)}
    tables = tomllib.loads(after.decode())
    tables["tool"].pop("ssr")
    assert {k: v for k, v in tables.items() if k != "tool" or v} == tomllib.loads(before)
    assert main(["init", str(tmp_path)]) == ExitCode.USAGE
    assert path.read_bytes() == after


@pytest.mark.parametrize(
    "before", ["[tool.ssr]\ncount = 3\n", "tool = {black = {}}\n", "[broken\n", "[tool]\nssr = {}\n", "a = 1\n\xff"]
)
def test_a_file_that_cannot_take_it_is_not_changed(seen, tmp_path, before):
    path = tmp_path / "pyproject.toml"
    path.write_bytes(before.encode("latin-1"))
    assert main(["init", str(tmp_path)]) == ExitCode.USAGE
    assert path.read_bytes() == before.encode("latin-1")


def test_without_a_file_nothing_is_created(seen, tmp_path, capsys):
    assert main(["init", str(tmp_path)]) == ExitCode.USAGE
    assert main(["init", str(tmp_path), "--dry-run"]) == ExitCode.DONE
    assert section_text(SEEN).splitlines()[0] in capsys.readouterr().out
    assert list(tmp_path.iterdir()) == []


def test_every_key_of_the_section_is_a_setting(seen, tmp_path):
    path = tmp_path / "pyproject.toml"
    lines = section_text(SEEN).splitlines()
    # Comments with an equals sign are settings.
    path.write_text("\n".join(line.removeprefix("# ") if " = " in line else line for line in lines))
    from harness.cli.app import all_keys

    table = read_project_table(path)
    assert set(table) >= {"source", "count", "time", "seed", "injector", "html", "execution.sandbox"}
    assert set(table) <= all_keys()


@pytest.mark.parametrize(("run_s", "count"), [(1.0, 10), (100.0, 2), (3000.0, 1)])
def test_a_slow_suite_gets_a_smaller_count(run_s, count):
    from dataclasses import replace

    seen = replace(SEEN, run_s=run_s)
    assert seen.count == count
    assert (f"\ncount = {count}\n" in section_text(seen)) == (count != 10)


def test_roots_are_packages():
    paths = ["src/shop/a.py", "src/shop/b/c.py", "src/one.py", "shop/d.py", "setup_tools.py", "lib/x/y.py"]
    assert source_roots(paths) == ["lib/x", "setup_tools.py", "shop", "src/one.py", "src/shop"]


@pytest.mark.long
def test_a_project_is_looked_at(project, capsys):
    (project / "pyproject.toml").write_text("")
    assert main(["init", str(project), "--sandbox", "process", "--json"]) == ExitCode.DONE
    found = json.loads(capsys.readouterr().out)
    assert found["written"]
    assert (found["seen"]["tests"], found["seen"]["passing"], found["seen"]["sources"]) == (7, 7, ["calc.py"])
    assert read_project_table(project / "pyproject.toml") == {"source": ["calc.py"]}


def test_bash_completes_commands_and_options(capsys, tmp_path):
    assert main(["completion", "bash"]) == ExitCode.DONE
    script = tmp_path / "ssr.bash"
    script.write_text(capsys.readouterr().out)
    ask = 'source "$0"; COMP_CWORD=$(($# - 1)); COMP_WORDS=("$@"); _ssr; echo "${COMPREPLY[@]}"'
    for words, wanted in ((("ssr", "in"), {"inject", "init"}), (("ssr", "inject", "--htm"), {"--html"})):
        command = ["bash", "--norc", "-c", ask, str(script), *words]
        done = subprocess.run(command, capture_output=True, text=True, env=dict(os.environ), check=True)
        assert set(done.stdout.split()) == wanted


def test_other_shells(capsys):
    for shell in SHELLS:
        assert main(["completion", shell]) == ExitCode.DONE
        assert "ssr" in capsys.readouterr().out
    assert main(["completion", "tcsh"]) == ExitCode.USAGE
