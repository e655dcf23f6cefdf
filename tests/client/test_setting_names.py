"""Settings by name: complete in both APIs, and a mistyped one is refused with those near it.

mypy reads this file too, and reports an `ignore` without an error: a mistyped setting that it
accepted would fail `./dev check`.
"""

import asyncio
import inspect
from collections.abc import Callable
from typing import Any, get_args, get_type_hints

import pytest

import sparrowmq
from sparrowmq import (
    Admin,
    Client,
    ClientConfig,
    Deduplicate,
    FlowLimits,
    MemorySeen,
    Message,
    RetryLater,
    TransactionState,
    blocking,
)
from sparrowmq.client.setting_names import settings_of
from sparrowmq.testing import async_cluster, cluster
from sparrowmq.testing.held_port import HeldPort

CLASSES = [
    "Producer",
    "TransactionalProducer",
    "PushConsumer",
    "LitePullConsumer",
    "PullConsumer",
    "ScheduledPull",
]
OF_A_LOOP = {"client", "threads"}
"""Settings that only the asynchronous classes have."""


class Bookings:
    def execute(self, half: Any) -> TransactionState:
        raise AssertionError("nothing is sent here")

    check = execute


async def turn(queue: Any, turn: Any) -> None:
    raise AssertionError("nothing is pulled here")


def plain(queue: Any, turn: Any) -> None:
    raise AssertionError("nothing is pulled here")


@pytest.mark.parametrize("name", CLASSES)
def test_the_typed_settings_of_both_apis_are_the_same(name: str) -> None:
    blocking_init = inspect.unwrap(getattr(blocking, name).__init__)
    (typed,) = get_args(get_type_hints(blocking_init)["settings"])
    theirs = settings_of(inspect.unwrap(getattr(sparrowmq, name).__init__))
    chosen = {
        name: parameter.annotation
        for name, parameter in theirs.items()
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY and name not in OF_A_LOOP
    }
    assert get_type_hints(typed) == chosen


@pytest.mark.parametrize("name", CLASSES)
def test_help_lists_the_same_settings_for_both_apis(name: str) -> None:
    ours = inspect.signature(getattr(blocking, name)).parameters
    theirs = inspect.signature(getattr(sparrowmq, name)).parameters
    assert list(ours) == [name for name in theirs if name not in OF_A_LOOP]
    assert {"name_servers", "config"} <= set(ours)
    same = set(ours) - {"callbacks"}  # plain functions, and async ones
    assert {name: str(ours[name]) for name in same} == {name: str(theirs[name]) for name in same}


def calls_of(kind: type) -> dict[str, str]:
    """Public methods with their parameters."""
    found = {name: getattr(kind, name) for name in dir(kind) if not name.startswith("_")}
    functions = {name: one for name, one in found.items() if callable(one)}
    return {
        name: str(inspect.signature(one).replace(return_annotation=inspect.Signature.empty))
        for name, one in functions.items()
    }


@pytest.mark.parametrize("name", CLASSES)
def test_the_calls_of_both_apis_are_the_same(name: str) -> None:
    ours, theirs = calls_of(getattr(blocking, name)), calls_of(getattr(sparrowmq, name))
    assert set(theirs) - set(ours) == {"stopped"} & set(theirs)  # `run` waits for it
    assert ours == {name: theirs[name] for name in ours}


MISTYPED: list[tuple[Callable[[], object], str, str, str]] = [
    (lambda: sparrowmq.Producer("g", retrys=5), "Producer", "retrys", "retries"),  # type: ignore[call-arg]
    (lambda: blocking.Producer("g", retrys=5), "Producer", "retrys", "retries"),  # type: ignore[call-arg]
    (
        lambda: sparrowmq.TransactionalProducer("g", Bookings(), timeout=5),  # type: ignore[call-arg]
        *("TransactionalProducer", "timeout", "timeout_s"),
    ),
    (
        lambda: blocking.TransactionalProducer("g", Bookings(), timeout=5),  # type: ignore[call-arg]
        *("TransactionalProducer", "timeout", "timeout_s"),
    ),
    (
        lambda: sparrowmq.PushConsumer("g", {"orders": "*"}, form_where="FIRST_OFFSET"),  # type: ignore[call-arg]
        *("PushConsumer", "form_where", "from_where"),
    ),
    (
        lambda: blocking.PushConsumer("g", {"orders": "*"}, form_where="FIRST_OFFSET"),  # type: ignore[call-arg]
        *("PushConsumer", "form_where", "from_where"),
    ),
    (
        lambda: sparrowmq.LitePullConsumer("g", autocommit=False),  # type: ignore[call-arg]
        *("LitePullConsumer", "autocommit", "auto_commit"),
    ),
    (
        lambda: blocking.LitePullConsumer("g", autocommit=False),  # type: ignore[call-arg]
        *("LitePullConsumer", "autocommit", "auto_commit"),
    ),
    (lambda: sparrowmq.PullConsumer("g", modell="x"), "PullConsumer", "modell", "model"),  # type: ignore[call-arg]
    (lambda: blocking.PullConsumer("g", modell="x"), "PullConsumer", "modell", "model"),  # type: ignore[call-arg]
    (
        lambda: sparrowmq.ScheduledPull("g", {"orders": turn}, worker=5),  # type: ignore[call-arg]
        *("ScheduledPull", "worker", "workers"),
    ),
    (
        lambda: blocking.ScheduledPull("g", {"orders": plain}, worker=5),  # type: ignore[call-arg]
        *("ScheduledPull", "worker", "workers"),
    ),
    (lambda: ClientConfig(name_server=()), "ClientConfig", "name_server", "name_servers"),  # type: ignore[call-arg]
    (lambda: FlowLimits(message=5), "FlowLimits", "message", "messages"),  # type: ignore[call-arg]
    (lambda: Client(confg=ClientConfig()), "Client", "confg", "config"),  # type: ignore[call-arg]
    (lambda: Admin(timeout=5), "Admin", "timeout", "timeout_s"),  # type: ignore[call-arg]
    (lambda: blocking.Admin(timeout=5), "Admin", "timeout", "timeout_s"),  # type: ignore[call-arg]
    (lambda: Deduplicate(MemorySeen(), ttl=5), "Deduplicate", "ttl", "ttl_s"),  # type: ignore[call-arg]
    (lambda: RetryLater("later", delaylevel=5), "RetryLater", "delaylevel", "delay_level"),  # type: ignore[call-arg]
    (lambda: cluster(broker=2), "the cluster", "broker", "brokers"),
    (lambda: async_cluster(default_queue=2), "the cluster", "default_queue", "default_queues"),
]


