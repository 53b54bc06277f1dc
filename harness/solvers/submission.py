"""How a solver submits: the changes of its tree, or a patch file, once or several times.

In the paper (arXiv 2512.18552, section 2.4 and its prompts), the argument of `submit` is the path of a git diff, and a
solver may submit several times. The last submission is graded: it is the solver's answer, and grading each one would
return a verdict while the solver still works.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from harness.agents.prompts import Prompts
from pytest_ssr.errors import SettingsError


class SubmissionForm(StrEnum):
    """What `submit` takes."""

    TREE = "tree"
    """The changes of the solver's tree; it takes no argument."""
    PATCH_FILE = "patch-file"
    """A git diff, by its path."""


@dataclass(frozen=True, slots=True)
class SubmissionSettings:
    """How a solver submits."""

    form: SubmissionForm = SubmissionForm.TREE
    most: int = 1
    """Submissions in one attempt; the last one is graded."""

    def __post_init__(self) -> None:
        """Raise SettingsError if no submission is allowed."""
        if self.most < 1:
            raise SettingsError(f"--submissions must be at least 1, not {self.most}", option="submissions")

    def instructions(self, prompts: Prompts) -> str:
        """Return the end of the system prompt: how to submit, and what counts."""
        text = prompts.fill(f"submit_{self.form}".replace("-", "_"))
        if self.most > 1:
            text += prompts.fill("submit_again", most=self.most)
        return text.rstrip("\n")
