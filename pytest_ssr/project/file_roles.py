"""Classify files: code, and the test surface that neither bugs nor solvers may change.

The test surface is every file that can change the outcome of tests without changing the code under test: tests,
conftest, the configuration of pytest, tox, setup and coverage, interpreter start-up hooks, entry points, snapshots.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable
from fnmatch import fnmatchcase
from pathlib import PurePosixPath

CODE_SUFFIXES = frozenset(
    (".py", ".pyx", ".pxd", ".pyi", ".c", ".h", ".cc", ".cpp", ".hpp", ".rs", ".go", ".js", ".ts", ".java")
)
_OTHER_SUFFIXES = frozenset(
    (
        *(".bash", ".clj", ".cjs", ".cs", ".cxx", ".dart", ".erl", ".ex", ".exs", ".hs", ".hxx", ".jl", ".jsx", ".kt"),
        *(".lua", ".mjs", ".ml", ".nim", ".php", ".pl", ".pm", ".ps1", ".r", ".R", ".rb", ".scala", ".sh", ".sql"),
        *(".svelte", ".swift", ".tsx", ".vue", ".zig"),
    )
)
"""Of source code in languages whose tests no runner here knows."""
_SURFACE_NAMES = frozenset(
    (
        "conftest.py",
        "pytest.ini",
        ".pytest.ini",
        "pytest.toml",
        ".pytest.toml",
        "tox.ini",
        "tox.toml",
        "setup.cfg",
        "setup.py",
        "pyproject.toml",
        ".coveragerc",
        "noxfile.py",
        "sitecustomize.py",
        "usercustomize.py",
        "entry_points.txt",
    )
)
_SURFACE_PATTERNS = ("test_*.py", "*_test.py", "test.py", "tests.py", "*.pth", "*.ambr", "*.snap")
# Reserved names for new modules: tests, or the programs that run them, import these.
_RESERVED = sys.stdlib_module_names | {
    "_pytest",
    "hypothesis",
    "iniconfig",
    "mock",
    "packaging",
    "pluggy",
    "py",
    "pytest",
}
_IMPORTABLE = (".py", ".pyc", ".pyd", ".so")
_OLD_COPIES = (".orig", ".rej", ".swp", "~")
_BUILT = (".whl", ".egg")
_ARCHIVES = (".tar.gz", ".tgz", ".tar.bz2", ".tar.xz", ".tar", ".zip")
_SURFACE_FOLDERS = frozenset(
    ("test", "tests", "testdata", "test_data", "__snapshots__", "snapshots", "fixtures", "cassettes", "golden")
)
_ASIDE_FOLDERS = frozenset(
    (
        "doc",
        "docs",
        "example",
        "examples",
        "benchmark",
        "benchmarks",
        "bench",
        "scripts",
        "tools",
        "tasks",
        "ci",
    )
)


def old_copies(paths: Collection[str]) -> set[str]:
    """Return the files of a project that are copies of code, left by an editor, a merge or a build.

    Below `build`, unless that is a package, every file with the name of a code file elsewhere is a copy: a build may
    use any layout.
    """
    copies = {p for p in paths if is_old_copy(p)}
    built = [p for p in paths if p.startswith("build/")]
    if built and "build/__init__.py" not in built:
        names = {_stem(p) for p in paths if is_code(p) and not p.startswith("build/")}
        copies.update(p for p in built if _stem(p) in names)
    return copies


def _stem(path: str) -> str:
    return PurePosixPath(path).name.partition(".")[0]


def is_old_copy(path: str) -> bool:
    """Return whether a path alone shows that the file is a copy of code left by an editor, a merge or a build."""
    parts = PurePosixPath(path).parts
    if len(parts) == 2 and parts[0] == "dist" and path.endswith(_ARCHIVES):
        return True
    built = (len(parts) > 2 and parts[0] == "build" and fnmatchcase(parts[1], "lib*")) or path.endswith(_BUILT)
    before = next((path.removesuffix(end) for end in _OLD_COPIES if path.endswith(end)), "")
    return built or (PurePosixPath(before).suffix in CODE_SUFFIXES and not is_test_surface(path))


def is_test_surface(path: str) -> bool:
    """Return whether a relative path belongs to the test surface."""
    parts = PurePosixPath(path).parts
    name = parts[-1]
    if name in _SURFACE_NAMES or any(fnmatchcase(name, p) for p in _SURFACE_PATTERNS):
        return True
    return any(p in _SURFACE_FOLDERS or p.endswith((".dist-info", ".egg-info")) for p in parts[:-1])


def _import_roots(files: Iterable[str]) -> frozenset[str]:
    """Return the folders from which a project may be imported: parents of modules and packages, but not packages."""
    modules = [p for p in files if p.endswith(".py")]
    packages = {p.rpartition("/")[0] for p in modules if p.rpartition("/")[2] == "__init__.py"}
    folders = {p.rpartition("/")[0] for p in modules}
    roots = {"", "src"}
    for folder in folders:
        while folder in packages and folder:
            folder = folder.rpartition("/")[0]
        roots.add(folder)
    return frozenset(roots)


def _import_paths(path: str, roots: Collection[str]) -> Iterable[tuple[str, str, str]]:
    """Yield how a file may be imported: the import root, the top module's name, and the path below that module."""
    parts = path.split("/")
    for depth in range(len(parts)):
        root = "/".join(parts[:depth])
        if root in roots:
            yield root, parts[depth].partition(".")[0], "/".join(parts[depth + 1 :])


