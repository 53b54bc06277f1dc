"""Detect changes that compile to the same code, and compute fingerprints of what code does."""

from __future__ import annotations

import hashlib
from types import CodeType

from pytest_ssr.source.parsing import has_long_integer, recorded_warnings
from pytest_ssr.source.syntax_tree import ParsedSource, Scope


def compile_source(text: bytes, *, indented: bool = False) -> CodeType | None:
    """Compile source text, or return None if it is not valid Python or has a long integer; warnings are suppressed."""
    if indented:
        text = b"if 1:\n" + text
    if has_long_integer(text):
        return None
    with recorded_warnings():
        try:
            return compile(text, "<candidate>", "exec", dont_inherit=True)
        except (SyntaxError, ValueError, RecursionError, MemoryError, OverflowError):
            return None


def normalize_code(code: CodeType) -> tuple[object, ...]:
    """Return what a code object does, without file names and line numbers."""
    constants = tuple(
        normalize_code(c) if isinstance(c, CodeType) else (type(c).__name__, repr(c)) for c in code.co_consts
    )
    return (
        code.co_name,
        code.co_code,
        constants,
        code.co_names,
        code.co_varnames,
        code.co_freevars,
        code.co_cellvars,
        code.co_argcount,
        code.co_posonlyargcount,
        code.co_kwonlyargcount,
        code.co_flags,
        getattr(code, "co_exceptiontable", b""),
    )


def fingerprint(text: bytes, *, indented: bool = False) -> str | None:
    """Return a hash that is equal for texts that compile to the same code; None if the text is not valid Python."""
    code = compile_source(text, indented=indented)
    if code is None:
        return None
    return hashlib.sha256(repr(normalize_code(code)).encode("utf-8", "surrogatepass")).hexdigest()


def scope_text(source: ParsedSource, scope: Scope) -> bytes:
    """Return the source of a scope from the beginning of its first line."""
    return source.data[scope.start : scope.end]


def parses(text: bytes) -> bool:
    """Return whether a whole file is valid Python."""
    return compile_source(text) is not None
