"""Exchange the code objects of functions that are alive, where that is the whole effect of a change of their text."""

import gc
import os
import sys
import types

from ssr_warm_view import UnfitError

_ROOT = os.getcwd()
_FUTURE = 0x1FF0000


_RUNNING = {types.GeneratorType: "gi_code", types.CoroutineType: "cr_code", types.AsyncGeneratorType: "ag_code"}


def live_functions():
    """Return by file the code objects of all functions there are, each with its functions.

    In the place of a function stands None for a generator or coroutine that is under way: its code cannot be exchanged.
    """
    found, real = {}, {}
    prefix = os.path.realpath(_ROOT).rstrip("/") + "/"
    # What the project has frozen is not listed otherwise.
    gc.unfreeze()
    for thing in gc.get_objects():
        kind = type(thing)
        if kind is types.FunctionType:
            code, function = thing.__code__, thing
        elif kind in _RUNNING:
            code, function = getattr(thing, _RUNNING[kind]), None
        else:
            continue
        path = real.get(code.co_filename)
        if path is None:
            path = real[code.co_filename] = os.path.realpath(code.co_filename)
        if path.startswith(prefix):
            found.setdefault(path, {}).setdefault(code, []).append(function)
    return found


def _compiled(source, path, line, classes, name, imports, flags):
    """Compile one function in place: inside of classes of the same names, its first line the one it has in the file."""
    indent = len(source) - len(source.lstrip(" \t"))
    head = ["import " + ", ".join(imports)] if imports else []
    for depth, outer in enumerate(classes):
        head.append(" " * depth + f"class {outer}:")
    if len(head) >= line or (classes and indent < len(classes)):
        raise UnfitError(f"{path}:{line} has no room for its classes")
    if not classes and indent:
        head.append("if 1:")
    words = "\n".join(head) + "\n" * (line - max(1, len(head)))
    code = compile(words + source, path, "exec", flags=flags, dont_inherit=True)
    for outer in (*classes, name):
        inner = [c for c in code.co_consts if type(c) is types.CodeType and c.co_name == outer]
        if len(inner) != 1:
            raise UnfitError(f"{path}:{line} is not one function")
        code = inner[0]
    return code


def _pairs(old, new):
    """Yield the code objects that take each other's place, the outer ones first."""
    yield old, new
    olds = [c for c in old.co_consts if type(c) is types.CodeType]
    news = [c for c in new.co_consts if type(c) is types.CodeType]
    if [c.co_name for c in olds] == [c.co_name for c in news]:
        for a, b in zip(olds, news):
            yield from _pairs(a, b)
    else:
        for a in olds:
            yield a, None


def swap(path, functions, live):
    """Exchange the code of the functions that differ; raises UnfitError if that would not be the whole change.

    Returns whether the code of live functions was exchanged; not if the file has not been loaded.
    """
    full = os.path.realpath(os.path.join(_ROOT, path))
    codes = live.get(full, {})
    if not codes:
        if any(getattr(m, "__dict__", {}).get("__file__") == full for m in list(sys.modules.values())):
            raise UnfitError(f"{path} is loaded, but no function of it is found")
        return False
    flags = next(iter(codes)).co_flags & _FUTURE
    for each in functions:
        where = (each["classes"], each["name"], each["imports"], flags)
        old = _compiled(each["old_source"], full, each["old_line"], *where)
        new = _compiled(each["new_source"], full, each["new_line"], *where)
        if old not in codes:
            raise UnfitError(f"{path}:{each['old_line']} {each['name']} is not alive as it is written")
        lookalikes = [c for c in codes if c.co_firstlineno == old.co_firstlineno and c != old]
        if any(c.co_name == old.co_name or c.co_code == old.co_code for c in lookalikes):
            raise UnfitError(f"{path}:{each['old_line']} {each['name']} lives in two forms")
        pairs = list(_pairs(old, new))
        for before, after in pairs:
            for function in codes.get(before, ()):
                if before == after:
                    continue
                twins = [b for a, b in pairs if a == before and b != after]
                if function is None or after is None or twins or before.co_freevars != after.co_freevars:
                    raise UnfitError(f"{path}:{each['old_line']} {each['name']} has other parts")
                function.__code__ = after
    return True
