"""What starts before bubblewrap: namespaces of our own, and in them the overlay mount that is the view of a tree.

Names in the mount's options are our own and relative, so that no character of the user's paths needs an escape.
"""

from __future__ import annotations

import functools
import os
import stat
import subprocess
from pathlib import Path

from pytest_ssr.sandbox import cgroup, folders

_NAMESPACES = ["unshare", "--user", "--map-root-user", "--mount", "--pid", "--fork", "--kill-child"]

# Arguments: the sandbox's folder, in which `lower` is a link to the tree; control groups to enter; `--`; the command.
_OVERLAY = """
cd "$1" || exit 125
shift
for file; do shift; [ "$file" = -- ] && break; echo 0 > "$file" || exit 125; done
mount -n -i -t overlay overlay -o lowerdir=lower,upperdir=upper,workdir=work,userxattr view && cd / || exit 125
exec "$@"
"""
_TRIAL = """
cd "$0/view" && test -e kept && test ! -e deleted && rm -r folder && mkdir folder && test ! -e folder/inner &&
echo changed > kept
"""


def launcher(folder: Path, *, overlay: bool) -> list[str]:
    """Return the words before a command that show it a sandbox's view in `folder`/view, for `cgroup.entered`."""
    if not overlay:
        return []
    return [*_NAMESPACES, "/bin/sh", "-c", _OVERLAY, "sh", str(folder), cgroup.HERE, "--"]


@functools.cache
def overlay_works() -> bool:
    """Try an overlay mount without root, with a deletion and a replaced directory in it; once in each process."""
    folder = folders.new_folder()
    try:
        for name in ("upper", "work", "view", "tree/folder/inner"):
            (folder / name).mkdir(parents=True)
        (folder / "lower").symlink_to(folder / "tree")
        for name in ("kept", "deleted"):
            (folder / "tree" / name).write_text("as it was")
        os.mknod(folder / "upper" / "deleted", stat.S_IFCHR, 0)
        command = cgroup.entered(None, [*launcher(folder, overlay=True), "/bin/sh", "-c", _TRIAL, str(folder)])
        done = subprocess.run(command, capture_output=True, check=False, timeout=30)
        return done.returncode == 0 and (folder / "tree" / "kept").read_text() == "as it was"
    except (OSError, subprocess.TimeoutExpired):
        return False
    finally:
        folders.discard(folder)
