"""The script that swebench 5 runs in a row's container; no package but the standard library is needed."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping
from typing import Any

NATIVE = {
    "django/django": ("./tests/runtests.py --verbosity 2 --settings=test_sqlite --parallel 1", "parse_log_django"),
    "sympy/sympy": (
        "PYTHONWARNINGS=ignore::UserWarning,ignore::SyntaxWarning bin/test -C --verbose",
        "parse_log_sympy",
    ),
    "sphinx-doc/sphinx": ("python -m pytest -rA -p no:cacheprovider", "parse_log_sphinx"),
    **dict.fromkeys(
        ("tornadoweb/tornado", "pyparsing/pyparsing", "PyCQA/pyflakes"),
        # That of unittest's lines; these repositories are in none of its tables.
        ("python -m unittest -v", "parse_log_django"),
    ),
}
"""The command, less the test files, and swebench's log parser of repositories with a runner of their own."""

_SCRIPT = """\
#!/bin/bash
set -uxo pipefail
cd /testbed
test ! -e /opt/miniconda3/bin/activate || source /opt/miniconda3/bin/activate testbed
{reset}
git apply -v - <<'EOF_114329324912'
{test_patch}
EOF_114329324912
: '>>>>> Start Test Output'
{command}
: '>>>>> End Test Output'
{reset}
"""


def ids(row: Mapping[str, Any], name: str) -> list[str]:
    """Return the ids of a row."""
    value = row[name]
    return json.loads(value) if isinstance(value, str) else list(value)


def command(row: Mapping[str, Any]) -> str:
    """Return what runs the files that hold a row's tests."""
    if row["repo"] in NATIVE:
        files = [f for f in re.findall(r"^diff --git a/.* b/(.*)$", row["test_patch"], re.M) if f.endswith(".py")]
        if row["repo"] == "django/django":
            files = [f.removeprefix("tests/").removesuffix(".py").replace("/", ".") for f in files]
        return f"{NATIVE[row['repo']][0]} {shlex.join(files)}"
    wanted = [*ids(row, "FAIL_TO_PASS"), *ids(row, "PASS_TO_PASS")]
    named = dict.fromkeys(name.split("::", 1)[0] for name in wanted)
    return shlex.join(["python", "-m", "pytest", "-rA", "-p", "no:cacheprovider", *named])


def eval_script(row: Mapping[str, Any]) -> str:
    """Return the script: test files as the test patch has them, the tests, and the files put back."""
    changed = [line.removeprefix("--- a/") for line in row["test_patch"].splitlines() if line.startswith("--- a/")]
    reset = shlex.join(["git", "checkout", row["base_commit"], *changed])
    return _SCRIPT.format(reset=reset, test_patch=row["test_patch"], command=command(row))
