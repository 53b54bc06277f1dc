"""Every exception of the two packages that can reach a caller is in one tree, which is drawn completely."""

from __future__ import annotations

import ast
import builtins
import re
from pathlib import Path

import harness
import pytest_ssr
from pytest_ssr import errors

OUTSIDE = {"TimeBudgetError"}
"""No handler of exceptions may catch it."""
IN_SANDBOXES = ("execution/guest/", "solvers/mini/driver.py")
"""Programs that run inside of sandboxes and import nothing of ours."""


def defined_classes() -> dict[str, list[str]]:
    """Return the classes that the modules of the two packages define, with the names of their bases."""
    classes = {}
    for package in (pytest_ssr, harness):
        root = Path(str(package.__file__)).parent
        for path in sorted(root.rglob("*.py")):
            if path.relative_to(root).as_posix().startswith(IN_SANDBOXES):
                continue
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.ClassDef):
                    classes[node.name] = [ast.unparse(base).rpartition(".")[2] for base in node.bases]
    return classes


CLASSES = defined_classes()


def ancestors(name: str) -> set[str]:
    return {name}.union(*(ancestors(base) for base in CLASSES.get(name, ())))


def is_exception(name: str) -> bool:
    kinds = (getattr(builtins, ancestor, None) for ancestor in ancestors(name))
    return any(isinstance(kind, type) and issubclass(kind, BaseException) for kind in kinds)


def public_exceptions() -> set[str]:
    return {name for name in CLASSES if is_exception(name) and not name.startswith("_")}


def drawn_tree() -> dict[str, str]:
    """Return each class of the drawing with the class above it."""
    tree: dict[str, str] = {}
    path = ["SsrError"]
    for branch, name in re.findall(r"^([│ ]*)[├└]── (\w+)", errors.__doc__ or "", re.MULTILINE):
        depth = len(branch) // 4 + 1
        tree[name] = path[depth - 1]
        path[depth:] = [name]
    return tree


def test_every_exception_has_the_same_root() -> None:
    exceptions = public_exceptions()
    assert len(exceptions) > 20
    assert {name for name in exceptions if "SsrError" not in ancestors(name)} == OUTSIDE


def test_the_drawing_shows_every_exception_below_its_base() -> None:
    assert drawn_tree() == {name: CLASSES[name][0] for name in public_exceptions() - OUTSIDE - {"SsrError"}}
