"""Hooks: observe every send and every handler call.

    class Timing(Hooks):
        def after_handling(self, handling: Handling) -> None:
            histogram.observe(handling.elapsed_s)

    PushConsumer("billing", {"orders": "*"}, hooks=[Timing()])

before_send ▶ send ▶ after_send          before_handling ▶ handler ▶ after_handling

Hooks observe and add properties, they do not decide: an exception in a hook never fails a send or
a message. A producer or consumer without hooks runs none of this code.
"""

import asyncio
import inspect
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from sparrowmq.client.failures import ends_caller
from sparrowmq.client.send_result import SendResult
from sparrowmq.protocol.message import Message
from sparrowmq.protocol.message_ext import MessageExt


@dataclass(slots=True)
class Sending:
    """One send, from `before_send` to `after_send`: the same object for all hooks."""

    group: str
    messages: Sequence[Message]
    """The message, or all messages of a batch."""
    properties: dict[str, str] = field(default_factory=dict)
    """What `before_send` adds to the properties of each message, such as a trace context. The
    message's own properties take precedence."""
    state: dict[str, Any] = field(default_factory=dict)
    """For the hooks: what a hook keeps from before to after, under a name it chooses."""
    results: Sequence[SendResult] = ()
    """After the send: one result, or one per part of a split batch; none for a one-way send."""
    error: BaseException | None = None
    """After the send: why it failed, including `CancelledError`."""
    elapsed_s: float = 0.0
    """After the send: how long it took, including all attempts."""


@dataclass(slots=True)
class Handling:
    """One call of a handler, from `before_handling` to `after_handling`."""

    group: str
    messages: Sequence[MessageExt]
    """The messages passed to the handler."""
    state: dict[str, Any] = field(default_factory=dict)
    """For the hooks: what a hook keeps from before to after, under a name it chooses."""
    failed: Sequence[MessageExt] = ()
    """After the call: the messages that will be delivered again."""
    error: BaseException | None = None
    """After the call: what the handler raised, including `RetryLater` and `CancelledError`."""
    elapsed_s: float = 0.0
    """After the call: how long it took."""


class Hooks:
    """Base class of hooks: override what you need. Hooks run on the client's event loop, so they
    must not block. With several hooks, `after_…` runs in the reverse order of `before_…`."""

    def before_send(self, sending: Sending) -> None:
        """A message is about to be packed and sent."""

    def after_send(self, sending: Sending) -> None:
        """The send succeeded or failed: see `results` and `error`."""

    def before_handling(self, handling: Handling) -> None:
        """A handler is about to be called, in the same task if it is async: it sees context
        variables that are set here."""

    def after_handling(self, handling: Handling) -> None:
        """The handler returned or raised: see `failed` and `error`."""


_NAMES = ("before_send", "after_send", "before_handling", "after_handling")


def check_hooks(hooks: object) -> None:
    """Raises ValueError for anything but a list of hooks, and for async hooks, which would never
    run."""
    if not isinstance(hooks, Sequence):
        raise ValueError(f"hooks is {hooks!r}, must be a list such as [Timing()]")
    for hook in hooks:
        if not isinstance(hook, Hooks):
            raise ValueError(f"a hook is {hook!r}, must be an object of a subclass of Hooks")
        for name in _NAMES:
            if inspect.iscoroutinefunction(getattr(hook, name)):
                text = f"{name} of {type(hook).__name__} is async, must be a plain function"
                raise ValueError(text)


class HookCalls:
    """Calls the hooks of one producer or consumer, and logs what they raise."""

    def __init__(self, hooks: Sequence[Hooks], log: logging.Logger) -> None:
        self._hooks = tuple(hooks)
        self._backwards = self._hooks[::-1]
        self._log = log

    def before_send(self, sending: Sending) -> None:
        """Call the hooks in the order given."""
        for hook in self._hooks:
            self._call(hook.before_send, sending)

    def after_send(self, sending: Sending, began_s: float) -> None:
        """Call the hooks in reverse order."""
        sending.elapsed_s = now_s() - began_s
        for hook in self._backwards:
            self._call(hook.after_send, sending)

    def before_handling(self, handling: Handling) -> None:
        """Call the hooks in the order given."""
        for hook in self._hooks:
            self._call(hook.before_handling, handling)

    def after_handling(self, handling: Handling, began_s: float) -> None:
        """Call the hooks in reverse order."""
        handling.elapsed_s = now_s() - began_s
        for hook in self._backwards:
            self._call(hook.after_handling, handling)

    def _call(self, function: Callable[[Any], None], subject: Sending | Handling) -> None:
        try:
            function(subject)
        except BaseException as error:
            if ends_caller(error):
                raise
            text = "hook %s of group %s failed, which changes nothing else: %r"
            self._log.error(text, function.__qualname__, subject.group, error, exc_info=error)


def now_s() -> float:
    """The loop's time."""
    return asyncio.get_running_loop().time()
