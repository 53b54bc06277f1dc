"""Test commands of rows, read without running them."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.datasets.runner_commands import RunnerCommand, read_command, under_tox
from pytest_ssr.execution.test_runners import DJANGO, PYTEST, PYTEST_ADDOPTS, SYMPY

EVAL_SCRIPT = """\
#!/bin/bash
set -uxo pipefail
source /opt/miniconda3/bin/activate
export LANG=en_US.UTF-8 DATABASE="my db" OTHER=$HOME
export PATH=/evil:$PATH LD_PRELOAD=/evil.so SSR_CHANNEL=/dev/null
python -m pytest --version
git apply -v - <<'EOF_114329324912'
+    pytest -k not_this
EOF_114329324912
: '>>>>> Start Test Output'
./tests/runtests.py --verbosity 2 \\
  --settings=test_postgres --parallel 4 shop.tests
: '>>>>> End Test Output'
pytest
"""


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("pytest --no-header -rA --tb=line --color=no -p no:cacheprovider", RunnerCommand("pytest")),
        ("pytest -rA -vv -o console_output_style=classic --tb long tests/a.py", RunnerCommand("pytest")),
        ("py.test -n0 -k 'a or b' -W error tests", RunnerCommand("pytest", ("-n0", "-k", "a or b", "-W", "error"))),
        ("pip install pytest; /opt/bin/pytest --runslow -- x", RunnerCommand("pytest", ("--runslow",))),
        ("python3.9 -m pytest --ds=shop.settings 2>&1 | tee log", RunnerCommand("pytest", ("--ds=shop.settings",))),
        ("xvfb-run -a timeout 30m uv run coverage run -m pytest", RunnerCommand("pytest")),
        ("A='b c' B=1 pytest", RunnerCommand("pytest", environment=(("A", "b c"), ("B", "1")))),
        (
            "python -W error -X dev -Xfrozen_modules=off -m unittest -v shop",
            RunnerCommand("unittest", environment=(("PYTHONDEVMODE", "1"), ("PYTHONWARNINGS", "error"))),
        ),
        (
            "./tests/runtests.py --verbosity 2 --settings=test_sqlite --parallel 1 shop",
            RunnerCommand("django", ("--settings=test_sqlite",)),
        ),
        (
            "PYTHONWARNINGS='ignore::UserWarning' bin/test -C --verbose sympy/a.py",
            RunnerCommand("sympy", ("-C",), (("PYTHONWARNINGS", "ignore::UserWarning"),)),
        ),
        ("tox --current-env -epy39 -v -- tests/a.py", RunnerCommand("pytest", tox="py39")),
        ("tox -e unit -- -e other", RunnerCommand("pytest", tox="unit")),
        ("tox", RunnerCommand("pytest", tox="testenv")),
    ],
)
def test_commands(command: str, expected: RunnerCommand):
    assert read_command(command) == expected


@pytest.mark.parametrize(
    "command",
    ["", "make test", "pip install pytest", "echo pytest", "cd pytest && ls", "python setup.py test", "npm test 'x"],
)
def test_commands_without_a_known_runner(command: str):
    assert read_command(command) is None


def test_an_eval_script():
    command = read_command(EVAL_SCRIPT)
    assert command == RunnerCommand(
        "django", ("--settings=test_postgres",), (("DATABASE", "my db"), ("LANG", "C.UTF-8"))
    )


def test_a_script_without_markers():
    script = "git apply - <<EOF\npytest -k not_this\nEOF\ncd /testbed\npytest -m slow\n"
    assert read_command(script) == RunnerCommand("pytest", ("-m", "slow"))


def test_options_of_pytest_are_treated_like_those_of_the_project(tmp_path: Path):
    runner = RunnerCommand("pytest", ("-k", "a or b"), (("A", "1"),)).test_runner(tmp_path)
    assert runner.environment == (("A", "1"), (PYTEST_ADDOPTS, "-k 'a or b'"))
    assert RunnerCommand("pytest").test_runner(tmp_path) == PYTEST
    command = read_command("PYTEST_ADDOPTS='-m slow' pytest -W error")
    assert command is not None
    assert dict(command.test_runner(tmp_path).environment) == {PYTEST_ADDOPTS: "-m slow -W error"}


def test_options_of_programs_follow_their_own(tmp_path: Path):
    assert RunnerCommand("sympy", ("-C",)).test_runner(tmp_path) == SYMPY
    runner = RunnerCommand("django", ("--settings=other",)).test_runner(tmp_path)
    assert runner.environment == DJANGO.environment == (("DJANGO_TEST_PROCESSES", "1"),)
    assert runner.program == (*DJANGO.program, "--settings=other")


TOX_INI = """\
[testenv]
deps = py39: not = this
setenv =
    PYTHONWARNINGS = error,ignore::ImportWarning:pkgutil
    PYTEST_ADDOPTS = {env:PYTEST_ADDOPTS:} --color yes -m 'not slow'
    TEMP = {envdir}/build
    py38: ONLY = 38
    py38,py39: BOTH = yes
commands =
    {envpython} -c "pass"
    python -X dev -m pytest --durations 25 {posargs:tests}

[testenv:docs]
commands = sphinx-build

[testenv:plain]
setenv =
commands = python -m unittest {posargs}
"""


def test_a_tox_environment(tmp_path: Path):
    (tmp_path / "tox.ini").write_text(TOX_INI)
    command = under_tox(RunnerCommand("pytest", tox="py39"), tmp_path)
    assert command.arguments == ("-m", "not slow")
    assert dict(command.environment) == {
        "PYTHONWARNINGS": "error,ignore::ImportWarning:pkgutil",
        "PYTHONDEVMODE": "1",
        "BOTH": "yes",
    }


def test_a_tox_environment_with_another_runner(tmp_path: Path):
    (tmp_path / "tox.ini").write_text(TOX_INI)
    assert RunnerCommand("pytest", tox="plain").test_runner(tmp_path).name == "unittest"


@pytest.mark.parametrize(
    "text", ["", "[tox]\n", "no section\n", "[testenv]\nsetenv = PYTEST_ADDOPTS = 'x\ncommands = pytest 'x\n"]
)
def test_a_tox_ini_that_says_nothing(tmp_path: Path, text: str):
    (tmp_path / "tox.ini").write_text(text)
    assert RunnerCommand("pytest", tox="py39").test_runner(tmp_path).name == "pytest"
    (tmp_path / "tox.ini").unlink()
    assert RunnerCommand("pytest", tox="py39").test_runner(tmp_path) == PYTEST
