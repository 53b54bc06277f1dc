"""The interpreter whose environment runs a project's tests: where it lies, what it needs to read, what it holds."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pytest_ssr.errors import ProjectError

_PROBE = """
import importlib.metadata as m, json, sys
dists = sorted({(d.metadata["Name"] or "", d.version) for d in m.distributions()})
print(json.dumps({"executable": sys.executable, "prefixes": [sys.prefix, sys.base_prefix, sys.exec_prefix],
"path": sys.path, "version": sys.version, "dists": dists}))
"""


@dataclass(frozen=True, slots=True)
class Interpreter:
    """A Python environment with pytest in it."""

    executable: Path
    """What is started; a virtual environment's own `bin/python`."""
    readable: tuple[Path, ...]
    """Host directories that a sandbox must let it read."""
    environment_hash: str
    """Hash of the Python version and of every installed distribution with its version."""
    version: str
    """Python's version, short."""
    note: str = ""
    """Why the project's own environment was passed over; empty when it was not."""


def find_interpreter(project: Path, python: Path | None) -> Interpreter:
    """Return the interpreter for a project: the one named, else the project's `.venv`, else the current one.

    A `.venv` that holds no pytest (many hold tox alone) is passed over with a note. Raises ProjectError when the
    interpreter cannot be started or has no pytest.
    """
    if python is not None:
        return _interpreter(python, project)
    own, current = project / ".venv" / "bin" / "python", Path(sys.executable)
    if not own.exists():
        return _interpreter(current, project)
    try:
        return _interpreter(own, project)
    except ProjectError as refusal:
        try:
            return replace(_interpreter(current, project), note=f"{own} is not used: it has no pytest, or does not run")
        except ProjectError:
            raise refusal from None


def _interpreter(chosen: Path, project: Path) -> Interpreter:
    facts = _ask(chosen, project)
    names = {name.lower() for name, _ in facts["dists"]}
    if "pytest" not in names:
        raise ProjectError(f"{chosen} has no pytest; run: {chosen} -m pip install pytest, or choose another --python")
    digest = hashlib.sha256(json.dumps([facts["version"], facts["dists"]]).encode()).hexdigest()
    executable = Path(facts["executable"])
    return Interpreter(
        executable=executable,
        readable=_readable(executable, [*facts["prefixes"], *facts["path"]], project.resolve()),
        environment_hash=digest[:16],
        version=facts["version"].split()[0],
    )


def _ask(python: Path, project: Path) -> dict[str, Any]:
    command = [str(python), "-c", _PROBE]
    env = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    try:
        done = subprocess.run(command, cwd="/", env=env, capture_output=True, text=True, timeout=60, check=True)
        facts = json.loads(done.stdout)
    except FileNotFoundError:
        raise ProjectError(f"there is no interpreter at {python}; name one with --python") from None
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        raise ProjectError(
            f"{python} cannot be used for {project}: {error}; name another interpreter with --python"
        ) from None
    assert isinstance(facts, dict)
    return facts


def _readable(executable: Path, places: list[str], project: Path) -> tuple[Path, ...]:
    """Prefixes and import paths, with the real place behind each link, least first and no repeats."""
    found: set[Path] = set()
    link = executable
    for _ in range(16):
        if not link.is_symlink():
            break
        target = link.readlink()
        link = target if target.is_absolute() else link.parent / target
        if link.parent.name == "bin":
            found.add(Path(os.path.normpath(link.parent.parent)))
    for place in places:
        path = Path(os.path.normpath(place)) if place else None
        if path is None or not path.exists():
            continue
        found |= {path, path.resolve()}
    home = Path.home().resolve()
    keep: list[Path] = []
    for path in sorted(found):
        wholesale = path == Path("/") or home.is_relative_to(path) or path == project
        inside_project = path.is_relative_to(project) and not (path / "pyvenv.cfg").exists()
        covered = any(path.is_relative_to(k) for k in keep)
        if not (wholesale or covered or inside_project or path.is_relative_to("/usr")):
            keep.append(path)
    return tuple(keep)
