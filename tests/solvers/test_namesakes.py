"""Pieces of the project's functions of the same name repair a function."""

from __future__ import annotations

import ast
from collections.abc import Mapping

import pytest

from harness.solvers.search import project_files
from harness.solvers.search.generator.filling import NAMESAKE
from harness.solvers.search.namesakes import with_namesakes
from harness.solvers.search.patterns import Repair, repairs_of
from harness.solvers.search.policy import Policy
from harness.solvers.search.project_files import ProjectFiles
from harness.solvers.search.token_model import TokenModel
from harness.training.search.sources import SourceFolder
from pytest_ssr.source.syntax_tree import ParsedSource, Scope, parse, scopes, splice

JSON = b"""\
class JsonStore:
    def load(self, data, kind, **options):
        if data is None:
            raise EmptyStore(kind)
        text = self.decode(data)
        return self.build(json_loads(text, **options), kind)

    def size(self):
        return len(self.items)
"""
TOML = b"""\
class TomlStore:
    def load(self, data, kind, **options):
        text = self.decode(data)
        return None

    def size(self):
        return 0
"""
FILES = {"stores/json.py": JSON, "stores/toml.py": TOML, "tests/test_json.py": JSON}


def function(data: bytes, name: str, path: str = "stores/toml.py") -> tuple[ParsedSource, Scope]:
    source = parse(path, data)
    assert source is not None
    return source, next(s for s in scopes(source) if s.qualname == name)


def namesakes(data: bytes, name: str, files: Mapping[str, bytes] = FILES) -> list[Repair]:
    source, scope = function(data, name)
    return with_namesakes(source, scope, [], ProjectFiles(files.keys(), files.get))


def results(data: bytes, repairs: list[Repair]) -> set[bytes]:
    return {splice(data, repair.edits) for repair in repairs}


def test_pieces_of_the_same_function_of_another_file_are_repairs():
    repaired = results(TOML, namesakes(TOML, "TomlStore.load"))
    guard = b"        if data is None:\n            raise EmptyStore(kind)\n        text"
    assert TOML.replace(b"        text", guard) in repaired
    assert TOML.replace(b"return None", b"return self.build(json_loads(text, **options), kind)") in repaired
    assert TOML.replace(b"return 0", b"return len(self.items)") in results(TOML, namesakes(TOML, "TomlStore.size"))


def test_what_stands_between_the_same_tokens_is_the_likeliest():
    guard = b"        if data is None:\n            raise EmptyStore(kind)\n        text"
    best = max(namesakes(TOML, "TomlStore.load"), key=lambda repair: repair.weight)
    assert splice(TOML, best.edits) == TOML.replace(b"        text", guard)


def test_functions_of_the_same_file_are_namesakes_too():
    data = JSON + b"\n\n" + TOML
    assert data.replace(b"return 0", b"return len(self.items)") in results(data, namesakes(data, "TomlStore.size", {}))


@pytest.mark.parametrize("files", [{}, {"tests/test_json.py": JSON}, {"stores/toml.py": JSON}, {"a.py": b"def (:\n"}])
def test_without_a_namesake_there_are_no_repairs(files):
    assert namesakes(TOML, "TomlStore.load", files) == []


def test_the_sum_of_the_weights_stays_and_most_of_it_is_that_of_the_patterns():
    source, scope = function(TOML, "TomlStore.load")
    repairs = repairs_of(source, scope, scopes(source))
    completed = with_namesakes(source, scope, repairs, ProjectFiles(FILES.keys(), FILES.get))
    new = [r for r in completed if r.pattern == NAMESAKE]
    assert new
    assert sum(r.weight for r in completed) == pytest.approx(sum(r.weight for r in repairs))
    assert 0 < sum(r.weight for r in new) < 0.2 * sum(r.weight for r in completed)
    assert len({r.edits for r in completed}) == len(completed)


def test_their_number_is_bounded(monkeypatch):
    many = {f"stores/s{n}.py": JSON.replace(b"text = self.decode(data)", b"text = %d" % n) for n in range(50)}
    assert 0 < len(namesakes(TOML, "TomlStore.load", many)) <= 60
    monkeypatch.setattr(project_files, "_MOST_BYTES", 1)
    assert namesakes(TOML, "TomlStore.load", many) == []


