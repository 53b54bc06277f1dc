"""Provide the repositories of instances, and their files at a commit.

A repository comes from a local clone, from the instances' images, or is cloned once.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Callable, Collection
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path

from harness.datasets.instance import Instance, InstanceError
from harness.storage.rebuilt import REPOSITORIES, using
from pytest_ssr.errors import ArtifactError, SandboxError, SettingsError
from pytest_ssr.patch import FileEntry, Patch, apply_patch
from pytest_ssr.project.shared_files import SharedFiles
from pytest_ssr.sandbox import load_provider
from pytest_ssr.sandbox.mirrors import repository_source
from pytest_ssr.sandbox.protocol import MIB, Limits, WithImage
from pytest_ssr.storage.store import Store, key_of

_LIMITS = Limits(wall_s=600.0, output_bytes=1024 * MIB)
# The commit and the files of its tree. A row may name it as the parent of another, which is then needed to look it up.
# With GIT_DIR, git accepts a repository of another user.
_PACK = """
export GIT_DIR="$1/.git"
git cat-file -e "$2^{tree}" && git rev-parse "$2^{commit}" "${2%%^*}^{commit}" > "$TMPDIR/objects" &&
git rev-list --objects "$2^{tree}" | cut -d ' ' -f 1 >> "$TMPDIR/objects" &&
git pack-objects -q --stdout < "$TMPDIR/objects"
"""


def read_commit(instance: Instance, engine: str) -> bytes:
    """Return a pack of git objects with an instance's commit and its tree.

    engine: `docker` or `apptainer`. Raises InstanceError if the image does not have the commit, and SandboxError if the
    image does not start.
    """
    provider = load_provider(instance.sandbox(engine))
    assert isinstance(provider, WithImage)
    try:
        command = ["/bin/sh", "-c", _PACK, "sh", instance.folder_in_image, instance.base_commit]
        done = provider.exec_in_image(command, limits=_LIMITS)
    finally:
        getattr(provider, "close", lambda: None)()
    if done.exit_code != 0:
        reason = str(done.limit or done.stderr.decode(errors="replace").strip()[-200:])
        commit, folder = instance.base_commit[:12], instance.folder_in_image
        raise InstanceError(f"{instance.id}: {folder} of the image {instance.image} has no commit {commit} ({reason})")
    return done.stdout


REMOTE = "https://github.com/{repo}.git"
_SYMLINK, _EXECUTABLE = 0o120000, 0o100755
_UNCONVERTED = ("-c", "core.autocrlf=false", "-c", "core.eol=lf")
"""Options of git with which files are written as they are stored, unless `.gitattributes` demands otherwise."""
_CONVERSIONS = "crlf|ident|filter|encoding"
"""Attributes with which git writes other bytes than it stores."""


@dataclass(slots=True)
class Repositories:
    """Locates or clones repositories, and writes their files."""

    store: Store
    repos: Path | None = None
    """A folder of local clones named `owner__name`, `owner/name` or `name`, bare or not."""
    remote: str = REMOTE
    """The URL to clone other repositories from, with `{repo}`."""
    images: str = ""
    """`docker` or `apptainer` if each instance runs in its own image, which also has its repository."""
    report: Callable[[str], None] = lambda _: None
    """Called before a slow step, with a line that describes it."""
    _git_directories: dict[str, Path] = field(default_factory=dict)
    _using: ExitStack = field(default_factory=ExitStack)
    """Keeps the clones that are in use."""

    def __post_init__(self) -> None:
        """Raise SettingsError if `repos` is not a folder."""
        if self.repos is not None and not self.repos.is_dir():
            raise SettingsError(f"--repos {self.repos} is not a folder", option="repos")

    def repository(self, repo: str) -> Path:
        """Return the git directory of a repository, cloned if needed, which stays until `release`.

        Raises InstanceError if it cannot be cloned.
        """
        if repo not in self._git_directories:
            self._git_directories[repo] = self.find_local(repo) or self._clone(repo)
        return self._git_directories[repo]

    def repository_of(self, instance: Instance) -> Path:
        """Return a git directory that has an instance's commit: a clone, or one with commits of images.

        Raises InstanceError if no repository has it.
        """
        local = self.find_local(instance.repo)
        if not self.images or (local is not None and has_commit(local, instance.base_commit)):
            return self.repository(instance.repo)
        target = self._using.enter_context(using(self.store, REPOSITORIES, self.image_commits(instance.repo).name))
        with self.store.alone(key_of("commits", instance.repo)):
            if has_commit(target, instance.base_commit):
                return target
            self.report(f"{instance.id}: reading its commit from its image")
            try:
                _add_pack(target, read_commit(instance, self.images))
                return target
            except (SandboxError, InstanceError) as error:
                missing = error
        try:
            return self.repository(instance.repo)
        except InstanceError as error:
            raise InstanceError(f"{missing}; {error}") from None

    def image_commits(self, repo: str) -> Path:
        """Return the git directory of the commits that were read from images; it may not exist yet."""
        return self.store.root / REPOSITORIES / f"{repo.replace('/', '__')}.images.git"

    def find_local(self, repo: str) -> Path | None:
        """Return the git directory of a local clone, or None."""
        if self.repos is None:
            return None
        for name in (repo.replace("/", "__"), repo, repo.split("/")[1]):
            for path in (self.repos / name, self.repos / f"{name}.git"):
                git_directory = next((p for p in (path / ".git", path) if (p / "objects").is_dir()), None)
                if git_directory is not None:
                    return git_directory
        return None

    def own_clone(self, repo: str) -> Path:
        """Return the git directory in the store for a clone; it may not exist yet."""
        return self.store.root / REPOSITORIES / f"{repo.replace('/', '__')}.git"

    def url(self, repo: str) -> str:
        """Return the URL that a repository is cloned from, that of its mirror if it has one."""
        return repository_source(self.remote.format(repo=repo))

    def _clone(self, repo: str) -> Path:
        target = self._using.enter_context(using(self.store, REPOSITORIES, self.own_clone(repo).name))
        with self.store.alone(key_of("clone", repo)):
            if not target.is_dir():
                self.report(f"cloning {repo}")
                target.parent.mkdir(parents=True, exist_ok=True)
                with tempfile.TemporaryDirectory(dir=target.parent) as directory:
                    url = self.url(repo)
                    process = _git(None, "clone", "--quiet", "--bare", "--", url, f"{directory}/made")
                    if process.returncode:
                        lines = process.stderr.decode(errors="replace").strip().splitlines()
                        reason = " ".join(lines[-1:])
                        raise InstanceError(
                            f"{repo} cannot be cloned from {url}: {reason}; name a folder of clones with --repos "
                            "(repos= in Python)"
                        )
                    os.rename(f"{directory}/made", target)
        return target

    def release(self) -> None:
        """Let the clones be removed that were made so far."""
        self._git_directories.clear()
        self._using.close()

    def write(self, instance: Instance, folder: Path, shared: SharedFiles) -> None:
        """Write a repository's files with an instance solved: its commit, the tests, and the reference solution.

        shared: has files that need not be read from git; it gets the others. Raises InstanceError if the commit does
        not exist, or a patch does not apply.
        """
        git = self.repository_of(instance)
        folder.mkdir(parents=True)
        try:
            _check_out(git, instance.base_commit, folder, shared)
        except InstanceError as error:
            commit = instance.base_commit
            problem = error if has_commit(git, commit) else f"the repository {git} has no such commit"
            raise InstanceError(f"{instance.id}: {commit[:12]} of {instance.repo}: {problem}") from None
        patches = [("test_patch", instance.test_patch), ("patch", instance.patch)]
        for name, patch in patches[: 1 if instance.begins_solved else 2]:
            try:
                _write(patch, folder)
            except ArtifactError as error:
                raise InstanceError(f"{instance.id}: {name} does not apply: {error}") from None
        shared.share_tree(folder)


def has_commit(git: Path, commit: str) -> bool:
    """Return whether a git directory has a commit and its tree."""
    return not missing_commits(git, [commit])


def missing_commits(git: Path, commits: Collection[str]) -> set[str]:
    """Return the commits that a git directory does not have with their trees; all if it does not exist."""
    if not git.is_dir():
        return set(commits)
    names = list(commits)
    stdin = "".join(f"{name}^{{tree}}\n" for name in names).encode()
    lines = _git(git, "cat-file", "--batch-check", stdin=stdin).stdout.decode(errors="replace").splitlines()
    present = {name for name, line in zip(names, lines, strict=False) if " tree " in line}
    return set(commits) - present


@dataclass(frozen=True, slots=True)
class CommitPath:
    """A path of a commit, which is not written to disk."""

    git: Path
    commit: str
    path: str = ""
    added: frozenset[str] = frozenset()
    """Paths of files that a patch adds or changes."""

    def __truediv__(self, name: str, /) -> CommitPath:
        """Return the path below."""
        return replace(self, path=f"{self.path}/{name}".lstrip("/"))

    def is_file(self) -> bool:
        """Return whether the commit has the file."""
        return self.path in self.added or not self._git("-e").returncode

    def read_text(self, encoding: str | None = None, errors: str | None = None) -> str:
        """Return the content of a file; raises FileNotFoundError if the commit has none."""
        process = self._git("blob")
        if process.returncode:
            raise FileNotFoundError(self.path)
        return process.stdout.decode(encoding or "utf-8", errors or "strict")

    def _git(self, kind: str) -> subprocess.CompletedProcess[bytes]:
        return _git(self.git, "cat-file", kind, f"{self.commit}:{self.path}")


Tree = Path | CommitPath
"""The files of a repository: a folder, or a commit."""


def is_reachable(url: str, wait_s: float) -> bool | None:
    """Return whether a remote repository answers; None if it has not answered in time."""
    command = ["git", "ls-remote", "--quiet", "--", url, "HEAD"]
    environment = {**os.environ, "GIT_TERMINAL_PROMPT": "0"}
    # Without pipes, processes that git leaves behind after the timeout keep nothing open.
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            check=False,
            env=environment,
            timeout=wait_s,
        )
    except subprocess.TimeoutExpired:
        return None
    return done.returncode == 0


def tree_bytes(git: Path, commit: str) -> int:
    """Return the total size of the files of a commit."""
    lines = _git(git, "ls-tree", "-r", "-l", f"{commit}^{{tree}}").stdout.splitlines()
    sizes = [line.split(None, 4)[3] for line in lines]
    return sum(int(size) for size in sizes if size.isdigit())


def _add_pack(git: Path, pack: bytes) -> None:
    """Add the objects of a pack to a repository, which is created if it does not exist; git computes their names."""
    git.parent.mkdir(parents=True, exist_ok=True)
    if not git.is_dir():
        _git(None, "init", "--quiet", "--bare", "--", str(git))
    process = _git(git, "index-pack", "--stdin", stdin=pack)
    if process.returncode:
        reason = process.stderr.decode(errors="replace").strip()[-200:]
        raise InstanceError(f"the objects of the image cannot be added to {git}: {reason}")


def _git(
    git: Path | None, *arguments: str, env: dict[str, str] | None = None, stdin: bytes = b""
) -> subprocess.CompletedProcess[bytes]:
    command = ["git", *(("--git-dir", str(git)) if git else ()), *arguments]
    environment = {**os.environ, "GIT_TERMINAL_PROMPT": "0", "GIT_CONFIG_NOSYSTEM": "1", **(env or {})}
    if git is not None:
        # A repository's .gitattributes must not start programs that the user's configuration names.
        environment["GIT_CONFIG_GLOBAL"] = os.devnull
    return subprocess.run(command, input=stdin, capture_output=True, check=False, env=environment)


def _check_out(git: Path, commit: str, folder: Path, shared: SharedFiles) -> None:
    """Write the files of a commit; raises InstanceError with git's message if that fails."""
    with tempfile.TemporaryDirectory() as directory:

        def run(*arguments: str, stdin: bytes = b"") -> bytes:
            options = (*_UNCONVERTED, f"--work-tree={folder}")
            process = _git(git, *options, *arguments, env={"GIT_INDEX_FILE": f"{directory}/index"}, stdin=stdin)
            if process.returncode:
                raise InstanceError(" ".join(process.stderr.decode(errors="replace").strip().splitlines()[:1]))
            return process.stdout

        run("read-tree", f"{commit}^{{tree}}")
        blobs = []
        for line in run("ls-files", "--stage", "-z").split(b"\0")[:-1]:
            stamp, path = line.split(b"\t", 1)
            mode, blob, _ = stamp.decode().split(" ")
            blobs.append((int(mode, 8), blob, os.fsdecode(path)))
        paths = [path for _, _, path in blobs] if _converts(git, commit) else shared.place_blobs(blobs, folder)
        run("checkout-index", "--force", "-z", "--stdin", stdin=b"".join(os.fsencode(p) + b"\0" for p in paths))


