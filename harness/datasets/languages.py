"""Find out that a row is of another programming language than Python."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from pathlib import PurePosixPath
from typing import Any

from harness.datasets.columns import find_column
from harness.datasets.instance import RowError
from pytest_ssr.records.reasons import ReasonCode

_COLUMNS = ("repo_language", "language")
_PYTHON = "Python"
_LANGUAGES: Mapping[str, str] = {
    **dict.fromkeys(("python", "py", "pyi", "pyx"), _PYTHON),
    "c": "C",
    **dict.fromkeys(("c++", "cpp", "cc", "cxx", "hpp"), "C++"),
    **dict.fromkeys(("c#", "csharp", "cs"), "C#"),
    **dict.fromkeys(("clojure", "clj"), "Clojure"),
    "dart": "Dart",
    **dict.fromkeys(("elixir", "ex", "exs"), "Elixir"),
    "go": "Go",
    **dict.fromkeys(("haskell", "hs"), "Haskell"),
    "java": "Java",
    **dict.fromkeys(("javascript", "js", "jsx", "cjs", "mjs"), "JavaScript"),
    **dict.fromkeys(("julia", "jl"), "Julia"),
    **dict.fromkeys(("kotlin", "kt"), "Kotlin"),
    "lua": "Lua",
    **dict.fromkeys(("ocaml", "ml"), "OCaml"),
    "php": "PHP",
    "r": "R",
    **dict.fromkeys(("ruby", "rb"), "Ruby"),
    **dict.fromkeys(("rust", "rs"), "Rust"),
    "scala": "Scala",
    "swift": "Swift",
    **dict.fromkeys(("typescript", "ts", "tsx"), "TypeScript"),
}
"""The name of each language, by what a column calls it and by the suffixes of its files."""


class OtherLanguageError(RowError):
    """A row is of another programming language, and brings no command that runs its tests."""

    code = ReasonCode.OTHER_LANGUAGE

    def __init__(self, location: str, language: str) -> None:
        super().__init__(
            f"{location}: its language is {language}, and it has no test command with a log parser that is known here"
        )


def other_language(row: Mapping[str, Any], paths: Collection[str], ids: Collection[str]) -> str:
    """Return the language of a row if it is not Python; empty for Python, or if it is not known.

    A column decides, or else the files that the row's diffs change. ids: those of its tests, of which one that names a
    file of Python is enough for Python.
    """
    column = find_column(row, _COLUMNS)
    named = _LANGUAGES.get(column[1].strip().lower()) if column is not None and isinstance(column[1], str) else None
    if named is None:
        found = Counter(filter(None, (_LANGUAGES.get(PurePosixPath(p).suffix[1:].lower()) for p in paths)))
        is_python = _PYTHON in found or any(".py::" in name for name in ids)
        named = _PYTHON if is_python or not found else found.most_common(1)[0][0]
    return "" if named == _PYTHON else named
