"""A policy may come from a stranger: whatever its files hold, loading it ends soon, with a policy or one clear error."""

from __future__ import annotations

import hashlib
import json
import os
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from harness.cli.main import main
from harness.rollouts.player_factory import PlayerFactory, solver_writes_code
from harness.solvers.search import arrays
from harness.solvers.search.features import NAMES
from harness.solvers.search.policy import Policy, load_policy
from harness.solvers.search.solver import SearchSolver
from harness.solvers.search.token_model import TokenModel, tokens_of
from harness.solvers.search.trees import Trees, read_trees
from pytest_ssr.errors import SettingsError

TREE = """
Tree=0
num_leaves=3
num_cat=0
split_feature=1 0
threshold=0.5 2
decision_type=2 2
left_child=1 -1
right_child=-2 -3
leaf_value=0.25 -1 3
is_linear=0
"""
STUMP = """
Tree=1
num_leaves=1
num_cat=0
split_feature=
threshold=
decision_type=
left_child=
right_child=
leaf_value=0.125
"""


def head(features: int = len(NAMES)) -> str:
    return f"tree\nnum_class=1\nnum_tree_per_iteration=1\nmax_feature_idx={features - 1}\n"


def text(tree: str = TREE, features: int = len(NAMES)) -> str:
    return f"{head(features)}{tree}{STUMP}\nend of trees\n\nparameters:\n[seed: 0]\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    tokens = TokenModel()
    tokens.add(tokens_of(b"return a\n"))
    Policy(read_trees(text(), len(NAMES)), tokens).save(tmp_path / "policy")
    return tmp_path / "policy"


def put(folder: Path, name: str, data: bytes) -> None:
    """Replace a file of a policy, and name its hash."""
    (folder / name).write_bytes(data)
    settings = json.loads((folder / "policy.json").read_text())
    settings["hashes"][name] = hashlib.sha256(data).hexdigest()
    (folder / "policy.json").write_text(json.dumps(settings))


def test_trees_are_evaluated() -> None:
    trees = read_trees(text(features=2), 2)
    assert len(trees) == 2
    assert trees.predict([[2, 0.5], [2.5, 0], [0, 0.6]]).tolist() == [0.375, 3.125, -0.875]
    assert trees.predict([]).tolist() == []


def test_trees_are_evaluated_as_by_lightgbm() -> None:
    lightgbm = pytest.importorskip("lightgbm")
    rng = np.random.default_rng(1)
    rows = rng.normal(size=(2000, 5))
    rows[rng.random(rows.shape) < 0.3] = 0
    data = lightgbm.Dataset(rows, label=rows[:, 0] * rows[:, 1] + rng.normal(size=len(rows)))
    booster = lightgbm.train({"verbosity": -1, "seed": 1, "num_threads": 1}, data, num_boost_round=20)
    trees = read_trees(booster.model_to_string(), 5)
    assert len(trees) == 20
    assert np.array_equal(trees.predict(rows), booster.predict(rows, raw_score=True))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("left_child=1 -1", "left_child=0 -1"),
        ("left_child=1 -1", "left_child=1 1"),
        ("left_child=1 -1", "left_child=2 -1"),
        ("left_child=1 -1", "left_child=1 -4"),
        ("left_child=1 -1", "left_child=1"),
        ("left_child=1 -1", "left_child=1 -1 -1"),
        ("left_child=1 -1", f"left_child=1 {2**63}"),
        ("left_child=1 -1", f"left_child=1 {'9' * 5000}"),
        ("left_child=1 -1\n", ""),
        ("num_leaves=3", "num_leaves=0"),
        ("num_leaves=3", "num_leaves=-1"),
        ("num_leaves=3", "num_leaves=2147483647"),
        ("num_cat=0", "num_cat=1"),
        ("is_linear=0", "is_linear=1"),
        ("decision_type=2 2", "decision_type=1 2"),
        ("decision_type=2 2", "decision_type=8 2"),
        ("split_feature=1 0", f"split_feature=1 {len(NAMES)}"),
        ("split_feature=1 0", "split_feature=1 -1"),
        ("threshold=0.5 2", "threshold=nan 2"),
        ("threshold=0.5 2", "threshold=inf 2"),
        ("leaf_value=0.25", "leaf_value=nan"),
        ("leaf_value=0.25", "leaf_value=1e308"),
        ("num_class=1", "num_class=2"),
        ("tree\n", "tree\naverage_output\n"),
    ],
)
def test_damaged_trees_are_refused(old: str, new: str) -> None:
    assert old in text()
    with pytest.raises(ValueError):
        read_trees(text().replace(old, new), len(NAMES))


@pytest.mark.parametrize(
    "data", ["", "tree\n", head(), text(features=len(NAMES) + 1), head() + TREE * 2000, text(STUMP)[:200]]
)
def test_a_text_without_the_right_trees_is_refused(data: str) -> None:
    with pytest.raises(ValueError):
        read_trees(data, len(NAMES))


def npz(path: Path, **members: bytes) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(f"{name}.npy", data)


def declared(shape: str, kind: str = "<u4") -> bytes:
    """Return an array that declares a shape and has few bytes."""
    header = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + b"\0" * 16


