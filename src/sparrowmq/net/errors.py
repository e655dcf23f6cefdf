"""What can go wrong between two peers.

NetError
├── ConnectionLost     no connection, or it broke: another attempt may succeed
│   └── NotConnected       … and nothing was sent: another attempt cannot duplicate anything
├── CallTimedOut       the peer did not answer in time: it may or may not have acted
└── RequestRefused     the request cannot be served: answered with a response code and a text
"""

import errno
import os
import re
import socket

from sparrowmq.errors import SparrowMQError

CLOSED_BY_PEER = "it closed the connection"
CLOSED_BY_US = "this side closed the connection"

_IN_WORDS = {
    errno.ECONNREFUSED: "connection refused, nothing listens there",
    errno.ECONNRESET: "it reset the connection",
    errno.EPIPE: CLOSED_BY_PEER,
    errno.ETIMEDOUT: "no answer from that host",
    errno.EHOSTUNREACH: "that host cannot be reached from here",
    errno.ENETUNREACH: "the network of that host cannot be reached from here",
    errno.EMFILE: "this process has too many open files (ulimit -n)",
    errno.ENFILE: "this machine has too many open files",
    errno.EADDRNOTAVAIL: "this machine has no free port or address for it",
}
_NAME_IN_WORDS = {
    socket.EAI_AGAIN: "that host name cannot be looked up now",
    socket.EAI_NONAME: "that host name is unknown",
}
_ERRNO = re.compile(r"\[Errno (\d+)\]")


def in_words(error: Exception) -> str:
    """Why a connection could not be opened, or ended: without errno and the arguments of a call,
    which Python's own texts consist of. Empty if the error says nothing."""
    if isinstance(error, socket.gaierror):
        return _NAME_IN_WORDS.get(error.errno or 0, error.strerror or str(error))
    if isinstance(error, OSError):
        number = error.errno or _common_errno(str(error))
        return _IN_WORDS.get(number) or (os.strerror(number).lower() if number else str(error))
    return str(error)


def _common_errno(text: str) -> int:
    """asyncio joins the failures of a host with several addresses into one text. Their number if
    they are all the same, else 0."""
    numbers = set(_ERRNO.findall(text))
    return int(numbers.pop()) if len(numbers) == 1 else 0


class NetError(SparrowMQError):
    """Base of the errors of this package."""


class ConnectionLost(NetError):
    """There is no connection to `address`, or it broke while waiting for an answer."""

    def __init__(self, address: str, reason: str) -> None:
        super().__init__(f"connection to {address} lost: {reason}")
        self.address = address
        self.reason = reason


class NotConnected(ConnectionLost):
    """No connection to `address` could be opened, so the peer received nothing."""

    def __init__(self, address: str, reason: str) -> None:
        super().__init__(address, reason)
        self.args = (f"cannot connect to {address}: {reason}",)


class CallTimedOut(NetError):
    """`address` did not answer within `timeout_s`; whether it acted is unknown."""

    def __init__(self, address: str, request: str, timeout_s: float) -> None:
        super().__init__(f"{address} did not answer {request} within {timeout_s:g} s")
        self.address = address
        self.request = request
        self.timeout_s = timeout_s


class RequestRefused(NetError):
    """Raised by handlers; becomes an answer with this code and text."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.text = text
