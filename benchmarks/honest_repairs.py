"""Measure whether honest repairs are resolved in whatever style they are written, and what their grades cost.

Run: `python benchmarks/honest_repairs.py --out benchmarks/results/NAME.md [--count 6] [project ...]`.
This package's operators make `--count` artifacts of each project. Each is repaired in seven styles: the exact reverse
of the bug; another algorithm, written by hand for the function (`honest_repairs/PROJECT.toml`); in another file; with a
cache; refactored; with `map` for comprehensions; with checks of the arguments (`honest_styles.py`). A comment alone,
which repairs nothing, has to be unresolved. The first grade of an artifact builds the references and is reported
separately. Each other grade is followed by a plain run of the same tests on the original; the cost is the ratio of
their CPU times, as the kernel counts them for a control group. RECORDS, a file of JSON lines beside the result, keeps
each grade; grades that it holds are not repeated.
`--repeat 20` grades 20 of the same patches `--rounds` times, with new inputs each time, the last time beside four busy
processes per core.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import json
import os
import platform
import statistics
import subprocess
import sys
import textwrap
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from evaluation_speed import remove, used_s, writable_top
from honest_styles import STYLES, Location, Rewrite, parsed
from projects import fetch

from pytest_ssr.campaign.factory import open_runner
from pytest_ssr.errors import StoreError
from pytest_ssr.execution.run_cache import MemoryRecords
from pytest_ssr.execution.runner import Runner
from pytest_ssr.grading import Grade, grade_patch
from pytest_ssr.patch import FileEntry, Patch
from pytest_ssr.records.artifact import BugArtifact, read_artifact
from pytest_ssr.records.verdict import Verdict
from pytest_ssr.settings import RuleSettings
from pytest_ssr.source.function_diff import ChangedFunction, changed_functions
from pytest_ssr.storage.store import Store

PROJECTS = ("toolz", "itsdangerous", "boltons", "w3lib", "sqlparse", "click", "more-itertools")
BY_HAND = Path(__file__).parent / "honest_repairs"
FIRST, REVERSE, ALGORITHM, COMMENT = "first grade", "exact reverse", "another algorithm", "a comment alone"
HONEST = (REVERSE, ALGORITHM, *STYLES)
Record = dict[str, Any]


class Meter:
    """Counts the CPU time of this process and all its descendants, in a separate control group."""

    def __init__(self) -> None:
        top = writable_top()
        self._top, self._group = top, top / f"honest-repairs-{os.getpid()}"
        self._group.mkdir()
        (self._group / "cgroup.procs").write_text("0")

    def used_s(self) -> float:
        return used_s(self._group)

    def close(self) -> None:
        (self._top / "cgroup.procs").write_text("0")
        remove(self._group)


class Repairs:
    """The honest repairs of one artifact."""

    def __init__(self, runner: Runner, artifact: BugArtifact, by_hand: Mapping[tuple[str, str], str]) -> None:
        self._runner, self._artifact, self._by_hand = runner, artifact, by_hand
        self._broken = runner.original.apply(artifact.bug).apply(artifact.weaken)

    def all(self) -> Iterator[tuple[str, Patch]]:
        yield REVERSE, self._artifact.bug.reverse()
        for style in (ALGORITHM, *STYLES):
            if (patch := self._in_style(style)) is not None:
                yield style, patch

    def comment(self) -> Patch:
        """Return a patch that only adds a comment and leaves the bug."""
        path = next(p for p in self._artifact.bug.paths if p.endswith(".py") and self._broken.entry(p) is not None)
        entry = self._broken.entry(path)
        assert entry is not None
        new = FileEntry(entry.data + b"\n# A comment, and nothing else.\n", entry.mode)
        return self._broken.replace({path: new}).patch_from(self._broken)

    def passes(self, patch: Patch, files: Sequence[str], verdict: Verdict) -> bool:
        """Return whether all recorded tests pass in a plain run."""
        run = self._runner.fresh(self._broken.apply(patch), files)
        return {*verdict.fail_to_pass, *verdict.pass_to_pass} <= run.passing

    def names(self) -> list[str]:
        return [f"{p}::{'.'.join((*f.classes, f.name))}" for p, functions in self._changed() for f in functions]

    def _changed(self) -> Iterator[tuple[str, Sequence[ChangedFunction]]]:
        for path in self._artifact.bug.paths:
            old, buggy = self._runner.original.entry(path), self._broken.entry(path)
            functions = changed_functions(old.data, buggy.data) if old is not None and buggy is not None else None
            yield path, functions or ()

    def _in_style(self, style: str) -> Patch | None:
        """Return a repair with at least one changed function in a style, the others as in the original."""
        new: dict[str, FileEntry | None] = {}
        styled = 0
        for path, functions in self._changed():
            old = self._runner.original.entry(path)
            if old is None or not functions:
                return None
            lines = old.data.decode().splitlines(keepends=True)
            for function in sorted(functions, key=lambda f: -f.old_line):
                location = Location(path, old.data.decode(), function.classes)
                rewrite = self._rewrite(style, function, location)
                if rewrite is not None:
                    styled += 1
                    _insert(lines, function, rewrite, location)
                    if rewrite.module is not None:
                        new[rewrite.module[0]] = FileEntry(rewrite.module[1].encode(), 0o100644)
            new[path] = FileEntry("".join(lines).encode(), old.mode)
        return self._broken.replace(new).patch_from(self._broken) if styled else None

    def _rewrite(self, style: str, function: ChangedFunction, location: Location) -> Rewrite | None:
        if style != ALGORITHM:
            return STYLES[style](parsed(function.old_source), location)
        code = self._by_hand.get((location.path, ".".join((*function.classes, function.name))))
        return Rewrite(parsed(code)) if code is not None else None


def _insert(lines: list[str], function: ChangedFunction, rewrite: Rewrite, location: Location) -> None:
    """Replace a function in the lines of its file, and put `before` above its top-level statement."""
    source = function.old_source
    indent = source[: len(source) - len(source.lstrip())]
    text = textwrap.indent(ast.unparse(rewrite.function), indent) + "\n"
    start, count = function.old_line - 1, len(source.splitlines())
    lines[start : start + count] = [text]
    if rewrite.before:
        holder = next(s for s in ast.parse(location.source).body if (s.end_lineno or 0) >= function.old_line)
        first = min([holder.lineno, *(d.lineno for d in getattr(holder, "decorator_list", ()))])
        lines[first - 1 : first - 1] = [rewrite.before]


def by_hand(name: str) -> dict[tuple[str, str], str]:
    path = BY_HAND / f"{name}.toml"
    repairs = tomllib.loads(path.read_text())["repair"] if path.exists() else []
    return {(one["path"], one["function"]): one["code"] for one in repairs}


class Project:
    """One project with its artifacts."""

    def __init__(self, name: str, folder: Path, count: int) -> None:
        self.name = name
        self.source, python = fetch(name, folder / name)
        store_path = folder / f"{name}-honest"
        if not (store_path / "artifacts").is_dir():
            command = [sys.executable, "-m", "harness.cli", "inject", str(self.source), "--json"]
            command += ["--store", str(store_path), "--python", str(python), "--count", str(count), "--jobs", "1"]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            # 1: fewer valid artifacts than wanted; those are measured.
            if done.returncode not in (0, 1):
                raise SystemExit(f"{name}: ssr inject ended with status {done.returncode}: {done.stderr.strip()}")
        self.store = Store(store_path)
        self.runner = open_runner(self.source, self.store, settings=RuleSettings(), python=python)
        self._by_hand = by_hand(name)
        self.artifacts: dict[str, tuple[BugArtifact, Verdict]] = {}
        for artifact_id in sorted(p.name for p in (store_path / "artifacts").iterdir()):
            verdict = verdict_of(store_path, artifact_id)
            if verdict is not None and verdict.fail_to_pass and len(self.artifacts) < count:
                self.artifacts[artifact_id] = read_artifact(store_path / "artifacts" / artifact_id), verdict

    def repairs(self, artifact: BugArtifact) -> Repairs:
        return Repairs(self.runner, artifact, self._by_hand)

    def fresh_runner(self) -> Runner:
        """Return a runner without cached references."""
        runner = replace(self.runner.scoped(), reference_store=MemoryRecords())
        runner.cache.memo = {}
        return runner


def verdict_of(store: Path, artifact_id: str) -> Verdict | None:
    """Return the verdict on an artifact; a verdict of an earlier version of the grader has the same tests."""
    for path in sorted((store / "verdicts" / artifact_id).glob("*.json"), key=lambda p: p.stat().st_mtime):
        with contextlib.suppress(StoreError, KeyError):
            return Verdict.from_json(json.loads(path.read_text()))
    return None


def graded(runner: Runner, artifact: BugArtifact, verdict: Verdict, patch: Patch) -> Grade:
    """Grade one patch; the runner's results for the original are shared, those for other trees are not."""
    scoped = runner.scoped()
    return grade_patch(scoped, artifact, patch, fail_to_pass=verdict.fail_to_pass, pass_to_pass=verdict.pass_to_pass)


