"""The injectors over a small tree: deterministic, with valid Python, balanced, and with clear errors."""

import os
import subprocess
import sys
from collections import Counter
from itertools import islice
from pathlib import Path

import pytest

from pytest_ssr.errors import ProjectError
from pytest_ssr.injectors.combination import CombinationInjector, combine
from pytest_ssr.injectors.equivalence import fingerprint, parses
from pytest_ssr.injectors.history import HistoryInjector
from pytest_ssr.injectors.mutation import MutationInjector
from pytest_ssr.injectors.removal import RemovalInjector

SMALL = b'''\
def tiny(a, b):
    """Adds."""
    return a + b if a > 2 else b
'''
LARGE = b"\n\n".join(
    b'''def work_%d(items, limit=3):
    """Works."""
    total = 0
    for item in items[1:]:
        if item > limit and item not in (5, 7):
            total += item
        else:
            total -= 1
    return total'''
    % n
    for n in range(30)
)
GENERATOR = b"""\
class Thing:
    def __init__(self, x):
        super().__init__()
        self.x = x

    def each(self):
        for i in range(self.x):
            yield i
        return

    def __enter__(self):
        self.x += 1
        return self
"""


class Files:
    """A source tree of files in memory."""

    def __init__(self, files: dict[str, bytes], origin: Path | None = None) -> None:
        self.files, self.origin = files, origin

    def paths(self) -> list[str]:
        return sorted(self.files)

    def read(self, path: str) -> bytes:
        return self.files[path]

    code_paths = paths


TREE = Files({"pkg/small.py": SMALL, "pkg/large.py": LARGE, "other/thing.py": GENERATOR})
ALL = [MutationInjector, RemovalInjector, CombinationInjector]


@pytest.mark.parametrize("kind", ALL)
def test_candidates_parse_differ_and_are_reproducible(kind: type[MutationInjector]) -> None:
    candidates = list(islice(kind().candidates(TREE, seed=1), 80))
    assert len(candidates) > 15
    for candidate in candidates:
        for path, data in candidate.changes.items():
            assert data is not None
            assert parses(data), (candidate.operator, data)
            assert fingerprint(TREE.read(path)) != fingerprint(data)
    again = list(islice(kind().candidates(TREE, seed=1), 80))
    assert [(c.operator, c.changes) for c in again] == [(c.operator, c.changes) for c in candidates]
    other = list(islice(kind().candidates(TREE, seed=2), 80))
    assert [c.changes for c in other] != [c.changes for c in candidates]


@pytest.mark.parametrize("kind", ALL)
def test_the_order_does_not_depend_on_the_hash_seed(kind: type[MutationInjector]) -> None:
    code = (
        "import sys, hashlib; sys.path.insert(0, sys.argv[1]); from test_injectors import *; "
        f"print(hashlib.sha256(repr([c.changes for c in islice({kind.__name__}().candidates(TREE, seed=0), 40)])"
        ".encode()).hexdigest())"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", code, str(Path(__file__).parent)],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(outputs) == 1


def test_a_small_file_is_drawn_as_often_as_a_large_one() -> None:
    candidates = list(islice(MutationInjector().candidates(TREE, seed=0), 12))
    assert Counter(c.path for c in candidates)["pkg/small.py"] >= 3


def test_a_removed_body_keeps_generators_super_and_self() -> None:
    tree = Files({"other/thing.py": GENERATOR})
    whole = [c for c in RemovalInjector().candidates(tree, seed=0) if "body" in c.operator]
    bodies = {c.scope: c.changes["other/thing.py"] for c in whole}
    assert b"def each(self):\n        return\n        yield" in (bodies["Thing.each"] or b"")
    assert b"super().__init__()" in (bodies["Thing.__init__"] or b"")
    assert b"self.x = x" not in (bodies["Thing.__init__"] or b"")
    assert b"def __enter__(self):\n        return self" in (bodies["Thing.__enter__"] or b"")


def test_a_combination_makes_both_changes_and_refuses_the_same_function_twice() -> None:
    candidates = [c for c in islice(MutationInjector().candidates(TREE, seed=0), 60) if c.path == "pkg/large.py"]
    one, other = candidates[0], next(c for c in candidates if c.scope != candidates[0].scope)
    both = combine(TREE, [one, other])
    assert both is not None
    assert both.operator == "combine-same-file"
    assert one.operator in both.detail
    assert other.operator in both.detail
    assert both.changes["pkg/large.py"] not in (one.changes["pkg/large.py"], other.changes["pkg/large.py"])
    assert combine(TREE, [one, one]) is None


def git(folder: Path, *arguments: str) -> None:
    env = {"PATH": os.environ["PATH"], "HOME": str(folder), "GIT_CONFIG_NOSYSTEM": "1"}
    identity = ["-c", "user.name=A", "-c", "user.email=a@example.org"]
    subprocess.run(["git", *identity, *arguments], cwd=folder, env=env, check=True, capture_output=True)


def test_history_reverts_changes_that_still_apply(tmp_path: Path) -> None:
    project = tmp_path / "mono" / "sub"
    project.mkdir(parents=True)
    git(tmp_path / "mono", "init", "-q")
    states = [b"def f(x):\n    return x\n", b"def f(x):\n    return x + 1\n", b"# note\ndef f(x):\n    return x + 1\n"]
    for number, state in enumerate(states):
        (project / "m.py").write_bytes(state)
        git(tmp_path / "mono", "add", "-A")
        git(tmp_path / "mono", "commit", "-qm", f"step {number}")
    dirty = states[-1] + b"\n\nTAIL = 1\n"
    (project / "m.py").write_bytes(dirty)
    candidates = list(HistoryInjector().candidates(Files({"m.py": dirty}, project), seed=0))
    assert [c.changes["m.py"] for c in candidates] == [dirty.replace(b"x + 1", b"x")]
    assert candidates[0].operator == "revert-file"
    assert candidates[0].detail.endswith("step 1")


def test_history_raises_without_a_repository(tmp_path: Path) -> None:
    with pytest.raises(ProjectError, match="needs git history; clone the project with its history"):
        list(HistoryInjector().candidates(Files({"m.py": SMALL}, tmp_path), seed=0))
