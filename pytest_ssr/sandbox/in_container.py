"""Files of a container, moved by a small shell that is the container's first process.

The shell has the commands' user and another group: it may kill what they leave and read what they write, and they may
not trace it, open its streams (ptrace(2), "access mode checking": user and group must both be equal) or end it (the
first process of a namespace takes no signal from inside that it does not handle). It gets lines of shell over its
standard input and answers on its standard output; that stream ends when this process does, and the container with it.

While commands run it starts no process, as they could stop or end that one. A line of shell begins with a secret word,
and what follows a line as data is read to its end whatever becomes of it, so that data is never taken for a line.
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
    if [ "$size" -gt "$2" ]; then echo large; else echo "data $size"; cat "./$1"; fi
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
_MOST_BYTES = 2 << 30


@dataclass(frozen=True, slots=True)
class Usage:
    """What runs in a container and what it takes."""

    processes: int
    """Processes and threads, the shell's own among them."""
    refused: int
    """How often a process or thread was refused, as there were too many."""
    resident_bytes: int
    """Memory that belongs to no file."""
    shared_bytes: int
    """Shared memory and files in memory."""
    killed: int
    """How often the kernel has killed for want of memory."""
    full: int
    """How often the limit of memory was reached."""
    disk_bytes: int
    """Bytes on the file systems that can be written; 0 where that was not asked."""


class SilentError(SandboxError):
    """The shell does not answer; commands can keep it from being run."""


