"""Scenes with misconfigured or failing name servers, brokers and topics."""

import asyncio
from dataclasses import replace

import pytest

from sparrowmq import Examination, Message, Producer
from sparrowmq.broker.broker import Broker
from sparrowmq.broker.config import Flush
from sparrowmq.broker.runtime_config import config_lines
from sparrowmq.broker.runtime_info import runtime_info
from sparrowmq.client.client import core_of
from sparrowmq.protocol.headers.drain import BeginDrain
from sparrowmq.protocol.headers.nameserver import RegisterBroker, UnregisterBroker, WipeWritePerm
from sparrowmq.testing.sim_cluster import SMALL_STORE
from tests.admin.doctor.provocations import Provocations, Scene, succeed, wait_for_ever

SCENES = Provocations()
provokes = SCENES.provokes


# ---- cluster


@provokes("nameserver-silent", name_servers=2)
async def one_name_server_is_away(scene: Scene) -> Examination:
    scene.sim.host("name-server-2").power_off()
    return await scene.doctor("cluster")


def unregister(scene: Scene) -> UnregisterBroker:
    return UnregisterBroker(
        cluster_name="DefaultCluster",
        broker_name="broker-a",
        broker_id=0,
        broker_addr=scene.broker_address,
    )


@provokes("nameservers-differ", name_servers=2)
async def one_name_server_lacks_a_broker(scene: Scene) -> Examination:
    await scene.call(scene.sim.name_servers["name-server-2"].address, unregister(scene))
    return await scene.doctor("cluster")


@provokes("broker-silent", brokers=2)
async def one_broker_hangs(scene: Scene) -> Examination:
    scene.sim.host("broker-b").pause()
    return await scene.doctor("cluster")


@provokes("broker-busy", flush=Flush.SYNC, flush_timeout_s=5.0)
async def a_disk_is_slow(scene: Scene) -> Examination:
    await scene.topic()
    scene.sim.brokers["broker-a"].sync_s = 60.0
    async with Producer("shop", client=scene.client, retries=0) as producer:
        sent = asyncio.ensure_future(producer.send(Message("orders", b"x"), timeout_s=30.0))
        await asyncio.sleep(4)
        examined = await scene.doctor("cluster")
        await sent
    return examined


@provokes("disk-nearly-full")
async def a_disk_is_nearly_full(scene: Scene) -> Examination:
    disk = scene.sim.brokers["broker-a"].disk
    disk.capacity_bytes = 64 * 1024 * 1024
    await scene.topic()
    await scene.send(20)
    used = disk.usage().total_bytes - disk.usage().free_bytes
    disk.capacity_bytes = round(used / 0.87)
    return await scene.doctor("cluster")


@provokes("clock-skew")
async def the_clocks_differ_by_a_minute(scene: Scene) -> Examination:
    core_of(scene.client).clock = lambda: scene.sim.clock() + 60_000
    return await scene.doctor("cluster")


@provokes("two-brokers-one-name", name_servers=2)
async def name_servers_have_different_brokers_of_one_name(scene: Scene) -> Examination:
    second = scene.sim.name_servers["name-server-2"].address
    await scene.call(second, unregister(scene))
    header = RegisterBroker(
        cluster_name="DefaultCluster",
        broker_name="broker-a",
        broker_id=0,
        broker_addr="10.9.9.9:10911",
        ha_server_addr="10.9.9.9:10912",
    )
    await scene.call(second, header)
    return await scene.doctor("cluster")


@provokes("no-master", slaves=1)
async def a_master_is_gone(scene: Scene) -> Examination:
    await asyncio.sleep(10)
    await scene.call(scene.sim.name_server_addresses[0], unregister(scene))
    return await scene.doctor("cluster")


@provokes("slave-behind", slaves=1)
async def a_slave_is_away(scene: Scene) -> Examination:
    await scene.topic()
    await asyncio.sleep(10)
    scene.sim.host("broker-a.1").power_off()
    await scene.send(3)
    await asyncio.sleep(60)
    return await scene.doctor("cluster")


@provokes("permission-wiped")
async def a_broker_is_hidden_from_producers(scene: Scene) -> Examination:
    header = WipeWritePerm(broker_name="broker-a")
    await scene.call(scene.sim.name_server_addresses[0], header)
    return await scene.doctor("cluster")


ANSWERS = "sparrowmq.broker.handlers.broker_admin"


@provokes("broker-drains", brokers=2)
async def a_broker_is_emptied(scene: Scene) -> Examination:
    await scene.call(scene.sim.brokers["broker-a"].address, BeginDrain())
    return await scene.doctor("cluster")


