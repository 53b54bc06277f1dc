"""Read diffs that other people's tools wrote: any form, applied to a tree as SWE-bench's harness applies them."""

from harness.diffs.applied import AppliedDiff, DiffError, apply_diff, require_diff
from harness.diffs.commands import MissingToolError
from harness.diffs.row_diffs import read_row_diff

__all__ = ["AppliedDiff", "DiffError", "MissingToolError", "apply_diff", "read_row_diff", "require_diff"]
