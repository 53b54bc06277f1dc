"""Read the commit of an instance from its image, which may be the only one that has the repository."""

from __future__ import annotations

from harness.datasets.instance import Instance, InstanceError
from pytest_ssr.sandbox import load_provider
from pytest_ssr.sandbox.filesystem.built_files import TESTBED
from pytest_ssr.sandbox.protocol import MIB, Limits, WithImage

_LIMITS = Limits(wall_s=600.0, output_bytes=1024 * MIB)
# The commit and the files of its tree. A row may name it as the parent of another, which is then needed to look it up.
# With GIT_DIR, git accepts a repository of another user.
_PACK = """
export GIT_DIR="$1/.git"
git cat-file -e "$2^{tree}" && git rev-parse "$2^{commit}" "${2%%^*}^{commit}" > "$TMPDIR/objects" &&
git rev-list --objects "$2^{tree}" | cut -d ' ' -f 1 >> "$TMPDIR/objects" &&
git pack-objects -q --stdout < "$TMPDIR/objects"
"""


def read_commit(instance: Instance, engine: str) -> bytes:
    """Return a pack of git objects with an instance's commit and its tree.

    engine: `docker` or `apptainer`. Raises InstanceError if the image does not have the commit, and SandboxError if the
    image does not start.
    """
    provider = load_provider(instance.sandbox(engine))
    assert isinstance(provider, WithImage)
    try:
        command = ["/bin/sh", "-c", _PACK, "sh", TESTBED, instance.base_commit]
        done = provider.exec_in_image(command, limits=_LIMITS)
    finally:
        getattr(provider, "close", lambda: None)()
    if done.exit_code != 0:
        reason = str(done.limit or done.stderr.decode(errors="replace").strip()[-200:])
        commit = instance.base_commit[:12]
        raise InstanceError(f"{instance.id}: {TESTBED} of the image {instance.image} has no commit {commit} ({reason})")
    return done.stdout
