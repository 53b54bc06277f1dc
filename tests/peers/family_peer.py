"""Run by `tox -e swebench4` and `tox -e swebench5`: swebench's tables of repositories beside our family tables.

Run: `python tests/peers/family_peer.py`, in an environment with swebench 4.x or 5.x. With 4.x, for every Python
repository and version that it has: the Python, the command in effect (from our table, and as read from its own eval
script), the packages and the files of requirements. 5.x has no such table, because its rows hold their commands; there,
the parser of each repository's log must be that of our runner. Differences that `EXPLAINED` does not hold end it with 1.
"""

from __future__ import annotations

import importlib.metadata
import re
import shlex
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement

from harness.datasets.families import read_row
from harness.datasets.family_table import FamilyEntry, family_entry
from harness.datasets.runner_commands import read_command
from harness.datasets.test_runners import choose_runner
from pytest_ssr.execution.test_runners import PYTEST_ADDOPTS, Start, TestRunner, pytest_arguments

VERSION = importlib.metadata.version("swebench")
_TEST_PATCH = """\
diff --git a/tests/shop/test_a.py b/tests/shop/test_a.py
--- a/tests/shop/test_a.py
+++ b/tests/shop/test_a.py
@@ -1 +1 @@
-a = 1
+a = 2
"""
_PRINTING = re.compile(r"-rA|-vv?|--verbose|--tb=no|--no-header")
_PRINTING_PAIRS = re.compile(r"-o console_output_style=classic|--verbosity 2")
_LIMITED_BY_SED = ("3.0", "3.1", "3.2", "3.3", "3.4", "3.5", "4.0", "4.1", "4.2", "4.3", "4.4")

EXPLAINED: dict[tuple[str, str], tuple[tuple[str, ...], str]] = {
    ("swe-bench/humaneval", "python"): ((), "not a repository with tests: its rows are scripts"),
    ("swe-bench/humaneval", "command"): ((), "not a repository with tests: its rows are scripts"),
    ("dbt-labs/dbt-core", "command"): ((), "theirs has no command; we run node ids with pytest"),
    ("django/django", "command"): (("1.9",), "theirs uses several processes, ours always one"),
    ("django/django", "script"): (("1.9",), "theirs uses several processes, ours always one"),
    ("sphinx-doc/sphinx", "packages"): (_LIMITED_BY_SED, "theirs writes these limits into setup.py with sed"),
    ("matplotlib/matplotlib", "files"): (("3.5", "3.6", "3.7", "3.8", "3.9"), "conda's environment.yml is not read"),
    ("pydata/xarray", "files"): ((), "conda's environment.yml is not read"),
}
"""Repository and field to the versions that differ there, all if none is named, and the reason."""

_OUR_OWN = {
    "--no-subprocess": "the reporter must run in the process of the tests",
    "--seed=1": "each run has the same random numbers",
    "--no-colors": "only what is printed",
}
"""Options that our runner for SymPy adds in any case."""
_NOT_NEEDED = frozenset(("tox", "tox-current-env"))
"""Packages that we do not need, because tox.ini is read in place of running tox."""


@dataclass(frozen=True)
class Effect:
    """A test command without what is only printed."""

    program: str
    options: frozenset[str]
    environment: frozenset[tuple[str, str]]


def their_effect(command: str, before: Iterable[str]) -> Effect:
    """Return the effect of a `test_cmd` after `eval_commands`."""
    words = shlex.split(_PRINTING_PAIRS.sub("", command))
    exports = [word for line in before if line.startswith("export ") for word in shlex.split(line)[1:]]
    assigned = [word for word in words if re.match(r"[A-Z]+=", word)]
    environment = dict(word.split("=", 1) for word in exports + assigned)
    environment = {k: "C.UTF-8" if v.endswith(".UTF-8") else v for k, v in environment.items()}
    program, *options = words[len(assigned) :]
    if program == "tox":
        return Effect("tox " + next(o[2:] for o in options if o.startswith("-e")), frozenset(), frozenset())
    if "--parallel 1" in command:
        environment["DJANGO_TEST_PROCESSES"] = "1"
        del options[options.index("--parallel") : options.index("--parallel") + 2]
    return _effect(program.removeprefix("./"), options, environment)


def our_effect(runner: TestRunner, tox: str) -> Effect:
    """Return the effect of the command that a runner of ours starts, and of its environment."""
    if tox:
        return Effect(f"tox {tox}", frozenset(), frozenset())
    environment = dict(runner.environment)
    words = runner.argv(Start("python", "@FOLDER@", ["reporter"]))
    if runner.name == "pytest":
        own = pytest_arguments("@FOLDER@")
        assert words[-len(own) :] == own
        return _effect("pytest", shlex.split(environment.pop(PYTEST_ADDOPTS, "")), environment)
    program, *options = words[words.index("ssr_" + runner.reporter) + 1 :]
    return _effect(program, [o for o in options if o not in _OUR_OWN], environment)


def _effect(program: str, options: Iterable[str], environment: Mapping[str, str]) -> Effect:
    kept = frozenset(o for o in options if not _PRINTING.fullmatch(o))
    # LANGUAGE chooses among message catalogues only, and Django's tests choose theirs themselves.
    return Effect(program, kept, frozenset((k, v) for k, v in environment.items() if k != "LANGUAGE"))


