"""The Python environment that an instance's tests run in: named, or built with uv from what the repository declares.

What is built holds the dependencies and what is known of the project (its name, version and entry points), not its
code: tests import that from the tree. Nothing of the repository runs while it is built, so a project whose metadata
only its own build code can tell, or with extensions to compile, needs an image or `--python`.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from harness.installing import uv_program
from harness.instances.instance import Instance, InstanceError
from harness.instances.recipes import Recipe, recipe_of
from pytest_ssr.execution.interpreter import find_interpreter
from pytest_ssr.store import Store, key_of

ENVIRONMENTS = "environments"
_MADE = "made.json"
_BUILD_S = 1800.0


@dataclass(slots=True)
class Environments:
    """Finds the interpreter of an instance, and builds its environment where there is none."""

    store: Store
    python: Path | None = None
    """One for all instances."""
    told: Callable[[str], None] = lambda _: None
    """Is told what takes long."""
    _known: dict[str, Path] = field(default_factory=dict)
    _installed: str = ""

    def python_of(self, instance: Instance, tree: Path) -> Path:
        """Return the interpreter; raises InstanceError where it cannot be had, MissingExtraError without uv."""
        if self.python is not None:
            return self.python
        recipe = recipe_of(instance, tree)
        key = key_of(ENVIRONMENTS, 2, repr(recipe))
        if key not in self._known:
            with self.store.alone(f"environment-{key}"):
                self._known[key] = self._built(recipe, self.store.root / ENVIRONMENTS / key, instance)
        return self._known[key]

    def told_apart(self, instance: Instance) -> str:
        """Return what names an instance's environment before it is there: what is installed, or what it is built from.

        Raises ProjectError for an interpreter that cannot be used.
        """
        if self.python is None:
            return key_of(json.dumps(instance.install, sort_keys=True), instance.created_at)
        if not self.python.exists():
            # It is one of an image.
            return str(self.python)
        if not self._installed:
            self._installed = find_interpreter(self.store.root, self.python).environment_hash
        return f"{self.python} {self._installed}"

    def _built(self, recipe: Recipe, folder: Path, instance: Instance) -> Path:
        python = folder / "bin" / "python"
        if (folder / _MADE).exists():
            return python
        shutil.rmtree(folder, ignore_errors=True)
        folder.parent.mkdir(parents=True, exist_ok=True)
        self.told(f"{instance.id}: building its environment")
        uv = uv_program()
        _run(instance, [uv, "venv", "--quiet", "--python", recipe.python, str(folder)])
        requirements = []
        for number, (name, text) in enumerate(recipe.files):
            place = folder / f"requirements-{number}-{Path(name).name}"
            place.write_text(text, encoding="utf-8", errors="surrogateescape")
            requirements += ["-r", str(place)]
        # Sandboxes show it read-only: what is not compiled now would be compiled in every run.
        install = [uv, "pip", "install", "--quiet", "--no-build", "--compile-bytecode", "--python", str(python)]
        install += ["--exclude-newer", recipe.before] if recipe.before else []
        everything = [*recipe.packages, *requirements]
        try:
            _run(instance, [*install, "pytest", *everything, *recipe.optional])
        except InstanceError:
            if not recipe.optional:
                raise
            _run(instance, [*install, "pytest", *everything])
        _tell_of_project(recipe, python)
        (folder / _MADE).write_text("{}\n")
        return python


def _tell_of_project(recipe: Recipe, python: Path) -> None:
    """Let `importlib.metadata` know the project, whose code is in the tree."""
    site = next((python.parents[1] / "lib").glob("python*/site-packages"))
    stem = re.sub(r"[-_.]+", "_", recipe.name)
    folder = site / f"{stem}-{recipe.version}.dist-info"
    folder.mkdir(exist_ok=True)
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {recipe.name}\nVersion: {recipe.version}\n")
    (folder / "entry_points.txt").write_text(recipe.entry_points)
    (folder / "RECORD").write_text("")
    (folder / "INSTALLER").write_text("pytest-ssr\n")


def _run(instance: Instance, command: Sequence[str]) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_BUILD_S, cwd="/")
    except subprocess.TimeoutExpired:
        raise InstanceError(f"{instance.id}: its environment was not built within {_BUILD_S:g} s") from None
    if done.returncode:
        why = " ".join(done.stderr.split())[-400:]
        raise InstanceError(f"{instance.id}: its environment cannot be built: {why}; name an interpreter with --python")
