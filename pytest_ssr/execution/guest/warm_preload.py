"""Import what a project's tests import from outside of its tree, and nothing of the tree itself."""

import importlib
import os
import sys

_ROOT = os.getcwd()


class Blocked(BaseException):
    """The tree was to be imported before a child has its view of it."""


class Blocker:
    """Keeps the tree's modules out of what every child shares."""

    def __init__(self):
        """List the names the tree could be imported by."""
        self.names = set()
        for folder in (_ROOT, os.path.join(_ROOT, "src")):
            if os.path.isdir(folder):
                self.names |= {n.partition(".")[0] for n in os.listdir(folder)}
        self.names -= set(sys.modules)

    def find_spec(self, name, path=None, target=None):
        """Refuse them."""
        if path is None and name in self.names:
            raise Blocked(name)


def preload(names, skipped, server):
    """Import modules; a server that cannot do without one that imports the tree refuses, and says which it is."""
    blocker = Blocker()
    sys.meta_path.insert(0, blocker)
    for name in names:
        top = name.partition(".")[0]
        if top in blocker.names or top in skipped or name in sys.modules:
            continue
        try:
            importlib.import_module(name)
        except Blocked as error:
            server.refuse(f"{name} imports {error}, which is tested here", culprit=top)
        except BaseException:
            continue
    sys.meta_path.remove(blocker)
