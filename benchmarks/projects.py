"""Pinned source distributions that carry their tests, downloaded and given an environment of their own."""

from __future__ import annotations

import subprocess
import sys
import tarfile
from collections.abc import Sequence
from pathlib import Path

PROJECTS = {
    "itsdangerous": ("itsdangerous==2.2.0", ["freezegun"]),
    "toolz": ("toolz==1.2.0", []),
    "sqlparse": ("sqlparse==0.6.1", []),
    "boltons": ("boltons==26.2.0", []),
    "attrs": ("attrs==26.1.0", ["hypothesis", "cloudpickle"]),
    "click": ("click==8.5.1", []),
}
_QUIET = ["-q", "--disable-pip-version-check"]


def fetch(name: str, folder: Path) -> tuple[Path, Path]:
    """Download a project into a folder; returns its directory and the interpreter of its environment."""
    requirement, extra = PROJECTS[name]
    folder.mkdir(parents=True, exist_ok=True)
    python = folder / "venv" / "bin" / "python"
    if not (folder / "source").is_dir():
        pip = [sys.executable, "-m", "pip", "download", *_QUIET, "--no-deps", "--no-binary", ":all:"]
        subprocess.run([*pip, "-d", str(folder), requirement], check=True, stderr=subprocess.DEVNULL)
        with tarfile.open(next(folder.glob("*.tar.gz"))) as archive:
            # Python 3.11.0 to 3.11.3 know no filters.
            archive.extractall(folder / "unpacked", **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))
        subprocess.run([sys.executable, "-m", "venv", str(folder / "venv")], check=True)
        pip = [str(python), "-m", "pip", "install", *_QUIET, "pytest", *extra]
        subprocess.run(pip, check=True, stderr=subprocess.DEVNULL)
        (folder / "unpacked").rename(folder / "source")
    return next((folder / "source").iterdir()), python


def plain(folder: Path, *, further: Sequence[str] = ()) -> Path:
    """Return the interpreter of an environment in a folder that holds pytest, what is named, and nothing else."""
    name = "-".join(["plain", *further])
    python = folder / name / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(folder / name)], check=True)
        pip = [str(python), "-m", "pip", "install", *_QUIET, "pytest", *further]
        subprocess.run(pip, check=True, stderr=subprocess.DEVNULL)
    return python
