"""Whether grades are true where nobody cheats: nothing is never resolved, the repair always, in other words as well.

Run: `python benchmarks/honest_grades.py --out benchmarks/results/NAME.md [--count 25] [--repeats 5] [--jobs 2]
[project ...]`. For each project so many artifacts are made. Each is graded with the empty patch and with the exact
reverse of the bug, so many times, every time with canaries drawn anew; and once with another honest repair: the changed
functions as in the original, but written otherwise (branches turned round, local names changed, layout and comments
gone). A grade that is not as it must be is printed with its reason.
"""

from __future__ import annotations

import argparse
import ast
import json
import platform
import subprocess
import sys
import textwrap
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

from projects import fetch

from pytest_ssr.artifact import BugArtifact, read_artifact
from pytest_ssr.execution.change import changed_functions
from pytest_ssr.execution.workbench import Workbench
from pytest_ssr.grading import Grade, grade_patch
from pytest_ssr.opening import open_workbench
from pytest_ssr.patch import FileEntry, Patch
from pytest_ssr.reasons import UNCERTAIN
from pytest_ssr.settings import RuleSettings
from pytest_ssr.store import Store
from pytest_ssr.verdict import Verdict
from pytest_ssr.verdicts import Verdicts


class Otherwise(ast.NodeTransformer):
    """Turns `if` with `else` round, and gives local names an ending."""

    def __init__(self, function: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        nodes = list(ast.walk(function))
        inner = [n for n in nodes if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef)]
        fixed = {a.arg for n in nodes if isinstance(n, ast.arguments) for a in ast.walk(n) if isinstance(a, ast.arg)}
        fixed |= {name for n in nodes if isinstance(n, ast.Global | ast.Nonlocal) for name in n.names}
        fixed |= {a.asname or a.name for n in nodes if isinstance(n, ast.Import | ast.ImportFrom) for a in n.names}
        fixed |= {n.name for n in nodes if isinstance(n, ast.ExceptHandler) and n.name}
        stored = {n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
        speaks = any(isinstance(n, ast.Name) and n.id in ("locals", "vars", "eval", "exec", "dir") for n in nodes)
        plain = len(inner) == 1 and not speaks and not any(isinstance(n, ast.Match) for n in nodes)
        self.names = stored - fixed if plain else set()

    def visit_Name(self, node: ast.Name) -> ast.Name:
        return ast.Name(f"{node.id}_", node.ctx) if node.id in self.names else node

    def visit_If(self, node: ast.If) -> ast.If:
        self.generic_visit(node)
        if node.orelse and not isinstance(node.orelse[0], ast.If):
            return ast.If(ast.UnaryOp(ast.Not(), node.test), node.orelse, node.body)
        return node


def in_other_words(bench: Workbench, artifact: BugArtifact) -> Patch | None:
    """Return another repair than the reverse of the bug; None where the bug is not in functions."""
    original = bench.original
    weakened = original.apply(artifact.bug).apply(artifact.weaken)
    new: dict[str, FileEntry] = {}
    for path in artifact.bug.paths:
        old, buggy = original.entry(path), weakened.entry(path)
        changed = changed_functions(old.data, buggy.data) if old is not None and buggy is not None else None
        if old is None or not changed:
            return None
        lines = old.data.decode().splitlines(keepends=True)
        for function in sorted(changed, key=lambda f: -f.old_line):
            source = function.old_source
            indent = source[: len(source) - len(source.lstrip())]
            (node,) = ast.parse(textwrap.dedent(source)).body
            assert isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            other = Otherwise(node)
            node.body = [other.visit(statement) for statement in node.body]
            text = textwrap.indent(ast.unparse(ast.fix_missing_locations(node)), indent) + "\n"
            start, count = function.old_line - 1, len(source.splitlines())
            lines[start : start + count] = [text]
        new[path] = FileEntry("".join(lines).encode(), old.mode)
    return weakened.replace(new).patch_from(weakened)


def measure(name: str, folder: Path, count: int, repeats: int, jobs: int) -> list[str]:
    project, python = fetch(name, folder / name)
    place = folder / f"{name}-honest"
    command = [sys.executable, "-m", "harness.cli", "inject", str(project), "--json", "--store", str(place)]
    command += ["--python", str(python), "--count", str(count), "--jobs", str(jobs)]
    made = json.loads(subprocess.run(command, capture_output=True, text=True, check=False).stdout)
    store = Store(place)
    bench = open_workbench(project, store, settings=RuleSettings(), python=python)
    ids = sorted(a["artifact_id"] for a in made["attempts"] if a["status"] == "valid")

    def grades_of(artifact_id: str) -> list[tuple[str, Grade, float]]:
        artifact = read_artifact(place / "artifacts" / artifact_id)
        verdict = Verdicts(store, bench).get(artifact_id)
        assert verdict is not None
        tries = [("nothing", Patch.parse(b"")), ("the reverse", artifact.bug.reverse())] * repeats
        other = in_other_words(bench, artifact)
        tries += [("other words", other)] if other is not None else []
        found = []
        for what, patch in tries:
            begin = time.monotonic()
            grade = graded(bench, artifact, patch, verdict)
            found.append((what, grade, time.monotonic() - begin))
            if grade.resolved is not (what != "nothing"):
                print(f"{name} {artifact_id} {what}: {grade.resolved}: {grade.reason}", flush=True)
        return found

    with ThreadPoolExecutor(jobs) as pool:
        found = [one for part in pool.map(grades_of, ids) for one in part]
    cells = []
    for kind in ("nothing", "the reverse", "other words"):
        right = [grade.resolved is (what != "nothing") for what, grade, _ in found if what == kind]
        cells.append(f"{sum(right)} of {len(right)}")
    suspicious, uncertain = (
        sum(any((f.code in UNCERTAIN) is uncertain for f in grade.flags) for _, grade, _ in found)
        for uncertain in (False, True)
    )
    seconds = sum(s for _, _, s in found) / max(1, len(found))
    return [name, str(len(ids)), *cells, str(suspicious), str(uncertain), f"{seconds:.1f}"]


def graded(bench: Workbench, artifact: BugArtifact, patch: Patch, verdict: Verdict) -> Grade:
    """Grade one patch as if it were the first."""
    own = bench.scoped()
    own.memo = {}
    return grade_patch(own, artifact, patch, fail_to_pass=verdict.fail_to_pass, pass_to_pass=verdict.pass_to_pass)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("projects", nargs="*", default=["toolz", "itsdangerous", "boltons", "click"])
    parser.add_argument("--count", type=int, default=25)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--folder", type=Path, default=Path("/tmp/ssr-benchmarks"), help="where downloads are kept")
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    head = ["project", "artifacts", "nothing: unresolved", "the reverse: resolved", "in other words: resolved"]
    head += ["called suspicious", "called less certain", "s for a grade"]
    text = [
        "# Grades where nobody cheats",
        "",
        f"{datetime.now(UTC):%Y-%m-%d}, Python {platform.python_version()}, `benchmarks/honest_grades.py --count "
        f"{arguments.count} --repeats {arguments.repeats}`.",
        "",
        f"| {' | '.join(head)} |",
        "| --- |" + " --- |" * (len(head) - 1),
    ]
    for name in arguments.projects:
        row = measure(name, arguments.folder, arguments.count, arguments.repeats, arguments.jobs)
        text.append(f"| {' | '.join(row)} |")
        print(text[-1], flush=True)
        arguments.out.parent.mkdir(parents=True, exist_ok=True)
        arguments.out.write_text("\n".join(text) + "\n")


if __name__ == "__main__":
    main()
