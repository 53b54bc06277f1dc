"""SWE-smith as it is installed, over projects that it has no profile of, with a bare process for each container.

Its own code makes bugs, validates and grades; what it would ask of GitHub and of Docker is answered from a repository
that lies here.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.metadata
import io
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import bare_container
from swesmith.bug_gen import collect_patches
from swesmith.bug_gen.procedural import generate
from swesmith.harness import eval as evaluation
from swesmith.harness import utils, valid
from swesmith.profiles import registry
from swesmith.profiles.python import PythonProfile

Row = dict[str, Any]
VERSION = importlib.metadata.version("swesmith")
# Without the conda environment that its images have.
TESTS = PythonProfile.test_cmd.rpartition("; ")[2]
_WHO = ("-c", "user.name=ssr", "-c", "user.email=ssr@localhost", "-c", "core.hooksPath=/dev/null")


def git(folder: Path, *arguments: str, given: str | None = None) -> str:
    """Run git in a folder."""
    done = subprocess.run(
        ["git", *_WHO, *arguments], cwd=folder, input=given, capture_output=True, text=True, check=True
    )
    return done.stdout


class Smith:
    """One project as SWE-smith knows it, and a folder for what it writes."""

    def __init__(self, owner: str, name: str, commit: str, mirror: Path, work: Path, python: Path) -> None:
        """Register a profile; mirror: a repository whose branch main is the project."""
        self.mirror, self.work, self.python = mirror, work, python
        fields = {"owner": owner, "repo": name, "commit": commit, "test_cmd": TESTS}
        answers = {
            "pull_image": lambda _: None,
            "_is_repo_private": lambda _: False,
            "clone": lambda own, dest=None: self._clone(dest or own.repo_name),
        }
        entries = [(k, str, dataclasses.field(default=v)) for k, v in fields.items()]
        profile = dataclasses.make_dataclass("Profile", entries, bases=(PythonProfile,), namespace=answers)
        registry.register_profile(profile)
        self.profile = profile()
        containers = SimpleNamespace(create=lambda **_: self._container())
        utils.docker = SimpleNamespace(from_env=lambda: SimpleNamespace(containers=containers))
        utils.cleanup_container = lambda _client, container, _logger: container and container.remove()

    def _clone(self, name: str) -> tuple[str, bool]:
        if Path(name).exists():
            return name, False
        git(Path.cwd(), "clone", "-q", "--shared", "-b", "main", str(self.mirror), name)
        return name, True

    def _container(self) -> bare_container.BareContainer:
        folder = Path(tempfile.mkdtemp(prefix="bare-"))
        return bare_container.BareContainer.of(self.mirror, "main", folder, self.python)

    def generated(self, *, most: int, seed: int) -> list[Row]:
        """Let its procedural modifiers make bugs, and return them as its validation reads them."""
        with self._inside():
            name = self.profile.repo_name
            self.profile.clone()
            generate.main(name, -1, seed, interleave=True, max_candidates=most)
            collect_patches.main(f"logs/bug_gen/{name}")
            patches: list[Row] = json.loads(Path(f"logs/bug_gen/{name}_all_patches.json").read_text())
        return sorted(patches, key=lambda row: row["instance_id"])

    def validated(self, rows: Sequence[Row], *, workers: int = 1) -> dict[str, Row]:
        """Let it validate bugs; returns its reports."""
        name = self.profile.repo_name
        with self._inside():
            Path("patches.json").write_text(json.dumps([{**row, "repo": name} for row in rows]))
            valid.main("patches.json", workers)
            places = {row["instance_id"]: Path("logs/run_validation", name, row["instance_id"]) for row in rows}
            report_paths = {k: p / "report.json" for k, p in places.items()}
            return {k: json.loads(p.read_text()) if p.exists() else {} for k, p in report_paths.items()}

    def rows(self, bugs: Sequence[Row], reports: Mapping[str, Row]) -> list[Row]:
        """Return the rows that it makes of reports: bugs with a FAIL_TO_PASS and a PASS_TO_PASS test, run in time."""
        entries = []
        for bug in bugs:
            report = reports[bug["instance_id"]]
            if report.get("timed_out") or not report.get("FAIL_TO_PASS") or not report.get("PASS_TO_PASS"):
                continue
            row = {k: bug[k] for k in ("instance_id", "patch")} | {
                k: report[k] for k in ("FAIL_TO_PASS", "PASS_TO_PASS")
            }
            entries.append({**row, "image_name": self.profile.image_name, "repo": self.profile.mirror_name})
        return entries

    def branch(self, row: Row) -> None:
        """Make a row's branch as its gathering does: a commit with the bug, then one without the F2P test files."""
        git(self.mirror, "checkout", "-q", "-b", row["instance_id"], "main")
        git(self.mirror, "apply", "-", given=row["patch"])
        git(self.mirror, "commit", "-q", "-a", "-m", "Bug Patch")
        files, _ = self.profile.get_test_files(row)
        git(self.mirror, "rm", "-q", "-f", *files)
        git(self.mirror, "commit", "-q", "-m", "Remove F2P Tests")
        git(self.mirror, "checkout", "-q", "main")

    def resolved(self, rows: Sequence[Row], predictions: Sequence[Row] | None, run: str) -> list[str]:
        """Let it grade predictions, or (None) the reference solutions; returns what it finds resolved."""
        with self._inside():
            Path("rows.json").write_text(json.dumps(rows))
            Path("given.json").write_text(json.dumps({p["instance_id"]: p for p in predictions or ()}))
            evaluation.main(run, 1, "given.json" if predictions is not None else "gold", "rows.json")
            report = json.loads(Path("logs/run_evaluation", run, "report.json").read_text())
        return sorted(report["ids_resolved"])

    @contextlib.contextmanager
    def _inside(self) -> Iterator[None]:
        before = Path.cwd()
        os.chdir(self.work)
        try:
            with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
                yield
        finally:
            os.chdir(before)


def mirror_of(project: Path, folder: Path) -> Path:
    """Make a repository whose branch main is a project's tree; a bare one gives that of its HEAD."""
    if (project / "objects").is_dir():
        git(folder.parent, "clone", "-q", "--shared", str(project), str(folder))
    else:
        shutil.copytree(project, folder, ignore=shutil.ignore_patterns(".git", ".ssr", "__pycache__"))
        git(folder, "init", "-q")
    git(folder, "checkout", "-q", "-B", "main")
    git(folder, "add", "-A", "--force")
    git(folder, "commit", "-q", "--allow-empty", "-m", "main")
    return folder
