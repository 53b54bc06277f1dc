"""Grade work on a Harbor task as Harbor does, from files alone: each verifier runs in a container that no agent had.

The work on a step is the files that it changes in the working directory. A container for a step is made of the task's
image, the files that steps bring along, and the work on this and the earlier steps, in their order. Processes that an
agent has left behind, and what it wrote elsewhere, are therefore never part of what is graded.
"""

from __future__ import annotations

import contextlib
import json
import math
import posixpath
import shlex
import shutil
import tarfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath

from harness.harbor.containers import Container, Engine, TooLargeError, relative_name, temporary_folder
from harness.harbor.reading import PUBLISHED
from harness.harbor.schema import Artifact
from harness.harbor.task import HarborTask, Place, Step, Verification
from pytest_ssr.errors import SandboxError
from pytest_ssr.patch import FileEntry
from pytest_ssr.project.snapshot import TOOL_FOLDERS
from pytest_ssr.sandbox.protocol import MIB

_TESTS, _SOLUTION, _LOGS = "/tests", "/solution", "/logs/verifier"
_REWARDS = (f"{_LOGS}/reward.json", f"{_LOGS}/reward.txt")
_OUTPUT = f"{_LOGS}/test-stdout.txt"
_MAX_REWARD_BYTES, _MAX_LOG_BYTES = MIB, MIB
_MAX_TREE_BYTES, _MAX_ARTIFACT_BYTES = 1024 * MIB, 1024 * MIB
_SETUP_S, _SOLVE_S = 600.0, 3600.0
_FOLDERS = ("/logs/agent", _LOGS, PUBLISHED)
_REWARD = "reward"
_LEFT_OUT = frozenset((".git", "__pycache__"))
"""Folders of the working directory that are no part of anybody's work."""
_PASSING = ("/tmp", "/run", "/var/tmp", "/var/log", "/var/cache", "/var/lib/apt", "/root", "/home", "/logs", _SOLUTION)
"""Folders whose changes by a reference solution say nothing about its task."""

_READ_AFTER_S = 0.5
"""How long Harbor needs at least to read a reward after its verifier has ended."""
_INIT = "/usr/sbin/docker-init"
"""The engine's own, in each container."""

Changes = Mapping[str, FileEntry | None]
"""Paths below the working directory to new files; None for files that are removed."""


class Fault(StrEnum):
    """Why a step has no reward."""

    NO_REWARD = "no-reward"
    """The verifier wrote none."""
    INVALID_REWARD = "invalid-reward"
    """What it wrote is not a finite number, or not an object of such numbers."""
    TOO_LARGE = "too-large"
    """What a separate verifier would be handed is too large."""
    TIMED_OUT = "timed-out"
    SETUP_FAILED = "setup-failed"


@dataclass(frozen=True, slots=True)
class StepResult:
    """The grade of the work on one step."""

    name: str
    rewards: Mapping[str, float]
    """What the verifier wrote, by name; a single number is called `reward`. Empty with a fault."""
    fault: Fault | None
    detail: str
    """What is wrong, for people."""
    log: str
    """The end of what the verifier printed."""


@dataclass(frozen=True, slots=True)
class TrialResult:
    """The grade of the work on a task."""

    rewards: Mapping[str, float]
    """Of all steps together; empty if no step has any."""
    steps: tuple[StepResult, ...]
    """The steps that were graded."""

    @property
    def fault(self) -> StepResult | None:
        """The first step without a reward, if there is one."""
        return next((step for step in self.steps if step.fault is not None), None)

    @property
    def reward(self) -> float | None:
        """The reward named so, else the only one; None without such a reward."""
        if _REWARD in self.rewards:
            return self.rewards[_REWARD]
        return next(iter(self.rewards.values())) if len(self.rewards) == 1 else None

    @property
    def log(self) -> str:
        """What the verifiers printed, step by step."""
        if len(self.steps) == 1:
            return self.steps[0].log
        return "".join(f"=== {step.name} ===\n{step.log.rstrip()}\n" for step in self.steps)


