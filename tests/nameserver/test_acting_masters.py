"""A slave that acts as its master: only if that is supported, and read-only."""

from sparrowmq.protocol.headers.nameserver import AddWritePerm
from tests.nameserver.world import world


def test_a_master_that_is_gone_is_replaced_in_routes_only_where_that_is_supported() -> None:
    for supported, shown in ((True, 0), (False, 1)):
        with world(support_acting_master=supported) as w:
            master, slave = w.broker(broker_id=0), w.broker(broker_id=1)
            master.register(["orders"], enable_acting_master=True)
            slave.register(["orders"], enable_acting_master=True)
            master.disconnect()
            route = w.client.route("orders")
            assert route.queue_datas[0].perm == 4
            assert route.broker_datas[0].broker_addrs == {shown: slave.address}
            assert route.broker_datas[0].enable_acting_master
            master.register(["orders"], enable_acting_master=True)
            assert w.client.route("orders").queue_datas[0].perm == 6


def test_a_slave_that_acts_as_master_from_the_start_is_read_only() -> None:
    with world(support_acting_master=True) as w:
        slave = w.broker(broker_id=2)
        slave.register(["orders"], enable_acting_master=True)
        route = w.client.route("orders")
        assert route.queue_datas[0].perm == 4
        assert route.broker_datas[0].broker_addrs == {0: slave.address}


def test_no_slave_acts_as_master_if_an_operator_allowed_writing() -> None:
    with world(support_acting_master=True) as w:
        slave = w.broker(broker_id=2)
        slave.register(["orders"], enable_acting_master=True)
        w.client.ok(AddWritePerm(broker_name="broker-a"))
        assert w.client.route("orders").broker_datas[0].broker_addrs == {2: slave.address}


def test_of_several_slaves_the_one_with_the_smallest_id_acts_as_master() -> None:
    with world(support_acting_master=True) as w:
        master, first, second = (w.broker(broker_id=number) for number in (0, 2, 5))
        for broker in (second, first, master):
            broker.register(["orders"], enable_acting_master=True)
        master.disconnect()
        (group,) = w.client.route("orders").broker_datas
        assert group.broker_addrs == {0: first.address, 5: second.address}
