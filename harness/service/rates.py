"""Limit how often something is done for a client."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable

from harness.service.problems import ProblemCode, ProblemError

_MAX_CLIENTS = 10_000
_FAILURES_PER_S, _FAILURES_AT_ONCE = 0.2, 20.0
TOO_MANY_FAILURES = "too many wrong tokens came from this address"


class Buckets:
    """Count requests by client: each may send a number at once, and so many per second afterwards."""

    def __init__(self, per_s: float, at_once: float, clock: Callable[[], float] = time.monotonic) -> None:
        """per_s: 0 for no limit."""
        self._per_s, self._most, self._clock = per_s, max(1.0, at_once), clock
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def wait_s(self, client: str) -> float:
        """Return the seconds after which a request may be sent, 0 if it may be sent now."""
        left = self._left_now(client)
        return 0.0 if not self._per_s or left >= 1 else (1 - left) / self._per_s

    def take(self, client: str) -> float:
        """Count a request; return the seconds after which it may be sent, 0 if it may be sent now."""
        wait_s, left = self.wait_s(client), self._left_now(client)
        if self._per_s:
            self._left[client] = (left if wait_s else left - 1, self._clock())
            self._left.move_to_end(client)
            if len(self._left) > _MAX_CLIENTS:
                self._left.popitem(last=False)
        return wait_s

    def _left_now(self, client: str) -> float:
        now = self._clock()
        left, seen = self._left.get(client, (self._most, now))
        return min(self._most, left + (now - seen) * self._per_s)


def failed_logins() -> Buckets:
    """Return the limit of wrong tokens by address."""
    return Buckets(_FAILURES_PER_S, _FAILURES_AT_ONCE)


def require_patience(wait_s: float, reason: str) -> None:
    """Raise ProblemError for a client that has to wait."""
    if wait_s > 0:
        headers = {"Retry-After": str(int(wait_s) + 1)}
        raise ProblemError(ProblemCode.RATE_LIMITED, f"{reason}; try again later", headers=headers)
