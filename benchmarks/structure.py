"""Count modules, importers, lines, import circles and words of a version of this project.

Run: `python benchmarks/structure.py [TREE ...]`; without a tree it counts this one. An importer is a module of
`pytest_ssr` or `harness` that imports another, at its top, in a function, for type checkers only, or by a string
`module:name` in a table. Circles are counted among the imports at the top of modules that run. Words are those of
comments, docstrings and the Markdown pages in `docs` and README.md; code in back quotes and code blocks is left out.
"""

from __future__ import annotations

import argparse
import ast
import io
import re
import tokenize
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PACKAGES = ("pytest_ssr", "harness")
SHORT, LONG = 100, 400
PHRASES = {
    "where": r"where",
    "tell, tells, told, telling": r"tells?|told|telling",
    "say, says, said, saying": r"says?|said|saying",
    "is no, is none": r"is (?:no|none)",
    "hangs on": r"hangs? on",
    "anew, likewise, all the same, so long": r"anew|likewise|all the same|so long",
    "of its own": r"of (?:its|their) own",
}
"""Phrases that the style guide replaces, as regular expressions of whole words."""
_REFERENCE = re.compile(r"(pytest_ssr|harness)(?:\.\w+)+(?=:\w)")
_CODE = re.compile(r"^```.*?^```|`[^`\n]*`", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Module:
    """A module of the packages and what it imports."""

    name: str
    lines: int
    imports: frozenset[str]
    runs: frozenset[str]
    """The imports at its top that run."""


def names_of(tree: Path) -> dict[str, Path]:
    """Return the modules of the packages in a checkout."""
    found = {}
    for path in sorted(p for package in PACKAGES for p in (tree / package).rglob("*.py")):
        parts = path.relative_to(tree).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def modules_of(tree: Path) -> list[Module]:
    """Return the modules of a checkout."""
    paths = names_of(tree)
    modules = []
    for name, path in paths.items():
        text = path.read_text()
        parsed = ast.parse(text)
        typing = {id(n) for block in ast.walk(parsed) if _is_for_types(block) for n in ast.walk(block)}
        inner = {id(n) for block in ast.walk(parsed) if isinstance(block, _FUNCTIONS) for n in ast.walk(block)}
        everything, runs = set(), set()
        for node in ast.walk(parsed):
            targets = set(_targets(node, paths)) - {name}
            everything |= targets
            if id(node) not in typing and id(node) not in inner and isinstance(node, ast.Import | ast.ImportFrom):
                runs |= targets
        modules.append(Module(name, text.count("\n"), frozenset(everything), frozenset(runs)))
    return modules


_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


def _is_for_types(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def _targets(node: ast.AST, known: dict[str, Path]) -> Iterator[str]:
    """Yield the modules that a node imports or names in a table."""
    if isinstance(node, ast.Import):
        yield from (a.name for a in node.names if a.name in known)
    elif isinstance(node, ast.ImportFrom) and node.module:
        for alias in node.names:
            inner = f"{node.module}.{alias.name}"
            if inner in known:
                yield inner
            elif node.module in known:
                yield node.module
    elif isinstance(node, ast.Constant) and isinstance(node.value, str):
        match = _REFERENCE.match(node.value)
        if match and match[0] in known:
            yield match[0]


def circles(modules: list[Module]) -> list[list[str]]:
    """Return the groups of modules that import each other, by repeated removal of those that do not."""
    edges = {m.name: set(m.runs) for m in modules}
    reached: dict[str, set[str]] = {}
    for name in edges:
        seen: set[str] = set()
        todo = list(edges[name])
        while todo:
            other = todo.pop()
            if other not in seen:
                seen.add(other)
                todo.extend(edges[other])
        reached[name] = seen
    groups = {frozenset(o for o in reached[n] if n in reached[o]) for n in edges if n in reached[n]}
    return [sorted(g) for g in groups]


def prose_of(tree: Path) -> str:
    """Return the comments, docstrings and pages of a checkout, without code."""
    parts = []
    for path in names_of(tree).values():
        text = path.read_text()
        tokens = tokenize.generate_tokens(io.StringIO(text).readline)
        parts += [t.string.lstrip("# ") for t in tokens if t.type == tokenize.COMMENT]
        parts += [
            node.value.value
            for node in ast.walk(ast.parse(text))
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        ]
    parts += [p.read_text() for p in [tree / "README.md", *sorted((tree / "docs").rglob("*.md"))]]
    return _CODE.sub(" ", "\n".join(parts))


def table(tree: Path) -> dict[str, str]:
    """Return what is counted of a checkout."""
    modules = modules_of(tree)
    importers = Counter(i for m in modules for i in m.imports)
    single = [m for m in modules if importers[m.name] == 1]
    longest = max(modules, key=lambda m: m.lines)
    text = prose_of(tree)
    words = len(re.findall(r"[A-Za-z][A-Za-z'-]*", text))
    counts = {
        "modules": str(len(modules)),
        "modules with exactly one importer": str(len(single)),
        f"of these, at most {SHORT} lines": str(sum(m.lines <= SHORT for m in single)),
        "lines": f"{sum(m.lines for m in modules):,}",
        "import circles": str(len(circles(modules))),
        f"files over {LONG} lines": str(sum(m.lines > LONG for m in modules)),
        "longest file, lines": f"{longest.lines} ({longest.name})",
        "words of comments, docstrings and pages": f"{words:,}",
    }
    for label, pattern in PHRASES.items():
        found = len(re.findall(rf"\b(?:{pattern})\b", text, re.IGNORECASE))
        counts[f"{label}, per thousand words"] = f"{found / words * 1000:.2f} ({found})"
    return counts


def rooms(tree: Path) -> list[list[str]]:
    """Return a row for each package below ours: lines, modules, classes, and so on; see `ROOM_COLUMNS`."""
    paths, modules = names_of(tree), modules_of(tree)
    importers = Counter(i for m in modules for i in m.imports)
    grouped: dict[str, list[Module]] = {}
    for module in modules:
        grouped.setdefault(".".join(module.name.split(".")[:2]), []).append(module)
    return [_room(name, found, paths, importers) for name, found in sorted(grouped.items())]


ROOM_COLUMNS = (
    *("package", "lines", "modules", "classes", "protocols", "small with one importer", "largest fan-out"),
    *("comment lines, %", "function lines: median, p90, longest"),
)


def _room(name: str, modules: list[Module], paths: dict[str, Path], importers: Counter[str]) -> list[str]:
    classes = protocols = comments = 0
    lengths = []
    for module in modules:
        text = paths[module.name].read_text()
        comments += sum(t.type == tokenize.COMMENT for t in tokenize.generate_tokens(io.StringIO(text).readline))
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.ClassDef):
                classes += 1
                protocols += any("Protocol" in ast.unparse(base) for base in node.bases)
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lengths.append((node.end_lineno or node.lineno) - node.lineno + 1)
    lines = sum(m.lines for m in modules)
    lengths = sorted(lengths) or [0]
    small = sum(importers[m.name] == 1 and m.lines <= SHORT for m in modules)
    spread = f"{lengths[len(lengths) // 2]}, {lengths[len(lengths) * 9 // 10]}, {lengths[-1]}"
    counts = (lines, len(modules), classes, protocols, small, max(len(m.imports) for m in modules))
    return [name, *(f"{n:,}" for n in counts), f"{100 * comments / max(1, lines):.1f}", spread]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trees", nargs="*", type=Path, default=[Path(__file__).resolve().parents[1]], metavar="TREE")
    parser.add_argument("--rooms", action="store_true", help="one row for each package, of one tree")
    arguments = parser.parse_args()
    trees = arguments.trees
    if arguments.rooms:
        print(f"| {' | '.join(ROOM_COLUMNS)} |")
        print(f"|{'---|' * len(ROOM_COLUMNS)}")
        for row in rooms(trees[0]):
            print(f"| {' | '.join(row)} |")
        return
    tables = [table(t) for t in trees]
    print(f"| | {' | '.join(t.name for t in trees)} |")
    print(f"|---|{'---|' * len(trees)}")
    for label in tables[0]:
        print(f"| {label} | {' | '.join(t[label] for t in tables)} |")


if __name__ == "__main__":
    main()
