"""Projects of one small module, with tests, for self-play of the search solver."""

from __future__ import annotations

from pathlib import Path

CODE = """\
def clamp(value, low, high):
    if value < low:
        return low
    if value > high:
        return high
    return value


def mean_{name}(values, default=0):
    total = 0
    for value in values:
        total = total + value
    if not values:
        return default
    return total / len(values)


def words_{name}(text, least=1):
    return [word for word in text.split() if len(word) >= least]
"""
TESTS = """\
from {name} import clamp, mean_{name}, words_{name}


def test_clamp():
    assert [clamp(v, 1, 5) for v in (0, 1, 3, 5, 6)] == [1, 1, 3, 5, 5]


def test_mean():
    assert mean_{name}([1, 2, 6]) == 3
    assert mean_{name}([]) == 0
    assert mean_{name}([], 7) == 7


def test_words():
    assert words_{name}("a bc  def") == ["a", "bc", "def"]
    assert words_{name}("a bc def", 2) == ["bc", "def"]
"""


def project(top: Path, name: str) -> Path:
    """Write a project and return its folder."""
    folder = top / name
    folder.mkdir()
    (folder / "pyproject.toml").write_text(f'[project]\nname = "{name}"\nversion = "1"\n')
    (folder / "src").mkdir()
    (folder / "src" / f"{name}.py").write_text(CODE.format(name=name))
    (folder / f"test_{name}.py").write_text(TESTS.format(name=name))
    return folder
