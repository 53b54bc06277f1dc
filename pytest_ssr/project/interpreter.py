"""Find the interpreter that runs a project's tests: its path, the directories it reads, its distributions."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pytest_ssr.errors import ProjectError
from pytest_ssr.sandbox.host import home_directory
from pytest_ssr.sandbox.protocol import Limits, SandboxProvider, WithImage

# The interpreter of an image may be older than 3.8, which has no `importlib.metadata`.
_PROBE = """
import email.parser, glob, json, os, site, sys
def distributions():
    try:
        import importlib.metadata
    except ImportError:
        # Before Python 3.8.
        kinds = "*.dist-info/METADATA", "*.egg-info/PKG-INFO", "*.egg-info", "EGG-INFO/PKG-INFO"
        for path in [f for p in sys.path for kind in kinds for f in glob.glob(os.path.join(glob.escape(p), kind))]:
            if os.path.isfile(path):
                with open(path, encoding="utf-8", errors="replace") as file:
                    metadata = email.parser.Parser().parse(file, headersonly=True)
                yield metadata["Name"] or "", metadata["Version"] or ""
    else:
        for distribution in importlib.metadata.distributions():
            yield distribution.metadata["Name"] or "", distribution.version
wanted, own = json.loads(sys.argv[1])
# The package virtualenv had a module `site` of its own.
find_sites = getattr(site, "getsitepackages", lambda prefixes: [])
sites = find_sites([sys.prefix, sys.base_prefix, "/usr", "/usr/local"])
sites += glob.glob("/usr/lib/python3*/*-packages") + glob.glob("/usr/local/lib/python3*/*-packages")
folders = [p for p in dict.fromkeys([*sys.path, *sites]) if p and os.path.realpath(p) not in own]
files = [os.path.join(p, n) for p in folders for n in wanted]
for p in [p for p in files if p.endswith(".py")]:
    stem = os.path.join(os.path.dirname(p), "__pycache__", os.path.basename(p)[:-3])
    files += glob.glob(glob.escape(stem) + ".*.pyc")
hidden = {q + "/" * os.path.isdir(q) for p in files if os.path.exists(p) for q in (p, os.path.realpath(p))}
print(json.dumps({"executable": sys.executable, "prefixes": [sys.prefix, sys.base_prefix, sys.exec_prefix],
"path": sys.path, "version": sys.version, "dists": sorted(set(distributions())), "hidden": sorted(hidden),
"search_path": os.environ.get("PATH", ""), "aliases": [n for n in ("python", "python3")
if os.path.realpath(os.path.join(os.path.dirname(sys.executable), n)) == os.path.realpath(sys.executable)]}))
"""
_TESTBED = "/opt/miniconda3/envs/testbed/bin/python"


@dataclass(frozen=True, slots=True)
class Interpreter:
    """A Python environment, with pytest in it if pytest runs the tests."""

    executable: Path
    """The program to start, such as a virtual environment's `bin/python`."""
    readable: tuple[Path, ...]
    """Host directories that must be readable in a sandbox."""
    environment_hash: str
    """Hash of the Python version and of every installed distribution with its version."""
    version: str
    """Python's version, such as `3.12.1`."""
    hidden: tuple[str, ...] = ()
    """Installed copies of the project's own files and folders; folders end with a slash."""
    note: str = ""
    """Why the project's own environment is not used; empty if it is."""
    aliases: tuple[str, ...] = ()
    """Those of the names `python` and `python3` that start it from its own directory."""
    search_path: str = "/usr/local/bin:/usr/bin:/bin"
    """Where programs are looked up after the interpreter's own directory: PATH of the image, if there is one."""


def named_interpreter(text: str, folder: Path) -> Path:
    """Return the interpreter that a user named: a relative path starts at `folder`, a bare name is left to PATH."""
    return folder.absolute() / text if os.sep in text else Path(text)


def find_interpreter(project: Path, python: Path | None, *, needs_pytest: bool = True) -> Interpreter:
    """Return the interpreter for a project: the one named, else the project's `.venv`, else the current one.

    A `.venv` without pytest (many hold only tox) is skipped with a note. Raises ProjectError if the interpreter cannot
    be started, or if it needs pytest and has none.
    """
    if python is not None:
        return _inspect(python, project, needs_pytest=needs_pytest)
    own, current = project / ".venv" / "bin" / "python", Path(sys.executable)
    if not own.exists():
        return _inspect(current, project)
    try:
        return _inspect(own, project)
    except ProjectError as error:
        try:
            return replace(_inspect(current, project), note=f"{own} is not used: it has no pytest, or does not run")
        except ProjectError:
            raise error from None


