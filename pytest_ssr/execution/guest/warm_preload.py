"""Import what a project's tests import from outside of its tree, and nothing of the tree itself."""

import importlib
import os
import sys

_ROOT = os.getcwd()


class Blocked(BaseException):
    """A module of the tree would be imported before a child has its view of it."""


class Blocker:
    """An import hook that keeps the tree's modules out of what all children share."""

    def __init__(self):
        """Collect the names by which the tree could be imported."""
        self.names = set()
        for folder in (_ROOT, os.path.join(_ROOT, "src")):
            if os.path.isdir(folder):
                self.names |= {n.partition(".")[0] for n in os.listdir(folder)}
        self.names -= set(sys.modules)

    def find_spec(self, name, path=None, target=None):
        """Raise Blocked for a module of the tree."""
        if path is None and name in self.names:
            raise Blocked(name)


def preload(names, skipped, server):
    """Import pytest, its own plugins, and modules; if one imports the tree, refuse to serve with it as the culprit."""
    blocker = Blocker()
    sys.meta_path.insert(0, blocker)
    _import(["pytest", *names], skipped, blocker, server)
    if "pytest" in sys.modules:
        _import(_builtin_plugins(), skipped, blocker, server)
    sys.meta_path.remove(blocker)


def _import(names, skipped, blocker, server):
    for name in names:
        top = name.partition(".")[0]
        if top in blocker.names or top in skipped or name in sys.modules:
            continue
        try:
            importlib.import_module(name)
        except Blocked as error:
            server.refuse(f"{name} imports {error}, which is under test", culprit=top)
        except BaseException:
            continue


def _builtin_plugins():
    """Return the modules of pytest's own plugins, which every child would import."""
    from _pytest.config import default_plugins

    return ["_pytest." + name for name in default_plugins]


def already_imported(pytest):
    """Return options of pytest that allow modules of plugins to be imported before it, even if warnings are errors."""
    category = "PytestAssertRewriteWarning"
    return ["-W", "ignore::pytest." + category] if hasattr(pytest, category) else []
