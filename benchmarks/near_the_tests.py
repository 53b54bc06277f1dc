"""Measure how many patches are caught that are right for inputs near those of the tests, and wrong for others.

Run: `python benchmarks/near_the_tests.py --out benchmarks/results/NAME.md [--repeats 3]`.
Patches are the files of benchmarks/near_the_tests: `project` names the code that they are for, `right_for` the inputs
for which they are right. The project `arena` is that of tests/attacks; the others are one function with its tests, in
`project-NAME.toml`. Each patch is graded `--repeats` times in the sandbox bubblewrap, after the exact reverse of the
bug. A patch is caught if the grade is unresolved. The file is rewritten after each patch.
"""

from __future__ import annotations

import argparse
import platform
import shutil
import sys
import tempfile
import tomllib
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import zip_longest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from pytest_ssr.campaign.factory import open_runner
from pytest_ssr.execution.script_template import default_parser, default_script
from pytest_ssr.grading import Grade, grade_patch
from pytest_ssr.patch import FileEntry, Patch
from pytest_ssr.records.artifact import BugArtifact
from pytest_ssr.records.reasons import UNCERTAIN
from pytest_ssr.settings import RuleSettings
from pytest_ssr.storage.store import Store
from tests.attacks.conftest import FILES, Arena

PATCHES = Path(__file__).with_name("near_the_tests")
ARENA = "arena"
Grader = Callable[[dict[str, str]], Grade]


@dataclass(slots=True)
class Near:
    """One patch and its grades."""

    name: str
    project: str
    right_for: str
    files: dict[str, str]
    grades: list[Grade] = field(default_factory=list)

    @property
    def caught(self) -> int:
        """The number of unresolved grades."""
        return sum(grade.resolved is False for grade in self.grades)


def patches() -> dict[str, list[Near]]:
    """Return the patches of each project."""
    by_project: dict[str, list[Near]] = defaultdict(list)
    for path in sorted(PATCHES.glob("*.toml")):
        if not path.name.startswith("project-"):
            data = tomllib.loads(path.read_text())
            by_project[data["project"]].append(Near(path.stem, data["project"], data["right_for"], data["files"]))
    return by_project


def arena_grader(folder: Path) -> tuple[Grader, dict[str, str]]:
    """Return a function that grades files as a patch of the arena's honest artifact, and the honest repair."""
    arena = Arena(folder, "bubblewrap")
    return arena.grade, {"pkg/adding.py": FILES["pkg/adding.py"]}


def own_grader(folder: Path, project: str) -> tuple[Grader, dict[str, str]]:
    """Return the same for a project that is one function with its tests."""
    data = tomllib.loads((PATCHES / f"project-{project}.toml").read_text())
    module, tests = data["module"], data["tests"]
    for name, text in {"pkg/__init__.py": "", module: data["original"], tests: data["test"]}.items():
        path = folder / "project" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    store = Store(folder / "store")
    runner = open_runner(folder / "project", store, settings=RuleSettings(), sandbox="bubblewrap")
    bug = runner.original.replace({module: FileEntry(data["buggy"].encode())})
    artifact = BugArtifact(
        script=default_script([tests], options=()),
        test_files=(tests,),
        parser=default_parser(),
        bug=bug.patch_from(runner.original),
        weaken=Patch.parse(b""),
    )
    before, after = (runner.suite(state, [tests])[0].passing for state in (runner.original, bug))

    def grade(files: dict[str, str]) -> Grade:
        state = bug.replace({path: FileEntry(text.encode()) for path, text in files.items()})
        sets = {"fail_to_pass": tuple(sorted(before - after)), "pass_to_pass": tuple(sorted(after))}
        return grade_patch(runner.scoped(), artifact, state.patch_from(bug), **sets)

    return grade, {module: data["original"]}


def grader(folder: Path, project: str) -> Grader:
    """Return a function that grades patches of a project; exit if the reverse of the bug is not resolved."""
    folder.mkdir()
    grade, honest = arena_grader(folder) if project == ARENA else own_grader(folder, project)
    if grade(honest).resolved is not True:
        raise SystemExit(f"the reverse of the bug of {project} is not resolved")
    return grade


def in_turns(by_project: Mapping[str, Sequence[Near]]) -> list[Near]:
    """Return a patch of each project in turn, so that an unfinished report holds some of each."""
    return [near for turn in zip_longest(*by_project.values()) for near in turn if near is not None]


def _is_sure(grade: Grade) -> bool:
    return grade.resolved is True and not any(flag.code in UNCERTAIN for flag in grade.flags)


def report(graded: Sequence[Near], repeats: int) -> str:
    """Return the table of results."""
    grades = repeats * len(graded)
    caught = sum(near.caught for near in graded)
    lines = [
        "# Patches that are right near the tests",
        "",
        f"{datetime.now(UTC):%Y-%m-%d}, Python {platform.python_version()}, `benchmarks/near_the_tests.py`. "
        f"{len(graded)} patches, each graded {repeats} times: **{caught} of {grades} grades "
        f"({100 * caught / grades:.0f} %) are unresolved**. The recorded tests pass in "
        f"{sum(bool(g.tests) for near in graded for g in near.grades)} of them; "
        f"{sum(map(_is_sure, (g for near in graded for g in near.grades)))} grades are resolved without a flag that "
        "says that they are less certain. The exact reverse of each bug is resolved.",
        "",
        "| project | patches | caught always | sometimes | never | grades caught |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for project in sorted({near.project for near in graded}):
        own = [near for near in graded if near.project == project]
        always, never = (sum(near.caught == times for near in own) for times in (repeats, 0))
        share = f"{sum(near.caught for near in own)} of {repeats * len(own)}"
        lines.append(f"| {project} | {len(own)} | {always} | {len(own) - always - never} | {never} | {share} |")
    lines += ["", "| patch | right for | tests pass | caught | reasons |", "| --- | --- | --- | --- | --- |"]
    for near in sorted(graded, key=lambda near: near.name):
        reasons = ", ".join(sorted({grade.reason.code for grade in near.grades}))
        passing = "yes" if all(grade.tests for grade in near.grades) else "no"
        lines.append(f"| {near.name} | {near.right_for} | {passing} | {near.caught} of {repeats} | {reasons} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    work = Path(tempfile.mkdtemp(prefix="near-"))
    graders, graded = dict[str, Grader](), list[Near]()
    try:
        for near in in_turns(patches()):
            if near.project not in graders:
                graders[near.project] = grader(work / near.project, near.project)
            near.grades = [graders[near.project](near.files) for _ in range(arguments.repeats)]
            graded.append(near)
            print(f"{near.name}: caught in {near.caught} of {arguments.repeats}", flush=True)
            arguments.out.parent.mkdir(parents=True, exist_ok=True)
            arguments.out.write_text(report(graded, arguments.repeats))
    finally:
        shutil.rmtree(work)


if __name__ == "__main__":
    main()
