"""What a diff is said to be, and the codes of those that are refused."""

from __future__ import annotations

import pytest
from diff_forms import BARE, FURTHER, GIT, LISTED, NEW_FILE, TREE

from harness.diffs import AppliedDiff, DiffError, apply_diff
from harness.diffs.applied import Form
from harness.diffs.commands import Step
from pytest_ssr.patch import FileEntry, Patch, make_patch
from pytest_ssr.records.reasons import FlagCode, ReasonCode

CLEAN = apply_diff(GIT.encode(), TREE.get)


def applied(text: str) -> AppliedDiff:
    return apply_diff(text.encode(), TREE.get)


def test_a_strict_diff_stays_as_it_is() -> None:
    for text in (GIT, BARE, BARE + NEW_FILE, LISTED["of git show"], FURTHER["a rename with a change"]):
        result = applied(text)
        assert result.patch == Patch.parse(text.encode())
        assert result.flags == ()


FORMS = {
    "without a diff --git line": (Step.GIT_APPLY, Form.PLAIN),
    "with i/ and w/": (Step.GIT_APPLY, Form.PREFIX),
    "a mail": (Step.GIT_APPLY, Form.MAIL, Form.TEXT),
    "in a fence": (Step.GIT_APPLY, Form.FENCE),
    "in tags": (Step.GIT_APPLY, Form.TEXT),
    "before a blank line": (Step.GIT_APPLY,),
    "thirty lines too low": (Step.GIT_APPLY, Form.OFFSET),
    "with CRLF": (Step.PATCH, Form.CRLF),
    "with another first line": (Step.PATCH, Form.FUZZ),
    "with a byte order mark": (Step.GIT_APPLY, Form.BYTE_ORDER_MARK),
    "without a newline at its end": (Step.PATCH, Form.NO_FINAL_NEWLINE),
    "a diff of a context diff": (Step.PATCH, Form.CONTEXT_DIFF),
    "a new file at an empty one": (Step.THREE_WAY,),
    "a change that is made already": (Step.ALREADY_APPLIED,),
}


@pytest.mark.parametrize("name", FORMS)
def test_a_form_has_a_name(name: str) -> None:
    result = applied({**LISTED, **FURTHER}[name])
    step, *forms = FORMS[name]
    assert result.forms[0] == step
    assert set(forms) <= set(result.forms[1:])
    (flag,) = result.flags
    assert (flag.code, flag.details) == (FlagCode.PATCH_REWRITTEN, result.forms)


def test_the_strict_form_of_a_diff_is_that_of_the_clean_one() -> None:
    for name in ("in a fence", "thirty lines too low", "with another first line", "with CRLF", "a mail"):
        changes = [change.hunks for change in applied({**LISTED, **FURTHER}[name]).patch.files]
        assert changes == [change.hunks for change in CLEAN.patch.files]


def test_a_binary_file_without_content_is_left_out() -> None:
    for name in ("with a new binary file without content", "a change, and a binary file without content"):
        result = applied({**LISTED, **FURTHER}[name])
        assert result.patch.paths == ("shop.py",)
        assert [flag.code for flag in result.flags] == [FlagCode.FILES_LEFT_OUT]
        assert result.left_out in (("x.pyc",), ("data.bin",))
    alone = applied(FURTHER["only a binary file without content"])
    assert (alone.patch.files, alone.left_out) == ((), ("data.bin",))


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("a blank answer", ReasonCode.PATCH_UNREADABLE),
        ("JSON text", ReasonCode.PATCH_UNREADABLE),
        ("of --word-diff", ReasonCode.PATCH_UNREADABLE),
        ("of a combined merge", ReasonCode.PATCH_UNREADABLE),
        ("counts far too large", ReasonCode.PATCH_UNREADABLE),
        ("with dots for line numbers", ReasonCode.PATCH_UNREADABLE),
        ("a file that does not exist", ReasonCode.PATCH_DOES_NOT_APPLY),
        ("a deletion of other content", ReasonCode.PATCH_DOES_NOT_APPLY),
        ("with absolute names", ReasonCode.PATCH_DOES_NOT_APPLY),
    ],
)
def test_a_refused_diff_has_a_code(name: str, code: ReasonCode) -> None:
    with pytest.raises(DiffError) as error:
        applied({**LISTED, **FURTHER}[name])
    assert error.value.code is code
    assert "\n" not in str(error.value)


def test_a_file_may_become_a_folder_and_a_folder_a_file() -> None:
    tree = {"file": FileEntry(b"old\n", 0o100644), "folder/old": FileEntry(b"old\n", 0o100644)}
    new = {"file/new": FileEntry(b"new\n", 0o100644), "folder": FileEntry(b"new\n", 0o100644)}
    pairs = {path: (tree.get(path), new.get(path)) for path in (*tree, *new)}
    patch = make_patch(pairs)
    result = apply_diff(patch.data, tree.get)
    assert (result.patch, result.flags) == (patch, ())
