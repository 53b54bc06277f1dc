"""Run by `tox -e swebench4` and `tox -e swebench5`: swebench's own log parsers beside ours, on the same logs.

Run: `python tests/peers/log_parsers_peer.py [PARSER LOG...]`. Without arguments, it reads the samples of our unit tests;
otherwise the given logs with one parser. Ids that only one side finds are listed; one line is printed for each log, and
it ends with 1 if a test that both find has another outcome.
"""

from __future__ import annotations

import importlib
import pkgutil
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))

import swebench.harness.log_parsers as theirs
from log_samples import SAMPLES

from pytest_ssr.execution.log_parsers import parse_log

_OUTCOMES = {"PASSED": "passed", "FAILED": "failed", "ERROR": "error", "SKIPPED": "skipped", "XFAIL": "xfailed"}
_EXPLAINED = {
    # Of several results under one id, ours keeps a failure, else a success; theirs keeps the last.
    *(("passed", "failed"), ("passed", "error"), ("failed", "error"), ("skipped", "passed")),
}


def their_outcomes(name: str, log: str) -> dict[str, str] | None:
    """Return what their parser of a name finds; None if this version has no such parser."""
    for module in pkgutil.iter_modules(theirs.__path__):
        parser = getattr(importlib.import_module(f"{theirs.__name__}.{module.name}"), name, None)
        if parser is not None:
            # Some take any word of a line for a status.
            return {test: _OUTCOMES[word] for test, word in parser(log, None).items() if word in _OUTCOMES}
    return None


def compare(title: str, name: str, log: str) -> bool:
    """Print how the outcomes in a log differ, and return whether they agree."""
    found = their_outcomes(name, log)
    if found is None:
        print(f"{title}: no {name} there")
        return True
    ours = {test: str(outcome) for test, outcome in parse_log(name, log.encode()).items()}
    # Some of theirs cut pytest's ids at spaces.
    ours |= {test.split()[0]: outcome for test, outcome in ours.items() if "::" in test and test.split()[0] in found}
    both = found.keys() & ours.keys()
    wrong = {t: (found[t], ours[t]) for t in sorted(both) if found[t] != ours[t]}
    unexplained = {t: pair for t, pair in wrong.items() if pair not in _EXPLAINED}
    only = [sorted(one.keys() - other.keys()) for one, other in ((found, ours), (ours, found))]
    counts = f"{len(both) - len(wrong)} equal, {len(wrong)} differ {wrong or ''}"
    print(f"{title}: {counts}, only theirs {only[0]}, only ours {only[1]}")
    return not unexplained


def main(arguments: list[str]) -> int:
    """Compare on all logs."""
    samples = [(name, name, log) for name, (log, _) in SAMPLES.items()]
    if arguments:
        samples = [(path, arguments[0], Path(path).read_text(errors="replace")) for path in arguments[1:]]
    agree = [compare(*sample) for sample in samples]
    return 0 if all(agree) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
