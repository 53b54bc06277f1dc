"""Build the command that runs bubblewrap in new namespaces with an overlay mount as the view of a tree.

The mount's options contain only fixed relative names, so that the user's paths need no escaping.
"""

from __future__ import annotations

import functools
import os
import stat
import subprocess
from pathlib import Path

from pytest_ssr.sandbox.filesystem import workdirs
from pytest_ssr.sandbox.supervision import cgroup

_NAMESPACES = ["unshare", "--user", "--map-root-user", "--mount", "--pid", "--fork", "--kill-child"]

# Arguments: the sandbox's folder, in which `lower` is a link to the tree; control groups to join; `--`; the command.
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
    """Return a command prefix that mounts a sandbox's view at `folder`/view, for `cgroup.join_command`."""
    if not overlay:
        return []
    return [*_NAMESPACES, "/bin/sh", "-c", _OVERLAY, "sh", str(folder), cgroup.JOIN_FILES, "--"]


@functools.cache
def overlay_works() -> bool:
    """Return whether overlay mounts with deletions and replaced directories work without root; tried once."""
    folder = workdirs.new_folder()
    try:
        for name in ("upper", "work", "view", "tree/folder/inner"):
            (folder / name).mkdir(parents=True)
        (folder / "lower").symlink_to(folder / "tree")
        for name in ("kept", "deleted"):
            (folder / "tree" / name).write_text("as it was")
        os.mknod(folder / "upper" / "deleted", stat.S_IFCHR, 0)
        command = cgroup.join_command(None, [*launcher(folder, overlay=True), "/bin/sh", "-c", _TRIAL, str(folder)])
        done = subprocess.run(command, capture_output=True, check=False, timeout=30)
        return done.returncode == 0 and (folder / "tree" / "kept").read_text() == "as it was"
    except (OSError, subprocess.TimeoutExpired):
        return False
    finally:
        workdirs.discard(folder)
