"""Create an environment with pytest and no plugins: the plugins of our own tests take half of each run's start."""

from __future__ import annotations

import atexit
import compileall
import functools
import importlib.metadata
import shutil
import tempfile
import venv
from pathlib import Path

NEEDED = ("pytest", "pluggy", "iniconfig", "packaging", "pygments")


@functools.cache
def plain_python() -> Path:
    """Return the environment's interpreter; it is created once in each process and removed at exit.

    It also contains a library, `borrower`, that imports `lent`, which does not exist.
    """
    folder = Path(tempfile.mkdtemp(prefix="plain-"))
    folder.chmod(0o755)
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    venv.create(folder, with_pip=False)
    (site,) = folder.glob("lib/python*/site-packages")
    for name in NEEDED:
        for path in importlib.metadata.files(name) or ():
            if ".." not in path.parts:
                (site / path).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(str(path.locate()), site / path)
    (site / "borrower.py").write_text("import lent\n")
    # Runs write no compiled files, and some installers do not either.
    compileall.compile_dir(site, quiet=2)
    return folder / "bin" / "python"
