"""Access the files of a container through a small shell, which is the container's first process.

The shell has the commands' user and another group: it may kill what they leave and read what they write, but they may
not trace it, open its streams (ptrace(2), "access mode checking": user and group must both be equal) or kill it (the
first process of a namespace ignores signals from inside that it does not handle). It reads lines of shell script from
its standard input and answers on its standard output; that stream, and so the container, ends with this process.

While commands run the shell starts no process, as they could stop or kill it. A line of script begins with a secret
token, and data after a line is always read to its end, even after a failure, so that it is never executed as a line.
"""

from __future__ import annotations

import contextlib
import secrets
import select
import socket
import struct
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from pytest_ssr.errors import SandboxError

SHELL = """\
export LC_ALL=C PATH=/usr/bin:/bin:/usr/sbin:/sbin:/usr/local/bin; unset CDPATH; umask 022
nl='
'
groups=/sys/fs/cgroup
own() { [ -r "$1" ] && [ -w "$1" ] && [ -x "$1" ] || chmod u+rwx "$1"; }
step() { [ ! -L "./$1" ] && [ -d "./$1" ] && own "./$1" && cd "./$1"; }
make() { [ ! -L "./$1" ] && { [ -d "./$1" ] || mkdir -m 755 "./$1"; } && own "./$1" && cd "./$1"; }
put() {
    if [ -d "./$1" ] && [ ! -L "./$1" ] && ! rmdir "./$1"; then head -c "$3" >/dev/null; echo directory; return; fi
    if into cat_to "$3" "./$4" && chmod "$2" "./$4" && rm -f "./$1" && mv "./$4" "./$1"; then echo done; return; fi
    rm -f "./$4"; echo failed
}
into() { act=$1; shift; head -c "$1" | { shift; "$act" "$@"; status=$?; cat >/dev/null; exit $status; }; }
cat_to() { cat > "$1"; }
tar_to() { tar -xpf - -C "$1"; }
get() {
    [ ! -L "./$1" ] && [ -f "./$1" ] && [ -r "./$1" ] || { echo none; return; }
    size=$(wc -c < "./$1")
    if [ "$size" -gt "$2" ]; then echo large; return; fi
    # A file may grow meanwhile; if it shrinks, the answer is filled up.
    echo "data $size"; { cat "./$1"; cat /dev/zero; } | head -c "$size"
}
opened() { find "$@" -xdev -type d ! -perm -700 -exec chmod u+rwx {} \\; ; }
pack() {
    opened "$@"; find "$@" -xdev -type f ! -perm -400 -exec chmod u+r {} \\;
    size=$(archived "$@" | wc -c) || { echo none; return; }
    if [ "$size" -gt "$most" ]; then echo large; else echo "data $size"; archived "$@"; fi
}
sample() {
    [ -e "$groups/memory.stat" ] || [ -e "$groups/memory/memory.stat" ] || { echo unknown; return; }
    for file in "$groups/pids.current" "$groups/pids/pids.current"; do
        [ -r "$file" ] && read -r count < "$file" && echo "processes $count"
    done
    for file in "$groups/pids.events" "$groups/pids/pids.events"; do
        [ -r "$file" ] && read -r key count < "$file" && echo "refused $count"
    done
    for file in memory.stat memory/memory.stat memory.events memory/memory.oom_control; do
        [ -r "$groups/$file" ] && while read -r key value; do
            case $key in total_rss|anon|shmem|oom|oom_kill) echo "$key $value" ;; esac
        done < "$groups/$file"
    done
    [ -r "$groups/memory/memory.failcnt" ] && read -r count < "$groups/memory/memory.failcnt" && echo "oom $count"
}
clean() {
    opened "$@"; find "$@" -xdev -mindepth 1 -delete; find "$@" -xdev | wc -l
    tar --format=pax --pax-option=delete=atime,delete=ctime --xattrs --acls --mtime=@0 --no-recursion -cf - "$@" | cksum
    cat /proc/sysvipc/* /proc/net/tcp* /proc/net/udp* /proc/net/unix | wc -l; ls -A /dev/mqueue | wc -l
    cat /proc/1/oom_score_adj /proc/1/autogroup /proc/1/coredump_filter /proc/mounts; grep Cpus_allowed: /proc/1/status
    set -- $(cat /proc/1/stat); echo "${19} ${40} ${41}"
}
while IFS= read -r line; do
    case $line in "$token "*) eval "${line#* }" 2>/dev/null ;; esac
done
"""
_WAIT_S = 20.0
_MAX_BYTES = 2 << 30