def row(repo: str, version: str, script: str = "") -> dict[str, Any]:
    """Return a row of a repository."""
    return {
        "instance_id": "shop-1",
        "repo": repo,
        "base_commit": "0" * 40,
        "version": version,
        "patch": "",
        "test_patch": _TEST_PATCH,
        "FAIL_TO_PASS": ["tests/shop/test_a.py::test_a"],
        "PASS_TO_PASS": [],
        "eval_script": script,
    }


def differences_in_4(tree: Path) -> Iterator[tuple[str, str, str, str]]:
    """Yield repository, version, field, and the difference or nothing; tree: a folder with the test file of `row`."""
    from swebench.harness.constants import MAP_REPO_TO_REQS_PATHS, MAP_REPO_VERSION_TO_SPECS_PY
    from swebench.harness.test_spec.python import make_eval_script_list_py

    for repo, versions in MAP_REPO_VERSION_TO_SPECS_PY.items():
        for version, spec in versions.items():
            entry = family_entry(repo, version) or FamilyEntry("0")
            before = spec.get("eval_commands", ())
            theirs = their_effect(spec.get("test_cmd") or "none", before)
            chosen = choose_runner(read_row(row(repo, version), ""), tree)
            ours = our_effect(chosen, entry.command.tox)
            yield repo, version, "python", _difference(spec["python"], entry.python)
            yield repo, version, "command", _difference(theirs, ours)
            yield repo, version, "packages", _difference(_their_packages(spec), _named(entry.packages))
            paths = MAP_REPO_TO_REQS_PATHS[repo] if spec.get("packages") == "requirements.txt" else []
            paths = ["environment.yml"] if spec.get("packages") == "environment.yml" else paths
            # They take the first file that exists, we take all.
            missing = sorted(set(paths) - set(entry.requirements))
            yield repo, version, "files", _difference(missing, [])
            if "test_cmd" in spec and theirs.program != "python":
                instance = row(repo, version)
                lines = make_eval_script_list_py(instance, spec, "testbed", "/testbed", "0" * 40, _TEST_PATCH)
                script = "\n".join(["#!/bin/bash", "set -uxo pipefail", *lines])
                chosen = choose_runner(read_row(row(repo, version, script), ""), tree)
                command = read_command(script)
                assert command is not None
                yield repo, version, "script", _difference(theirs, our_effect(chosen, command.tox))


def differences_in_5() -> Iterator[tuple[str, str, str, str]]:
    """Yield repository, "", field, and the difference or nothing."""
    from swebench.harness.log_parsers.python import MAP_REPO_TO_PARSER_PY

    for repo, parser in MAP_REPO_TO_PARSER_PY.items():
        entry = family_entry(repo, "")
        special = parser.__name__.removeprefix("parse_log_")
        yield (
            repo,
            "",
            "command",
            _difference(
                special if special in ("django", "sympy") else "pytest", entry.command.runner if entry else "none"
            ),
        )


def _their_packages(spec: Mapping[str, Any]) -> list[str]:
    words = shlex.split(spec.get("packages") or "")
    return _named(w for w in [*words, *spec.get("pip_packages", ())] if not w.endswith((".txt", ".yml")))


def _named(packages: Iterable[str]) -> list[str]:
    """Return requirements in one spelling; a version makes the same name without one superfluous."""
    parsed = {str(r).lower(): r for r in map(Requirement, packages) if r.name not in _NOT_NEEDED}
    pinned = {r.name.lower() for r in parsed.values() if r.specifier}
    return sorted(text for text, r in parsed.items() if r.specifier or r.name.lower() not in pinned)


def _difference(theirs: object, ours: object) -> str:
    return "" if theirs == ours else f"theirs {theirs}, ours {ours}"


def main() -> int:
    """Print each difference and the counts; return 1 if one has no reason, or a reason has no difference."""
    counts: Counter[tuple[str, str]] = Counter()
    unused = set(EXPLAINED)
    versions = set()
    unexplained = 0
    tree = Path(tempfile.mkdtemp())
    (tree / "tests/shop").mkdir(parents=True)
    (tree / "tests/shop/test_a.py").touch()
    for repo, version, field, difference in differences_in_4(tree) if VERSION.startswith("4.") else differences_in_5():
        versions.add((repo, version))
        named, reason = EXPLAINED.get((repo, field), (("none",), ""))
        if not difference:
            counts[field, "equal"] += 1
        elif not named or version in named:
            unused.discard((repo, field))
            counts[field, "explained"] += 1
            print(f"{repo} {version} {field}: {reason}")
        else:
            unexplained += 1
            print(f"{repo} {version} {field}: NOT EXPLAINED: {difference}")
    repositories = len({repo for repo, _ in versions})
    print(f"swebench {VERSION}: {repositories} repositories, {len(versions)} versions")
    for (field, kind), count in sorted(counts.items()):
        print(f"  {field}: {count} {kind}")
    if VERSION.startswith("4.") and unused:
        print(f"reasons without a difference: {sorted(unused)}")
        return 1
    return 1 if unexplained else 0


if __name__ == "__main__":
    sys.exit(main())
