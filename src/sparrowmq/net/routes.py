"""Routes: which function answers which request. Importing a handler module has no effect by itself;
a server includes the routes it wants.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

from sparrowmq.net.reply import Handled, Request
from sparrowmq.protocol.header import RequestDecoder, RequestHeader

C = TypeVar("C")
F = TypeVar("F", bound=Callable[..., Any])
Handler = Callable[[C, Request[Any]], Handled]


class Routes(Generic[C]):
    """A table from request header type to handler, for servers whose parts are a `C`."""

    def __init__(self) -> None:
        self._handlers: dict[type[RequestHeader], Handler[C]] = {}
        self._decoder: RequestDecoder | None = None

    def on(self, *headers: type[RequestHeader]) -> Callable[[F], F]:
        """Register the decorated function for these requests.

        A function that need not wait is a plain `def`; it is answered inside the read callback.
        """

        def register(handler: F) -> F:
            for header in headers:
                self._add(header, handler)
            return handler

        return register

    def include(self, *others: Routes[C]) -> None:
        """Take over what other tables hold. Two handlers for one code are a mistake of ours."""
        for other in others:
            for header, handler in other._handlers.items():
                self._add(header, handler)

    def _add(self, header: type[RequestHeader], handler: Handler[C]) -> None:
        assert all(header.CODE != known.CODE for known in self._handlers), header.CODE
        self._handlers[header] = handler
        self._decoder = None

    @property
    def decoder(self) -> RequestDecoder:
        """Decodes exactly the requests that are routed."""
        if self._decoder is None:
            self._decoder = RequestDecoder(self._handlers)
        return self._decoder

    @property
    def handlers(self) -> dict[type[RequestHeader], Handler[C]]:
        """The table itself, for the connection's read callback."""
        return self._handlers

    @property
    def codes(self) -> set[int]:
        """Every request code that is served."""
        return {int(header.CODE) for header in self._handlers}
