"""A pytest plugin that records with which arguments the tests call a function of the project.

Input: the file `SSR_CALLS`, one JSON object: `out` (a file to append to), `files` (of the project, relative to the
root), and `target`: the file, the name and the first line of the function. Output: one JSON object per call of the
target, and of the project's functions that led to it: `path`, `name`, `line`, `module`, `depth` (0: the target),
`owner` ([module, name] of the class, if the first argument is an instance or a class), `init` (what the instance was
made with, if known) and `given`, both as lists of [parameter, kind, literal]. In place of a literal stands
`named("module", "name")` for a function, a class or a member of an enumeration, and
`made("module", "class", [("parameter", "kind", literal), ...])` for an instance of a class of the project.
"""

import enum
import json
import os
import sys
import types

import ssr_call_literals

_MOST_CALLS, _MOST_OF_ONE, _MOST_OBJECTS, _MOST_BYTES = 3000, 150, 20000, 1000000
_DEEPEST = 6
_VARARGS, _KEYWORDS = 4, 8
_NAMED = (type, enum.Enum, types.FunctionType, types.BuiltinFunctionType, type(str.join))
_PUBLIC_MODULES = {"_operator": "operator"}


class Recorder:
    """Follows the calls of one thread."""

    def __init__(self, request):
        """request: see the docstring of the module."""
        self.descriptor = os.open(request["out"], os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        self.root = os.getcwd().rstrip("/") + "/"
        self.files = frozenset(request["files"])
        self.target = tuple(request["target"])
        self.paths, self.stack, self.made = {}, [], {}
        self.counts, self.seen, self.calls, self.written = {}, set(), 0, 0
        self.pid = os.getpid()
        self.write = os.write

    def start(self):
        """Record from now on."""
        sys.setprofile(self.event)

    def stop(self):
        """Record no more."""
        sys.setprofile(None)

    def path_of(self, filename):
        """Return the path of a file of the project, relative to the root; None for another file."""
        if filename not in self.paths:
            path = os.path.realpath(filename) if filename.endswith(".py") else ""
            relative = path[len(self.root) :] if path.startswith(self.root) else ""
            self.paths[filename] = relative if relative in self.files else None
        return self.paths[filename]

    def event(self, frame, kind, argument):
        """Follow one event of the interpreter."""
        if kind not in ("call", "return"):
            return
        code = frame.f_code
        path = self.path_of(code.co_filename)
        if kind == "return":
            if path is not None and self.stack:
                self.stack.pop()
            return
        if code.co_name == "__init__":
            self.remember(frame, code)
        if path is None:
            return
        self.stack.append((path, frame.f_globals.get("__name__"), code, _arguments(frame, code)))
        if (path, code.co_name, code.co_firstlineno) == self.target:
            self.record()

    def remember(self, frame, code):
        """Remember what an object is made with; a class that calls the `__init__` of its base counts once."""
        given = _arguments(frame, code)
        if not given or len(self.made) >= _MOST_OBJECTS:
            return
        made, caller = given[0][2], frame.f_back
        if caller is not None and caller.f_code.co_name == "__init__":
            outer = _arguments(caller, caller.f_code)
            if outer and outer[0][2] is made:
                return
        self.made[id(made)] = (type(made), given[1:])

    def record(self):
        """Write the call of the target, and the calls that led to it."""
        self.calls += 1
        if self.calls > _MOST_CALLS:
            self.stop()
            return
        for depth, (path, module, code, given) in enumerate(reversed(self.stack[-_DEEPEST:])):
            key = (path, code.co_name, code.co_firstlineno)
            if self.counts.get(key, 0) < _MOST_OF_ONE:
                line = self.line(path, module, code, given, depth)
                if line is not None and line not in self.seen:
                    self.seen.add(line)
                    self.counts[key] = self.counts.get(key, 0) + 1
                    self.send(line)

    def line(self, path, module, code, given, depth):
        """Return the record of a call; None if an argument is not a literal."""
        owner, init = None, None
        if given and given[0][0] in ("self", "cls"):
            first, given = given[0][2], given[1:]
            kind = first if isinstance(first, type) else type(first)
            owner = [kind.__module__, getattr(kind, "__qualname__", kind.__name__)]
            if not isinstance(first, type):
                init = self.init_of(first, kind)
                if init is None:
                    return None
        written = self.literals(given)
        if written is None:
            return None
        record = {"path": path, "module": module, "name": code.co_name, "line": code.co_firstlineno, "depth": depth}
        record.update(owner=owner, init=init, given=written)
        return json.dumps(record, sort_keys=True)

    def init_of(self, instance, kind):
        """Return what an instance was made with, as literals; None if that is not known."""
        made, given = self.made.get(id(instance), (None, None))
        if made is kind:
            return self.literals(given)
        # It may have been made before the tests, such as by the module that has it.
        return [] if kind.__new__ is object.__new__ and _needs_nothing(kind.__init__) else None

    def literals(self, given, depth=0):
        """Return arguments as [name, kind, literal]; None if one of them has no literal."""
        written = [[n, kind, ssr_call_literals.literal(value, self.expression, depth)] for n, kind, value in given]
        return written if all(text is not None for _, _, text in written) else None

    def expression(self, value, depth):
        """Return the text of a value that has no literal: see the docstring of the module; None if it has no such."""
        kind = type(value)
        try:
            if isinstance(value, _NAMED):
                return _named(value)
            made, given = self.made.get(id(value), (None, None))
            if (
                made is not kind
                or self.path_of(getattr(sys.modules.get(kind.__module__), "__file__", None) or "") is None
            ):
                return None
            written = self.literals(given, depth + 1)
        except Exception:
            # Attributes may be properties of the project.
            return None
        if written is None:
            return None
        pairs = ["(%r, %r, %s)" % tuple(argument) for argument in written]
        return "made(%r, %r, [%s])" % (kind.__module__, kind.__qualname__, ", ".join(pairs))

    def send(self, line):
        """Append a line, unless this is a process that the tests have started."""
        data = (line + "\n").encode()
        self.written += len(data)
        if os.getpid() == self.pid and self.written <= _MOST_BYTES:
            self.write(self.descriptor, data)


def _arguments(frame, code):
    """Return the arguments of a call that begins: [name, kind, value]; kinds as in a signature: "", *, k, **."""
    local, names = frame.f_locals, code.co_varnames
    count, only = code.co_argcount, code.co_kwonlyargcount
    kinds = [""] * count + ["k"] * only
    for flag, kind in ((_VARARGS, "*"), (_KEYWORDS, "**")):
        if code.co_flags & flag:
            kinds.append(kind)
    # A variable that an inner function uses may not be bound yet in old interpreters.
    return [(n, k, local[n]) for n, k in zip(names, kinds) if n in local]


def _needs_nothing(init):
    """Return whether an `__init__` can be called without arguments."""
    if not isinstance(init, types.FunctionType):
        return init is object.__init__
    code = init.__code__
    needed = code.co_argcount - 1 - len(init.__defaults__ or ())
    return needed <= 0 and code.co_kwonlyargcount == len(init.__kwdefaults__ or ())


def _named(value):
    """Return the text of a value that can be imported by its name; None if it cannot be."""
    if isinstance(value, enum.Enum):
        module, name = type(value).__module__, "%s.%s" % (type(value).__qualname__, value.name)
    elif isinstance(value, type(str.join)):
        module, name = value.__objclass__.__module__, value.__qualname__
    else:
        module, name = value.__module__, value.__qualname__
    found = sys.modules.get(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    return "named(%r, %r)" % (_PUBLIC_MODULES.get(module, module), name) if found is value else None


def pytest_configure(config):
    """Read what to record."""
    with open(os.environ.pop("SSR_CALLS")) as file:
        config.pluginmanager.register(Plugin(Recorder(json.load(file))), "ssr-calls")


class Plugin:
    """Records while tests run."""

    def __init__(self, recorder):
        """Keep a recorder."""
        self.recorder = recorder

    def pytest_runtest_logstart(self):
        """Start with the test: the code before it may have set another profile function."""
        self.recorder.stack = []
        self.recorder.start()

    def pytest_runtest_logfinish(self):
        """Stop after the test."""
        self.recorder.stop()
