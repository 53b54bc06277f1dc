"""How an interrupted session ends: its xdist workers at once, and with one line instead of a place in the code."""

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

from pytest_ssr.stopping import Background, background, pause

_LEASH = "ssr_leash"
_LOOK_S = 0.1
INTERRUPTED = "interrupted; what is finished is kept, run the same command to go on"


class Interrupts:
    """Registered beside each of our session plugins, in the controller and in its workers.

    xdist asks its workers to end after the item that they run, and interrupts them after five seconds. So the
    controller holds a lock on a file while it goes on; a worker that gets the lock interrupts itself. It gets it too if
    the controller was killed.
    """

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._held: Any = None
        self._following: Background[None] | None = None

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionstart(self) -> None:
        """In a worker, begin to watch the controller."""
        path = getattr(self._config, "workerinput", {}).get(_LEASH)
        if path is not None:
            self._following = background(lambda: _follow(Path(path)), name="leash")

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        """Tell a worker which file to watch."""
        if self._held is None:
            self._held = tempfile.NamedTemporaryFile(prefix="ssr-leash-")  # noqa: SIM115 # held while workers run
            fcntl.flock(self._held, fcntl.LOCK_EX)
        node.workerinput[_LEASH] = self._held.name

    @pytest.hookimpl(wrapper=True)
    def pytest_keyboard_interrupt(
        self, excinfo: pytest.ExceptionInfo[BaseException]
    ) -> Generator[None, object, object]:
        """Interrupt the workers, and put one line in place of pytest's three."""
        self._let_go()
        plain = isinstance(excinfo.value, KeyboardInterrupt) and not isinstance(
            excinfo.value, pytest.Session.Interrupted
        )
        if plain and not self._config.option.fulltrace:
            # The terminal's plugin formats all of it, half a second's work, and shows one line of that.
            excinfo.traceback = excinfo.traceback[-1:]
        result = yield
        if plain and not self._config.option.fulltrace:
            self._say_one_line()
        return result

    def _say_one_line(self) -> None:
        terminal: Any = self._config.pluginmanager.get_plugin("terminalreporter")
        crash = getattr(getattr(terminal, "_keyboardinterrupt_memo", None), "reprcrash", None)
        if crash is not None:
            crash.message = INTERRUPTED

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self) -> None:
        """Watch no longer."""
        if self._following is not None:
            self._following.stop()

    def pytest_unconfigure(self) -> None:
        """Remove the file."""
        self._let_go()

    def _let_go(self) -> None:
        if self._held is not None:
            with suppress(FileNotFoundError):
                self._held.close()
            self._held = None


def _follow(path: Path) -> None:
    """Interrupt this process as soon as nobody holds the lock on a file any more."""
    try:
        file = path.open("rb")
    except OSError:
        # The controller is on another machine, or already gone; then xdist ends this worker.
        return
    with file:
        while True:
            pause(_LOOK_S)
            with suppress(BlockingIOError):
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
                os.kill(os.getpid(), signal.SIGINT)
                return
