"""Record the calls of a function while tests run in a sandbox; what comes out is checked, because code may forge it."""

from __future__ import annotations

import ast
import json
import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from pytest_ssr.errors import SandboxError
from pytest_ssr.execution.runner import Runner
from pytest_ssr.execution.selection import Selection
from pytest_ssr.execution.suite import run_suite
from pytest_ssr.records.decoding import decode_or_none, json_object
from pytest_ssr.sandbox.protocol import MIB
from pytest_ssr.source.parsing import parse_module
from pytest_ssr.suggestions.calls import Argument, Call, arguments_source, import_of, is_dotted_name
from pytest_ssr.suggestions.examples import PLAIN_BUILTINS, PLAIN_MODULES
from pytest_ssr.suggestions.functions import Function, FunctionKind, functions_of
from pytest_ssr.suggestions.literals import Expression, Literal, imports_of, parse_literal, value_of

_MOST_BYTES = 2 * MIB
_FLOOR_S, _FACTOR, _MOST_S = 10.0, 10.0, 120.0


@dataclass(frozen=True, slots=True)
class _Record:
    """A line of the recorder."""

    path: str
    module: str
    name: str
    line: int
    depth: int
    given: tuple[tuple[str, str, str], ...]
    owner: tuple[str, str] | None = None
    init: tuple[tuple[str, str, str], ...] | None = None


@dataclass(frozen=True, slots=True)
class RecordedCalls:
    """The calls of one function and of those that led to it."""

    calls: Mapping[Function, Sequence[Call]]
    """By function; the changed one first, then its callers, the nearest first."""
    is_whole: bool
    """Whether the run ended by itself."""


def record_calls(
    runner: Runner, function: Function, tests: Sequence[str], files: Iterable[str], *, like_s: float
) -> RecordedCalls:
    """Run tests on the original and return the calls whose arguments can be written.

    files: the project's code, in which callers may be. like_s: seconds that the tests take. Raises SandboxError.
    """
    files = sorted(files)
    limits = replace(runner.limits, wall_s=min(_MOST_S, _FLOOR_S + _FACTOR * like_s))
    with runner.open(runner.original) as sandbox:
        folder = f"{sandbox.scratch}/{secrets.token_hex(8)}"
        target = [function.path, function.name, function.first]
        request = {"out": f"{folder}/calls", "files": files, "target": target}
        sandbox.write(f"{folder}/calls", b"")
        sandbox.write(f"{folder}/request", json.dumps(request).encode())
        run = run_suite(
            sandbox,
            runner.interpreter,
            targets=sorted({test.partition("::")[0] for test in tests}),
            options=runner.pytest_options,
            limits=limits,
            selection=Selection(tests),
            env={"SSR_CALLS": f"{folder}/request"},
            guests=("call_literals", "call_recorder"),
            test_runner=runner.test_runner,
        )
        runner.counts.runs += 1
        try:
            raw = sandbox.read(f"{folder}/calls", max_bytes=_MOST_BYTES)
        except (FileNotFoundError, SandboxError):
            # The tests can write to the file, and delete it.
            raw = b""
    reader = CallReader({path: runner.snapshot.read(path) for path in files})
    return RecordedCalls(reader.read(function, raw), run.limit is None)


