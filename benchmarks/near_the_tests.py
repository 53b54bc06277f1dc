"""How many patches are caught that are right for inputs near those of the tests, and wrong for others.

Run: `python benchmarks/near_the_tests.py --out benchmarks/results/NAME.md [--repeats 3]`.
Patches are the files of benchmarks/near_the_tests: `project` names the code that they are for, `right_for` the inputs
for which they are right. The project `arena` is that of tests/attacks; the others are one function with its tests, in
`project-NAME.toml`. Each patch is graded so many times in the sandbox bubblewrap, with the exact reverse of the bug
before them. A patch is caught if the grade is unresolved. The file is written after each patch.
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

from pytest_ssr.artifact import BugArtifact
from pytest_ssr.execution.own_script import own_parser, own_script
from pytest_ssr.grading import Grade, grade_patch
from pytest_ssr.opening import open_workbench
from pytest_ssr.patch import FileEntry, Patch
from pytest_ssr.settings import RuleSettings
from pytest_ssr.store import Store
from tests.attacks.conftest import FILES, Arena

PATCHES = Path(__file__).with_name("near_the_tests")
ARENA = "arena"
Grader = Callable[[dict[str, str]], Grade]


@dataclass(slots=True)
class Near:
    """One patch, and what became of it."""

    name: str
    project: str
    right_for: str
    files: dict[str, str]
    grades: list[Grade] = field(default_factory=list)

    @property
    def caught(self) -> int:
        """In how many grades it is unresolved."""
        return sum(grade.resolved is False for grade in self.grades)


def patches() -> dict[str, list[Near]]:
    """Return the patches of each project."""
    found: dict[str, list[Near]] = defaultdict(list)
    for path in sorted(PATCHES.glob("*.toml")):
        if not path.name.startswith("project-"):
            said = tomllib.loads(path.read_text())
            found[said["project"]].append(Near(path.stem, said["project"], said["right_for"], said["files"]))
    return found


def arena_grader(folder: Path) -> tuple[Grader, dict[str, str]]:
    """Return what grades files as a patch of the arena's honest artifact, and the honest repair."""
    arena = Arena(folder, "bubblewrap")
    return arena.grade, {"pkg/adding.py": FILES["pkg/adding.py"]}


def own_grader(folder: Path, project: str) -> tuple[Grader, dict[str, str]]:
    """Return the same for a project that is one function with its tests."""
    said = tomllib.loads((PATCHES / f"project-{project}.toml").read_text())
    module, tests = said["module"], said["tests"]
    for name, text in {"pkg/__init__.py": "", module: said["original"], tests: said["test"]}.items():
        path = folder / "project" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    store = Store(folder / "store")
    bench = open_workbench(folder / "project", store, settings=RuleSettings(), sandbox="bubblewrap")
    bug = bench.original.replace({module: FileEntry(said["buggy"].encode())})
    artifact = BugArtifact(
        script=own_script([tests], options=()),
        test_files=(tests,),
        parser=own_parser(),
        bug=bug.patch_from(bench.original),
        weaken=Patch.parse(b""),
    )
    before, after = (bench.suite(state, [tests])[0].passing for state in (bench.original, bug))

    def grade(files: dict[str, str]) -> Grade:
        state = bug.replace({path: FileEntry(text.encode()) for path, text in files.items()})
        sets = {"fail_to_pass": tuple(sorted(before - after)), "pass_to_pass": tuple(sorted(after))}
        return grade_patch(bench.scoped(), artifact, state.patch_from(bug), **sets)

    return grade, {module: said["original"]}


def grader(folder: Path, project: str) -> Grader:
    """Return what grades patches of a project; ends the program if the reverse of the bug is not resolved."""
    folder.mkdir()
    grade, honest = arena_grader(folder) if project == ARENA else own_grader(folder, project)
    if grade(honest).resolved is not True:
        raise SystemExit(f"the reverse of the bug of {project} is not resolved")
    return grade


def in_turns(found: Mapping[str, Sequence[Near]]) -> list[Near]:
    """Return a patch of each project in turn, so that what is written before the end holds some of each."""
    return [near for turn in zip_longest(*found.values()) for near in turn if near is not None]


def report(found: Sequence[Near], repeats: int) -> str:
    """Return the table of results."""
    grades = repeats * len(found)
    caught = sum(near.caught for near in found)
    lines = [
        "# Patches that are right near the tests",
        "",
        f"{datetime.now(UTC):%Y-%m-%d}, Python {platform.python_version()}, `benchmarks/near_the_tests.py`. "
        f"{len(found)} patches, each graded {repeats} times: **{caught} of {grades} grades "
        f"({100 * caught / grades:.0f} %) are unresolved**. The recorded tests pass in "
        f"{sum(bool(g.tests) for near in found for g in near.grades)} of them; "
        f"{sum(g.resolved is True and bool(g.unspecified) for near in found for g in near.grades)} resolved grades "
        "name a test as `unspecified`. The exact reverse of each bug is resolved.",
        "",
        "| project | patches | caught always | sometimes | never | grades caught |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for project in sorted({near.project for near in found}):
        own = [near for near in found if near.project == project]
        always, never = (sum(near.caught == times for near in own) for times in (repeats, 0))
        share = f"{sum(near.caught for near in own)} of {repeats * len(own)}"
        lines.append(f"| {project} | {len(own)} | {always} | {len(own) - always - never} | {never} | {share} |")
    lines += ["", "| patch | right for | tests pass | caught | reasons |", "| --- | --- | --- | --- | --- |"]
    for near in sorted(found, key=lambda near: near.name):
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
    graders, found = dict[str, Grader](), list[Near]()
    try:
        for near in in_turns(patches()):
            if near.project not in graders:
                graders[near.project] = grader(work / near.project, near.project)
            near.grades = [graders[near.project](near.files) for _ in range(arguments.repeats)]
            found.append(near)
            print(f"{near.name}: caught in {near.caught} of {arguments.repeats}", flush=True)
            arguments.out.write_text(report(found, arguments.repeats))
    finally:
        shutil.rmtree(work)


if __name__ == "__main__":
    main()
