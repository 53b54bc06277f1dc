"""The command of a row: the part of its script that runs tests, its `test_cmd`, and its parser."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from harness.datasets.families import read_row
from harness.datasets.instance import InstanceError
from harness.datasets.row_command import command_of, command_runner
from harness.datasets.runner_commands import read_command
from harness.datasets.test_runners import choose_runner
from pytest_ssr.execution.command_runner import CommandRunner
from pytest_ssr.execution.log_parsers import LOG_PARSERS
from pytest_ssr.execution.test_runners import DJANGO, PYTEST, UNITTEST

SWE_BENCH = """\
#!/bin/bash
set -uxo pipefail
source /opt/miniconda3/bin/activate
conda activate testbed
cd /testbed
export LANG=en_US.UTF-8
git config --global --add safe.directory /testbed
git show
python -m pip install -e .
git checkout abc tests/a.js
git apply -v - <<'EOF_114329324912'
diff --git a/tests/a.js b/tests/a.js
+export FAKE=1
EOF_114329324912
: '>>>>> Start Test Output'
npx jest tests/a.js \\
  --verbose
: '>>>>> End Test Output'
git checkout abc tests/a.js
"""
WITHOUT_MARKERS = """\
#!/usr/bin/env bash
set -e
cd /testbed && git checkout abc -- tests
export CI=1
git apply - <<EOF
it's a diff; make bad
EOF
cat > config.h <<'END'
#define X 1
END
if [ -f setup.sh ]; then
    pip install -r requirements.txt
fi
make build && make test TESTS='a; b'  # run them
"""


def instance(row: dict[str, Any], **fields: Any):
    return read_row({**row, **fields}, "rows:1")


def test_the_command_stands_between_the_markers(row):
    command = command_of(instance(row, eval_script=SWE_BENCH))
    assert command == "set -uxo pipefail\nexport LANG=en_US.UTF-8\nnpx jest tests/a.js \\\n  --verbose"


def test_without_markers_it_is_what_prepares_nothing(row, tmp_path: Path):
    command = command_of(instance(row, eval_script=WITHOUT_MARKERS))
    assert "git" not in command
    assert "pip" not in command
    assert "diff" not in command
    assert "make build && make test TESTS='a; b'" in command
    assert "#define X 1\nEND" in command
    (tmp_path / "setup.sh").touch()
    (tmp_path / "Makefile").write_text("build test:\n\t@echo $@ '$(TESTS)' $(CI)\n")
    done = subprocess.run(["bash", "-c", command], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("build  1\ntest a; b 1\n", "")


@pytest.mark.parametrize(
    ("script", "command"),
    [
        ("cd /testbed; make test", ":; make test"),
        ("cd sub && make test", "cd sub && make test"),
        ("echo $((1<<2)); make test", "echo $((1<<2)); make test"),
        ("cat <<< 'x'\nmake test", "cat <<< 'x'\nmake test"),
        ("npm ci && npm test", ": && npm test"),
        ("yarn\nyarn test", ":\nyarn test"),
        ("git status\necho done\n", ""),
        (": '>>>>> Start Test Output'\n: '>>>>> End Test Output'\nmake test", None),
    ],
)
def test_commands_that_prepare_do_nothing(row, script: str, command: str | None):
    found = command_of(instance(row, eval_script=script))
    assert found == command if command is not None else found.endswith("\nmake test")


def test_test_cmd_is_a_command_with_its_variables(row):
    install = {"test_cmd": ["make build", "make test"], "env_vars": {"A": "x y", "bad name": "z"}}
    assert command_of(instance(row, install_config=install)) == "export A='x y'\nmake build\nmake test"
    assert command_of(instance(row, install_config={"test_cmd": "make test"})) == "make test"
    assert command_of(instance(row)) == ""


def test_the_parser_is_the_row_s_or_an_error_lists_those_known(row):
    made = {"eval_script": "make test"}
    assert command_runner(instance(row, **made, log_parser="go/parse_log_gotest")).log_parser == "parse_log_gotest"
    install = {"log_parser": "parse_log_tap"}
    assert command_runner(instance(row, **made, install_config=install)).log_parser == "parse_log_tap"
    for name in ("parse_log_unheard_of", ""):
        with pytest.raises(InstanceError) as error:
            command_runner(instance(row, **made, log_parser=name))
        assert all(known in str(error.value) for known in LOG_PARSERS)
    assert command_runner(instance(row, log_parser="parse_log_unheard_of")) is None


def test_only_rows_without_another_runner_run_their_command(row, tmp_path: Path):
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_shop.py").touch()
    made = {"eval_script": "make test", "log_parser": "parse_log_cargo"}

    def chosen(*ids: str, **fields: Any) -> Any:
        ids_of = {"FAIL_TO_PASS": list(ids), "PASS_TO_PASS": []}
        return choose_runner(instance(row, **{**made, **ids_of, **fields}), tmp_path)

    assert chosen("tests/test_shop.py::test_add") is PYTEST
    assert isinstance(chosen("shop::tests::adds"), CommandRunner)
    assert isinstance(chosen("adds two"), CommandRunner)
    assert chosen("tests/missing.py::test_add", eval_script="") is PYTEST
    assert chosen("test_a (m.C)", log_parser="parse_log_unittest") is UNITTEST
    assert isinstance(chosen("adds (m.C)", log_parser="parse_log_ant"), CommandRunner)
    with pytest.raises(InstanceError):
        chosen("adds two", eval_script="")
    (tmp_path / "django").mkdir()
    (tmp_path / "django" / "__init__.py").touch()
    (tmp_path / "tests" / "runtests.py").touch()
    assert chosen("test_a (m.C)") is DJANGO


def test_the_command_is_part_of_the_key(row):
    keys = {
        instance(row, **fields).key
        for fields in (
            {},
            {"eval_script": "make test"},
            {"eval_script": "make tests"},
            {"log_parser": "parse_log_jq"},
            {"install_config": {"test_cmd": "make test"}},
        )
    }
    assert len(keys) == 5


@pytest.mark.parametrize(
    "script",
    [
        "\n" * 300_000,
        '"' + '\\"' * 300_000,
        "'\"" * 300_000,
        "cat <<EOF\n" * 50_000,
        "a \\\n" * 150_000,
        "a " * 300_000,
        "A=1 " * 100_000 + "pytest",
    ],
    ids=["empty lines", "escaped quotes", "quotes", "open documents", "continued", "words", "variables"],
)
def test_a_large_script_is_read_in_time_in_proportion_to_its_size(row, script: str) -> None:
    start = time.process_time()
    command_of(instance(row, eval_script=script))
    read_command(script)
    assert time.process_time() - start < 3
