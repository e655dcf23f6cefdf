"""The base of every error that SparrowMQ raises on purpose, for `except SparrowMQError`.

SparrowMQError
├── ClientError      producers and consumers         client/errors.py
├── AdminError       operations on a cluster         admin/errors.py
├── NetError         a connection, or its silence    net/errors.py
└── ProtocolError    bytes that cannot be read       protocol/errors.py

Wrong arguments are ValueErrors and TypeErrors, as everywhere in Python: they are mistakes of a
program, which no retry mends.
"""


class SparrowMQError(Exception):
    """The cluster, the network or a message is not as the call needs it."""
