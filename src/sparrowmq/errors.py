"""The base of every error that SparrowMQ raises on purpose, for `except SparrowMQError`.

SparrowMQError
├── ClientError      producers and consumers         client/errors.py
├── AdminError       operations on a cluster         admin/errors.py
├── NetError         a connection, or its silence    net/errors.py
└── ProtocolError    bytes that cannot be read       protocol/errors.py

Wrong arguments raise ValueError and TypeError, as everywhere in Python: they are mistakes in a
program, which no retry can fix.
"""

from typing import Any


class SparrowMQError(Exception):
    """The cluster, the network or a message does not allow what the call needs."""

    def __reduce__(self) -> tuple[Any, ...]:
        # Exception.__reduce__ would call the class with the text, but our classes take facts; and a
        # process pool waits forever for a worker whose error cannot be unpickled.
        return _restored, (type(self), self.args, self.__dict__)


def _restored(
    kind: type[SparrowMQError], args: tuple[Any, ...], facts: dict[str, Any]
) -> SparrowMQError:
    error = kind.__new__(kind, *args)
    error.__dict__.update(facts)
    return error
