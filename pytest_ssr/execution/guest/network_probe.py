"""Record in a file that a process looks for the network: a name, or an address of another machine."""

from __future__ import absolute_import

import os
import socket

_FILE = os.environ.get("SSR_NETWORK", "")
_LOCAL = ("127.", "::1", "localhost", "0.0.0.0")
_resolve = socket.getaddrinfo
_Socket = socket.socket


def _note(host):
    if isinstance(host, bytes):
        host = host.decode("latin-1")
    if isinstance(host, str) and host and not host.startswith(_LOCAL):
        with open(_FILE, "a") as file:
            file.write("1\n")


def _getaddrinfo(host, *args, **kwargs):
    _note(host)
    return _resolve(host, *args, **kwargs)


class _Noting(_Socket):
    """A socket that notes where it is connected to."""

    def connect(self, address):
        self._note(address)
        return _Socket.connect(self, address)

    def connect_ex(self, address):
        self._note(address)
        return _Socket.connect_ex(self, address)

    def _note(self, address):
        if isinstance(address, tuple) and address:
            _note(address[0])


if _FILE:
    socket.getaddrinfo = _getaddrinfo
    socket.socket = _Noting  # type: ignore[misc]
