"""Bugs whose code attacks the test run from the inside: what the run reports about itself is not enough."""

from __future__ import annotations

import pytest

from pytest_ssr.records.check_reasons import CheckCode

pytestmark = pytest.mark.long

BROKEN = "def add(a, b):\n    return a - b\n\n\ndef double(a):\n    return add(a, a)\n"

COUNTED = {
    "leaves from a test": BROKEN.replace("return a - b", "raise SystemExit(0) if a != 0 else ValueError"),
    "takes pytest away": BROKEN + "import pickle\npickle.loads(b'csys\\nmodules\\n.')['pytest'] = None\n",
    "writes to closed streams": BROKEN
    + "import sys\nsys.stdout = sys.stderr = sys.__stdout__ = sys.__stderr__ = None\n",
}


@pytest.mark.parametrize("how", COUNTED)
def test_a_bug_that_only_breaks_tests(copied, how):
    """Failing tests count as failing, whatever else the code attempts."""
    result = copied.step("bug-validity", bug={"pkg/adding.py": COUNTED[how]}, weaken={"tests/test_add.py": None})
    assert result.passed or result.reason.code is CheckCode.TOO_MANY_BREAK, result.reason


def test_an_attack_from_inside_pytest_on_the_machine(arena, marker):
    """Limits and protected paths apply to pytest's own run as they do to the script's."""
    code = (
        BROKEN
        + "import os, pathlib\nfor place in ('..', os.path.expanduser('~'), 'tests'):\n"
        + f"    try:\n        pathlib.Path(place, {marker!r}).touch()\n    except OSError:\n        pass\n"
    )
    result = arena.step("bug-validity", bug={"pkg/adding.py": code})
    assert result.passed, result.reason