def measure(project: Project, previous: Sequence[Record], styles: Sequence[str], meter: Meter) -> Iterator[Record]:
    done = {(r["artifact"], r["style"]) for r in previous}
    for artifact_id, (artifact, verdict) in project.artifacts.items():
        repairs = project.repairs(artifact)
        patches = [*repairs.all(), (COMMENT, repairs.comment())]
        patches = [(s, p) for s, p in patches if s in styles and (artifact_id, s) not in done]
        runner = project.fresh_runner()
        files = [p for p in artifact.test_files if p.endswith(".py") and not p.endswith("conftest.py")]
        for style, patch in [(FIRST, artifact.bug.reverse()), *patches] if patches else []:
            begin = meter.used_s()
            grade = graded(runner, artifact, verdict, patch)
            middle = meter.used_s()
            if not grade.tests and style != COMMENT and not repairs.passes(patch, files, verdict):
                # A mistake in this script, or tests that depend on how the code is written.
                print(f"{project.name} {artifact_id} {style}: not a repair", flush=True)
                continue
            runner.fresh(runner.original, files)
            record = described(grade, style) | {
                "project": project.name,
                "artifact": artifact_id,
                "functions": repairs.names(),
                "cpu_s": round(middle - begin, 3),
                "plain_s": round(meter.used_s() - middle, 3),
            }
            yield record