@dataclass(frozen=True, slots=True)
class Trial:
    """A task, and the engine that its containers run on."""

    engine: Engine
    task: HarborTask

    @property
    def workdir(self) -> str:
        """The working directory; raises SandboxError if the image cannot be had."""
        environment = self.task.place.environment
        if environment.workdir:
            return environment.workdir
        if self.task.place.compose is not None:
            with self.engine.started(self.task.place, network=self._least_network) as container:
                return container.workdir
        image = self.engine.image(self.task.place)
        return str(self.engine.configuration(image).get("WorkingDir") or "/")

    @property
    def _least_network(self) -> str:
        """The mode of the network of containers that run nothing of an agent's; services may need each other."""
        return "no-network" if self.task.place.compose is None else self.task.network

    def grade(self, work: Sequence[Changes]) -> TrialResult:
        """Grade the work on each step, up to the first whose rewards are too low for the next one."""
        results = []
        for index, step in enumerate(self.task.steps):
            result = self._verified(index, work)
            results.append(result)
            is_too_low = any(result.rewards.get(name, -math.inf) < least for name, least in step.least_reward.items())
            if result.fault is not None or is_too_low:
                break
        return TrialResult(self._together(results), tuple(results))

    def _together(self, results: Sequence[StepResult]) -> Mapping[str, float]:
        """Return the rewards of all steps by the task's strategy, as Harbor computes them."""
        if self.task.strategy == "final":
            return results[-1].rewards
        valid = [result.rewards for result in results if result.fault is None]
        names = dict.fromkeys(name for rewards in valid for name in rewards)
        return {name: sum(rewards.get(name, 0.0) for rewards in valid) / len(valid) for name in names}

    def write_tree(self, index: int, work: Sequence[Changes], folder: Path) -> None:
        """Write the working directory at the beginning of a step into a new folder; raises SandboxError.

        work: that on the earlier steps.
        """
        with self._at_start(index, work, network=self._least_network) as container:
            _download(container, container.workdir, folder, exclude=(), left_out=_LEFT_OUT)

    def solve(self, index: int, work: Sequence[Changes], folder: Path) -> list[str]:
        """Run the reference solution of a step, and write the working directory after it into a new folder.

        Returns the paths that it changes elsewhere. Raises SandboxError if it cannot be run.
        """
        step = self.task.steps[index]
        assert step.solution is not None
        with self._at_start(index, work, network=self.task.network) as container:
            container.put_folder(step.solution, _SOLUTION)
            container.exec(f"chmod +x {_SOLUTION}/solve.sh", seconds=60.0, user="0")
            done = container.exec(
                f"{_SOLUTION}/solve.sh",
                seconds=step.timeout_s or _SOLVE_S,
                user=step.user,
                env={"DEBIAN_FRONTEND": "noninteractive", **self.task.solution_env},
            )
            if done.exit_code is None:
                raise SandboxError("the time of the reference solution is over")
            _download(container, container.workdir, folder, exclude=(), left_out=_LEFT_OUT)
            return _elsewhere(container.changed_paths(), container.workdir)

    def forge(self, work: Sequence[Changes], script: str, folder: Path, *, seconds: float) -> StepResult:
        """Run a script as the agent of the last step, and the verifier after it as Harbor does.

        What the script leaves in the container, processes too, is there when the verifier runs, unless that has its
        own, and when the reward is read. Writes the working directory after the script into a new folder.

        work: that on the earlier steps. seconds: for the script. Raises SandboxError if its time is over.
        """
        index = len(self.task.steps) - 1
        step = self.task.steps[index]
        with self._at_start(index, work, network=self.task.network) as container:
            if container.exec(script, seconds=seconds, user=step.user).exit_code is None:
                raise SandboxError(f"the agent's script ran for more than {seconds:g} s")
            _download(container, container.workdir, folder, exclude=(), left_out=_LEFT_OUT)
            return self._graded(container, step, stop=False)

    def within(self, seconds: float) -> Trial:
        """Return a trial whose verifiers have at most so much time."""

        def limited(step: Step) -> Step:
            timeout_s = min(step.verification.timeout_s, seconds)
            return replace(step, verification=replace(step.verification, timeout_s=timeout_s))

        return replace(self, task=replace(self.task, steps=tuple(map(limited, self.task.steps))))

    def begun(self) -> contextlib.AbstractContextManager[Container]:
        """Start a container as the agent of the first step finds it, without its network; raises SandboxError."""
        return self._at_start(0, (), network=self._least_network)

    def shows_tests(self) -> bool:
        """Return whether the agent's image already holds files in /tests."""
        with (
            self.engine.started(self.task.place, network=self._least_network) as container,
            container.archive(_TESTS, max_bytes=_MAX_ARTIFACT_BYTES) as archive,
        ):
            return archive is not None and any(not member.isdir() for member in archive)

    @contextlib.contextmanager
    def _at_start(self, index: int, work: Sequence[Changes], *, network: str) -> Iterator[Container]:
        """Start a container as a step finds it; raises SandboxError if the step cannot begin."""
        with self._begun(index, work[:index], network=network) as (container, fault):
            if fault:
                raise SandboxError(f"the step {self.task.steps[index].name} cannot begin: {fault}")
            yield container

    @contextlib.contextmanager
    def _begun(self, index: int, work: Sequence[Changes], *, network: str) -> Iterator[tuple[Container, str]]:
        """Start a container at a step, with the work that is given; the second item is why a step cannot begin.

        work: that on the earlier steps, and, to grade a step, on this one.
        """
        with self.engine.started(self.task.place, network=network) as container:
            for folder in _FOLDERS:
                container.empty(folder)
            if self.task.place.files is not None:
                container.put_folder(self.task.place.files, container.workdir)
            owner = _owner(container)
            fault = ""
            for number, step in enumerate(self.task.steps[: index + 1]):
                fault = self._prepared(container, step)
                if fault:
                    break
                if number < len(work):
                    container.put_files(container.workdir, work[number], owner_of=owner)
            yield container, fault

    def _prepared(self, container: Container, step: Step) -> str:
        """Copy the files of a step, and run its setup; returns what failed."""
        if step.files is not None:
            container.put_folder(step.files, container.workdir)
            if (step.files / "setup.sh").is_file():
                script = shlex.quote(f"{container.workdir.rstrip('/')}/setup.sh")
                done = container.exec(f"bash {script}", seconds=_SETUP_S, user=step.user)
                if done.exit_code != 0:
                    return f"its setup.sh ended with {done.exit_code}: {done.output.strip()[-300:]}"
        if step.healthcheck is not None:
            try:
                container.wait_until_healthy(step.healthcheck)
            except SandboxError as error:
                return str(error)
        return ""

    def _verified(self, index: int, work: Sequence[Changes]) -> StepResult:
        step = self.task.steps[index]
        verification = step.verification
        done = [*work[: index + 1], *[{}] * (index + 1 - len(work))]
        network = verification.network if verification.place is None else self._least_network
        with self._begun(index, done, network=network) as (container, fault):
            if fault:
                return StepResult(step.name, {}, Fault.SETUP_FAILED, fault, "")
            return self._graded(container, step, stop=True)

    def _graded(self, container: Container, step: Step, *, stop: bool) -> StepResult:
        """Grade what is in a container; stop: kill all processes of the verifier's before the reward is read."""
        verification = step.verification
        if verification.place is None:
            return self._run(container, step.name, verification, stop=stop)
        try:
            with self._collected(container, verification) as artifacts:
                return self._run_separate(artifacts, step.name, verification, verification.place, stop=stop)
        except TooLargeError as error:
            return StepResult(step.name, {}, Fault.TOO_LARGE, str(error), "")

    def _run_separate(
        self,
        artifacts: Sequence[tuple[Artifact, Path]],
        name: str,
        verification: Verification,
        place: Place,
        *,
        stop: bool,
    ) -> StepResult:
        with self.engine.started(place, network=verification.network) as verifier:
            for folder in _FOLDERS:
                verifier.empty(folder)
            if place.files is not None and not verification.has_tests:
                verifier.put_folder(place.files, verifier.workdir)
            for artifact, path in artifacts:
                source = artifact.source.rstrip("/") or "/"
                if path.is_dir():
                    verifier.empty(source)
                    verifier.put_folder(path, source)
                else:
                    parent = str(PurePosixPath(source).parent)
                    entry = FileEntry(path.read_bytes(), 0o100755 if path.stat().st_mode & 0o100 else 0o100644)
                    verifier.put_files(parent, {PurePosixPath(source).name: entry}, owner_of=(0, 0))
            return self._run(verifier, name, verification, stop=stop)

    def _run(self, container: Container, name: str, verification: Verification, *, stop: bool) -> StepResult:
        """Run a verifier, and read what it wrote."""
        if not verification.has_tests:
            for folder in verification.tests:
                container.put_folder(folder, _TESTS)
        for path in _REWARDS:
            container.exec(f"rm -rf -- {path}", seconds=60.0, user="0")
        script = shlex.quote(f"{_TESTS}/{verification.script}")
        container.exec(f"chmod +x {script}", seconds=60.0, user="0")
        done = container.exec(
            f"({script}) > {_OUTPUT} 2>&1", seconds=verification.timeout_s, user=verification.user, env=verification.env
        )
        if stop:
            container.stop()
        else:
            time.sleep(_READ_AFTER_S)
        log = _log(container) or done.output
        if done.exit_code is None:
            detail = f"the verifier ran for more than {verification.timeout_s:g} s"
            return StepResult(name, {}, Fault.TIMED_OUT, detail, log)
        return _result(container, name, log)

    @contextlib.contextmanager
    def _collected(self, container: Container, verification: Verification) -> Iterator[list[tuple[Artifact, Path]]]:
        """Collect what a separate verifier is handed: first from the agent's container, then from its services."""
        with temporary_folder() as temporary:
            found: list[tuple[Artifact, Path]] = []
            artifacts = without_collisions(verification.artifacts)
            for is_main in (True, False):
                if not is_main:
                    container.stop()
                for collect in verification.collect:
                    if (collect.service == "main") is is_main:
                        user = "" if collect.user is None else str(collect.user)
                        container.collect(
                            collect.command, service=collect.service, seconds=collect.timeout_sec, user=user
                        )
                for artifact in artifacts:
                    service = artifact.service or "main"
                    if (service == "main") is not is_main:
                        continue
                    path = temporary / str(len(found))
                    if _download(
                        container,
                        artifact.source,
                        path,
                        exclude=artifact.exclude,
                        left_out=frozenset(),
                        service=service,
                        inner_links=True,
                    ):
                        found.append((artifact, path))
            yield found


