"""Grade a folder that somebody else has repaired, as a program inside the container of a verifier.

`python -m pytest_ssr.verifier TASK SUBMITTED REWARD_FOLDER`, as root. TASK is a folder with `project/`,
the project without the bug, and `artifact/`, the bug with its verdict. The tests run as another user, who can read
neither of them, nor write a reward. `reward.json` is written at the end, and only if there is a grade.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import stat
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from pytest_ssr.campaign.factory import open_runner
from pytest_ssr.errors import ProjectError, SsrError
from pytest_ssr.escaping import escaped
from pytest_ssr.execution.script_template import runner_of_script
from pytest_ssr.grading.grade import grade_patch
from pytest_ssr.grading.repaired_state import unsolved_state
from pytest_ssr.grading.result import Grade, TestStatus
from pytest_ssr.patch import FileEntry
from pytest_ssr.project.solver_checkout import is_omitted
from pytest_ssr.records.artifact import read_artifact
from pytest_ssr.records.verdict import Verdict
from pytest_ssr.settings import RuleSettings
from pytest_ssr.storage.baseline_store import project_baseline
from pytest_ssr.storage.store import Store

PROJECT, ARTIFACT = "project", "artifact"
_MEMORY_LIMITS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))
"""Of a container's control group, by its version: 2, then 1; the first holds `max` without a limit."""
_MOST_BYTES = 64 << 20
"""A larger file is no repair."""


def submitted_files(folder: Path) -> Iterator[tuple[str, FileEntry]]:
    """Yield the files of a folder, with paths relative to it, that can be part of a repair.

    Links are read as links; what is neither a file nor a link, what git does not track and what is compiled is left
    out.
    """
    for parent, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not is_omitted(f"{name}/x"))
        links = [name for name in folders if os.path.islink(os.path.join(parent, name))]
        for name in sorted([*names, *links]):
            full = Path(parent, name)
            path = full.relative_to(folder).as_posix()
            status = full.lstat()
            if is_omitted(path) or status.st_size > _MOST_BYTES:
                continue
            if stat.S_ISLNK(status.st_mode):
                yield path, FileEntry(os.fsencode(os.readlink(full)), 0o120000)
            elif stat.S_ISREG(status.st_mode):
                yield path, FileEntry(full.read_bytes(), 0o100755 if status.st_mode & 0o100 else 0o100644)


def grade_tree(task: Path, submitted: Path, *, python: Path | None = None, sandbox: str = "user") -> Grade:
    """Grade a folder. python: the interpreter of the tests; None for the first one in the PATH.

    Raises SsrError if the task or the sandbox cannot be used.
    """
    if not submitted.is_dir():
        raise ProjectError(f"{submitted}, the folder to grade, does not exist")
    artifact = read_artifact(task / ARTIFACT)
    verdict = Verdict.from_json(artifact.info.get("verdict") or {})
    store = Store(task / "store")
    runner = open_runner(
        task / PROJECT,
        store,
        settings=RuleSettings(),
        sandbox=sandbox,
        python=python or Path(shutil.which("python") or "python3"),
        test_runner=runner_of_script(artifact.script),
        model_written=True,
    )
    runner = replace(runner, limits=replace(runner.limits, memory_bytes=_memory_bytes(runner.limits.memory_bytes)))
    start = unsolved_state(runner, artifact)
    found: dict[str, FileEntry] = dict(submitted_files(submitted))
    known = {path for path in {*start.snapshot.files, *start.changes} if not is_omitted(path)}
    repaired = start.replace({path: found.get(path) for path in sorted(known | found.keys())})
    return grade_patch(
        runner,
        artifact,
        repaired.patch_from(start),
        fail_to_pass=verdict.fail_to_pass,
        pass_to_pass=verdict.pass_to_pass,
        like_s=verdict.original_s or None,
        surface=verdict.surface,
        full=True,
        baseline=lambda: project_baseline(runner, store),
    )


def _memory_bytes(most: int) -> int:
    """Return how much memory the tests may use: less than the container has, or its kernel would end them.

    That would count as a fault of the machine, without a grade. most: the limit without a container.
    """
    for path in _MEMORY_LIMITS:
        with contextlib.suppress(OSError, ValueError):
            return min(most, int(path.read_text()) * 3 // 4)
    return most


def rewards(grade: Grade) -> dict[str, float]:
    """Return what a verifier reports: the strict verdict as `reward` and `resolved`, and the shares of tests.

    Raises ValueError without a grade.
    """
    if grade.resolved is None:
        raise ValueError("there is no grade")
    return {
        "reward": float(grade.resolved),
        "resolved": float(grade.resolved),
        "tests": float(bool(grade.tests)),
        "fail_to_pass": _share(grade.fail_to_pass),
        "pass_to_pass": _share(grade.pass_to_pass),
    }


def _share(outcomes: Mapping[str, str]) -> float:
    passed = sum(outcome == TestStatus.PASSED for outcome in outcomes.values())
    return round(passed / len(outcomes), 4) if outcomes else 0.0


def main(argv: Sequence[str] | None = None) -> int:
    """Grade and write the rewards; return 0 with a grade, 3 without one."""
    parser = argparse.ArgumentParser(prog="pytest_ssr.verifier", description=__doc__)
    for name in ("task", "submitted", "reward_folder"):
        parser.add_argument(name, type=Path)
    arguments = parser.parse_args(argv)
    reward_folder: Path = arguments.reward_folder
    mode = stat.S_IMODE(reward_folder.stat().st_mode)
    # Until the tests have ended, their user cannot write a reward.
    reward_folder.chmod(0o700)
    try:
        grade = grade_tree(arguments.task, arguments.submitted)
        (reward_folder / "grade.json").write_text(json.dumps(replace(grade, run=None).to_json(), indent=1))
        print(escaped(grade.reason.text))
        if grade.resolved is None:
            return 3
        # A name that the tests' user could have taken is not written through.
        (reward_folder / "reward.json").unlink(missing_ok=True)
        (reward_folder / "reward.json").write_text(json.dumps(rewards(grade)))
    except SsrError as error:
        print(f"there is no grade: {escaped(str(error))}", file=sys.stderr)
        return 3
    finally:
        reward_folder.chmod(mode)
    return 0


if __name__ == "__main__":
    sys.exit(main())