@dataclass(frozen=True, slots=True)
class Usage:
    """The resource usage of a container."""

    processes: int
    """Number of processes and threads, including the shell's own."""
    refused: int
    """How often a new process or thread was refused because there were too many."""
    resident_bytes: int
    """Memory that does not belong to a file."""
    shared_bytes: int
    """Shared memory and files in memory."""
    killed: int
    """How often the kernel has killed a process because memory ran out."""
    full: int
    """How often the memory limit was reached."""
    disk_bytes: int
    """Bytes in use on the writable file systems; 0 if that was not measured."""


class UnresponsiveError(SandboxError):
    """The shell does not answer; commands can keep it from running."""


class Shell:
    """A client of the shell in a container."""

    def __init__(self, stream: socket.socket, token: str, mount_points: Iterable[str]) -> None:
        """token: the prefix of each line, as passed to the shell. mount_points: those that commands may write to."""
        self._stream, self._token, self.mount_points = stream, token, tuple(mount_points)
        self._data, self._frames, self._lock = bytearray(), Frames(), threading.Lock()
        self._is_broken = False

    def read(self, top: str, relative: str, max_bytes: int) -> bytes | None:
        """Return a regular file's content, or None if it does not exist; raises SandboxError if it is too large."""
        *parents, name = relative.split("/")
        steps = [f"own {quoted(top)} && cd {quoted(top)}", *(f"step {quoted(p)}" for p in parents)]
        try:
            return self._request_data(f"({' && '.join(steps)} && get {quoted(name)} {max_bytes} || echo none)")
        except OverflowError:
            raise SandboxError(f"{name} is larger than {max_bytes} bytes") from None

    def write(self, top: str, relative: str, data: bytes, *, executable: bool) -> None:
        """Write or replace a regular file, creating its parents."""
        *parents, name = relative.split("/")
        steps = [f"own {quoted(top)} && cd {quoted(top)}", *(f"make {quoted(p)}" for p in parents)]
        mode = "755" if executable else "644"
        put = f"put {quoted(name)} {mode} {len(data)} .ssr-{secrets.token_hex(8)}"
        line = f"({' && '.join(steps)} || {{ head -c {len(data)} >/dev/null; echo parent; exit; }}; {put})"
        answer = self._request(line, data)
        if answer != "done":
            reasons = {"parent": "a parent is a link or a file", "directory": "it is a directory"}
            reason = reasons.get(answer, "no space left")
            raise SandboxError(f"{relative} cannot be written in the sandbox: {reason}")

    def remove(self, top: str, relative: str) -> None:
        """Remove a file or link, if it exists."""
        *parents, name = relative.split("/")
        steps = [f"own {quoted(top)} && cd {quoted(top)}", *(f"step {quoted(p)}" for p in parents)]
        self._request(
            f"({' && '.join(steps)} && {{ [ -L ./{quoted(name)} ] || [ ! -d ./{quoted(name)} ]; }} && "
            f"rm -f ./{quoted(name)}; echo done)"
        )

    def unpack(self, top: str, archive: bytes) -> None:
        """Unpack an archive (tar) into a directory."""
        line = f"if into tar_to {len(archive)} {quoted(top)}; then echo done; else echo failed; fi"
        if self._request(line, archive) != "done":
            raise SandboxError(f"files cannot be put into the container at {top}: no space left, or it has no tar")

    def pack(self, tops: Iterable[str], *, without: Iterable[str] = ()) -> bytes:
        """Return an archive (tar) of directories, with names relative to `/`.

        without: paths to exclude. Mounts inside a directory are excluded unless they are in `tops`.
        """
        excludes = " ".join(quoted(f"--exclude=.{path}") for path in without)
        function = f'archived() {{ tar --one-file-system --anchored --no-wildcards {excludes} -Scf - "$@"; }}'
        paths = " ".join(quoted(f".{top}") for top in tops)
        archive = self._request_data(f"(cd / && most={_MAX_BYTES} && {function} && pack {paths})")
        if archive is None:
            raise SandboxError("the files of the container cannot be copied: too many, or nested too deep")
        return archive

    def prepare(self, scratch: str) -> None:
        """Create HOME and TMPDIR if they are missing."""
        self._request(f"mkdir -p {quoted(scratch)}/home {quoted(scratch)}/tmp; echo done")

    def kill_others(self) -> None:
        """Kill everything but this shell."""
        self._request("kill -9 -1; echo done")

    def usage(self, *, alone: bool = True) -> Usage:
        """Return the current usage.

        alone: whether no command runs. Otherwise no process is started, as commands could stop or kill it: files in
        memory, such as those of the tree and scratch, then count as shared memory. If the container shows no control
        groups, as on gVisor, the usage is read from its processes.
        """
        text = self._request_text("sample")
        if alone or text == "unknown":
            text += "\n" + self._request_text(f"df -P -k {' '.join(map(quoted, self.mount_points))}")
        if "unknown" in text:
            text += "\n" + self._request_text('cat /proc/[0-9]*/statm; set -- /proc/[0-9]*; echo "processes $#"')
        rows = [line.split() for line in text.splitlines()]
        values = {row[0]: row[1] for row in rows if len(row) == 2}
        pages = sum(int(row[1]) for row in rows if len(row) == 7 and "".join(row).isdigit())
        used = used_bytes(text)
        return Usage(
            processes=int(values.get("processes", 0)),
            refused=int(values.get("refused", 0)),
            resident_bytes=int(values.get("total_rss", values.get("anon", pages * 4096))),
            shared_bytes=int(values.get("shmem", used)),
            killed=int(values.get("oom_kill", 0)),
            full=int(values.get("oom", 0)),
            disk_bytes=used,
        )

    def clean(self) -> str:
        """Kill all other processes, empty all writable mounts, and return the remaining state for comparison."""
        self.kill_others()
        return self._request_text(f"clean {' '.join(map(quoted, self.mount_points))}")

    @contextlib.contextmanager
    def _exclusive(self) -> Iterator[None]:
        """Lock the shell for one request; after a request that failed, the next bytes in the stream are unknown."""
        if not self._lock.acquire(blocking=False):
            raise SandboxError("another thread uses this sandbox; open one for each thread")
        try:
            if self._is_broken:
                raise SandboxError("an earlier request to this sandbox failed or was interrupted; open another one")
            self._is_broken = True
            yield
            self._is_broken = False
        finally:
            self._lock.release()

    def _request_text(self, line: str) -> str:
        end = secrets.token_hex(8)
        with self._exclusive():
            self._send(f"{line}; echo {end}")
            lines = []
            while (text := self._line()) != end:
                lines.append(text)
        return "\n".join(lines)

    def _request(self, line: str, payload: bytes = b"") -> str:
        with self._exclusive():
            self._send(line, payload)
            return self._line()

    def _request_data(self, line: str) -> bytes | None:
        """Return the data of an answer, None if it has none; raises OverflowError if it is too large."""
        data = None
        with self._exclusive():
            self._send(line)
            answer = self._line()
            if answer.startswith("data "):
                data = self._exactly(int(answer.split()[1]))
        if answer == "large":
            raise OverflowError
        return data

    def _send(self, line: str, payload: bytes = b"") -> None:
        try:
            self._stream.settimeout(_WAIT_S)
            self._stream.sendall(f"{self._token} {line}\n".encode("utf-8", "surrogateescape") + payload)
        except OSError as error:
            raise SandboxError(f"the container is gone: {error}") from None

    def _line(self) -> str:
        while (end := self._data.find(b"\n")) < 0:
            self._receive()
        line = bytes(self._data[:end])
        del self._data[: end + 1]
        return line.decode("utf-8", "replace")

    def _exactly(self, count: int) -> bytes:
        while len(self._data) < count:
            self._receive()
        data = bytes(self._data[:count])
        del self._data[:count]
        return data

    def _receive(self) -> None:
        ready, _, _ = select.select([self._stream], [], [], _WAIT_S)
        if not ready:
            raise UnresponsiveError(f"the container has not answered for {_WAIT_S:g} s")
        try:
            chunk = self._stream.recv(1 << 20)
        except OSError as error:
            raise SandboxError(f"the container is gone: {error}") from None
        if not chunk:
            raise SandboxError("the container is gone")
        for stream, data in self._frames.feed(chunk):
            if stream == 1:
                self._data += data


