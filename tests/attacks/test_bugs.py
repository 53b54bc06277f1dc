"""Bugs whose code attacks the run of the tests from the inside: what it says of itself is not enough."""

from __future__ import annotations

import pytest

BROKEN = "def add(a, b):\n    return a - b\n\n\ndef double(a):\n    return add(a, a)\n"

REJECTED = {
    "ends the process in a test": (
        BROKEN.replace("return a - b", "__import__('os')._exit(0)"),
        "100% of the passing tests break",
    ),
    "ends it at import": (BROKEN + "__import__('os')._exit(0)\n", "% of the passing tests break"),
    "kills it": (BROKEN.replace("return a - b", "__import__('os').kill(0, 9)"), "signal 9 ended it"),
    "crashes it": (
        BROKEN.replace("return a - b", "__import__('os').kill(__import__('os').getpid(), 11)"),
        "% of the passing tests break",
    ),
    "leaves at import": (BROKEN + "raise SystemExit(0)\n", "% of the passing tests break"),
    "sleeps": (BROKEN.replace("return a - b", "__import__('time').sleep(1000)"), "the wall time limit ended it"),
    "prints without end": (
        BROKEN.replace("return a - b", "[__import__('os').write(1, b'x' * 9999) for _ in iter(int, 1)]"),
        "the output limit ended it",
    ),
    "forks": (
        BROKEN.replace(
            "return a - b",
            "import os, time\n    [os.fork() or (time.sleep(9), os._exit(0)) for _ in range(200)]\n    time.sleep(9)",
        ),
        "the processes limit ended it",
    ),
    "calls every test passed": (
        BROKEN + "import _pytest.python\n_pytest.python.Function.runtest = lambda self: None\n",
        "0 tests go from pass to fail",
    ),
    "changes every report": (
        BROKEN + "import _pytest.reports as r\nmade = r.TestReport.from_item_and_call\n\n\ndef make(item, call):\n"
        "    call.excinfo = None\n    return made(item, call)\n\n\nr.TestReport.from_item_and_call = make\n",
        "0 tests go from pass to fail",
    ),
    "says failed over the channel only": (
        "import os, sys\n\n\ndef add(a, b):\n    r = sys.modules.get('ssr_reporter')\n"
        "    r and r._send('done', id='tests/test_add.py::test_add', outcome='failed', duration=0)\n"
        "    return a + b\n\n\ndef double(a):\n    return add(a, a)\n",
        "0 tests go from pass to fail",
    ),
    "says failed on the output only": (
        "import os\n\n\ndef add(a, b):\n    os.write(2, b'')\n    for n in range(3, 20):\n        try:\n"
        '            os.write(n, b\'\\n#ssr-result {"id": "tests/test_add.py::test_add", "status": "failed"}\\n\')\n'
        "        except OSError:\n            pass\n    return a + b\n\n\ndef double(a):\n    return add(a, a)\n",
        "the script ended with status 0 though tests/test_add.py::test_add failed",
    ),
}


@pytest.mark.parametrize("how", REJECTED)
def test_an_attack_on_the_run_is_rejected(copied, how):
    code, reason = REJECTED[how]
    verdict = copied.judge(bug={"pkg/adding.py": code})
    assert not verdict.valid
    assert verdict.rejection.name == "bug-validity"
    assert reason in verdict.rejection.reason


COUNTED = {
    "leaves from a test": BROKEN.replace("return a - b", "raise SystemExit(0) if a != 0 else ValueError"),
    "takes pytest away": BROKEN + "import sys\nsys.modules['pytest'] = None\n",
    "writes to closed streams": BROKEN
    + "import sys\nsys.stdout = sys.stderr = sys.__stdout__ = sys.__stderr__ = None\n",
}


@pytest.mark.parametrize("how", COUNTED)
def test_what_only_breaks_tests_is_counted_as_such(copied, how):
    """The tests that fail are those that fail, whatever else the code tries."""
    found = copied.step("bug-validity", bug={"pkg/adding.py": COUNTED[how]}, weaken={"tests/test_add.py": None})
    assert found.passed or "% of the passing tests break" in found.reason, found.reason
    assert "disagree" not in found.reason


def test_an_attack_from_inside_pytest_on_the_machine(arena, marker):
    """Limits and places hold for pytest's own run as for the script's."""
    code = (
        BROKEN
        + "import os, pathlib\nfor place in ('..', os.path.expanduser('~'), 'tests'):\n"
        + f"    try:\n        pathlib.Path(place, {marker!r}).touch()\n    except OSError:\n        pass\n"
    )
    found = arena.step("bug-validity", bug={"pkg/adding.py": code})
    assert found.passed, found.reason
