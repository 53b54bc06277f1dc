"""Say which names of libraries and of tests the project has bound to objects of its own.

A patch could make tests pass by what they use instead of what they test: by another `asyncio.run`, or by a `len` that a
star import brings into the test's file.
"""

import functools
import os
import sys
import types
from builtins import (  # a project may replace them later
    dict,
    getattr,
    id,
    isinstance,
    list,
    set,
    sorted,
    str,
    type,
    vars,
)

_ROOT = os.path.realpath(os.getcwd()) + os.sep
_realpath, _FunctionType, _ModuleType = os.path.realpath, types.FunctionType, types.ModuleType
_BuiltinType = types.BuiltinFunctionType
_BUILT_INS = dict(vars(sys.modules["builtins"]))
_HOLDERS = {
    functools.partial: "func",
    types.MethodType: "__func__",
    staticmethod: "__func__",
    classmethod: "__func__",
    property: "fget",
}


class Snapshot:
    """The functions and classes of libraries as they are before the project is imported."""

    def __init__(self):
        """Look at all modules."""
        self.in_tree, self.own = {}, set()
        self.identities = dict(self.found(sys.modules))

    def note(self, hidden, kinds, test_modules):
        """Return four lists of names: what is replaced in libraries, which of some classes are the project's, and which
        names of test files, given by their paths, are bound to objects of the project, and which to those of libraries.

        hidden: modules that are not in `sys.modules`, by name.
        """
        modules = dict(hidden)
        modules.update(sys.modules)
        modules = {n: m for n, m in modules.items() if isinstance(m, _ModuleType)}
        self.own = {n for n, m in modules.items() if self.is_in_tree(getattr(m, "__file__", None))}
        others = {n: m for n, m in modules.items() if n not in self.own}
        replaced = {name for name, identity in self.found(others) if self.identities.get(name, identity) != identity}
        for module_name, module in others.items():
            replaced.update(name for name, value in _members(module_name, module) if self.is_own(value))
        own_kinds = [k.__module__ + "." + k.__qualname__ for k in kinds if self.is_own(k) or not self.is_found(k)]
        own, foreign = [], []
        for path, module in test_modules.items():
            for name, value in list(vars(module).items()):
                is_own = self.is_own(value) or (name in _BUILT_INS and value is not _BUILT_INS[name])
                is_named = isinstance(value, (type, _FunctionType, _ModuleType))
                if not name.startswith("__") and (is_named or is_own):
                    (own if is_own else foreign).append(path + ":" + name)
        return sorted(replaced), sorted(own_kinds), sorted(own), sorted(foreign)

    def found(self, modules):
        """Yield the names of functions and classes, and what identifies them; a function's code can be exchanged."""
        for module_name, module in list(modules.items()):
            for name, value in _members(module_name, module):
                if isinstance(value, (type, _FunctionType, _BuiltinType)):
                    yield name, (id(value), id(getattr(value, "__code__", None)))

    def is_found(self, kind):
        """Return whether a class is where it says that it is, as one of a library."""
        module = sys.modules.get(kind.__module__)
        return getattr(module, kind.__name__, None) is kind

    def is_in_tree(self, path):
        """Return whether a file is one of the project."""
        if path not in self.in_tree:
            # Frozen and generated code has names such as `<string>`.
            is_file = isinstance(path, str) and not path.startswith("<")
            self.in_tree[path] = is_file and _realpath(path).startswith(_ROOT)
        return self.in_tree[path]

    def is_own(self, value):
        """Return whether a function or class, or the class of another object, is the project's."""
        kind = type(value)
        while kind in _HOLDERS:
            value = getattr(value, _HOLDERS[kind])
            kind = type(value)
        if kind is _FunctionType:
            return self.is_in_tree(value.__globals__.get("__file__")) or self.is_in_tree(value.__code__.co_filename)
        if kind is _ModuleType:
            return value.__name__ in self.own
        return getattr(value if isinstance(value, type) else kind, "__module__", None) in self.own


def _members(module_name, module):
    """Yield the names in a module and in its classes, with their values."""
    for name, value in list(vars(module).items()):
        yield module_name + "." + name, value
        if isinstance(value, type) and value.__module__ == module_name:
            for inner, attribute in list(type.__getattribute__(value, "__dict__").items()):
                yield module_name + "." + value.__qualname__ + "." + inner, attribute
