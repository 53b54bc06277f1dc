"""End an interrupted session: stop its xdist workers at once, and print one line instead of a traceback."""

from __future__ import annotations

import fcntl
import os
import signal
import tempfile
from collections.abc import Generator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from pytest_ssr.interrupts import Background, background, pause

_LEASH = "ssr_leash"
_POLL_S = 0.1
INTERRUPTED = "interrupted; what is finished is kept, run the same command to go on"


class Interrupts:
    """Registered with each session plugin of this package, in the controller and in its workers.

    xdist lets its workers finish the current item, and interrupts them after five seconds. To stop them sooner, the
    controller holds a lock on a file while it runs; a worker that acquires the lock interrupts itself. The lock is also
    released when the controller is killed.
    """

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._lock_file: Any = None
        self._watcher: Background[None] | None = None

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionstart(self) -> None:
        """In a worker, start to watch the controller."""
        path = getattr(self._config, "workerinput", {}).get(_LEASH)
        if path is not None:
            self._watcher = background(lambda: _watch(Path(path)), name="leash")

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        """Pass a worker the path of the file to watch."""
        if self._lock_file is None:
            self._lock_file = tempfile.NamedTemporaryFile(prefix="ssr-leash-")  # noqa: SIM115 # held while workers run
            fcntl.flock(self._lock_file, fcntl.LOCK_EX)
        node.workerinput[_LEASH] = self._lock_file.name

    @pytest.hookimpl(wrapper=True)
    def pytest_keyboard_interrupt(
        self, excinfo: pytest.ExceptionInfo[BaseException]
    ) -> Generator[None, object, object]:
        """Interrupt the workers, and print one line instead of pytest's three."""
        self._release()
        plain = isinstance(excinfo.value, KeyboardInterrupt) and not isinstance(
            excinfo.value, pytest.Session.Interrupted
        )
        if plain and not self._config.option.fulltrace:
            # The terminal plugin formats the whole traceback, which takes half a second, and shows one line of it.
            excinfo.traceback = excinfo.traceback[-1:]
        result = yield
        if plain and not self._config.option.fulltrace:
            self._shorten_message()
        return result

    def _shorten_message(self) -> None:
        terminal: Any = self._config.pluginmanager.get_plugin("terminalreporter")
        crash = getattr(getattr(terminal, "_keyboardinterrupt_memo", None), "reprcrash", None)
        if crash is not None:
            crash.message = INTERRUPTED

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self) -> None:
        """Stop watching the controller."""
        if self._watcher is not None:
            self._watcher.stop()

    def pytest_unconfigure(self) -> None:
        """Release the lock and remove the file."""
        self._release()

    def _release(self) -> None:
        if self._lock_file is not None:
            with suppress(FileNotFoundError):
                self._lock_file.close()
            self._lock_file = None


def _watch(path: Path) -> None:
    """Interrupt this process as soon as the lock on a file is released."""
    try:
        file = path.open("rb")
    except OSError:
        # The controller runs on another machine or has exited; then xdist ends this worker.
        return
    with file:
        while True:
            pause(_POLL_S)
            with suppress(BlockingIOError):
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
                os.kill(os.getpid(), signal.SIGINT)
                return
