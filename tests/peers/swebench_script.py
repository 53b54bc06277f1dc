"""The script that swebench 5 runs in a row's container; no package but the standard library is needed."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from typing import Any

_SCRIPT = """\
#!/bin/bash
set -uxo pipefail
cd /testbed
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
    wanted = [*ids(row, "FAIL_TO_PASS"), *ids(row, "PASS_TO_PASS")]
    files = dict.fromkeys(name.split("::", 1)[0] for name in wanted)
    return shlex.join(["python", "-m", "pytest", "-rA", "-p", "no:cacheprovider", *files])


def eval_script(row: Mapping[str, Any]) -> str:
    """Return the script: test files as the test patch has them, the tests, and the files put back."""
    changed = [line.removeprefix("--- a/") for line in row["test_patch"].splitlines() if line.startswith("--- a/")]
    reset = shlex.join(["git", "checkout", row["base_commit"], *changed])
    return _SCRIPT.format(reset=reset, test_patch=row["test_patch"], command=command(row))