class Frames:
    """Decode the stream of an attached container: frames of an 8-byte header (stream, length) and the data."""

    def __init__(self) -> None:
        self._raw = bytearray()
        self._stream, self._remaining = 0, 0

    def feed(self, chunk: bytes) -> list[tuple[int, bytes]]:
        """Return the decoded parts so far: 1 with standard output, or 2 with standard error."""
        self._raw += chunk
        parts = []
        while self._raw:
            if not self._remaining:
                if len(self._raw) < 8:
                    break
                self._stream, self._remaining = struct.unpack(">BxxxL", self._raw[:8])
                del self._raw[:8]
                continue
            data = bytes(self._raw[: self._remaining])
            del self._raw[: self._remaining]
            self._remaining -= len(data)
            parts.append((self._stream, data))
        return parts


def quoted(text: str) -> str:
    """Quote an argument for the shell without a line break in the result."""
    return "'" + text.replace("'", "'\\''").replace("\n", "'\"$nl\"'") + "'"


def used_bytes(text: str) -> int:
    """Return the total of the bytes in use from the output of `df -P -k`."""
    rows = (line.split(None, 5) for line in text.splitlines())
    return sum(int(row[2]) * 1024 for row in rows if len(row) == 6 and row[4].endswith("%") and row[2].isdigit())
