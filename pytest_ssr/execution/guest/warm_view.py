"""Mount a copy-on-write view of the tree for a fork of a warm process (mount_namespaces(7), overlayfs)."""

import base64
import ctypes
import glob
import os
import stat

from ssr_warm_filter import shield

_ROOT = os.getcwd()
_NEWNS, _NEWUSER = 0x00020000, 0x10000000
_RDONLY, _NOSUID, _NODEV, _REMOUNT, _BIND, _REC, _PRIVATE = 1, 2, 4, 32, 4096, 16384, 1 << 18
_libc = ctypes.CDLL(None, use_errno=True)


class UnfitError(Exception):
    """A run cannot be made this way; the message is the reason."""


def _check(result, call):
    if result != 0:
        number = ctypes.get_errno()
        raise UnfitError(f"{call}: {os.strerror(number)}")


def _mount(source, target, kind, flags, options):
    encoded = [None if x is None else os.fsencode(x) for x in (source, target, kind)]
    result = _libc.mount(encoded[0], encoded[1], encoded[2], ctypes.c_ulong(flags), os.fsencode(options))
    _check(result, f"mount of {target}")


def mounts_below(directories):
    """Return the mounts inside some directories, outer ones first."""
    mounts = set()
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
        for line in file:
            path = line.split(" ")[4].encode("utf-8", "surrogateescape").decode("unicode_escape")
            path = path.encode("latin-1", "surrogateescape").decode("utf-8", "surrogateescape")
            if any(path.startswith(directory.rstrip("/") + "/") for directory in directories):
                mounts.add(path)
    return sorted(mounts - set(directories), key=len)


def own_view(settings):
    """Give this process, which must have one thread, a copy-on-write view of the tree and of the scratch directory.

    Other directories that are private to a sandbox become empty, as in a fresh one. What is mounted inside the tree
    becomes read-only. The process cannot reach the one that it was forked from.
    """
    uid, gid = os.getuid(), os.getgid()
    _check(_libc.unshare(_NEWUSER | _NEWNS), "unshare")
    for name, content in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1")):
        with open("/proc/self/" + name, "w") as file:
            file.write(content)
    _mount("none", "/", None, _REC | _PRIVATE, "")
    below = [
        (p, os.open(p, os.O_PATH | os.O_CLOEXEC)) for p in mounts_below([_ROOT, *settings["private"]]) if p != _ROOT
    ]
    room = settings["room"]
    view = settings["scratch"] + "/ssr-view"
    _mount("tmpfs", view, "tmpfs", _NOSUID | _NODEV, f"size={room},mode=700")
    os.chdir(view)
    # Links, because their names need no escapes in mount options.
    for number, (lower, target) in enumerate([(settings["lower"], _ROOT), (settings["scratch"],) * 2]):
        fd = os.open(lower, os.O_PATH)
        os.symlink(f"/proc/self/fd/{fd}", f"lower{number}")
        os.mkdir(f"upper{number}")
        os.chmod(f"upper{number}", stat.S_IMODE(os.stat(lower).st_mode) | 0o700)
        os.mkdir(f"work{number}")
        if number == 0:
            for private in settings["private"]:
                _mount("tmpfs", private, "tmpfs", _NOSUID | _NODEV, f"size={room},mode=1777")
            os.makedirs(target, exist_ok=True)
        options = f"lowerdir=lower{number},upperdir=upper{number},workdir=work{number},userxattr"
        _mount("overlay", target, "overlay", _NOSUID | _NODEV, options)
        os.close(fd)
    for path, fd in below:
        os.makedirs(path, exist_ok=True)
        _mount(f"/proc/self/fd/{fd}", path, None, _BIND | _REC, "")
        os.close(fd)
        if not os.statvfs(path).f_flag & os.ST_RDONLY:
            # All forks share its content.
            _mount(None, path, None, _REMOUNT | _BIND | _RDONLY | _NOSUID | _NODEV, "")
    os.chdir(_ROOT)
    shield(os.getppid())
    # Tests must not have the capabilities that setting up the mounts needs.
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)
    _check(_libc.capset(header, (ctypes.c_uint32 * 6)()), "capset")


def _compiled_pattern(path):
    """Return a pattern for the compiled files of a source, by Python or by pytest."""
    folder, name = os.path.split(path)
    return os.path.join(glob.escape(os.path.join(folder, "__pycache__")), glob.escape(name[:-3]) + ".*.pyc")


def write_changes(changes):
    """Write the files of a state into the view; None deletes a file."""
    for path, entry in changes.items():
        for compiled in glob.glob(_compiled_pattern(path)):
            os.unlink(compiled)
        if os.path.lexists(path):
            os.unlink(path)
        if entry is not None:
            mode, data = entry
            os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
            with open(path, "wb") as file:
                file.write(base64.b64decode(data))
            os.chmod(path, mode & 0o777)
