"""Exchange the code objects of live functions, if that is the whole effect of a change of their source."""

import gc
import os
import sys
import types

from ssr_warm_view import UnfitError

_ROOT = os.getcwd()
_FUTURE = 0x1FF0000
_RUNNING = {types.GeneratorType: "gi_code", types.CoroutineType: "cr_code", types.AsyncGeneratorType: "ag_code"}


def live_functions():
    """Return the code objects of all live functions by file, each with its functions.

    A generator or coroutine in progress is listed as None instead of a function: its code cannot be exchanged.
    """
    codes, real = {}, {}
    prefix = os.path.realpath(_ROOT).rstrip("/") + "/"
    # Otherwise objects that the project has frozen would not be listed.
    getattr(gc, "unfreeze", int)()
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
            codes.setdefault(path, {}).setdefault(code, []).append(function)
    return codes


def _compiled(source, path, line, classes, name, imports, flags):
    """Compile one function as in its file: inside classes of the same names, and with the same first line."""
    indent = len(source) - len(source.lstrip(" \t"))
    head = ["import " + ", ".join(imports)] if imports else []
    for depth, outer in enumerate(classes):
        head.append(" " * depth + f"class {outer}:")
    if len(head) >= line or (classes and indent < len(classes)):
        raise UnfitError(f"{path}:{line} has no room for its classes")
    if not classes and indent:
        head.append("if 1:")
    padding = "\n" * (line - max(1, len(head)))
    code = compile("\n".join(head) + padding + source, path, "exec", flags=flags, dont_inherit=True)
    for outer in (*classes, name):
        inner = [c for c in code.co_consts if type(c) is types.CodeType and c.co_name == outer]
        if len(inner) != 1:
            raise UnfitError(f"{path}:{line} is not one function")
        code = inner[0]
    return code


def _pairs(old, new):
    """Yield the pairs of old and new code objects, outer ones first; the new one is None if it is missing."""
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
    """Exchange the code of the functions that differ; raise UnfitError if that would not be the whole change.

    Return whether the code of live functions was exchanged; False if the file has not been loaded.
    """
    full = os.path.realpath(os.path.join(_ROOT, path))
    codes = live.get(full, {})
    if not codes:
        if any(getattr(m, "__dict__", {}).get("__file__") == full for m in list(sys.modules.values())):
            raise UnfitError(f"{path} is loaded, but has no live function")
        return False
    flags = next(iter(codes)).co_flags & _FUTURE
    for each in functions:
        context = (each["classes"], each["name"], each["imports"], flags)
        old = _compiled(each["old_source"], full, each["old_line"], *context)
        new = _compiled(each["new_source"], full, each["new_line"], *context)
        if old not in codes:
            raise UnfitError(f"{path}:{each['old_line']} {each['name']} has no live function with this source")
        lookalikes = [c for c in codes if c.co_firstlineno == old.co_firstlineno and c != old]
        if any(c.co_name == old.co_name or c.co_code == old.co_code for c in lookalikes):
            raise UnfitError(f"{path}:{each['old_line']} {each['name']} is live in two versions")
        pairs = list(_pairs(old, new))
        for before, after in pairs:
            for function in codes.get(before, ()):
                if before == after:
                    continue
                twins = [b for a, b in pairs if a == before and b != after]
                if function is None or after is None or twins or before.co_freevars != after.co_freevars:
                    raise UnfitError(f"{path}:{each['old_line']} {each['name']} is in progress, or its parts differ")
                function.__code__ = after
    return True