@provokes("version-mixed", brokers=2)
async def one_broker_says_that_it_is_older(scene: Scene) -> Examination:
    def answered(broker: Broker) -> dict[str, str]:
        table = runtime_info(broker)
        is_old = broker.config.broker_name == "broker-b"
        return {**table, "brokerVersionDesc": "V4_9_8"} if is_old else table

    with pytest.MonkeyPatch.context() as patch:  # SparrowMQ's brokers have one version
        patch.setattr(f"{ANSWERS}.runtime_info", answered)
        return await scene.doctor("cluster")


@provokes("protective-setting-ignored")
async def a_broker_is_set_to_wait_for_slaves_and_does_not(scene: Scene) -> Examination:
    def answered(broker: Broker) -> str:
        return f"{config_lines(broker)}\ninSyncReplicas=2\nbrokerRole=ASYNC_MASTER\n"

    with pytest.MonkeyPatch.context() as patch:  # SparrowMQ's brokers refuse the setting
        patch.setattr(f"{ANSWERS}.config_lines", answered)
        return await scene.doctor("cluster")


# ---- topic


@provokes("no-route")
async def a_topic_does_not_exist(scene: Scene) -> Examination:
    return await scene.doctor("topic", "ordres")


@provokes("not-writable")
async def a_topic_cannot_be_written(scene: Scene) -> Examination:
    await scene.topic()
    await scene.admin.update_topic("orders", perm=4)
    return await scene.doctor("topic", "orders")


@provokes("not-readable")
async def a_topic_cannot_be_read(scene: Scene) -> Examination:
    await scene.topic()
    await scene.admin.update_topic("orders", perm=2)
    return await scene.doctor("topic", "orders")


@provokes("nobody-consumes")
async def no_group_reads_a_topic(scene: Scene) -> Examination:
    await scene.topic(messages=3)
    return await scene.doctor("topic", "orders")


@provokes("queues-uneven")
async def one_queue_gets_everything(scene: Scene) -> Examination:
    await scene.topic(queues=4, messages=120)
    return await scene.doctor("topic", "orders")


@provokes("queues-differ-by-broker", brokers=2)
async def brokers_have_different_queues(scene: Scene) -> Examination:
    await scene.topic(queues=2)
    await scene.admin.update_topic("orders", queues=4, brokers=["broker-b"])
    return await scene.doctor("topic", "orders")


@provokes("old-route-in-client")
async def a_member_has_not_heard_of_fewer_queues(scene: Scene) -> Examination:
    await scene.topic(queues=4)
    async with scene.member(succeed):
        await asyncio.sleep(1)
        await scene.admin.update_topic("orders", queues=2)
        return await scene.doctor("topic", "orders")


@provokes("retention-overtakes-lag", store=replace(SMALL_STORE, retention_ms=3_600_000))
async def a_group_is_slower_than_retention(scene: Scene) -> Examination:
    await scene.topic(messages=1)
    async with scene.member(succeed):
        await asyncio.sleep(1)
    await scene.send(3)
    scene.sim.broker.clock = lambda: scene.sim.clock() + 50 * 60_000
    return await scene.doctor("topic", "orders")


@provokes("dedup-window-cut")
async def more_messages_come_than_a_window_holds(scene: Scene) -> Examination:
    await scene.topic(attributes={"sparrowmq.dedup": "10m/2"})
    await scene.send(5)
    return await scene.doctor("topic", "orders")


@provokes("auto-created", brokers=2)
async def the_first_message_creates_a_topic(scene: Scene) -> Examination:
    async with Producer("shop", client=scene.client) as producer:
        await producer.send(Message("orders", b"first"))
    await asyncio.sleep(1)
    return await scene.doctor("topic", "orders")


@provokes("quota-reached")
async def more_is_sent_than_the_quota_allows(scene: Scene) -> Examination:
    await scene.topic()
    await scene.admin.set_quota("topic", "orders", messages=1)
    await scene.send(2)
    return await scene.doctor("topic", "orders")


@provokes("backlog-uncounted")
async def a_group_of_a_backlog_limit_is_away(scene: Scene) -> Examination:
    await scene.topic(messages=1)
    async with scene.member(succeed):
        await scene.admin.set_backlog("orders", ["billing"], messages=1)
        await scene.send(1)
        await asyncio.sleep(2.5)  # the limit has seen it
    await asyncio.sleep(601)
    return await scene.doctor("topic", "orders")


@provokes("backlog-refused")
async def a_group_is_further_behind_than_it_may(scene: Scene) -> Examination:
    await scene.topic(messages=1)
    async with scene.member(succeed):
        await asyncio.sleep(8)  # it has progress now
    async with scene.member(wait_for_ever):
        await scene.admin.set_backlog("orders", ["billing"], messages=1)
        await scene.send(1)
        await asyncio.sleep(2.5)
        return await scene.doctor("topic", "orders")
