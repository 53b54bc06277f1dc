"""Apply any diff to a tree as SWE-bench's harness does, and write what it did as a strict git diff.

A diff comes in as bytes that a model, a mailer or an editor wrote; out comes the patch for the strict engine, which
everything after this uses, with what was unusual about it. A strict diff that applies exactly at the lines that it
states is returned as it is.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from harness.diffs.binaries import without_empty_binaries
from harness.diffs.commands import Step, StepResult, run_steps
from harness.diffs.names import has_names, may_write_below_symlink, named_files
from pytest_ssr.errors import ArtifactError
from pytest_ssr.patch import FileChange, FileEntry, Patch, apply_patch, make_patch
from pytest_ssr.patch.changes import SYMLINK, renumbered, split_lines
from pytest_ssr.records.reasons import Flag, FlagCode, ReasonCode


class Form(StrEnum):
    """A property of a diff that the strict engine does not accept, or of how it was applied."""

    OFFSET = "offset"
    """A hunk applies at other lines than it states."""
    FUZZ = "fuzz"
    """The context of a hunk is not that of the file."""
    FENCE = "fence"
    MAIL = "mail"
    """It is a mail of `git format-patch`, or several."""
    TEXT = "text"
    """Lines before, between or after the files belong to no diff."""
    PREFIX = "prefix"
    """The names do not begin with a/ and b/."""
    PLAIN = "plain"
    """A file has no `diff --git` line."""
    CONTEXT_DIFF = "context-diff"
    CRLF = "crlf"
    """Its own lines end in CRLF."""
    BYTE_ORDER_MARK = "byte-order-mark"
    NO_FINAL_NEWLINE = "no-final-newline"


_PATTERNS = {
    Form.FENCE: rb"^[ \t]*(?:```|~~~)",
    Form.MAIL: rb"^From [0-9a-f]{40,64} ",
    Form.CONTEXT_DIFF: rb"^\*\*\*\*\*\*\*\*",
    Form.CRLF: rb"^(?:diff |--- |\+\+\+ |@@ )[^\n]*\r$",
    Form.BYTE_ORDER_MARK: rb"\A\xef\xbb\xbf",
    Form.PREFIX: rb"^(?:diff --git (?!\"?a/)|--- (?!\"?a/|/dev/null)|\+\+\+ (?!\"?b/|/dev/null))",
    Form.NO_FINAL_NEWLINE: rb"[^\n]\Z",
}
_TEXT = re.compile(
    rb"[ +\-@\\\n]|diff |index |(?:old|new|deleted file|new file) mode |(?:similarity|dissimilarity) index "
    rb"|(?:rename|copy) (?:from|to) |GIT binary patch|(?:literal|delta) \d|Index: |={60}|\*\*\*|! |[A-Za-z][^ ]+$"
)
"""How the lines of diffs begin; the last are lines of binary data."""


def forms_of(data: bytes, result: StepResult) -> tuple[Form, ...]:
    """Return the forms of a diff that a command has applied, in the order of their definition."""
    found = {form for form, pattern in _PATTERNS.items() if re.search(pattern, data, re.MULTILINE)}
    found |= set(_notes(result.output))
    lines = data.split(b"\n")
    if any(line and not _TEXT.match(line.rstrip(b"\r") or b"\n") for line in lines):
        found.add(Form.TEXT)
    if data.count(b"\n@@ ") and not re.search(rb"^diff --git ", data, re.MULTILINE):
        found.add(Form.PLAIN)
    return tuple(form for form in Form if form in found)


def _notes(output: bytes) -> Iterator[Form]:
    """Yield what git and GNU patch note about hunks, in the locale C."""
    if re.search(rb"\(offset -?\d+ line", output):
        yield Form.OFFSET
    if re.search(rb" with fuzz \d|^Context reduced to ", output, re.MULTILINE):
        yield Form.FUZZ


MAX_BYTES = 16 << 20
_Read = Callable[[str], FileEntry | None]


class DiffError(ArtifactError):
    """A diff cannot be read, or does not apply."""

    def __init__(self, code: ReasonCode, message: str) -> None:
        """code: `PATCH_UNREADABLE` or `PATCH_DOES_NOT_APPLY`."""
        super().__init__(message)
        self.code = code


@dataclass(frozen=True, slots=True)
class AppliedDiff:
    """A diff that applies to a tree."""

    patch: Patch
    """The same changes as a strict git diff, without those that are left out."""
    forms: tuple[str, ...] = ()
    """The command that applied it and what was unusual about it, as codes; empty for a strict diff."""
    left_out: tuple[str, ...] = ()
    """Paths of binary files whose content the diff does not hold, and of symlinks."""

    @property
    def flags(self) -> tuple[Flag, ...]:
        """What a grade records about the diff."""
        codes = ((FlagCode.PATCH_REWRITTEN, self.forms), (FlagCode.FILES_LEFT_OUT, self.left_out))
        return tuple(Flag(code, details) for code, details in codes if details)


def require_diff(data: bytes) -> None:
    """Raise DiffError if no tree is needed to see that this is not a diff that can be applied."""
    if len(data) > MAX_BYTES:
        raise DiffError(ReasonCode.PATCH_UNREADABLE, f"the diff is larger than {MAX_BYTES >> 20} MiB")
    if not has_names(data):
        raise DiffError(ReasonCode.PATCH_UNREADABLE, "no line of it names a file; submit what git diff prints")


def apply_diff(data: bytes, read: _Read) -> AppliedDiff:
    """Apply a diff of any form to a tree.

    read: returns a file of the tree, or None if the file does not exist.
    Raises DiffError if no command of the reference applies it, or if it leaves the tree, and MissingToolError if a
    command that may apply it is not installed.
    """
    require_diff(data)
    data, binaries = without_empty_binaries(data)
    if binaries and not has_names(data):
        return AppliedDiff(Patch(), left_out=binaries)
    patch = _exact(data, read)
    if patch is not None:
        kept, links = _without_symlinks(patch, read)
        return AppliedDiff(kept, left_out=(*binaries, *links))
    try:
        before = named_files(data, read)
        if may_write_below_symlink(data):
            raise ArtifactError("it writes below a symlink that it makes")
    except ArtifactError as error:
        raise DiffError(ReasonCode.PATCH_UNREADABLE, str(error)) from None
    with tempfile.TemporaryDirectory(prefix="ssr-diff-") as folder:
        results = run_steps(data, before, Path(folder))
    done = results[-1]
    if done.exit_code:
        raise _refusal(results)
    changes, links = _changes(before, done.files, read)
    try:
        patch = make_patch(changes)
    except ArtifactError as error:
        raise DiffError(ReasonCode.PATCH_UNREADABLE, str(error)) from None
    forms = (str(done.step), *map(str, forms_of(data, done)))
    return AppliedDiff(patch, forms, (*binaries, *links))


def _exact(data: bytes, read: _Read) -> Patch | None:
    """Return a strict diff that applies at the lines that it states and nowhere else, or None."""
    try:
        patch = Patch.parse(data)
        apply_patch(patch, read)
    except ArtifactError:
        return None
    return patch if patch.files and all(_is_placed(change, read) for change in patch.files) else None


def _is_placed(change: FileChange, read: _Read) -> bool:
    """Return whether a command of the reference, too, would apply each hunk where its old lines are.

    Git begins to search at the new line numbers, and binds a hunk without context to an end of the file.
    """
    if not change.hunks:
        return True
    old = read(change.old_path) if change.old_path is not None else None
    total = len(split_lines(old.data)) if old is not None else 0
    for hunk, expected in zip(change.hunks, renumbered(change.hunks), strict=True):
        lines = [line for line in hunk.lines if not line.startswith(b"\\")]
        start = hunk.old_start - (1 if hunk.old_count else 0)
        is_bound = (start == 0 or lines[0][:1] in b" \n") and (
            start + hunk.old_count == total or lines[-1][:1] in b" \n"
        )
        if hunk.new_start != expected.new_start or not is_bound:
            return False
    return True


def _without_symlinks(patch: Patch, read: _Read) -> tuple[Patch, tuple[str, ...]]:
    """Return a patch without the files that are symlinks after it, and their paths."""
    entries = apply_patch(patch, read)
    links = {path for path, entry in entries.items() if entry is not None and entry.mode == SYMLINK}
    kept: list[FileChange] = []
    for group in patch.split_files():
        kept += () if any(change.new_path in links for change in group.files) else group.files
    return Patch(tuple(kept)), tuple(path for path in entries if path in links)


def _changes(
    before: Mapping[str, FileEntry], after: Mapping[str, FileEntry], read: _Read
) -> tuple[dict[str, tuple[FileEntry | None, FileEntry | None]], tuple[str, ...]]:
    """Return the old and the new entry of each path that a command changed, and the symlinks among them."""
    changed = [path for path in sorted({*before, *after}) if before.get(path) != after.get(path)]
    links = tuple(path for path in changed if path in after and after[path].mode == SYMLINK)
    return {path: (read(path), after.get(path)) for path in changed if path not in links}, links


def _refusal(results: Sequence[StepResult]) -> DiffError:
    """Return why no command applied a diff: in the words of the first, which states it most precisely."""
    tried = [result for result in results if result.step is not Step.ALREADY_APPLIED]
    code = ReasonCode.PATCH_UNREADABLE if _all_unreadable(tried) else ReasonCode.PATCH_DOES_NOT_APPLY
    lines = tried[0].output.decode("utf-8", "replace").splitlines()
    errors = [line.removeprefix("error: ") for line in lines if line.startswith(("error: ", "fatal: "))]
    errors = [line for line in errors if not line.startswith("while searching for")]
    return DiffError(code, f"git apply and patch refuse it: {errors[0] if errors else 'they state no reason'}")


def _all_unreadable(results: Collection[StepResult]) -> bool:
    return all(result.is_unreadable for result in results)