def of_objects(path: Path) -> None:
    np.savez(path, keys=np.array([{}], object), counts=np.zeros(1, np.uint32), total=np.zeros(1, int))


def with_bomb(path: Path) -> None:
    npz(path, keys=declared("(4,)") + bytes(2 * arrays.MOST_BYTES))


def damaged_lzma(path: Path) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_LZMA) as archive:
        archive.writestr("keys.npy", declared("(4,)"))
    data = bytearray(path.read_bytes())
    data[60:70] = b"\xff" * 10
    path.write_bytes(data)


def encrypted(path: Path) -> None:
    npz(path, keys=declared("(4,)"))
    data = bytearray(path.read_bytes())
    for signature, offset in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        data[data.index(signature) + offset] |= 1
    path.write_bytes(data)


TOKENS: dict[str, Callable[[Path], None]] = {
    "objects": of_objects,
    "bomb": with_bomb,
    "lzma": damaged_lzma,
    "encrypted": encrypted,
    "huge": lambda path: npz(path, keys=declared(f"({2**40},)")),
    "overflowing": lambda path: npz(path, keys=declared(f"({2**62}, 8)")),
    "negative": lambda path: npz(path, keys=declared("(-1,)")),
    "no-dict": lambda path: npz(path, keys=declared("(4,)").replace(b"{", b"[")),
    "open-bracket": lambda path: npz(path, keys=declared("((((((4,)")),
    "no-array": lambda path: npz(path, keys=b"text", counts=b"", total=b""),
    "one-array": lambda path: path.write_bytes(declared("(4,)")) and None,
    "floats": lambda path: np.savez(path, keys=np.zeros(1), counts=np.zeros(1), total=np.zeros(1)),
    "lengths": lambda path: np.savez(
        path, keys=np.zeros(2, np.uint32), counts=np.zeros(1, np.uint32), total=np.zeros(1, int)
    ),
    "total": lambda path: np.savez(
        path, keys=np.zeros(1, np.uint32), counts=np.ones(1, np.uint32), total=np.array([-5])
    ),
}


@pytest.mark.parametrize("kind", TOKENS)
def test_hostile_arrays_are_refused(folder: Path, tmp_path: Path, kind: str) -> None:
    TOKENS[kind](tmp_path / "made.npz")
    put(folder, "tokens.npz", (tmp_path / "made.npz").read_bytes())
    with pytest.raises(SettingsError):
        load_policy(folder)


@pytest.mark.parametrize("name", ["policy.json", "ranker.txt", "tokens.npz"])
@pytest.mark.parametrize("kind", ["pipe", "device", "folder", "loop", "large", "bytes"])
def test_files_of_other_kinds_are_refused(folder: Path, name: str, kind: str) -> None:
    path = folder / name
    path.unlink()
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "device":
        path.symlink_to("/dev/zero")
    elif kind == "folder":
        path.mkdir()
    elif kind == "loop":
        path.symlink_to(path)
    elif kind == "large":
        with path.open("wb") as file:
            file.truncate(arrays.MOST_BYTES + 1)
    else:
        path.write_bytes(b"\xff\0\x1b[31m")
    with pytest.raises(SettingsError):
        load_policy(folder)


@pytest.mark.parametrize("data", [b"[" * 100_000, b"[]", b"1" * 5000, b'"x"', b'{"format": 1}', b'{"format": NaN}'])
def test_other_settings_are_refused(folder: Path, data: bytes) -> None:
    (folder / "policy.json").write_bytes(data)
    with pytest.raises(SettingsError):
        load_policy(folder)


@pytest.mark.parametrize(
    "values",
    [
        {"share": "\x1b[31m"},
        {"share": []},
        {"features": 5},
        {"hashes": []},
        {"hashes": {"ranker.txt": None, "tokens.npz": {}}},
    ],
)
def test_the_command_gives_one_escaped_line(
    folder: Path, tmp_path: Path, values: dict[str, object], capsys: pytest.CaptureFixture[str]
) -> None:
    settings = json.loads((folder / "policy.json").read_text())
    (folder / "policy.json").write_text(json.dumps({**settings, **values}))
    assert main(["solve", str(tmp_path), "--solver", f"search:policy={folder}"]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "\x1b" not in error


def test_a_policy_with_a_generator_writes_code(folder: Path) -> None:
    name = f"search:policy={folder}"
    assert not solver_writes_code("search")
    assert not solver_writes_code(name)
    (folder / "generator.npz").touch()
    assert solver_writes_code(name)


def test_a_policy_cannot_name_a_model_that_writes(folder: Path) -> None:
    settings = json.loads((folder / "policy.json").read_text())
    (folder / "policy.json").write_text(json.dumps({**settings, "writer": "smollm2"}))
    name = f"search:policy={folder}"
    with PlayerFactory() as players:
        assert type(players.solver(name)) is SearchSolver
    assert not solver_writes_code(name)


def test_a_loaded_policy_ranks_as_the_saved_one(folder: Path) -> None:
    rows = np.random.default_rng(1).normal(size=(10, len(NAMES)))
    ranker = load_policy(folder).ranker
    assert isinstance(ranker, Trees)
    assert np.array_equal(ranker.predict(rows), read_trees(text(), len(NAMES)).predict(rows))