@pytest.mark.parametrize(("make", "kind", "mistyped", "meant"), MISTYPED)
def test_a_mistyped_setting_is_refused_with_the_one_that_is_near(
    make: Callable[[], object], kind: str, mistyped: str, meant: str
) -> None:
    with pytest.raises(TypeError) as caught:
        make()
    text, _, near = str(caught.value).partition("; did you mean ")
    assert text == f"{kind} has no setting named {mistyped}"
    assert near.rstrip("?").split(" or ")[0] == meant


def test_a_mistyped_argument_of_a_call_is_refused_by_mypy_and_at_the_call() -> None:
    """Calls have plain signatures, so Python's own error names call and argument."""
    says = r"Producer\.send\(\) got an unexpected keyword argument 'timeout'"

    async def use(servers: str) -> None:
        async with sparrowmq.Producer("g", name_servers=servers) as producer:
            with pytest.raises(TypeError, match=says):
                await producer.send(Message("orders", b"x"), timeout=3)  # type: ignore[call-arg]

    with HeldPort() as port:
        servers = f"127.0.0.1:{port.port}"
        asyncio.run(use(servers))
        own = blocking.Producer("g", name_servers=servers)
        with own, pytest.raises(TypeError, match=says):
            own.send(Message("orders", b"x"), timeout=3)  # type: ignore[call-arg]


@pytest.mark.parametrize("make", [Message, Message.json, Message.text])
def test_a_misspelt_message_field_is_refused_with_the_right_one(make: Any) -> None:
    with pytest.raises(TypeError, match=r"^Message has no field named tag; did you mean tags\?$"):
        make("orders", b"x" if make is Message else "x", tag="created")


@pytest.mark.parametrize("make", [Message.json, Message.text])
@pytest.mark.parametrize(
    ("mistyped", "says"),
    [
        ("key", r"^Message has no field named key; did you mean keys\?$"),
        ("delay_levle", r"^Message has no field named delay_levle; did you mean delay_level\?$"),
        ("zebra", "^Message has no field named zebra; its fields are tags, keys, properties,"),
    ],
)
def test_a_mistyped_field_of_a_message_is_refused_with_the_one_that_is_near(
    make: Any, mistyped: str, says: str
) -> None:
    with pytest.raises(TypeError, match=says):
        make("orders", "x", **{mistyped: "o-1"})


def test_the_repr_of_a_message_shows_the_given_fields() -> None:
    shown = "Message(topic='orders', body=b'x', tags='created', keys=('o-1',))"
    assert repr(Message("orders", b"x", tags="created", keys="o-1")) == shown


def test_every_unknown_setting_is_named_even_if_none_is_similar() -> None:
    unknown: Any = {"zebra": 1, "retrys": 2}
    with pytest.raises(TypeError) as caught:
        blocking.Producer("g", **unknown)
    assert str(caught.value).splitlines() == [
        "Producer has no setting named retrys; did you mean retries?",
        "Producer has no setting named zebra; help() lists its settings",
    ]


def test_a_value_of_a_wrong_type_is_refused_by_mypy_and_at_the_call() -> None:
    with pytest.raises(ValueError, match="batch is 'ten'"):
        blocking.PushConsumer("g", {"orders": "*"}, batch="ten")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="model is 'BROADCAST'"):
        blocking.PushConsumer("g", {"orders": "*"}, model="BROADCAST")  # type: ignore[arg-type]