class CallReader:
    """Turns lines into calls."""

    def __init__(self, sources: Mapping[str, bytes]) -> None:
        self.sources = sources
        self.modules = {name for path in sources for name in _module_names(path)}
        self._public: dict[tuple[str, str], str] = {}

    def read(self, target: Function, raw: bytes) -> dict[Function, list[Call]]:
        """Return the calls by function: the target first, then what led to it, the nearest first."""
        depths: dict[Function, int] = {target: 0}
        calls: dict[Function, list[Call]] = {target: []}
        for line in raw.splitlines():
            record = decode_or_none(_Record, json_object(line))
            call = self.call(record) if record is not None else None
            if record is not None and call is not None:
                depths[call.function] = min(record.depth, depths.get(call.function, record.depth))
                calls.setdefault(call.function, []).append(call)
        return dict(sorted(calls.items(), key=lambda item: depths[item[0]]))

    def call(self, record: _Record) -> Call | None:
        """Return the call that a record describes; None if it cannot be written."""
        source = self.sources.get(record.path)
        known = functions_of(record.path, source) if source is not None else ()
        function = next((f for f in known if f.first == record.line and f.name == record.name), None)
        if function is None or function.name in ("__new__", "__del__"):
            return None
        given, init = self.arguments(record.given), self.arguments(record.init or ())
        module, owner = record.module, ".".join(function.names[:-1])
        if function.kind is FunctionKind.INIT:
            # The instance may be of a subclass, whose own arguments come from outside.
            given = ()
        if function.kind not in (FunctionKind.FUNCTION, FunctionKind.STATIC):
            if record.owner is None or (record.init is None and function.kind is not FunctionKind.CLASS):
                return None
            module, owner = record.owner
        if given is None or init is None or not self.is_known(module, owner or function.name):
            return None
        imported = module, (owner or function.name).partition(".")[0]
        if imported not in self._public:
            # A test may make thousands of calls, and packages are parsed for this.
            self._public[imported] = self.public_module(*imported)
        shown = self._public[imported]
        return Call(function, shown, owner, init, given, self.init_defaults(module, owner))

    def public_module(self, module: str, name: str) -> str:
        """Return the package that imports a name from its private module; the module itself if it is public."""
        parts = module.split(".")
        private = next((n for n, part in enumerate(parts) if part.startswith("_")), 0)
        package = ".".join(parts[:private])
        for path, source in self.sources.items() if package else ():
            tree = parse_module(source) if path.endswith("__init__.py") and package in _module_names(path) else None
            imports = [n for n in tree.body if isinstance(n, ast.ImportFrom)] if tree is not None else []
            if any(alias.name == name and alias.asname in (None, name) for n in imports for alias in n.names):
                return package
        return module

    def is_known(self, module: object, name: object) -> bool:
        """Return whether a name, which is not trusted, can be one of the project's."""
        return module in self.modules and is_dotted_name(module) and is_dotted_name(name)

    def arguments(self, given: Iterable[tuple[str, str, str]]) -> tuple[Argument, ...] | None:
        """Return arguments; None if one of them cannot be written."""
        arguments = []
        for name, kind, text in given:
            value = parse_literal(text, self.expression)
            if value is None or not is_dotted_name(name) or not _fits(kind, value[0]):
                return None
            arguments.append(Argument(name, kind, value[0]))
        return tuple(arguments)

    def expression(self, node: ast.Call) -> Expression | None:
        """Return what stands for `named(...)` or `made(...)`; raises ValueError if that cannot be written."""
        if not isinstance(node.func, ast.Name) or node.func.id not in ("named", "made"):
            return None
        module, name, *rest = node.args
        where, what = ast.literal_eval(module), ast.literal_eval(name)
        if node.func.id == "named" and where in PLAIN_MODULES and is_dotted_name(what):
            if where != "builtins":
                return Expression(f"{where}.{what}", frozenset((f"import {where}",)))
            if what.partition(".")[0] in PLAIN_BUILTINS:
                return Expression(what)
        if not self.is_known(where, what):
            raise ValueError
        imports = frozenset((import_of(where, what),))
        if node.func.id == "named":
            return Expression(what, imports)
        given = []
        (parameters,) = rest
        for item in parameters.elts if isinstance(parameters, ast.List) else [parameters]:
            if not isinstance(item, ast.Tuple):
                raise ValueError
            parameter, kind, value = item.elts
            argument = Argument(ast.literal_eval(parameter), ast.literal_eval(kind), value_of(value, self.expression))
            if not is_dotted_name(argument.name) or not _fits(argument.kind, argument.value):
                raise ValueError
            given.append(argument)
        source = arguments_source(given, self.init_defaults(where, what), frozenset())
        try:
            ast.parse(f"{what}({source})", mode="eval")
        except SyntaxError:
            # What the tests have written may name an argument twice.
            raise ValueError from None
        return Expression(f"{what}({source})", imports.union(*(imports_of(a.value) for a in given)))

    def init_defaults(self, module: str, owner: str) -> Mapping[str, Literal]:
        """Return the defaults of the constructor of a class."""
        names = (*owner.split("."), "__init__")
        for path, source in self.sources.items():
            if module in _module_names(path):
                return next((f.defaults for f in functions_of(path, source) if f.names == names), {})
        return {}


def _module_names(path: str) -> list[str]:
    """Return the names that the module of a file may have, by where the import path begins."""
    parts = path.removesuffix(".py").removesuffix("/__init__").split("/")
    return [".".join(parts[start:]) for start in range(len(parts))]


def _fits(kind: str, value: Literal) -> bool:
    """Return whether a value can belong to a parameter of a kind."""
    if kind == "**":
        return isinstance(value, dict) and all(is_dotted_name(key) and "." not in key for key in value)
    return kind in ("", "k") or (kind == "*" and isinstance(value, tuple))
