"""A row of the SWE-bench family as a record."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pytest_ssr.errors import SettingsError, SsrError
from pytest_ssr.patch import Patch

_SWE_SMITH = "swebench/swesmith.x86_64."


class InstanceError(SsrError):
    """A row cannot be used; says which, and what is wrong with it."""


class RowError(InstanceError, SettingsError):
    """A row cannot even be read."""


@dataclass(frozen=True, slots=True)
class Instance:
    """A repository at a commit, its tests, and what is to be done."""

    id: str
    repo: str
    """`owner/name`."""
    base_commit: str
    """Empty where the repository is in the image alone."""
    patch: Patch
    """The reference solution."""
    test_patch: Patch
    """Brings the tests that show the fault; empty where the repository has them already."""
    fail_to_pass: tuple[str, ...]
    pass_to_pass: tuple[str, ...]
    statement: str = ""
    """What is to be done, in words."""
    family: str = "swe-bench"
    begins_solved: bool = False
    """The commit holds the reference solution already; the patch that breaks it is the solution's reverse."""
    version: str = ""
    named_image: str = ""
    """The image of its environment, if the row names one."""
    install: Mapping[str, Any] = field(default_factory=dict)
    """`install_config` of SWE-rebench: python, pre_install, install, pip_packages, test_cmd and more."""
    log_parser: str = ""
    eval_script: str = ""
    created_at: str = ""
    licence: str = ""

    @property
    def image(self) -> str:
        """The image of its environment: the row's, else by the rule of its family."""
        if self.named_image:
            return self.named_image
        if self.family == "swe-gym":
            return f"xingyaoww/sweb.eval.x86_64.{self.id.replace('__', '_s_').lower()}:latest"
        if self.family == "swe-smith":
            return f"{_SWE_SMITH}{self.id.rpartition('.')[0].replace('__', '_1776_').lower()}:latest"
        return f"swebench/sweb.eval.x86_64.{self.id.replace('__', '_1776_').lower()}:latest"

    def sandbox(self, engine: str) -> str:
        """Return the name of a sandbox in its own image; engine: docker or apptainer."""
        return f"docker:{self.image}" if engine == "docker" else f"apptainer:docker://{self.image}"

    @property
    def key(self) -> str:
        """A hash of all that a grade of it depends on."""
        told = [self.repo, self.base_commit, self.patch.data.decode("latin-1"), self.test_patch.data.decode("latin-1")]
        text = json.dumps([self.id, *told, sorted(self.fail_to_pass), sorted(self.pass_to_pass)])
        return hashlib.sha256(text.encode()).hexdigest()[:20]