class Shell:
    """The other end of the container's first process."""

    def __init__(self, stream: socket.socket, token: str, places: Iterable[str]) -> None:
        """token: what each line begins with, as the shell was told. places: mount points that commands may write to."""
        self._stream, self._token, self.places = stream, token, tuple(places)
        self._data, self._frames, self._lock = bytearray(), Frames(), threading.Lock()

    def read(self, top: str, relative: str, max_bytes: int) -> bytes | None:
        """Return a regular file's content, None where there is none; raises SandboxError when it is too large."""
        *parents, name = relative.split("/")
        steps = [f"own {quoted(top)} && cd {quoted(top)}", *(f"step {quoted(p)}" for p in parents)]
        try:
            return self._ask_data(f"({' && '.join(steps)} && get {quoted(name)} {max_bytes} || echo none)")
        except OverflowError:
            raise SandboxError(f"{name} is larger than {max_bytes} bytes") from None

    def write(self, top: str, relative: str, data: bytes, *, executable: bool) -> None:
        """Write a regular file in place of what is there, making its parents."""
        *parents, name = relative.split("/")
        steps = [f"own {quoted(top)} && cd {quoted(top)}", *(f"make {quoted(p)}" for p in parents)]
        mode = "755" if executable else "644"
        put = f"put {quoted(name)} {mode} {len(data)} .ssr-{secrets.token_hex(8)}"
        line = f"({' && '.join(steps)} || {{ head -c {len(data)} >/dev/null; echo parent; exit; }}; {put})"
        answer = self._ask(line, data)
        if answer != "done":
            why = {"parent": "a parent is a link or a file", "directory": "it is a directory"}.get(answer, "no room")
            raise SandboxError(f"{relative} cannot be written in the sandbox: {why}")

    def remove(self, top: str, relative: str) -> None:
        """Remove a file or link, if it is there."""
        *parents, name = relative.split("/")
        steps = [f"own {quoted(top)} && cd {quoted(top)}", *(f"step {quoted(p)}" for p in parents)]
        self._ask(
            f"({' && '.join(steps)} && {{ [ -L ./{quoted(name)} ] || [ ! -d ./{quoted(name)} ]; }} && "
            f"rm -f ./{quoted(name)}; echo done)"
        )

    def unpack(self, top: str, archive: bytes) -> None:
        """Unpack an archive (tar) below a directory."""
        line = f"if into tar_to {len(archive)} {quoted(top)}; then echo done; else echo failed; fi"
        if self._ask(line, archive) != "done":
            raise SandboxError(f"files cannot be put into the container at {top}: no room, or it has no tar")

    def pack(self, tops: Iterable[str], *, without: Iterable[str] = ()) -> bytes:
        """Return an archive of directories, with names relative to `/`.

        without: what is left out of it. What is mounted in a directory is left out unless it is one of them.
        """
        left_out = " ".join(quoted(f"--exclude=.{path}") for path in without)
        archived = f'archived() {{ tar --one-file-system --anchored --no-wildcards {left_out} -Scf - "$@"; }}'
        places = " ".join(quoted(f".{top}") for top in tops)
        archive = self._ask_data(f"(cd / && most={_MOST_BYTES} && {archived} && pack {places})")
        if archive is None:
            raise SandboxError("the files of the container cannot be copied: too many, or nested too deep")
        return archive

    def prepare(self, scratch: str) -> None:
        """Make HOME and TMPDIR again where they are missing."""
        self._ask(f"mkdir -p {quoted(scratch)}/home {quoted(scratch)}/tmp; echo done")

    def kill_others(self) -> None:
        """Kill everything but this shell."""
        self._ask("kill -9 -1; echo done")

    def usage(self, *, alone: bool = True) -> Usage:
        """Return what runs and what it takes.

        alone: nothing else runs. Else no process is started, as what runs could stop or end it: files in memory, the
        tree's and those of scratch, are then counted with all shared memory. Where the container shows no control
        groups, as on gVisor, its processes tell.
        """
        text = self._ask_text("sample")
        if alone or text == "unknown":
            text += "\n" + self._ask_text(f"df -P -k {' '.join(map(quoted, self.places))}")
        if "unknown" in text:
            text += "\n" + self._ask_text('cat /proc/[0-9]*/statm; set -- /proc/[0-9]*; echo "processes $#"')
        split = [line.split() for line in text.splitlines()]
        words = {w[0]: w[1] for w in split if len(w) == 2}
        pages = sum(int(w[1]) for w in split if len(w) == 7 and "".join(w).isdigit())
        used = used_bytes(text)
        return Usage(
            processes=int(words.get("processes", 0)),
            refused=int(words.get("refused", 0)),
            resident_bytes=int(words.get("total_rss", words.get("anon", pages * 4096))),
            shared_bytes=int(words.get("shmem", used)),
            killed=int(words.get("oom_kill", 0)),
            full=int(words.get("oom", 0)),
            disk_bytes=used,
        )

    def clean(self) -> str:
        """Kill all else, empty what can be written, and return what is left to compare: equal where nothing is."""
        self.kill_others()
        return self._ask_text(f"clean {' '.join(map(quoted, self.places))}")

    @contextlib.contextmanager
    def _conversation(self) -> Iterator[None]:
        """Hold the line; one that was broken off in the middle is not taken up again."""
        if not self._lock.acquire(blocking=False):
            raise SandboxError("another thread uses this sandbox, or what used it was interrupted")
        yield
        # Not in a `finally`: after an exception nobody knows what the next bytes are.
        self._lock.release()

    def _ask_text(self, line: str) -> str:
        end = secrets.token_hex(8)
        with self._conversation():
            self._send(f"{line}; echo {end}")
            lines = []
            while (text := self._line()) != end:
                lines.append(text)
        return "\n".join(lines)

    def _ask(self, line: str, payload: bytes = b"") -> str:
        with self._conversation():
            self._send(line, payload)
            return self._line()

    def _ask_data(self, line: str) -> bytes | None:
        """Return what an answer brings, None for nothing; raises OverflowError for too much."""
        data = None
        with self._conversation():
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
            raise SilentError(f"the container says nothing for {_WAIT_S:g} s")
        try:
            piece = self._stream.recv(1 << 20)
        except OSError as error:
            raise SandboxError(f"the container is gone: {error}") from None
        if not piece:
            raise SandboxError("the container is gone")
        for stream, data in self._frames.feed(piece):
            if stream == 1:
                self._data += data


class Frames:
    """Takes apart the stream of an attached container: eight bytes of head (stream, length), then the data."""

    def __init__(self) -> None:
        self._raw = bytearray()
        self._stream, self._left = 0, 0

    def feed(self, piece: bytes) -> list[tuple[int, bytes]]:
        """Return the parts that are there now: 1 and standard output, or 2 and standard error."""
        self._raw += piece
        found = []
        while self._raw:
            if not self._left:
                if len(self._raw) < 8:
                    break
                self._stream, self._left = struct.unpack(">BxxxL", self._raw[:8])
                del self._raw[:8]
                continue
            data = bytes(self._raw[: self._left])
            del self._raw[: self._left]
            self._left -= len(data)
            found.append((self._stream, data))
        return found


def quoted(text: str) -> str:
    """Quote a word for the shell; a line of it stays one line."""
    return "'" + text.replace("'", "'\\''").replace("\n", "'\"$nl\"'") + "'"


def used_bytes(text: str) -> int:
    """Return the bytes in use that the lines of `df -P -k` tell, all together."""
    lines = (line.split(None, 5) for line in text.splitlines())
    return sum(int(w[2]) * 1024 for w in lines if len(w) == 6 and w[4].endswith("%") and w[2].isdigit())
