"""Define the record of a row of the SWE-bench family, and its errors."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from harness.harbor.task import HarborTask
from pytest_ssr.errors import SettingsError, SsrError
from pytest_ssr.patch import Patch
from pytest_ssr.records.reasons import ReasonCode

if TYPE_CHECKING:
    from harness.datasets.instance_task import InstanceTask

_SWE_SMITH = "swebench/swesmith.x86_64."


class InstanceError(SsrError):
    """A row cannot be used; the message names the row and the problem."""


class DoesNotHoldError(InstanceError):
    """What a row says of its tests does not hold on this machine."""

    def __init__(self, message: str, tests: Sequence[str]) -> None:
        super().__init__(message)
        self.tests = tuple(tests)
        """The tests with another outcome, as runs report them."""
        self.task: InstanceTask | None = None
        """The task as far as it is open: without the tests that decide."""


class ReferenceFailsError(DoesNotHoldError):
    """Tests do not pass with the reference solution."""


class EmptyResolvesError(DoesNotHoldError):
    """Tests that the reference solution should repair pass without it."""


class RowError(InstanceError, SettingsError):
    """A row cannot be read."""

    code: ClassVar[ReasonCode] = ReasonCode.INVALID_ROW
    """The kind of reason that a result of the row gets."""


@dataclass(frozen=True, slots=True)
class Instance:
    """A repository at a commit, its tests, and the task."""

    id: str
    repo: str
    """`owner/name`."""
    base_commit: str
    """Empty if only the image holds the repository."""
    patch: Patch
    """The reference solution."""
    test_patch: Patch
    """Adds the tests that reveal the fault; empty if the repository already has them."""
    fail_to_pass: tuple[str, ...]
    pass_to_pass: tuple[str, ...]
    given_ids: Mapping[str, str] = field(default_factory=dict)
    """The ids that the row gives in another form, by the form that is used here; reports return the row's."""
    statement: str = ""
    """The task in prose."""
    family: str = "swe-bench"
    begins_solved: bool = False
    """Whether the commit already holds the reference solution, whose reverse adds the bug."""
    version: str = ""
    named_image: str = ""
    """The image of its environment, if the row names one, else empty."""
    install: Mapping[str, Any] = field(default_factory=dict)
    """`install_config` of SWE-rebench: python, pre_install, install, pip_packages, test_cmd and more."""
    log_parser: str = ""
    eval_script: str = ""
    created_at: str = ""
    licence: str = ""
    artifact_id: str = ""
    """The bug that the row was made from, by `ssr export`; empty for other rows."""
    row: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)
    """The row as it was given, with all of its columns."""
    data_source: str = ""
    """The source that a prompt of OpenClaw-RL's swe-rl names; else the family."""
    invalid: str = ""
    """Why its row cannot be read, with the row's location; the other fields are then empty, except the names."""
    harbor: HarborTask | None = field(default=None, repr=False)
    """The task directory that it was read from, whose verifier grades it; None for a row."""
    invalid_code: ReasonCode = ReasonCode.INVALID_ROW
    """The kind of reason that `invalid` gives."""

    @property
    def has_tests(self) -> bool:
        """Whether it says what decides a grade: tests, or a verifier."""
        return bool(self.fail_to_pass) or self.harbor is not None

    @property
    def folder_in_image(self) -> str:
        """The path of the repository in its image, by its family's convention."""
        if self.family == "swe-bench-pro":
            return "/app"
        if self.family == "swe-rebench-v2":
            return f"/{self.repo.partition('/')[2]}"
        return "/testbed"

    @property
    def image(self) -> str:
        """The image of its environment: the row's, else the one named by its family's convention.

        Empty for a bug of ours, a row of SWE-bench Extra and a task directory that name none: nobody has published
        images of these.
        """
        if self.named_image or self.artifact_id or self.harbor or self.family == "swe-bench-extra":
            return self.named_image
        if self.family == "swe-gym":
            return f"xingyaoww/sweb.eval.x86_64.{self.id.replace('__', '_s_').lower()}:latest"
        if self.family == "swe-smith":
            return f"{_SWE_SMITH}{self.id.rpartition('.')[0].replace('__', '_1776_').lower()}:latest"
        return f"swebench/sweb.eval.x86_64.{self.id.replace('__', '_1776_').lower()}:latest"

    def sandbox(self, engine: str) -> str:
        """Return the name of a sandbox that runs its image with an engine, `docker` or `apptainer`.

        Apptainer also takes absolute paths, of a `.sif` or a folder, and references such as `oras://host/name`.
        Raises InstanceError if it has no image.
        """
        if not self.image:
            raise InstanceError(
                f"{self.id} names no image; name the project's with --sandbox {engine}:IMAGE, or by ssr export --image"
            )
        if engine == "docker":
            return f"docker:{self.image}"
        is_reference = self.image.startswith("/") or "://" in self.image
        return f"apptainer:{self.image}" if is_reference else f"apptainer:docker://{self.image}"

    @property
    def key(self) -> str:
        """A hash of everything that a grade of it depends on."""
        content = [
            self.repo,
            self.base_commit,
            self.patch.data.decode("latin-1"),
            self.test_patch.data.decode("latin-1"),
        ]
        command = [
            self.version,
            self.eval_script,
            self.log_parser,
            *(self.install.get(k) for k in ("test_cmd", "log_parser", "env_vars")),
        ]
        text = json.dumps(
            [
                self.id,
                *content,
                sorted(self.fail_to_pass),
                sorted(self.pass_to_pass),
                *command,
                *self.given_ids.values(),
                *([self.artifact_id] if self.artifact_id else []),
                *([self.harbor.digest] if self.harbor is not None else []),
            ]
        )
        return hashlib.sha256(text.encode()).hexdigest()[:20]