def import_names(files: Iterable[str]) -> frozenset[str]:
    """Return the names by which a project's own code can be imported."""
    modules = [p for p in files if p.endswith(".py")]
    roots = _import_roots(modules)
    return frozenset(name for path in modules for _, name, _ in _import_paths(path, roots))


def shadows(paths: Iterable[str], files: Collection[str], imported: Collection[str] = ()) -> frozenset[str]:
    """Return the paths that would shadow a module that the tests use and that is not part of the project.

    files: the files of the original, whose own modules do not count. imported: the modules that its tests import.
    """
    roots, reserved = _import_roots(files), _RESERVED | set(imported)
    existing = {
        (root, name) for path in files if path.endswith(_IMPORTABLE) for root, name, _ in _import_paths(path, roots)
    }
    return frozenset(
        path
        for path in paths
        if path.endswith(_IMPORTABLE)
        for root, name, below in _import_paths(path, roots)
        if (name in reserved or name.startswith("pytest_"))
        and (root, name) not in existing
        and (not below or below.startswith("__init__."))
    )


def is_test_file(path: str) -> bool:
    """Return whether a relative path is a file of tests, or one that only tests use."""
    parts = PurePosixPath(path).parts
    name = parts[-1]
    if any(fnmatchcase(name, p) for p in ("test_*", "*_test.py", "tests.py", "test.py", "conftest.py")):
        return True
    return any(p in ("test", "tests", "testing") for p in parts[:-1])


def can_hold_tests(path: str) -> bool:
    """Return whether a relative path is a Python module that pytest may collect tests from, unlike a conftest.py."""
    return path.endswith(".py") and PurePosixPath(path).name != "conftest.py"


def is_code(path: str) -> bool:
    """Return whether a relative path is source code outside the test surface."""
    return PurePosixPath(path).suffix in CODE_SUFFIXES and not is_test_surface(path)


def is_source(path: str) -> bool:
    """Return whether a relative path is source code in any language, outside the test surface."""
    return PurePosixPath(path).suffix in CODE_SUFFIXES | _OTHER_SUFFIXES and not is_test_surface(path)


def is_injectable(path: str) -> bool:
    """Return whether injectors without a model may put a bug into a file: Python code of the product itself."""
    parts = PurePosixPath(path).parts
    return path.endswith(".py") and is_code(path) and not any(p in _ASIDE_FOLDERS for p in parts[:-1])
