"""Publish to a branch of a git repository, by one commit and one push that changes everything or nothing."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

from harness.diffs import MissingToolError
from harness.exporters.dataset_writer import CARD
from harness.exporters.manifest import NAME
from harness.models.urls import masked
from harness.publishing.problems import NotPublishableError, Problem, ProblemKind
from harness.publishing.remotes import Plan, Present
from pytest_ssr.errors import SettingsError, StoreWriteError

_OPTIONS = ("-c", "core.autocrlf=false", "-c", "core.hooksPath=/dev/null", "-c", "gc.auto=0")
_WHO = {
    f"GIT_{role}_{part}": value
    for role in ("AUTHOR", "COMMITTER")
    for part, value in (("NAME", "ssr"), ("EMAIL", "ssr@localhost"))
}
"""The commit tells nothing of the user."""
_KEPT = ("GIT_ASKPASS", "GIT_CONFIG", "GIT_SSH")
"""The variables of git that are about access; others are about a repository of the caller."""
_SUBJECT = "Published by ssr"


class GitRemote:
    """A branch of a repository."""

    def __init__(self, url: str, branch: str, folder: Path, *, tag: str = "") -> None:
        """folder: a temporary one, for the repository that is pushed from."""
        if url.startswith("-") or not url:
            raise SettingsError(f"--to git:{url} is not the URL of a repository", option="to")
        # A relative path would be looked up in our temporary repository.
        self._url = str(Path(url).absolute()) if Path(url).exists() else url
        self._branch, self._tag = f"refs/heads/{branch}", tag
        self._repository = folder
        self._git("init", "--quiet", "--template=")
        for option, name in (("to", branch), ("tag", tag)):
            if name and self._run(("check-ref-format", f"refs/heads/{name}")).returncode:
                raise SettingsError(f"--{option}: git has no names such as {name!r}", option=option)

    @property
    def name(self) -> str:
        """The URL with the branch."""
        return f"git:{masked(self._url)}#{self._branch.removeprefix('refs/heads/')}"

    def present(self) -> Present:
        """Return what the branch holds; raises StoreWriteError if the repository cannot be read."""
        if not self._git("ls-remote", "--", self._url, self._branch):
            return Present()
        self._git("fetch", "--quiet", "--depth=1", "--no-tags", "--", self._url, self._branch)
        revision = self._git("rev-parse", "FETCH_HEAD").decode().strip()
        paths = [os.fsdecode(p) for p in self._git("ls-tree", "-rz", "--name-only", revision).split(b"\0") if p]
        manifest, card = (self._git("show", f"{revision}:{n}") if n in paths else b"" for n in (NAME, CARD))
        return Present(revision, paths, manifest, card)

    def send(self, folder: Path, plan: Plan, present: Present) -> str:
        """Push a commit with the files, unless the branch has them."""
        base = present.revision
        if base:
            self._git("read-tree", base)
        self._stage(folder, "update-index", "-z", "--force-remove", "--stdin", names=plan.removed)
        # --force: files that a .gitignore names are published, too.
        add = ("add", "--force", "--pathspec-from-file=-", "--pathspec-file-nul")
        self._stage(folder, "--literal-pathspecs", *add, names=plan.written)
        tree = self._git("write-tree").decode().strip()
        if base and tree == self._git("rev-parse", f"{base}^{{tree}}").decode().strip():
            commit = base
        else:
            parents = ("-p", base) if base else ()
            commit = self._git("commit-tree", *parents, "-m", _SUBJECT, tree).decode().strip()
        refs = [f"{commit}:{self._branch}"] if commit != base else []
        if self._tag and not self._has_tag(commit, folder):
            refs.append(f"{commit}:refs/tags/{self._tag}")
        if refs:
            self._git("push", "--quiet", "--atomic", "--", self._url, *refs)
        return commit

    def _has_tag(self, commit: str, folder: Path) -> bool:
        """Return whether the tag marks a commit; raises NotPublishableError if it marks another."""
        found = self._git("ls-remote", "--", self._url, f"refs/tags/{self._tag}").split()
        if found and found[0].decode() != commit:
            raise NotPublishableError(self.name, [Problem(ProblemKind.TAG_TAKEN, self._tag)])
        return bool(found)

    def _stage(self, folder: Path, *arguments: str, names: Sequence[str]) -> None:
        """Run a command of the index on files of a folder."""
        given = b"".join(os.fsencode(name) + b"\0" for name in names)
        self._git(f"--work-tree={folder}", *arguments, given=given, where=folder)

    def _git(self, *arguments: str, given: bytes = b"", where: Path | None = None) -> bytes:
        """Run git and return its output; raises StoreWriteError if it fails."""
        done = self._run(arguments, given, where)
        if done.returncode:
            reason = masked(done.stderr.decode(errors="replace")).strip().splitlines()
            last = next(
                (line for line in reversed(reason) if "fatal" in line or "rejected" in line), "".join(reason[-1:])
            )
            raise StoreWriteError(f"{self.name} cannot be reached or written: {last.strip()}")
        return done.stdout

    def _run(
        self, arguments: tuple[str, ...], given: bytes = b"", where: Path | None = None
    ) -> subprocess.CompletedProcess[bytes]:
        command = ["git", *_OPTIONS, f"--git-dir={self._repository}", *arguments]
        # A question for a password would wait for ever.
        kept = {name: v for name, v in os.environ.items() if not name.startswith("GIT_") or name.startswith(_KEPT)}
        environment = {**kept, **_WHO, "GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C", "TZ": "UTC"}
        try:
            return subprocess.run(command, input=given, capture_output=True, check=False, env=environment, cwd=where)
        except FileNotFoundError:
            raise MissingToolError("git is not installed and is needed here") from None