def _converts(git: Path, commit: str) -> bool:
    """Return whether git may write other bytes than it stores for files of a commit."""
    attributes = ":(glob)**/.gitattributes"
    matches = _git(git, "grep", "--quiet", "-iE", _CONVERSIONS, commit, "--", attributes).returncode
    return matches == 0 or (git / "info" / "attributes").is_file()


def _write(patch: Patch, folder: Path) -> None:
    for path, entry in apply_patch(patch, lambda p: _entry(folder / p)).items():
        target = folder / path
        if any(p.is_symlink() for p in target.parents if p.is_relative_to(folder)):
            raise ArtifactError(f"{path} is behind a symlink")
        if target.is_symlink() or target.exists():
            target.unlink()
        if entry is None:
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        if entry.mode == _SYMLINK:
            target.symlink_to(os.fsdecode(entry.data))
        else:
            target.write_bytes(entry.data)
            target.chmod(0o755 if entry.mode == _EXECUTABLE else 0o644)


def _entry(path: Path) -> FileEntry | None:
    if path.is_symlink():
        return FileEntry(os.fsencode(os.readlink(path)), _SYMLINK)
    if not path.is_file():
        return None
    return FileEntry(path.read_bytes(), _EXECUTABLE if path.stat().st_mode & 0o100 else 0o100644)
