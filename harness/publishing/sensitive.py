"""Search files for secrets, and for what tells of a machine or a person: home folders, names of hosts and users."""

from __future__ import annotations

import getpass
import re
import socket
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from harness.models.urls import secrets_in_environment
from harness.publishing.contents import lines_of
from harness.publishing.problems import Problem, ProblemKind

_SECRETS = (
    rb"-----BEGIN (?:[A-Z0-9]+ )*PRIVATE KEY-----",
    rb"\bhf_[A-Za-z0-9]{30,}",
    rb"\bgh[pousr]_[A-Za-z0-9]{36,}",
    rb"\bgithub_pat_[A-Za-z0-9_]{50,}",
    rb"\bglpat-[\w-]{20,}",
    rb"\bsk-(?:ant-|proj-|or-)?[A-Za-z0-9_-]{32,}",
    rb"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b",
    rb"\bxox[abprs]-[A-Za-z0-9-]{10,}",
    rb"\bAIza[\w-]{35}",
    rb"\bpypi-[A-Za-z0-9_-]{50,}",
)
"""Forms of keys: PEM, Hugging Face, GitHub, GitLab, OpenAI and Anthropic, AWS, Slack, Google, PyPI."""
_IN_URLS = rb"\b[a-z][a-z0-9+.-]*://[^/\s:@\"'<>\\]+:[^/\s:@\"'<>\\{}$]+@"
_HOMES = rb"/(?:home|Users)/[A-Za-z][\w.-]*"
_COMMON = frozenset(
    ("admin", "archlinux", "debian", "docker", "fedora", "jovyan", "localhost", "nobody", "root", "runner", "ubuntu")
)
"""Names of many machines and users, which tell of none."""
_SHORTEST_NAME, _SHOWN = 5, 8


@dataclass(frozen=True, slots=True)
class Machine:
    """What would tell of the machine that publishes, and of its user."""

    folders: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    users: tuple[str, ...] = ()
    secrets: tuple[str, ...] = field(default=(), repr=False)

    @classmethod
    def this(cls) -> Machine:
        """Return this machine."""
        home = Path.home()
        host = socket.gethostname()
        try:
            user = getpass.getuser()
        except (KeyError, OSError):
            # A container may run as a user without a name.
            user = ""
        return cls(
            folders=(f"{home}/",) if len(home.parts) > 1 else (),
            hosts=tuple(name for name in {host, host.partition(".")[0]} if _tells(name)),
            users=(user,) if _tells(user) else (),
            secrets=tuple(secrets_in_environment()),
        )


def _tells(name: str) -> bool:
    return len(name) >= _SHORTEST_NAME and name.lower() not in _COMMON


class Search:
    """A search of files."""

    def __init__(self, machine: Machine, allowed: Sequence[re.Pattern[str]] = ()) -> None:
        """allowed: what may be published although it is found."""
        self._allowed = allowed
        secrets = [*_SECRETS, *(re.escape(secret.encode()) for secret in machine.secrets)]
        names = [rb"\b%s\b" % re.escape(name.encode()) for name in machine.hosts]
        private = [*(re.escape(folder.encode()) for folder in machine.folders), *names]
        users = [rb"\b%s\b" % re.escape(name.encode()) for name in machine.users]
        # The public code of a project has addresses, paths and names that are nobody's.
        self._in_archives = _compiled(secrets, private)
        self._elsewhere = _compiled([*secrets, _IN_URLS], [*private, _HOMES, *users])

    def problems(self, folder: Path, names: Iterable[str]) -> Iterator[Problem]:
        """Yield what is found in files, the first of a kind in each line."""
        for name in names:
            for line in lines_of(folder, name):
                for match in (self._in_archives if line.is_packed else self._elsewhere).finditer(line.data):
                    found = match[0].decode(errors="replace")
                    if any(pattern.search(found) for pattern in self._allowed):
                        continue
                    is_secret = match.lastgroup == "secret"
                    shown = f"{found[:_SHOWN]}..." if is_secret else found
                    yield Problem(ProblemKind.SECRET if is_secret else ProblemKind.PRIVATE, line.place, shown)
                    break


def _compiled(secrets: Sequence[bytes], private: Sequence[bytes]) -> re.Pattern[bytes]:
    return re.compile(b"(?P<secret>%s)|(?P<private>%s)" % (b"|".join(secrets), b"|".join(private) or rb"(?!)"))