def test_they_are_the_same_each_time():
    assert namesakes(TOML, "TomlStore.load") == namesakes(TOML, "TomlStore.load", dict(reversed(FILES.items())))


def test_links_and_files_that_are_not_read_are_left_out():
    files = ProjectFiles(["a.py", "b.py", "notes.txt"], lambda path: JSON if path == "a.py" else None)
    assert set(files.code) == {"a.py"}


def test_a_policy_has_them_without_a_generator():
    source, scope = function(TOML, "TomlStore.load")
    policy = Policy(None, TokenModel())  # type: ignore[arg-type]
    assert {r.pattern for r in policy.completed(source, scope, [], ProjectFiles(FILES.keys(), FILES.get))} == {NAMESAKE}
    assert policy.completed(source, scope, []) == []


@pytest.mark.parametrize(
    ("call", "other", "expected"),
    [(b"f(a)", b"f(x, b)", b"f(a, b)"), (b"f()", b"f(x, b)", b"f(b)"), (b"f(a)", b"f(b)", b"f(a, b)")],
)
def test_arguments_are_separated_by_commas(call, other, expected):
    template = b"def g(a, b, x):\n    first(a)\n    r = %s\n    last(r)\n"
    files = {"a.py": template % call, "b.py": template % other}
    source, scope = function(files["a.py"], "g", "a.py")
    repairs = with_namesakes(source, scope, [], ProjectFiles(files.keys(), files.get))
    texts = results(files["a.py"], repairs)
    assert template % expected in texts
    assert all(ast.parse(text) for text in texts)
    assert not any(b"fb" in text or b"ab" in text or b"ax" in text for text in texts)


def test_there_is_no_second_else():
    template = b"def g(a):\n    if a:\n        r = 1\n    else:\n        r = %d\n    return r\n"
    files = {"a.py": template % 2, "b.py": template % 3}
    source, scope = function(files["a.py"], "g", "a.py")
    repairs = with_namesakes(source, scope, [], ProjectFiles(files.keys(), files.get))
    assert repairs
    assert all(ast.parse(text) for text in results(files["a.py"], repairs))


def test_files_with_other_line_ends_are_repaired():
    guard = b"        if data is None:\n            raise EmptyStore(kind)\n        text"
    crlf = TOML.replace(b"\n", b"\r\n")
    files = {"stores/json.py": JSON.replace(b"\n", b"\r\n")}
    texts = {text.replace(b"\r\n", b"\n") for text in results(crlf, namesakes(crlf, "TomlStore.load", files))}
    assert TOML.replace(b"        text", guard) in texts


def test_long_namesakes_are_left_out():
    long = JSON.replace(b"        text =", b"        skip()\n" * 1000 + b"        text =")
    assert namesakes(TOML, "TomlStore.load", {"stores/json.py": long}) == []


def test_links_of_a_source_folder_are_left_out(tmp_path):
    (tmp_path / "a.py").write_bytes(JSON)
    (tmp_path / "b.py").symlink_to("a.py")
    assert set(SourceFolder(tmp_path).files().code) == {"a.py"}


def test_code_beside_the_package_is_read_last(monkeypatch):
    monkeypatch.setattr(project_files, "_MOST_BYTES", len(JSON))
    files = {"docs/a.py": TOML, "stores/json.py": JSON}
    assert set(ProjectFiles(files.keys(), files.get).code) == {"stores/json.py"}


def test_text_beyond_ascii_is_not_put_into_files_of_another_encoding():
    other = JSON.replace(b"EmptyStore(kind)", "EmptyStore('é')".encode())
    latin = b"# coding: latin-1\n# \xe9\n" + TOML
    assert not any("é".encode() in text for text in results(latin, namesakes(latin, "TomlStore.load", {"a.py": other})))
    assert any("é".encode() in text for text in results(TOML, namesakes(TOML, "TomlStore.load", {"a.py": other})))
