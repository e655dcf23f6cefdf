"""What can go wrong between two peers.

NetError
├── ConnectionLost     no connection, or it broke: another attempt may succeed
│   └── NotConnected       … and nothing was sent: another attempt cannot duplicate anything
├── CallTimedOut       the peer did not answer in time: it may or may not have acted
└── RequestRefused     the request cannot be served: answered with a response code and a text
"""

from sparrowmq.errors import SparrowMQError


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
