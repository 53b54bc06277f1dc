"""The generator finds holes, writes code for them, and is read from a file that may be damaged."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import numpy as np
import pytest

from harness.solvers.search.generator.code_stream import NEWLINE, code_of, stream_of
from harness.solvers.search.generator.context import FileContext, Part
from harness.solvers.search.generator.filling import GENERATED
from harness.solvers.search.generator.generator import PARTS, Generator, load_generator
from harness.solvers.search.generator.holes import Hole, HoleKind, holes_of
from harness.solvers.search.generator.network import shapes
from harness.solvers.search.generator.vocabulary import DISTANCES, Vocabulary
from harness.solvers.search.patterns import repairs_of
from harness.solvers.search.policy import Policy, load_policy
from harness.solvers.search.solver import SearchSolver
from harness.solvers.search.token_model import TokenModel
from pytest_ssr.errors import SettingsError
from pytest_ssr.source.syntax_tree import parse, scopes, splice

SOURCE = b"""\
class Box(object):
    def size(self):
        return None

    def fill(self, items, limit):
        for item in items:
            if item:
                self.add(item)
        return self.items(limit)
"""


def parsed(data: bytes = SOURCE):
    source = parse("a.py", data)
    assert source is not None
    return source, {s.qualname: s for s in scopes(source)}


def random_generator(texts=(b"\n", b"self", b".", b"(", b")", b"return", b"None", b"=")) -> Generator:
    vocabulary, rng = Vocabulary(texts), np.random.default_rng(2)
    sizes = shapes(vocabulary.rows, len(vocabulary), 8, 12, PARTS, DISTANCES)
    weights = {name: rng.normal(0, 0.5, shape).astype(np.float32) for name, shape in sizes.items()}
    return Generator(vocabulary, weights)


def test_a_stream_tells_lines_and_indentation_but_no_breaks_in_brackets():
    texts = stream_of(b"if a:\n    b(1,\n      2)\nc\n").texts
    assert b" ".join(texts) == b"if a : \n <in> b ( 1 , 2 ) \n <out> c \n"


@pytest.mark.parametrize(
    "code",
    [
        b"return self.size(a, key=-1)[0]",
        b"if not items:\n    raise ValueError(x)\nreturn {1: 2}",
        b"x = [i for i in y if i is not None]",
        b"self.a = a or (b, *c)",
        b"f(**options)",
    ],
)
def test_code_is_written_as_it_was_read(code):
    texts = stream_of(code + b"\n").texts[:-1]
    assert code_of(texts, b"    ") == code.replace(b"\n", b"\n    ")


def test_code_that_leaves_its_block_is_refused():
    assert code_of([b"a", NEWLINE, b"<out>", b"b"], b"    ") is None


def test_keywords_in_a_call_have_no_spaces():
    assert code_of([b",", b"a", b"=", b"b"], b"", in_brackets=True) == b", a=b"


def test_holes_are_where_code_may_be_missing():
    source, named = parsed()
    hollow = list(holes_of(source, named["Box.size"]))
    assert {HoleKind.BLOCK, HoleKind.VALUE, HoleKind.AFTER} <= {h.kind for h in hollow}
    kinds = {h.kind for h in holes_of(source, named["Box.fill"])}
    assert kinds >= {HoleKind.BEFORE, HoleKind.ELSE, HoleKind.SUFFIX, HoleKind.ARGUMENT, HoleKind.RIGHT, HoleKind.LEFT}
    assert HoleKind.BLOCK not in kinds
    assert [h.kind for h in holes_of(source, named["Box"])] == [HoleKind.ARGUMENT]


@pytest.mark.parametrize(
    ("kind", "code", "expected"),
    [
        (HoleKind.BEFORE, b"check()", b"check()\n            if item:"),
        (
            HoleKind.ELSE,
            b"else:\n                stop()",
            b"self.add(item)\n            else:\n                stop()\n",
        ),
        (HoleKind.RIGHT, b"and limit", b"if item and limit:"),
        (HoleKind.LEFT, b"limit and", b"if limit and item:"),
        (HoleKind.ARGUMENT, b", 1", b"self.add(item, 1)"),
    ],
)
def test_code_is_put_into_a_hole(kind, code, expected):
    source, named = parsed()
    texts = [splice(SOURCE, [h.edit(code)]) for h in holes_of(source, named["Box.fill"]) if h.kind is kind]
    assert any(expected in text for text in texts)
    assert all(parse("a.py", text) is not None for text in texts)


def test_a_context_does_not_hold_what_is_missing():
    data = SOURCE.replace(b"self.add(item)", b"secret_name(item)")
    source, named = parsed(data)
    start = data.index(b"secret_name")
    file, scope = FileContext(source), named["Box.fill"]
    hole = Hole(HoleKind.BLOCK, start, start + len(b"secret_name(item)"))
    context = file.of(scope, hole).context(hole)
    assert b"secret_name" not in context.texts
    assert context.texts[context.hole] == b""
    assert len(context.parts) == len(context.texts)
    assert context.parts[context.hole] is Part.HOLE


def test_generated_repairs_are_the_same_each_time_and_parse():
    source, named = parsed()
    first, second = (random_generator().repairs(source, named["Box.fill"]) for _ in range(2))
    assert first
    assert first == second
    assert [v for _, v in first] == sorted((v for _, v in first), reverse=True)
    assert all(r.pattern == GENERATED for r, _ in first)


def test_generated_repairs_are_of_their_own_file_and_function():
    generator = random_generator()
    accessors = b"class A:\n    @property\n    def v(self):\n        return self.a\n\n    @v.setter\n    def v(self, a):\n        self.a = a\n"
    for path in ("a.py", "b.py"):
        source = parse(path, accessors)
        assert source is not None
        for scope in (s for s in scopes(source) if s.kind == "function"):
            repairs = [repair for repair, _ in generator.repairs(source, scope)]
            assert repairs
            assert {repair.path for repair in repairs} == {path}
            assert all(scope.start <= edit.start <= scope.end for repair in repairs for edit in repair.edits)


def test_a_generator_is_sent_to_another_process_without_the_repairs_that_it_keeps():
    source, named = parsed()
    generator = random_generator()
    size = len(pickle.dumps(generator))
    repairs = generator.repairs(source, named["Box.fill"])
    data = pickle.dumps(generator)
    assert len(data) == size
    assert pickle.loads(data).repairs(source, named["Box.fill"]) == repairs


def test_a_module_does_not_get_the_repairs_of_its_first_function():
    source, named = parsed(b"def f(a):\n    return a\n\n\nLIMIT = 1\n")
    generator = random_generator()
    assert generator.repairs(source, named["f"])
    assert generator.repairs(source, named["<module>"]) == []


def test_generated_repairs_leave_the_sum_of_the_weights_and_most_of_it_to_the_patterns():
    source, named = parsed()
    repairs = repairs_of(source, named["Box.fill"], list(named.values()))
    completed = random_generator().with_generated(source, named["Box.fill"], repairs)
    assert len(completed) > len(repairs)
    assert sum(r.weight for r in completed) == pytest.approx(sum(r.weight for r in repairs))
    assert sum(r.weight for r in completed if r.pattern == GENERATED) < 0.5 * sum(r.weight for r in completed)
    assert all(r.weight > 0 for r in completed)


def test_a_saved_generator_is_read_again(tmp_path: Path):
    source, named = parsed()
    generator = random_generator()
    generator.save(tmp_path / "g.npz")
    loaded = load_generator(tmp_path / "g.npz")
    assert loaded.key == generator.key
    assert loaded.repairs(source, named["Box.fill"]) == generator.repairs(source, named["Box.fill"])


@pytest.mark.parametrize("damage", ["cut", "empty", "foreign", "shape", "infinite", "large", "long-token", "pickle"])
def test_a_damaged_generator_is_refused(damage, tmp_path: Path):
    path = tmp_path / "g.npz"
    generator = random_generator()
    generator.save(path)
    arrays = dict(np.load(path))
    if damage == "cut":
        path.write_bytes(path.read_bytes()[:500])
    elif damage == "empty":
        path.write_bytes(b"")
    elif damage == "foreign":
        np.savez(path, keys=np.zeros(3))
    elif damage == "shape":
        np.savez(path, **{**arrays, "bias": arrays["bias"][:-1]})
    elif damage == "infinite":
        np.savez(path, **{**arrays, "bias": arrays["bias"] * np.inf})
    elif damage == "large":
        np.savez(path, **{**arrays, "bias": np.full(arrays["bias"].shape, 1e300)})
    elif damage == "long-token":
        np.savez(path, **{**arrays, "texts": np.concatenate([arrays["texts"], np.full(5000, 97, np.uint8)])})
    else:
        np.savez(path, **{**arrays, "bias": np.array([{}], dtype=object)}, allow_pickle=True)
    with pytest.raises(ValueError):
        load_generator(path)


def test_the_largest_weights_give_finite_numbers() -> None:
    source, named = parsed()
    generator = random_generator()
    largest = {name: np.sign(array).astype(np.float32) * 100 for name, array in generator.weights.items()}
    repairs = Generator(generator.vocabulary, largest).with_generated(source, named["Box.fill"], [])
    assert np.isfinite([r.weight for r in repairs]).all()


def test_a_policy_whose_generator_was_changed_gets_a_clear_error(tmp_path: Path):
    pytest.importorskip("lightgbm")
    import lightgbm

    from harness.solvers.search.features import NAMES
    from harness.solvers.search.policy import GENERATOR
    from harness.solvers.search.trees import read_trees

    rng = np.random.default_rng(2)
    data = lightgbm.Dataset(rng.normal(size=(50, len(NAMES))), label=rng.normal(size=50))
    ranker = lightgbm.train({"verbosity": -1, "min_data_in_leaf": 2}, data, num_boost_round=1)
    Policy(read_trees(ranker.model_to_string(), len(NAMES)), TokenModel(), generator=random_generator()).save(tmp_path)
    assert load_policy(tmp_path).generator is not None
    (tmp_path / GENERATOR).write_bytes(b"other")
    with pytest.raises(SettingsError):
        load_policy(tmp_path)
    settings = json.loads((tmp_path / "policy.json").read_text())
    import hashlib

    settings["hashes"][GENERATOR] = hashlib.sha256(b"other").hexdigest()
    (tmp_path / "policy.json").write_text(json.dumps(settings))
    with pytest.raises(SettingsError):
        load_policy(tmp_path)
    (tmp_path / GENERATOR).unlink()
    with pytest.raises(SettingsError):
        load_policy(tmp_path)


def test_only_code_that_a_generator_has_written_could_read_other_files():
    assert not SearchSolver().reads_machine
    assert not SearchSolver(policy=Policy(None, TokenModel())).reads_machine  # type: ignore[arg-type]
    generator = random_generator()
    assert SearchSolver(policy=Policy(None, TokenModel(), generator=generator)).reads_machine  # type: ignore[arg-type]
