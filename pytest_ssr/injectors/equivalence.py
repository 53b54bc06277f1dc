"""Which changes cannot matter: those that compile to the same code; and a name for what a change does."""

from __future__ import annotations

import hashlib
from types import CodeType

from pytest_ssr.injectors.python_source import ParsedSource, Scope
from pytest_ssr.quiet import recorded_warnings


def compiled(text: bytes, *, indented: bool = False) -> CodeType | None:
    """Compile source text, or return None when it is no Python; warnings stay silent."""
    if indented:
        text = b"if 1:\n" + text
    with recorded_warnings():
        try:
            return compile(text, "<candidate>", "exec", dont_inherit=True)
        except (SyntaxError, ValueError, RecursionError, MemoryError, OverflowError):
            return None


def normal(code: CodeType) -> tuple[object, ...]:
    """Return what a code object does, without names of files and numbers of lines."""
    constants = tuple(normal(c) if isinstance(c, CodeType) else (type(c).__name__, repr(c)) for c in code.co_consts)
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
    """Return a name that is equal for texts that compile to the same code; None for text that is no Python."""
    code = compiled(text, indented=indented)
    return None if code is None else hashlib.sha256(repr(normal(code)).encode("utf-8", "surrogatepass")).hexdigest()


def scope_text(source: ParsedSource, scope: Scope) -> bytes:
    """Return the text of a scope from the beginning of its first line."""
    return source.data[scope.start : scope.end]


def is_trivially_equivalent(old: bytes, new: bytes) -> bool:
    """Tell whether two whole files compile to the same code; a file that does not compile equals nothing."""
    if old == new:
        return True
    name = fingerprint(old)
    return name is not None and name == fingerprint(new)


def parses(text: bytes) -> bool:
    """Tell whether a whole file is Python."""
    return compiled(text) is not None
