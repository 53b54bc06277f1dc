"""Provide the Python environment of an instance's tests: a given one, or one that uv builds.

A built environment holds the dependencies that the repository declares and the project's metadata (name, version and
entry points), but not its code: tests import that from the tree. No code of the repository runs during the build, so a
project with dynamic metadata or extensions to compile needs an image or `--python`.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from packaging.utils import canonicalize_name

from harness.datasets.environment_specs import Recipe, recipe_of
from harness.datasets.instance import Instance, InstanceError
from harness.storage.rebuilt import ENVIRONMENTS, using
from pytest_ssr.errors import MissingExtraError
from pytest_ssr.project.interpreter import find_interpreter
from pytest_ssr.storage.store import Store, key_of


def uv_program() -> str:
    """Return the path of uv; raises MissingExtraError if it is not installed."""
    if importlib.util.find_spec("uv") is not None:
        import uv

        with contextlib.suppress(FileNotFoundError):
            return str(uv.find_uv_bin())
    path = shutil.which("uv")
    if path is None:
        raise MissingExtraError("uv", "uv")
    return path


_MARKER = "made.json"
_BUILD_S = 1800.0
_UNCOMPILED = re.compile(r"3\.[0-6](\.\d+)?")
"""Versions of Python whose bytecode uv cannot compile."""


@dataclass(slots=True)
class Environments:
    """Finds the interpreter of an instance, and builds its environment if needed."""

    store: Store
    python: Path | None = None
    """The interpreter for all instances; None: build one for each."""
    report: Callable[[str], None] = lambda _: None
    """Called before a slow step, with a line that describes it."""
    _using: ExitStack = field(default_factory=ExitStack)
    """Keeps the environments that are in use."""
    _installed_hash: str = ""

    def python_of(self, instance: Instance, tree: Path) -> Path:
        """Return the interpreter, which stays until `release`.

        Raises InstanceError if the build fails, MissingExtraError without uv.
        """
        if self.python is not None:
            return self.python
        recipe = recipe_of(instance, tree)
        key = key_of(ENVIRONMENTS, 3, repr(recipe))
        folder = self._using.enter_context(using(self.store, ENVIRONMENTS, key))
        with self.store.alone(f"environment-{key}"):
            return self._build(recipe, folder, instance)

    def release(self) -> None:
        """Let the environments be removed that were built so far: nothing runs in them any more."""
        self._using.close()

    def environment_key(self, instance: Instance) -> str:
        """Return a key for an instance's environment, which need not be built: a hash of its packages or specification.

        Raises ProjectError for an interpreter that cannot be used.
        """
        if self.python is None:
            return key_of(json.dumps(instance.install, sort_keys=True), instance.created_at, instance.version)
        if not self.python.exists():
            # It belongs to an image.
            return str(self.python)
        if not self._installed_hash:
            self._installed_hash = find_interpreter(self.store.root, self.python, needs_pytest=False).environment_hash
        return f"{self.python} {self._installed_hash}"

    def _build(self, recipe: Recipe, folder: Path, instance: Instance) -> Path:
        python = folder / "bin" / "python"
        if (folder / _MARKER).exists():
            return python
        shutil.rmtree(folder, ignore_errors=True)
        folder.parent.mkdir(parents=True, exist_ok=True)
        self.report(f"{instance.id}: building its environment")
        uv = uv_program()
        interpreter = _pyenv_python(recipe.python) or recipe.python
        _run(instance, [uv, "venv", "--quiet", "--python", interpreter, str(folder)])
        requirements = []
        for number, (name, text) in enumerate(recipe.files):
            path = folder / f"requirements-{number}-{Path(name).name}"
            path.write_text(text, encoding="utf-8", errors="surrogateescape")
            requirements += ["-r", str(path)]
        # Sandboxes mount it read-only, so bytecode that is missing now would be compiled in every run.
        compiled = [] if _UNCOMPILED.fullmatch(recipe.python) else ["--compile-bytecode"]
        install = [uv, "pip", "install", "--quiet", "--no-build", *compiled, "--python", str(python)]
        install += ["--exclude-newer", recipe.before] if recipe.before else []
        if recipe.pinned:
            _run(instance, [*install, *recipe.pinned])
        required = [*recipe.packages, *requirements]
        try:
            _run(instance, [*install, "pytest", *required, *recipe.optional])
        except InstanceError:
            if not recipe.optional:
                raise
            _run(instance, [*install, "pytest", *required])
            for package in recipe.optional:
                with contextlib.suppress(InstanceError):
                    _run(instance, [*install, package])
        if canonicalize_name(recipe.name) != "pytest":
            # Some package may have required a release of the project, whose metadata would stand beside ours.
            _run(instance, [uv, "pip", "uninstall", "--quiet", "--python", str(python), recipe.name])
        _write_metadata(recipe, python)
        (folder / _MARKER).write_text("{}\n")
        return python


def _pyenv_python(version: str) -> str:
    """Return the newest interpreter of a version such as 3.9 that pyenv has installed, else an empty string.

    uv itself finds only the ones that pyenv has put on PATH.
    """
    if not re.fullmatch(r"\d+\.\d+", version):
        return ""
    root = Path(os.environ.get("PYENV_ROOT") or os.path.expanduser("~/.pyenv"))
    interpreters = [p for p in root.glob(f"versions/{version}.*/bin/python") if p.parts[-3].replace(".", "").isdigit()]
    return str(max(interpreters, key=lambda p: [int(n) for n in p.parts[-3].split(".")], default=""))


def _write_metadata(recipe: Recipe, python: Path) -> None:
    """Write metadata for the project, whose code is in the tree, so that `importlib.metadata` finds it."""
    site = next((python.parents[1] / "lib").glob("python*/site-packages"))
    stem = canonicalize_name(recipe.name).replace("-", "_")
    folder = site / f"{stem}-{recipe.version}.dist-info"
    folder.mkdir(exist_ok=True)
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {recipe.name}\nVersion: {recipe.version}\n")
    (folder / "entry_points.txt").write_text(recipe.entry_points)
    (folder / "RECORD").write_text("")
    (folder / "INSTALLER").write_text("pytest-ssr\n")


def _run(instance: Instance, command: Sequence[str]) -> None:
    try:
        process = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_BUILD_S, cwd="/")
    except subprocess.TimeoutExpired:
        raise InstanceError(f"{instance.id}: its environment was not built within {_BUILD_S:g} s") from None
    if process.returncode:
        reason = " ".join(process.stderr.split())[-400:]
        raise InstanceError(
            f"{instance.id}: its environment cannot be built: {reason}; name an interpreter with --python"
        )
