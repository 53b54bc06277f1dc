"""Find uses that a bug must not introduce: with them it could come and go, or fail tests without breaking code."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping

from pytest_ssr.checks.indirect_names import indirect_uses
from pytest_ssr.project.file_roles import import_names
from pytest_ssr.project.state import CodebaseState
from pytest_ssr.source.parsing import parse_module

_TESTING = frozenset(("_pytest", "hypothesis", "mock", "pluggy", "pytest", "unittest"))
_FRAMES = frozenset(
    (
        *("ag_code", "ag_frame", "co_code", "co_consts", "co_filename", "co_firstlineno", "co_name", "co_names"),
        *("co_qualname", "co_varnames", "cr_code", "cr_frame", "f_back", "f_builtins", "f_code", "f_globals"),
        *("f_lasti", "f_lineno", "f_locals", "f_trace", "gi_code", "gi_frame", "tb_frame", "tb_lasti", "tb_next"),
    )
)
_CHANGING_MODULES = frozenset(("random", "secrets", "uuid"))
_CHANGING = frozenset(
    (
        *("date.today", "datetime.now", "datetime.today", "datetime.utcnow", "getpass.getuser", "os.getpid"),
        *("os.getppid", "os.times", "os.uname", "os.urandom", "platform.node", "platform.uname", "socket.gethostname"),
        *("time.ctime", "time.gmtime", "time.localtime", "time.monotonic", "time.monotonic_ns", "time.perf_counter"),
        *("time.process_time", "time.strftime", "time.time", "time.time_ns"),
        *("gc.get_objects", "gc.get_referrers", "inspect.currentframe", "inspect.stack", "sys._getframe"),
        *(
            "os.environ",
            "os.environb",
            "os.getenv",
            "os.getenvb",
            "os.stat",
            "sys.argv",
            "sys.modules",
            "sys.setprofile",
            "sys.settrace",
        ),
        *("traceback.extract_stack", "traceback.format_stack", "traceback.print_stack", "traceback.walk_stack"),
    )
)
_CLOCKS = ("clock", "ctime", "get_clock", "gmtime", "localtime", "monotonic", "perf", "process", "strftime", "time")
_PASSED_ON = frozenset(("date", "datetime", "random", "secrets", "time", "uuid"))
_CHANGING_CALLS = frozenset(("id", "expandvars", "formatdate", "getatime", "getctime", "getmtime", "makeLogRecord"))
_CHANGING_CALLS |= {"import_module", "open_code", "resolve_name"}
# On any object: the frames of callers, the clock, the machine, the process.
_REVEALING = _FRAMES | {"currentframe", "extract_stack", "findCaller", "get_stack", "walk_stack", "walk_tb"}
_REVEALING |= {"st_atime", "st_atime_ns", "st_ctime", "st_ctime_ns", "st_mtime", "st_mtime_ns"}
_REVEALING |= {"LogRecord", "clock_gettime", "default_timer", "get_ident", "get_native_id", "getfqdn"}
_REVEALING |= {"getlogin", "gmtime", "localtime", "mkdtemp", "mkstemp", "mktemp", "now", "relativeCreated"}
_REVEALING |= {"time2isoz", "time2netscape", "time_ns", "today", "utcnow", "uuid1", "uuid4"}
_CHANGING_IMPORTS = frozenset(
    (
        *("arrow", "dateutil", "datetime", "email.utils", "getpass", "grp", "gzip", "http.cookiejar", "locale"),
        *("pendulum", "platform", "psutil", "pwd", "resource", "sched", "socket", "sqlite3", "tempfile", "time"),
        *("timeit", "zoneinfo"),
    )
)
_SYSTEM = re.compile(r"/(bin|boot|dev|etc|home|lib|lib64|mnt|opt|proc|root|run|sbin|srv|sys|tmp|usr|var)(/|$)")
_OPENING = frozenset(("Path", "exists", "isdir", "isfile", "listdir", "open", "scandir", "stat"))


def forbidden_uses(before: CodebaseState, after: CodebaseState) -> tuple[str, ...]:
    """Return the forbidden uses that are more frequent in the second state than in the first.

    The clock, randomness, the process and the machine: a bug that depends on them can be present during validation and
    absent afterwards. The test framework and the frames of callers: they make tests fail without breaking any code.
    Indirect access to these under other names counts as well.
    """
    uses, own = [], import_names(before.snapshot.files)
    for path in sorted(p for p in after.changes if before.entry(p) != after.entry(p)):
        trees = [parse_module(e.data) if (e := state.entry(path)) is not None else None for state in (before, after)]
        for find in (
            _unsteady_uses,
            lambda tree: indirect_uses(tree, own) if tree is not None else (),
            _unsteady_imports,
        ):
            old, new = (Counter(find(tree)) for tree in trees)
            uses += [f"{path} {use}" for use in sorted(new - old)]
    return tuple(dict.fromkeys(uses))


def _unsteady_imports(tree: ast.Module | None) -> Iterator[str]:
    """Yield the imports of modules for clocks and the machine, in any form."""
    for node in ast.walk(tree) if tree is not None else ():
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and not node.level:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        for name in names:
            parts = name.split(".")
            yield from (f"imports {n}" for n in (parts[0], ".".join(parts[:2])) if n in _CHANGING_IMPORTS)


def _unsteady_uses(tree: ast.Module | None) -> Iterator[str]:
    nodes = list(ast.walk(tree)) if tree is not None else []
    aliases = [a for n in nodes if isinstance(n, ast.Import | ast.ImportFrom) for a in n.names]
    names_of = {a.asname: a.name.rpartition(".")[2] for a in aliases if a.asname}
    imported = {a.asname or a.name.partition(".")[0] for a in aliases}
    for node in nodes:
        for name in _forbidden(node, names_of, imported):
            yield f"uses {name}"


def _forbidden(node: ast.AST, names_of: Mapping[str, str], imported: Collection[str]) -> Iterator[str]:
    if isinstance(node, ast.Assign | ast.AnnAssign | ast.NamedExpr):
        if _passes_on(node.value, names_of, imported):
            yield f"{ast.unparse(node.value)} under another name"  # type: ignore[arg-type] # a name
    elif isinstance(node, ast.Call):
        called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if called in _CHANGING_CALLS:
            yield called
        first = node.args[0] if node.args else None
        if called in ("getattr", "vars") and isinstance(first, ast.Name) and first.id in imported:
            yield f"{first.id} under another name"
        if called in _OPENING and isinstance(text := getattr(first, "value", None), str) and text.startswith("/"):
            yield text
    elif isinstance(node, ast.Constant | ast.BinOp):
        yield from (text for text in _joined_strings(node) if _SYSTEM.match(text))
    elif isinstance(node, ast.Attribute):
        held = node.value
        holder = held.attr if isinstance(held, ast.Attribute) else held.id if isinstance(held, ast.Name) else ""
        holder = names_of.get(holder, holder)
        name = f"{holder}.{node.attr}"
        if name in _CHANGING or holder in _CHANGING_MODULES or (holder == "time" and node.attr.startswith(_CLOCKS)):
            yield name
        elif node.attr in _REVEALING:
            yield node.attr
        elif node.attr == "__dict__" and holder in imported:
            yield name
    elif isinstance(node, ast.Import):
        forbidden = _TESTING | _CHANGING_MODULES
        yield from (a.name for a in node.names if a.name.partition(".")[0] in forbidden)
    elif isinstance(node, ast.ImportFrom):
        top = (node.module or "").partition(".")[0] if not node.level else ""
        for alias in node.names:
            name = f"{node.module}.{alias.name}"
            if name in _CHANGING or top in _CHANGING_MODULES | _TESTING or alias.name in _REVEALING:
                yield name


def _passes_on(node: ast.AST | None, names_of: Mapping[str, str], imported: Collection[str]) -> bool:
    return isinstance(node, ast.Name) and node.id in imported and names_of.get(node.id, node.id) in _PASSED_ON


def _joined_strings(node: ast.expr) -> list[str]:
    """Return the strings that adjacent constants in a sum concatenate to."""
    waiting, texts = [node], [""]
    while waiting:
        part = waiting.pop()
        if isinstance(part, ast.BinOp) and isinstance(part.op, ast.Add):
            waiting += (part.right, part.left)
        elif isinstance(part, ast.Constant) and isinstance(part.value, str):
            texts[-1] += part.value
        else:
            texts.append("")
    return texts