def find_in_image(
    provider: SandboxProvider, project: Path, python: Path | None, *, needs_pytest: bool = True
) -> Interpreter | None:
    """Return the interpreter of a provider's image: the one named, else SWE-bench's, else the first on its PATH.

    If there is SWE-bench's, no other is tried, as the project's dependencies are installed there. Returns None for a
    provider that shows the host's system. Raises ProjectError if no interpreter can be started, or if pytest is needed
    and none has it.
    """
    if not isinstance(provider, WithImage) or not provider.image:
        return None
    candidates = [str(python)] if python is not None else [_TESTBED, "python3", "python"]
    failure = ""
    with tempfile.TemporaryDirectory() as empty, provider.open(Path(empty), mount_at="/tmp/ssr-look") as sandbox:
        for name in candidates:
            command = [name, "-c", _PROBE, _probe_argument(project, sandbox.root)]
            done = sandbox.exec(command, limits=Limits(wall_s=60), cwd=sandbox.scratch)
            try:
                facts = json.loads(done.stdout)
                interpreter = _checked(facts, name, (), provider.image_digest(), needs_pytest=needs_pytest)
                return replace(interpreter, search_path=facts["search_path"])
            except ValueError:
                failure = failure or f"{name} does not run"
            except ProjectError as error:
                failure = str(error)
                if name == _TESTBED:
                    break
    raise ProjectError(f"the image {provider.image} has no interpreter to use: {failure}; name one with --python")


def _inspect(chosen: Path, project: Path, *, needs_pytest: bool = True) -> Interpreter:
    facts = _run_probe(chosen, project)
    readable = _readable(Path(facts["executable"]), [*facts["prefixes"], *facts["path"]], project.resolve())
    return _checked(facts, str(chosen), readable, needs_pytest=needs_pytest)


def _checked(
    facts: dict[str, Any], chosen: str, readable: tuple[Path, ...], image: str = "", *, needs_pytest: bool
) -> Interpreter:
    names = {name.lower() for name, _ in facts["dists"]}
    if needs_pytest and "pytest" not in names:
        raise ProjectError(f"{chosen} has no pytest; run: {chosen} -m pip install pytest, or choose another --python")
    identity = [facts["version"], facts["dists"], *([image] if image else []), *facts["hidden"]]
    return Interpreter(
        executable=Path(facts["executable"]),
        readable=readable,
        environment_hash=hashlib.sha256(json.dumps(identity).encode()).hexdigest()[:16],
        version=facts["version"].split()[0],
        hidden=tuple(facts["hidden"]),
        aliases=tuple(facts["aliases"]),
    )


_PROBE_VARIABLES = frozenset(
    {"CONDA_PREFIX", "HOME", "LANG", "LC_ALL", "LC_CTYPE", "LD_LIBRARY_PATH", "PATH", "TMPDIR", "VIRTUAL_ENV"}
)
"""What an interpreter may need to start. It belongs to the project, so that it gets no key or password."""


def _run_probe(python: Path, project: Path) -> dict[str, Any]:
    command = [str(python), "-c", _PROBE, _probe_argument(project)]
    env = {k: v for k, v in os.environ.items() if k in _PROBE_VARIABLES}
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


def _probe_argument(project: Path, *roots: str) -> str:
    """Return the probe's argument: names in the tree that may be installed elsewhere, and the tree's own paths."""
    own = [str(path) for folder in (project.resolve(), *map(Path, roots)) for path in (folder, folder / "src")]
    wanted: set[str] = set()
    for top in map(Path, own[:2]):
        wanted |= {path.name for path in top.glob("*.py")}
        packages = [p.parent for depth in ("*", "*/*") for p in top.glob(f"{depth}/__init__.py")]
        wanted |= {p.relative_to(top).as_posix() for p in packages if not (p.parent / "__init__.py").exists()}
    return json.dumps([sorted(w for w in wanted if not w.startswith((".", "src/"))), own])


def _readable(executable: Path, locations: list[str], project: Path) -> tuple[Path, ...]:
    """Return prefixes and import paths, sorted and without repeats, with the targets of links."""
    paths: set[Path] = set()
    link = executable
    for _ in range(16):
        if not link.is_symlink():
            break
        target = link.readlink()
        link = target if target.is_absolute() else link.parent / target
        if link.parent.name == "bin":
            paths.add(Path(os.path.normpath(link.parent.parent)))
    for location in locations:
        path = Path(os.path.normpath(location)) if location else None
        if path is None or not path.exists():
            continue
        paths |= {path, path.resolve()}
    home = home_directory()
    keep: list[Path] = []
    for path in sorted(paths):
        holds_home = home is not None and home.is_relative_to(path)
        too_broad = path == Path("/") or holds_home or path == project
        inside_project = path.is_relative_to(project) and not (path / "pyvenv.cfg").exists()
        covered = any(path.is_relative_to(k) for k in keep)
        if not (too_broad or covered or inside_project or path.is_relative_to("/usr")):
            keep.append(path)
    return tuple(keep)
