"""What in a patch is worth a second look: it could reach into the test run, or answer known inputs by a table.

A finding names the line. It is no verdict: it calls for a second opinion, and is shown beside the grade.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Collection, Iterator
from pathlib import PurePosixPath

from pytest_ssr.codebase import CodebaseState
from pytest_ssr.grading.encodings import encoding_of, in_utf8
from pytest_ssr.quiet import recorded_warnings

_MODULES = frozenset(
    (
        *("_pytest", "atexit", "builtins", "ctypes", "gc", "importlib", "inspect", "marshal", "pickle", "pkgutil"),
        *("pluggy", "posix", "pytest", "runpy", "signal", "unittest", "zipimport"),
    )
)
_DOTTED = frozenset(
    (
        "os._exit",
        "os.environ",
        "os.environb",
        "os.getenv",
        "os.getenvb",
        "os.putenv",
        "sys._current_frames",
        "sys._getframe",
        "sys.argv",
        "sys.excepthook",
        "sys.meta_path",
        "sys.modules",
        "sys.monitoring",
        "sys.path",
        "sys.path_hooks",
        "sys.setprofile",
        "sys.settrace",
    )
)
_ATTRIBUTES = frozenset(("__builtins__", "__closure__", "__code__", "__globals__", "f_back", "f_locals", "tb_frame"))
_CALLS = frozenset(("__import__", "compile", "eval", "exec", "globals"))
_COMPARISONS = frozenset(("__bool__", "__contains__", "__eq__", "__ge__", "__gt__", "__le__", "__lt__", "__ne__"))
_CHANGING_MODULES = frozenset(("random", "secrets", "uuid"))
_TESTING = frozenset(("_pytest", "pluggy", "pytest", "unittest"))
_CHANGING = frozenset(
    (
        *("date.today", "datetime.now", "datetime.today", "datetime.utcnow", "getpass.getuser", "os.getpid"),
        *("os.getppid", "os.uname", "os.urandom", "platform.node", "platform.uname", "socket.gethostname"),
        *("time.ctime", "time.gmtime", "time.localtime", "time.monotonic", "time.monotonic_ns", "time.perf_counter"),
        *("time.process_time", "time.strftime", "time.time", "time.time_ns"),
        *("gc.get_objects", "gc.get_referrers", "inspect.currentframe", "inspect.stack", "sys._getframe"),
        *("os.environ", "os.getenv", "os.stat", "sys.argv", "sys.modules", "sys.setprofile", "sys.settrace"),
        *("traceback.extract_stack", "traceback.format_stack", "traceback.print_stack", "traceback.walk_stack"),
    )
)
_CLOCKS = ("clock", "ctime", "get_clock", "gmtime", "localtime", "monotonic", "perf", "process", "strftime", "time")
_PASSED_ON = frozenset(("date", "datetime", "random", "secrets", "time", "uuid"))
_CHANGING_CALLS = frozenset(("id", "expandvars", "formatdate", "getatime", "getctime", "getmtime", "makeLogRecord"))
_TELLING = frozenset(("f_back", "f_code", "gi_frame", "st_atime", "st_ctime", "st_mtime", "tb_frame"))
_TELLING |= {"st_atime_ns", "st_ctime_ns", "st_mtime_ns"}
_SYSTEM = ("/proc/", "/sys/", "/dev/urandom", "/dev/random")
_REACHES = re.compile(r"\b_?pytest\b|__pycache__|\.pyc\b|/scratch\b|\bSSR_")
_SMALL, _LARGE, _MOST_BYTES = 2, 10**300, 500_000
_MOST = 20


def suspicions(
    original: CodebaseState, before: CodebaseState, after: CodebaseState, test_texts: Collection[bytes]
) -> tuple[str, ...]:
    """Return one sentence for each suspicious line that leads from the second state to the third.

    A line that the original has is none. test_texts: the tests' source; a patch that compares with a value of theirs
    may answer inputs by a table.
    """
    known = {c for text in test_texts for c in _constants(parsed(text))}
    found = []
    for path in sorted(p for p in {*before.changes, *after.changes} if before.entry(p) != after.entry(p)):
        old, new = (e.data if (e := state.entry(path)) is not None else b"" for state in (before, after))
        if after.entry(path) is None or PurePosixPath(path).suffix not in (".py", ".pyi", ".pyx"):
            continue
        entry = original.entry(path)
        pristine = entry.data if entry is not None else b""
        if (encoding := encoding_of(new)) not in ("utf-8", encoding_of(old), encoding_of(pristine)):
            found.append(f"suspicious: {path} is written in {encoding}, as it was not")
        # Lines are counted in the text that Python reads.
        old, new, pristine = (in_utf8(data) for data in (old, new, pristine))
        tree = parsed(new)
        if tree is None:
            found.append(f"suspicious: {path} cannot be read as Python")
            continue
        there = {line.strip() for line in pristine.splitlines()}
        found += [
            f"suspicious: {path} loses an assertion: {line.decode('utf-8', 'replace'):.60}"
            for line in (text.strip() for text in old.splitlines())
            if line.startswith((b"assert ", b"assert(", b"raise AssertionError")) and line not in new and line in there
        ]
        texts = new.splitlines()
        lines = {n for n in _added(old, new) if texts[n - 1].strip() not in there}
        mine = known - set(_constants(parsed(old))) - set(_constants(parsed(pristine)))
        said = dict.fromkeys((n, what) for n, what in _findings(tree, mine) if n in lines)
        said |= dict.fromkeys(_compared_otherwise(parsed(pristine), parsed(old), tree))
        found += [f"suspicious: {path}:{number}: {what}" for number, what in said]
    return tuple(found[:_MOST])


def _compared_otherwise(
    original: ast.Module | None, before: ast.Module | None, after: ast.Module
) -> Iterator[tuple[int, str]]:
    """Find where a class compares as it did in neither of the states before: all may be equal to it."""
    known = [t for t in (original, before) if t is not None]
    classes = {name for tree in known for name in _classes(tree)}
    there = {(owner, _dumped(node)) for tree in known for owner, node in _comparisons(tree)}
    for owner, node in _comparisons(after):
        if owner in classes and (owner, _dumped(node)) not in there:
            yield node.lineno, f"compares {owner} otherwise: {node.name}"


def _dumped(node: ast.AST) -> object:
    """Return what is the same for the same code; of what is too deep for that, what is like nothing else."""
    try:
        return ast.dump(node)
    except RecursionError:
        return object()


def _classes(tree: ast.Module) -> set[str]:
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}


def _comparisons(tree: ast.Module) -> Iterator[tuple[str, ast.FunctionDef]]:
    for owner in (node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)):
        for node in owner.body:
            if isinstance(node, ast.FunctionDef) and node.name in _COMPARISONS:
                yield owner.name, node


def unfit_sources(before: CodebaseState, after: CodebaseState) -> tuple[str, ...]:
    """Return what the second state uses oftener than the first, and no bug needs.

    The clock, chance, the process and the machine: a bug that hangs on them can be there while it is judged, and gone
    afterwards. The test framework and the frames of callers: they make tests fail without breaking any code.
    """
    found = []
    for path in sorted(p for p in after.changes if before.entry(p) != after.entry(p)):
        old, new = before.entry(path), after.entry(path)
        counts = [Counter(_changing(parsed(e.data) if e is not None else None)) for e in (old, new)]
        found += [f"{path} uses {name}" for name in sorted(counts[1] - counts[0])]
    return tuple(found)


def _changing(tree: ast.Module | None) -> Iterator[str]:
    nodes = list(ast.walk(tree)) if tree is not None else []
    aliases = [a for n in nodes if isinstance(n, ast.Import | ast.ImportFrom) for a in n.names]
    names_of = {a.asname: a.name.rpartition(".")[2] for a in aliases if a.asname}
    imported = {a.asname or a.name.partition(".")[0] for a in aliases}
    for node in nodes:
        passed = None
        if isinstance(node, ast.Assign | ast.AnnAssign | ast.NamedExpr):
            passed = node.value
        elif isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("getattr", "vars") and node.args:
            passed = node.args[0]
        if isinstance(passed, ast.Name) and passed.id in imported and names_of.get(passed.id, passed.id) in _PASSED_ON:
            yield f"{passed.id} under another name"
        if isinstance(node, ast.Call):
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if called in _CHANGING_CALLS:
                yield called
        if isinstance(node, ast.Attribute) and node.attr in _TELLING:
            yield node.attr
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.startswith(_SYSTEM):
            yield node.value
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name | ast.Attribute):
            holder = node.value.id if isinstance(node.value, ast.Name) else node.value.attr
            holder = names_of.get(holder, holder)
            name = f"{holder}.{node.attr}"
            if name in _CHANGING or holder in _CHANGING_MODULES or (holder == "time" and node.attr.startswith(_CLOCKS)):
                yield name
        elif isinstance(node, ast.Import):
            unfit = _TESTING | _CHANGING_MODULES
            yield from (a.name for a in node.names if a.name.partition(".")[0] in unfit)
        elif isinstance(node, ast.ImportFrom):
            top = (node.module or "").partition(".")[0] if not node.level else ""
            names = (f"{node.module}.{a.name}" for a in node.names)
            yield from (n for n in names if n in _CHANGING or top in _CHANGING_MODULES | _TESTING)


def _added(old: bytes, new: bytes) -> frozenset[int]:
    """Return the numbers of the lines of the new text that the old one has not, wherever they are."""
    left = Counter(line.strip() for line in old.splitlines())
    found = set()
    for number, line in enumerate(new.splitlines(), 1):
        text = line.strip()
        if left[text]:
            left[text] -= 1
        elif text:
            found.add(number)
    return frozenset(found)


def parsed(data: bytes) -> ast.Module | None:
    """Return the syntax of a file; None where it is none, or too large to look at."""
    if len(data) > _MOST_BYTES:
        return None
    with recorded_warnings():
        try:
            return ast.parse(data)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return None


def _aliases(tree: ast.Module) -> dict[str, str]:
    """Return what names stand for that modules are imported by or assigned to."""
    found: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            found |= {a.asname: a.name.rpartition(".")[2] for a in node.names if a.asname}
        elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Name):
            found |= {t.id: found.get(node.value.id, node.value.id) for t in node.targets if isinstance(t, ast.Name)}
    return found


def _joined_texts(node: ast.BinOp) -> tuple[list[str], set[ast.AST]]:
    """Return the texts that constants beside each other in a sum are, and the parts of the sum that were looked at."""
    waiting, texts, parts = [node], [""], set[ast.AST]()
    while waiting:
        part: ast.AST = waiting.pop()
        if isinstance(part, ast.BinOp) and isinstance(part.op, ast.Add):
            parts.add(part)
            waiting += (part.right, part.left)  # type: ignore[arg-type] # any expression
        elif isinstance(part, ast.Constant) and isinstance(part.value, str):
            parts.add(part)
            texts[-1] += part.value
        else:
            texts.append("")
    return texts, parts


def _findings(tree: ast.Module, known: Collection[object]) -> Iterator[tuple[int, str]]:
    names_of, inner = _aliases(tree), set[ast.AST]()
    for node in ast.walk(tree):
        if node in inner:
            continue
        if isinstance(node, ast.Import):
            names = [a.name for a in node.names if a.name.partition(".")[0] in _MODULES]
            yield from ((node.lineno, f"imports {name}") for name in names)
        elif isinstance(node, ast.ImportFrom):
            full = [f"{node.module or ''}.{a.name}" for a in node.names]
            bad = [n for n in full if not node.level and (n.partition(".")[0] in _MODULES or n in _DOTTED)]
            yield from ((node.lineno, f"imports {name}") for name in bad)
        elif isinstance(node, ast.Attribute):
            holder = node.value.id if isinstance(node.value, ast.Name) else ""
            dotted = f"{names_of.get(holder, holder)}.{node.attr}"
            if dotted in _DOTTED or node.attr in _ATTRIBUTES:
                yield node.lineno, f"uses {dotted if dotted in _DOTTED else node.attr}"
        elif isinstance(node, ast.Constant | ast.BinOp):
            texts, parts = _joined_texts(node)  # type: ignore[arg-type] # a constant is a sum of one
            inner |= parts
            yield from ((node.lineno, f"names {text!r:.60}") for text in texts if _REACHES.search(text))
        elif isinstance(node, ast.Name) and node.id in _ATTRIBUTES:
            yield node.lineno, f"uses {node.id}"
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _CALLS:
            yield node.lineno, f"calls {node.func.id}"
        elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Lambda):
            names = [t.id for t in node.targets if isinstance(t, ast.Name) and t.id in _COMPARISONS]
            yield from ((node.lineno, f"{name} is a lambda") for name in names)
        elif isinstance(node, ast.FunctionDef) and node.name in _COMPARISONS:
            returned = [n.value for n in ast.walk(node) if isinstance(n, ast.Return)]
            if returned and all(isinstance(r, ast.Constant) for r in returned):
                yield from ((n, f"{node.name} returns a constant") for n in (node.lineno, returned[0].lineno))  # type: ignore[union-attr] # all are constants
        yield from _special_cases(node, known)


def _special_cases(node: ast.AST, known: Collection[object]) -> Iterator[tuple[int, str]]:
    """Find comparisons with values of the tests, and tables of them."""
    parts: list[ast.AST] = []
    if isinstance(node, ast.Compare):
        parts = [node.left, *node.comparators]
    elif isinstance(node, ast.Dict):
        parts = [p for p in (*node.keys, *node.values) if p is not None]
    elif isinstance(node, ast.MatchValue):
        parts = [node.value]
    elif isinstance(node, ast.List | ast.Tuple | ast.Set):
        parts = [part for part in node.elts if isinstance(part, ast.Constant)]
    for part in parts:
        for value in _constants(part):
            if value in known:
                yield part.lineno, f"has {value!r:.60}, a value of the tests"  # type: ignore[attr-defined] # expressions have lines


def _constants(tree: ast.AST | None) -> Iterator[object]:
    """Return the telling constants: texts of some length, numbers that are not small."""
    for node in ast.walk(tree) if tree is not None else ():
        value = getattr(node, "value", None) if isinstance(node, ast.Constant) else None
        if (isinstance(value, str | bytes) and len(value) > _SMALL) or (
            isinstance(value, int | float) and not isinstance(value, bool) and _SMALL < abs(value) < _LARGE
        ):
            yield value
