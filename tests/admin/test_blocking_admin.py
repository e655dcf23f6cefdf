"""The blocking Admin: the same methods as the asynchronous one, and each of them works."""

import inspect
import threading

import pytest

from sparrowmq import Admin as AsyncAdmin
from sparrowmq import NotFound, NotStarted
from sparrowmq.blocking import Admin, Message, Producer
from sparrowmq.testing import Cluster
from tests.patience import PATIENCE_S

LIFECYCLE = {"start", "stop"}
"""Both have these too, with their own documentation."""


def operations(kind: type) -> dict[str, inspect.Signature]:
    """Methods that a class has by itself, without what all facades share."""
    functions = {name: each for name, each in vars(kind).items() if inspect.isfunction(each)}
    return {
        name: inspect.signature(each)
        for name, each in functions.items()
        if not name.startswith("_") and name not in LIFECYCLE
    }


def test_both_have_the_same_methods_with_the_same_signatures() -> None:
    assert operations(Admin) == operations(AsyncAdmin)


def test_the_settings_are_the_same_except_for_the_client() -> None:
    """A client belongs to its event loop, and the blocking one has another."""
    wanted = dict(inspect.signature(AsyncAdmin).parameters)
    del wanted["client"]
    assert dict(inspect.signature(Admin).parameters) == wanted


@pytest.mark.parametrize("name", sorted(operations(AsyncAdmin)))
def test_a_method_waits_and_is_documented_alike(name: str) -> None:
    blocking, asynchronous = getattr(Admin, name), getattr(AsyncAdmin, name)
    assert inspect.iscoroutinefunction(asynchronous)
    assert not inspect.iscoroutinefunction(blocking)
    assert inspect.getdoc(blocking) == inspect.getdoc(asynchronous)


def test_it_looks_at_a_cluster_and_changes_it(sparrowmq_cluster: Cluster) -> None:
    servers = sparrowmq_cluster.name_server
    with Admin(servers, timeout_s=PATIENCE_S) as admin:
        assert admin.create_topic("orders", queues=1) == ["broker-a"]
        assert admin.create_group("billing") == ["broker-a"]
        with Producer("shop", name_servers=servers) as producer:
            sent = producer.send(Message("orders", b"one sparrow", keys="o-1"))
        assert admin.message(sent.msg_id, "orders").body == b"one sparrow"
        assert [each.body for each in admin.find_messages("orders", "o-1")] == [b"one sparrow"]
        assert admin.read_message(sent.queue, 0).msg_id == sent.msg_id
        assert admin.lag("billing", "orders").lag == 1
        (move,) = admin.reset_offsets("billing", "orders", "latest")
        assert (move.before, move.after) == (None, 1)
        assert admin.lag("billing", "orders").lag == 0
        (copy,) = admin.clone_offsets("billing", "audit")
        assert copy.after == 1
        assert admin.topic("orders").messages == 1
        assert admin.brokers()[0].name == "broker-a"
        assert admin.delete_group("billing") == ["broker-a"]
        with pytest.raises(NotFound):
            admin.group("billing")
        assert admin.delete_topic("orders") == ["broker-a"]
        assert "orders" not in admin.topics()


def test_threads_share_one(sparrowmq_cluster: Cluster) -> None:
    seen: list[list[str]] = []
    with Admin(sparrowmq_cluster.name_server, timeout_s=PATIENCE_S) as admin:
        threads = [threading.Thread(target=lambda: seen.append(admin.topics())) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(seen) == 4
    assert all("TBW102" in each for each in seen)


def test_it_is_used_inside_of_its_block() -> None:
    admin = Admin("127.0.0.1:1")
    with pytest.raises(NotStarted, match="the Admin is not running: use `with`, or start"):
        admin.topics()
    with pytest.raises(ValueError, match="which has no address"):
        Admin("")
