"""Record in a file that a process looks for the network: a name, or an address of another machine."""

from __future__ import absolute_import

import os
import socket

_FILE = os.environ.get("SSR_NETWORK", "")
_LOCAL = ("127.", "::1", "localhost", "0.0.0.0")
_resolve, _resolve_name = socket.getaddrinfo, socket.gethostbyname
_Socket = socket.socket


def _note(host):
    if isinstance(host, bytes):
        host = host.decode("latin-1")
    if isinstance(host, str) and host and not host.startswith(_LOCAL) and host != socket.gethostname():
        with open(_FILE, "a") as file:
            file.write("1\n")


def _gethostbyname(host):
    _note(host)
    return _resolve_name(host)


def _getaddrinfo(host, *args, **kwargs):
    _note(host)
    return _resolve(host, *args, **kwargs)


class _Noting(_Socket):
    """A socket that notes where it is connected to."""

    def connect(self, address):
        self._note(address)
        return _Socket.connect(self, address)

    def sendto(self, data, *arguments):
        self._note(arguments[-1])
        return _Socket.sendto(self, data, *arguments)

    def connect_ex(self, address):
        self._note(address)
        return _Socket.connect_ex(self, address)

    def _note(self, address):
        if isinstance(address, tuple) and address:
            _note(address[0])


if _FILE:
    socket.getaddrinfo, socket.gethostbyname = _getaddrinfo, _gethostbyname
    socket.socket = _Noting  # type: ignore[misc]