def described(grade: Grade, style: str) -> Record:
    return {
        "style": style,
        "resolved": grade.resolved,
        "code": str(grade.reason.code),
        "reason": str(grade.reason),
        "tests": grade.tests,
        "flags": sorted(str(f.code) for f in grade.flags),
        "unchecked": len(grade.unchecked),
        "unspecified": len(grade.unspecified),
        "recorded": len(grade.fail_to_pass) + len(grade.pass_to_pass),
    }


def repeated(project: Project, most: int, times: int) -> Iterator[Record]:
    """Grade the same patches several times, with separate references, the last time beside busy processes."""
    patches = []
    for artifact_id, (artifact, verdict) in project.artifacts.items():
        repairs = project.repairs(artifact)
        patches += [(artifact_id, artifact, verdict, s, p) for s, p in [*repairs.all(), (COMMENT, repairs.comment())]]
    for number in range(times):
        runners: dict[str, Runner] = {}
        with busy() if number == times - 1 else contextlib.nullcontext():
            for artifact_id, artifact, verdict, style, patch in patches[:most]:
                runner = runners.setdefault(artifact_id, project.fresh_runner())
                grade = described(graded(runner, artifact, verdict, patch), style)
                yield grade | {"project": project.name, "artifact": artifact_id, "round": number}


@contextlib.contextmanager
def busy() -> Iterator[None]:
    """Keep four processes per core busy."""
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(4 * (os.cpu_count() or 1))]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def table(records: Sequence[Record]) -> list[str]:
    names = list(dict.fromkeys(r["project"] for r in records))
    text = [f"| style | {' | '.join(names)} | all |", "| --- |" + " --- |" * (len(names) + 1)]
    for style in (*HONEST, COMMENT):
        cells = []
        for chosen in [[n] for n in names] + [names]:
            matching = [r for r in records if r["style"] == style and r["project"] in chosen]
            right = sum(r["resolved"] is (style != COMMENT) for r in matching)
            cells.append(f"{right} of {len(matching)}")
        text.append(f"| {style}{': unresolved' if style == COMMENT else ''} | {' | '.join(cells)} |")
    return text