def without_collisions(artifacts: Sequence[Artifact]) -> list[Artifact]:
    """Return the artifacts that Harbor collects: of those that it would store at one path, the first.

    Those of the agent's container come before those of services.
    """
    kept: list[tuple[PurePosixPath, Artifact]] = []
    for artifact in sorted(artifacts, key=lambda a: a.service not in (None, "main")):
        stored = PurePosixPath("/", (artifact.destination or artifact.source).lstrip("/"))
        taken = [path for path, other in kept if other != artifact]
        if not any(path.is_relative_to(stored) or stored.is_relative_to(path) for path in taken):
            kept.append((stored, artifact))
    return [artifact for _, artifact in kept]


def _result(container: Container, name: str, log: str) -> StepResult:
    """Return the rewards that a verifier wrote: `reward.json`, else `reward.txt`."""
    for path in _REWARDS:
        try:
            data = container.read(path, max_bytes=_MAX_REWARD_BYTES)
        except SandboxError as error:
            return StepResult(name, {}, Fault.INVALID_REWARD, str(error), log)
        if data is None:
            continue
        try:
            return StepResult(name, read_rewards(data, is_json=path.endswith(".json")), None, "", log)
        except ValueError as error:
            return StepResult(name, {}, Fault.INVALID_REWARD, f"{path}: {error}", log)
    return StepResult(name, {}, Fault.NO_REWARD, f"the verifier wrote no {' and no '.join(_REWARDS)}", log)


