"""Define what carries calls to a host."""

from __future__ import annotations

from typing import Protocol

from harness.remote_sandboxes.messages import Reply, Request
from pytest_ssr.errors import SandboxUnavailableError
from pytest_ssr.interrupts import raise_if_stopped
from pytest_ssr.sandbox.supervision.output_listener import OutputListener

RETRY_S = 30.0
"""How long a host may be out of reach, such as while it is started again."""


class UnreachableError(SandboxUnavailableError):
    """A host does not answer; one that refuses the client does."""


class Transport(Protocol):
    """A connection to one host; any number of threads may use it."""

    name: str
    """Where the host is, for people."""

    def call(
        self,
        request: Request,
        *,
        on_output: OutputListener | None = None,
        may_stop: bool = True,
        retry_s: float | None = None,
    ) -> Reply:
        """Make a call and wait for its reply; after a lost connection the same call is sent again.

        may_stop: whether an interrupt ends the wait; not while something is cleaned up. retry_s: how long the host may
        be out of reach; None for the transport's own limit. Raises UnreachableError after that time, and
        SandboxError if the host refuses the client.
        """

    def close(self) -> None:
        """Close the connection; idempotent."""


def check_stopped(*, may_stop: bool) -> None:
    """Raise like `raise_if_stopped` unless something is cleaned up."""
    if may_stop:
        raise_if_stopped()
