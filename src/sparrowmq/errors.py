"""The base of every error that SparrowMQ raises on purpose, for `except SparrowMQError`.

SparrowMQError
├── ClientError      producers and consumers         client/errors.py
├── AdminError       operations on a cluster         admin/errors.py
├── NetError         a connection, or its silence    net/errors.py
└── ProtocolError    bytes that cannot be read       protocol/errors.py

Wrong arguments are ValueErrors and TypeErrors, as everywhere in Python: they are mistakes of a
program, which no retry mends.
"""

from typing import Any


class SparrowMQError(Exception):
    """The cluster, the network or a message is not as the call needs it."""

    def __reduce__(self) -> tuple[Any, ...]:
        # Exception's own would call the class with the text, where ours take facts; and a pool of
        # processes waits for ever for a worker whose error cannot be read.
        return _restored, (type(self), self.args, self.__dict__)


def _restored(
    kind: type[SparrowMQError], args: tuple[Any, ...], facts: dict[str, Any]
) -> SparrowMQError:
    error = kind.__new__(kind, *args)
    error.__dict__.update(facts)
    return error