def read_rewards(data: bytes, *, is_json: bool) -> dict[str, float]:
    """Return the rewards of a file by name; raises ValueError unless they are finite numbers."""
    try:
        return _rewards(data, is_json=is_json)
    except (OverflowError, RecursionError) as error:
        raise ValueError(str(error)) from None


def _rewards(data: bytes, *, is_json: bool) -> dict[str, float]:
    text = data.decode("utf-8", "replace")
    if not is_json:
        rewards = {_REWARD: float(text)}
    else:
        parsed = json.loads(text)
        if not isinstance(parsed, dict):
            raise ValueError("it is no object of rewards by name")
        rewards = parsed
    for name, value in rewards.items():
        if not isinstance(value, int | float) or not math.isfinite(value):
            raise ValueError(f"the reward {name!r} is no finite number")
    if not rewards:
        raise ValueError("it holds no reward")
    return {name: float(value) for name, value in rewards.items()}


def _log(container: Container) -> str:
    """Return the end of what the verifier printed."""
    text = b""
    with contextlib.suppress(SandboxError), container.archive(_OUTPUT, max_bytes=256 * MIB) as archive:
        member = archive.next() if archive is not None else None
        file = archive.extractfile(member) if archive is not None and member is not None and member.isreg() else None
        while file is not None and (part := file.read(MIB)):
            text = (text + part)[-_MAX_LOG_BYTES:]
    return text.decode("utf-8", "replace")