def costs(records: Sequence[Record]) -> list[str]:
    text = ["| grades | number | median | mean | 90 % | worst |", "| --- | --- | --- | --- | --- | --- |"]
    chosen = {"resolved": [r for r in records if r["style"] in HONEST and r["resolved"]]}
    chosen |= {f"resolved, {style}": [r for r in chosen["resolved"] if r["style"] == style] for style in HONEST}
    chosen["unresolved: a comment alone"] = [r for r in records if r["style"] == COMMENT and not r["resolved"]]
    chosen["the first of an artifact"] = [r for r in records if r["style"] == FIRST]
    for name in dict.fromkeys(r["project"] for r in records):
        chosen[f"resolved, {name}"] = [r for r in chosen["resolved"] if r["project"] == name]
    for name, group in chosen.items():
        ratios = sorted(r["cpu_s"] / r["plain_s"] for r in group)
        if ratios:
            most = ratios[int(0.9 * (len(ratios) - 1))]
            middle, mean = statistics.median(ratios), statistics.mean(ratios)
            text.append(f"| {name} | {len(ratios)} | {middle:.2f} | {mean:.2f} | {most:.2f} | {ratios[-1]:.2f} |")
    return text


def summary(records: Sequence[Record]) -> list[str]:
    honest = [r for r in records if r["style"] in HONEST]
    resolved = [r for r in honest if r["resolved"]]
    marked = [r for r in honest if r["unchecked"] or r["flags"]]
    open_ = [r for r in honest if r["unspecified"]]
    lines = [
        f"{len(resolved)} of {len(honest)} honest repairs of {len({r['artifact'] for r in honest})} bugs are resolved. "
        f"{len(marked)} ({len(marked) / max(1, len(honest)):.1%}) have `unchecked` tests or a flag, "
        f"{len(open_)} name `unspecified` tests.",
    ]
    for r in (r for r in records if r["style"] != FIRST and r["resolved"] is not (r["style"] != COMMENT)):
        lines += ["", f"- {r['project']} {r['artifact']}, {r['style']}: {r['resolved']}, {r['reason']}"]
    return lines


def rounds(records: Sequence[Record]) -> list[str]:
    cases: dict[tuple[str, str, str], list[Record]] = {}
    for r in records:
        cases.setdefault((r["project"], r["artifact"], r["style"]), []).append(r)
    fields = ("resolved", "code", "flags", "unchecked", "unspecified")
    differing = {f: sum(len({str(r[f]) for r in group}) > 1 for group in cases.values()) for f in fields}
    differences = ", ".join(f"`{name}` {number}" for name, number in differing.items())
    times = max((r["round"] for r in records), default=0) + 1
    return [
        f"{len(cases)} grades {times} times, with newly drawn inputs, the last time beside four busy processes per "
        f"core. Grades whose fields differ between these: {differences}."
    ]


def read(path: Path) -> list[Record]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def write(out: Path, records: Sequence[Record], again: Sequence[Record]) -> None:
    text = ["# Honest repairs, and what grades cost", ""]
    text += [f"{datetime.now(UTC):%Y-%m-%d}, Python {platform.python_version()}, `benchmarks/honest_repairs.py`.", ""]
    text += [*table(records), "", *summary(records), "", "## CPU time beside a plain run of the same tests", ""]
    text += [*costs(records), ""]
    text += ["## Several times", "", *rounds(again), ""] if again else []
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text("\n".join(text))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("projects", nargs="*", default=PROJECTS)
    parser.add_argument("--count", type=int, default=6, help="artifacts per project")
    parser.add_argument("--styles", nargs="*", choices=[*HONEST, COMMENT], default=[*HONEST, COMMENT])
    parser.add_argument("--repeat", type=int, default=0, help="grade this many patches of each project often")
    parser.add_argument("--rounds", type=int, default=3, help="how often")
    parser.add_argument("--folder", type=Path, default=Path("/tmp/ssr-benchmarks"), help="folder for downloads")
    parser.add_argument("--records", type=Path, help="file of grades (default: beside the result, suffix .jsonl)")
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    records = arguments.records or arguments.out.with_suffix(".jsonl")
    records.parent.mkdir(parents=True, exist_ok=True)
    meter = Meter()
    try:
        for name in arguments.projects:
            project = Project(name, arguments.folder, arguments.count)
            previous = [r for r in read(records) if "round" not in r]
            new_records = measure(project, previous, arguments.styles, meter)
            with records.open("a") as file:
                for record in (
                    repeated(project, arguments.repeat, arguments.rounds) if arguments.repeat else new_records
                ):
                    file.write(json.dumps(record) + "\n")
                    file.flush()
                    if record["style"] != FIRST and record["resolved"] is not (record["style"] != COMMENT):
                        print(json.dumps(record), flush=True)
            all_records = read(records)
            write(arguments.out, [r for r in all_records if "round" not in r], [r for r in all_records if "round" in r])
    finally:
        meter.close()


if __name__ == "__main__":
    main()
