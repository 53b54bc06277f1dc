"""Changes are made again from the diffs of their records."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from pytest_ssr.injectors.recorded import RecordedInjector, changes_of, identity_of_result
from pytest_ssr.patch import FileEntry, make_patch
from pytest_ssr.project.snapshot import take_snapshot
from pytest_ssr.records.candidate_result import CandidateResult, CandidateStatus

Files = Mapping[str, bytes]


def result_of(diff: str) -> CandidateResult:
    return CandidateResult(0, CandidateStatus.NOTICED, "removal", "remove", "a.py", 1, "f", "", diff)


def diff_of(old: Files, new: Files) -> str:
    def entry(files: Files, path: str) -> FileEntry | None:
        return FileEntry(files[path], 0o100644) if path in files else None

    patch = make_patch({path: (entry(old, path), entry(new, path)) for path in {*old, *new}})
    return patch.data.decode("utf-8", "replace")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        pytest.param({"a.py": b"x = 1\r\ny = 2\r\n"}, {"a.py": b"x = 1\r\ny = 3\r\n"}, id="crlf"),
        pytest.param({"a.py": b"\xef\xbb\xbfx = 1"}, {"a.py": b"\xef\xbb\xbfx = 2"}, id="bom-and-no-final-newline"),
        pytest.param({"a.py": b"x = 1\x0c\ny = 2\n"}, {"a.py": b"x = 1\x0c\ny = 3\n"}, id="form-feed"),
        pytest.param({"a.py": "é = 1\u2028\n".encode()}, {"a.py": "é = 2\u2028\n".encode()}, id="line-separator"),
        pytest.param({"a.py": b"x = 1\n", "b.py": b"y = 1\n"}, {"a.py": b"x = 2\n", "c.py": b"z = 1\n"}, id="files"),
        pytest.param({"a.py": b"x = 1\n", "b.py": b""}, {"a.py": b"x = 2\n"}, id="empty-file-deleted"),
    ],
)
def test_a_diff_gives_the_change_again(tmp_path: Path, old: Files, new: Files) -> None:
    for path, data in old.items():
        (tmp_path / path).write_bytes(data)
    snapshot = take_snapshot(tmp_path, tmp_path / ".ssr" / "trees")
    (candidate,) = RecordedInjector([result_of(diff_of(old, new))]).candidates(snapshot, seed=0)
    expected = {path: new.get(path) for path in {*old, *new} if old.get(path) != new.get(path)}
    assert candidate.changes == expected


@pytest.mark.parametrize(
    "diff",
    [
        pytest.param("", id="empty"),
        pytest.param("-x\n+y\n", id="no-diff"),
        pytest.param(diff_of({"a.py": b"y = 1\n"}, {"a.py": b"y = 2\n"}), id="other-code"),
        pytest.param(diff_of({"a.py": b"x = 1\n"}, {"a.py": b"x = 2\n"}) + "\ud800", id="half-of-a-pair"),
        pytest.param(diff_of({"b.py": b"x = 1\n"}, {}), id="missing-file"),
        pytest.param(diff_of({}, {"a.py": b"x = 2\n"}), id="existing-file"),
    ],
)
def test_a_diff_that_gives_no_change_is_unreadable(tmp_path: Path, diff: str) -> None:
    (tmp_path / "a.py").write_text("x = 1\n")
    snapshot = take_snapshot(tmp_path, tmp_path / ".ssr" / "trees")
    result = result_of(diff)
    assert changes_of(result, snapshot.read) is None
    assert identity_of_result(result, snapshot.read) == ""
    injector = RecordedInjector([result])
    assert injector.depends_on(snapshot)
    assert list(injector.candidates(snapshot, seed=0)) == []