def _owner(container: Container) -> tuple[int, int]:
    """Return the user and the group that own the working directory."""
    shown = container.exec('stat -c "%u %g" .', seconds=60.0, user="0").output.split()
    return (int(shown[0]), int(shown[1])) if len(shown) == 2 and all(map(str.isdecimal, shown)) else (0, 0)


def _elsewhere(paths: Sequence[str], workdir: str) -> list[str]:
    """Return the changed paths that are no part of the work and may matter, without the folders above others."""
    ignored = (*_PASSING, _INIT)
    changed = [p for p in paths if not any(other.startswith(f"{p}/") for other in paths)]
    outside = [p for p in changed if not any(_is_below(p, top) for top in (*ignored, workdir))]
    inside = {_left_out_folder(PurePosixPath(p)) for p in changed if _is_below(p, workdir)} - {""}
    return [*outside, *sorted(inside)]


def _is_below(path: str, top: str) -> bool:
    return path == top or path.startswith(f"{top.rstrip('/')}/")


def _left_out_folder(path: PurePosixPath) -> str:
    """Return the folder of a path that is left out of trees; empty without one. Caches of Python are of no interest."""
    found = [n for n, part in enumerate(path.parts, 1) if part in TOOL_FOLDERS - {"__pycache__"}]
    return str(PurePosixPath(*path.parts[: found[0]])) if found else ""


def _download(
    container: Container,
    source: str,
    target: Path,
    *,
    exclude: Sequence[str],
    left_out: frozenset[str],
    service: str = "main",
    inner_links: bool = False,
) -> bool:
    """Write a file or folder of a container to a new path; returns whether it exists.

    exclude: patterns as of tar's `--exclude`. left_out: names of folders and files to leave out. inner_links: leave out
    links that lead out of the folder: in another container they could lead to an answer. Raises TooLargeError.
    """
    links: list[tuple[Path, str]] = []
    source = container.without_link(source, service=service)
    with container.archive(source, service=service, max_bytes=_MAX_TREE_BYTES) as archive:
        if archive is None:
            return False
        for member in archive:
            name = relative_name(member)
            parts = PurePosixPath(name).parts
            if left_out.intersection(parts) or is_excluded(parts, exclude):
                continue
            if ".." in parts:
                continue
            path = target / name if name else target
            if member.issym() and name:
                if not (inner_links and _leads_out(name, member.linkname)):
                    links.append((path, member.linkname))
            elif member.islnk():
                _copy_hard_link(target, path, member)
            else:
                _write(archive, member, path)
    # Nothing may be written through a link, so that they come last.
    for path, goal in links:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.symlink_to(goal)
    return target.exists()


def _leads_out(name: str, goal: str) -> bool:
    """Return whether a link leads out of the folder that its name is relative to."""
    return (
        goal.startswith("/") or posixpath.normpath(posixpath.join(posixpath.dirname(name), goal)).split("/")[0] == ".."
    )


def _copy_hard_link(target: Path, path: Path, member: tarfile.TarInfo) -> None:
    """Write a file that has several names, which an archive holds under its first one only."""
    first = PurePosixPath(member.linkname).parts[1:]
    known = target.joinpath(*first)
    if ".." not in first and known.is_file():
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(known, path)


def is_excluded(parts: Sequence[str], patterns: Sequence[str]) -> bool:
    """Return whether a path, or a folder above it, matches a pattern as of tar, which packs `.`."""
    all_parts = (".", *parts)
    count = len(all_parts)
    ends = ["/".join(all_parts[first:last]) for first in range(count) for last in range(first + 1, count + 1)]
    return any(fnmatchcase(end, pattern) for pattern in patterns for end in ends)


def _write(archive: tarfile.TarFile, member: tarfile.TarInfo, path: Path) -> None:
    if member.isdir():
        path.mkdir(parents=True, exist_ok=True)
    elif member.isreg() and (file := archive.extractfile(member)) is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as copy:
            shutil.copyfileobj(file, copy)
        path.chmod(0o755 if member.mode & 0o100 else 0o644)
