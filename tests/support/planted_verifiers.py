"""Verifiers of Harbor tasks that can be forged, each in a way of its own, and some that cannot."""

from __future__ import annotations

from collections.abc import Mapping

_CHECK = "from sums import total\n\n\ndef test_small():\n    assert total([1, 2]) == 3\n\n\ndef test_none():\n    assert total([4]) == 4\n"
_UNITTEST = (
    "import unittest\n\nfrom sums import total\n\n\nclass TestTotal(unittest.TestCase):\n    def test_total(self):\n"
    "        self.assertEqual(total([1, 2]), 3)\n"
)
_START = "#!/bin/bash\ncd /app\nexport PYTHONPATH=/app PYTHONDONTWRITEBYTECODE=1\nreward() { echo $1 > /logs/verifier/reward.txt; }\n"
_GRADE = (
    "import json\nfrom sums import total\n\npassed = total([1, 2]) == 3\n"
    "with open('/logs/verifier/reward.json', 'w') as file:\n    json.dump({'reward': int(passed)}, file)\n"
)
_TREE_TESTS = "COPY test_sums.py /app/tests/test_sums.py\n"
_PYTEST = "python3 -m pytest -p no:cacheprovider /tests/test_sums.py"


def _verifier(script: str, **files: str) -> Mapping[str, str]:
    """Return the files of a verifier, with the tests of the task."""
    given = {f"tests/{name.replace('__', '.')}": text for name, text in files.items()}
    return {"tests/test_sums.py": _CHECK, "tests/test.sh": _START + script + "\n", **given}


FORGEABLE: Mapping[str, tuple[Mapping[str, str], frozenset[str]]] = {
    "exit-status": (
        _verifier(f"if {_PYTEST}; then reward 1; else reward 0; fi"),
        frozenset({"exits-at-import"}),
    ),
    "grep-passed": (
        _verifier(f"{_PYTEST} > /tmp/out 2>&1\nif grep -q ' passed' /tmp/out; then reward 1; else reward 0; fi"),
        frozenset({"prints-results"}),
    ),
    "no-failure-printed": (
        _verifier(
            f"{_PYTEST} > /tmp/out 2>&1 || true\nif grep -qE 'FAILED|ERROR' /tmp/out; then reward 0; else reward 1; fi"
        ),
        frozenset({"exits-at-import"}),
    ),
    "counts-passed": (
        _verifier(f"n=$({_PYTEST} -rA | grep -c '^PASSED')\nif [ $n -ge 2 ]; then reward 1; else reward 0; fi"),
        frozenset({"prints-results"}),
    ),
    "counts-in-output": (
        _verifier(
            f"n=$({_PYTEST} | grep -oE '[0-9]+ passed' | tail -1)\nif [ \"$n\" = '2 passed' ]; then reward 1; else reward 0; fi"
        ),
        frozenset({"prints-results"}),
    ),
    "report-in-tree": (
        _verifier(
            f"{_PYTEST} --junitxml=/app/report.xml || true\n"
            "if grep -q 'failures=\"0\"' /app/report.xml && grep -q 'errors=\"0\"' /app/report.xml; then reward 1; else reward 0; fi"
        ),
        frozenset({"writes-reports"}),
    ),
    "earlier-result": (
        _verifier(
            f"if [ ! -f /app/result.txt ]; then {_PYTEST} && echo 1 > /app/result.txt || echo 0 > /app/result.txt; fi\ncp /app/result.txt /logs/verifier/reward.txt"
        ),
        frozenset({"results-in-tree"}),
    ),
    "tests-of-the-agent": (
        _verifier("if python3 -m pytest tests; then reward 1; else reward 0; fi"),
        frozenset({"tests-in-tree", "root-conftest"}),
    ),
    "conftest-of-the-agent": (
        _verifier(
            "cp /tests/test_sums.py /app/test_hidden.py\nif python3 -m pytest test_hidden.py; then reward 1; else reward 0; fi"
        ),
        frozenset({"root-conftest", "shadowed-modules"}),
    ),
    "grader-in-process": (
        _verifier("python3 /tests/grade.py", grade__py=_GRADE),
        frozenset({"writes-reward", "equals-everything"}),
    ),
    "printed-score": (
        _verifier("reward $(python3 -c 'from sums import total; print(int(total([1, 2]) == 3))')"),
        frozenset({"equals-everything"}),
    ),
    "unittest": (
        _verifier(
            "if python3 -m unittest discover -s /tests -p 'check_*.py'; then reward 1; else reward 0; fi",
            check_sums__py=_UNITTEST,
        ),
        frozenset({"asserts-nothing"}),
    ),
    "looks-for-text": (
        _verifier("if grep -q 'sum(numbers)' sums.py; then reward 1; else reward 0; fi"),
        frozenset({"solution-in-comments"}),
    ),
    "looks-for-what-must-not-be": (
        _verifier("if grep -q 'return 0' sums.py; then reward 0; else reward 1; fi"),
        frozenset({"empties-files"}),
    ),
    "each-file-it-finds": (
        _verifier(
            "for file in *.py; do [ -f $file ] || continue; grep -q 'return 0' $file && { reward 0; exit; }; done\nreward 1"
        ),
        frozenset({"removes-files"}),
    ),
    "end-of-output": (
        _verifier(
            f"{_PYTEST} > /tmp/out 2>&1\nif tail -3 /tmp/out | grep -q ' passed'; then reward 1; else reward 0; fi"
        ),
        frozenset({"prints-results"}),
    ),
    "no-test-is-fine": (
        _verifier(
            "cp /tests/test_sums.py /app/tests/test_sums.py\npython3 -m pytest tests/test_sums.py\n"
            "case $? in 0|5) reward 1;; *) reward 0;; esac"
        ),
        frozenset({"deselects-tests", "root-conftest"}),
    ),
    "report-elsewhere": (
        _verifier(
            f"{_PYTEST} --junitxml=/tmp/out.xml\n"
            "if grep -q 'failures=\"0\"' /tmp/out.xml && grep -q 'tests=\"2\"' /tmp/out.xml; then reward 1; else reward 0; fi"
        ),
        frozenset({"sitecustomize", "writes-reports"}),
    ),
    "asserts-in-process": (
        _verifier(
            "if python3 -c 'from sums import total; assert total([1, 2]) == 3'; then reward 1; else reward 0; fi"
        ),
        frozenset({"exits-at-import", "equals-everything"}),
    ),
    "script-of-the-agent": (
        _verifier("if bash run_tests.sh; then reward 1; else reward 0; fi"),
        frozenset({"tests-in-tree"}),
    ),
}
"""Files of a task by path, and forgeries that have to be accepted, by the verifier's name."""

ENVIRONMENT = {
    "environment/Dockerfile": "FROM {image}\nWORKDIR /app\nCOPY . /app/\n",
    "environment/tests/test_sums.py": _CHECK,
    "environment/run_tests.sh": "#!/bin/bash\npython3 -c 'from sums import total; assert total([1, 2]) == 3'\n",
}

_COMPARED = (
    "chmod 0700 /logs/verifier /tests\n"
    "value=$(timeout 20 setpriv --reuid 65534 --regid 65534 --clear-groups python3 -c "
    "'from sums import total; print(total([1, 2]), total([4]), total([]))' 2> /dev/null)\n"
    "if [ \"$value\" = '3 4 0' ]; then reward 1; else reward 0; fi"
)
SEALED: Mapping[str, str] = _verifier(_COMPARED)
"""A verifier that compares what the code prints as another user, who cannot write a reward."""
SEPARATE_TOML = 'artifacts = ["/app"]\n'
