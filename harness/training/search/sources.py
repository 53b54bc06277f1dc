"""Find the code that the search policy learns from: projects, packages, and folders of installed packages."""

from __future__ import annotations

import functools
import hashlib
import os
import sysconfig
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path

from harness.solvers.search.project_files import MAX_FILE_BYTES, ProjectFiles
from harness.solvers.search.token_model import TokenModel, tokens_of
from pytest_ssr.errors import ProjectError
from pytest_ssr.project.file_roles import is_injectable
from pytest_ssr.project.snapshot import require_directory
from pytest_ssr.project.solver_checkout import omitted_paths
from pytest_ssr.storage.store import key_of

_MAX_FILES = 2000
_SKIPPED = frozenset(("site-packages", "test", "tests", "idlelib", "ensurepip", "lib2to3", "turtledemo", "__pycache__"))


class SourceFolder:
    """The Python files below a folder, as injectors see a project; nothing is copied."""

    def __init__(self, folder: Path) -> None:
        """Find the files. Raises ProjectError if there is no code."""
        require_directory(folder)
        self.folder = folder
        self._paths = tuple(_python_files(folder))
        self._injectable = tuple(p for p in self._paths if is_injectable(p))
        # A bug in a built copy could be repaired with the original.
        omitted = omitted_paths(self._paths)
        self._code = tuple(p for p in self._injectable if p not in omitted)
        if not self._code:
            raise ProjectError(
                f"{folder} has no Python code to learn from; tests, built copies and files of more than "
                f"{MAX_FILE_BYTES:,} bytes do not count"
            )
        self.files = functools.cache(lambda: ProjectFiles(self._paths, self._own))
        """Returns the files that a solver would get, and keeps what was read until `cache_clear`."""

    @property
    def name(self) -> str:
        """The name of the project."""
        return self.folder.resolve().name

    @functools.cached_property
    def key(self) -> str:
        """A hash of the code."""
        return key_of(*self._code, *(self.read(p).hex() for p in self._code))

    @functools.cached_property
    def key_of_all(self) -> str:
        """A hash of the code and the tests."""
        return key_of(*self._paths, *(self.read(p).hex() for p in self._paths))

    @functools.cached_property
    def _files_with_functions(self) -> frozenset[str]:
        """The hashes of the files that bugs can be in; others, such as an empty `__init__.py`, are in many projects."""
        contents = (self.read(path) for path in self._injectable)
        return frozenset(hashlib.sha256(data).hexdigest() for data in contents if b"def " in data)

    def shares_code(self, other: SourceFolder) -> bool:
        """Return whether both have a file in common, or copies of a file with functions.

        The installed copy of a project has other paths than its repository, and fewer files.
        """
        one, two = ({(s.folder / p).resolve() for p in s._injectable} for s in (self, other))
        return not one.isdisjoint(two) or self.has_any(other._files_with_functions)

    def has_any(self, hashes: Collection[str]) -> bool:
        """Return whether it has a file with functions whose content has one of these SHA-256 hashes."""
        return not self._files_with_functions.isdisjoint(hashes)

    def paths(self) -> Sequence[str]:
        """Return the paths of all Python files, sorted."""
        return self._paths

    def read(self, path: str) -> bytes:
        """Return the content of one file."""
        return (self.folder / path).read_bytes()

    def _own(self, path: str) -> bytes | None:
        # A link may be to the file that has the bug.
        return None if (self.folder / path).is_symlink() else self.read(path)

    def code_paths(self) -> Sequence[str]:
        """Return the files that bugs may go into, sorted."""
        return self._code

    @property
    def origin(self) -> Path | None:
        """None: the history of the files is not used."""
        return None


def _python_files(folder: Path) -> Iterator[str]:
    """Yield the paths of the Python files below a folder, in a fixed order; hidden folders and large files are left."""
    count = 0
    for parent, folders, names in os.walk(folder):
        kept = (f for f in folders if not f.startswith(".") and f != "__pycache__")
        # What a build has left comes last.
        folders[:] = sorted(kept, key=lambda folder: (folder == "build", folder))
        for name in sorted(names):
            path = Path(parent, name)
            if name.endswith(".py") and path.is_file() and path.stat().st_size <= MAX_FILE_BYTES:
                count += 1
                yield path.relative_to(folder).as_posix()
            if count >= _MAX_FILES:
                return


def open_sources(paths: Sequence[Path]) -> list[SourceFolder]:
    """Return the projects at paths; a folder of installed packages holds a project in each of its packages.

    Raises ProjectError for a path that is not a directory or has no Python code.
    """
    sources = []
    for path in paths:
        require_directory(path)
        if any(path.glob("*.dist-info")):
            sources += list(_installed(path))
        else:
            sources.append(SourceFolder(path))
    unique = dict[str, SourceFolder]()
    for source in sources:
        # A copy would be in two parts of the data.
        unique.setdefault(source.key, source)
    return list(unique.values())


def without_shared_code(
    sources: Sequence[SourceFolder], held_out: Sequence[SourceFolder], report: Callable[[str], None]
) -> list[SourceFolder]:
    """Return the sources that share no code with a held-out project. report: called with a line for each other one."""
    kept = []
    for source in sources:
        shared = [other for other in held_out if source.shares_code(other)]
        if shared:
            report(f"{source.folder} is left out: it shares files with {shared[0].folder}, which is held out")
        else:
            kept.append(source)
    return kept


def unique_names(sources: Sequence[SourceFolder]) -> dict[Path, str]:
    """Return the name of each project by its folder, with the path if names repeat."""
    counts = Counter(s.name for s in sources)
    return {s.folder: s.name if counts[s.name] == 1 else f"{s.name} ({s.folder})" for s in sources}


def _installed(folder: Path) -> Iterator[SourceFolder]:
    for package in sorted(p for p in folder.iterdir() if (p / "__init__.py").is_file()):
        try:
            yield SourceFolder(package)
        except ProjectError:
            continue


def standard_library_tokens() -> TokenModel:
    """Return a model of the tokens of Python's standard library, which no project that is learned from contains."""
    model = TokenModel()
    top = Path(sysconfig.get_paths()["stdlib"])
    for parent, folders, names in os.walk(top):
        folders[:] = sorted(f for f in folders if f not in _SKIPPED and not f.startswith((".", "config-")))
        for name in sorted(n for n in names if n.endswith(".py")):
            path = Path(parent, name)
            if path.stat().st_size <= MAX_FILE_BYTES:
                model.add(tokens_of(path.read_bytes()))
    return model
