"""Key-value configuration: by namespace, durable, in a file that Apache's name server reads."""

import asyncio
import errno
import json
from pathlib import Path

import pytest

from sparrowmq.clock import system_clock
from sparrowmq.disk.atomic_file import AtomicFile
from sparrowmq.nameserver import ConfigError, NameServer, NameServerConfig
from sparrowmq.protocol.body import KVTable
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.headers.nameserver import (
    DeleteKvConfig,
    GetKvConfig,
    KvConfigFound,
    ListKvConfig,
    PutKvConfig,
)
from sparrowmq.testing.recording_disk import RecordingDisk
from tests.nameserver.world import Caller, world

PATH = "secret/kvConfig.json"


def get(caller: Caller, key: str) -> str:
    response = caller.ok(GetKvConfig(namespace="rooms", key=key))
    return response.header(KvConfigFound).value


def test_values_are_put_read_listed_and_deleted() -> None:
    with world() as w:
        w.client.ok(PutKvConfig(namespace="rooms", key="a", value="1"))
        w.client.ok(PutKvConfig(namespace="rooms", key="b", value="zwei ✓"))
        assert (get(w.client, "a"), get(w.client, "b")) == ("1", "zwei ✓")
        rooms = KVTable.from_json(w.client.ok(ListKvConfig(namespace="rooms")).body)
        assert rooms.table == {"a": "1", "b": "zwei ✓"}
        w.client.ok(DeleteKvConfig(namespace="rooms", key="a"))
        w.client.ok(DeleteKvConfig(namespace="rooms", key="a"))
        response = w.client.call(GetKvConfig(namespace="rooms", key="a"))
        assert response.code == ResponseCode.QUERY_NOT_FOUND
        assert "no key 'a'" in response.remark


def test_an_unknown_namespace_is_not_found() -> None:
    with world() as w:
        response = w.client.call(ListKvConfig(namespace="nowhere"))
        assert response.code == ResponseCode.QUERY_NOT_FOUND
        assert "'nowhere'" in response.remark


def test_values_survive_a_restart() -> None:
    with world(file=AtomicFile(RecordingDisk(), PATH)) as w:
        w.client.ok(PutKvConfig(namespace="rooms", key="a", value="1"))
        w.restart()
        assert get(w.client, "a") == "1"


def test_the_file_has_the_form_that_apache_reads() -> None:
    disk = RecordingDisk()
    with world(file=AtomicFile(disk, PATH)) as w:
        w.client.ok(PutKvConfig(namespace="rooms", key="a", value="1"))
    assert json.loads(disk.files()[PATH]) == {"configTable": {"rooms": {"a": "1"}}}


@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC])
def test_a_change_that_cannot_be_saved_is_refused_and_not_made(error: int) -> None:
    disk = RecordingDisk()
    with world(file=AtomicFile(disk, PATH)) as w:
        w.client.ok(PutKvConfig(namespace="rooms", key="a", value="1"))
        disk.fail("write", error)
        for header in (
            PutKvConfig(namespace="rooms", key="a", value="2"),
            DeleteKvConfig(namespace="rooms", key="a"),
        ):
            response = w.client.call(header)
            assert response.code == ResponseCode.SYSTEM_ERROR
            assert "was not made" in response.remark
            assert "secret" not in response.remark
        assert get(w.client, "a") == "1"


@pytest.mark.parametrize(
    ("header", "says"),
    [
        (PutKvConfig(namespace="", key="a", value="1"), "namespace ''"),
        (PutKvConfig(namespace="rooms", key="k" * 256, value="1"), "1 to 255"),
        (PutKvConfig(namespace="rooms", key="a\n", value="1"), "printable"),
        (PutKvConfig(namespace="rooms", key="a", value="x" * 65_537), "65537"),
    ],
)
def test_names_and_values_out_of_bounds_are_refused(header: PutKvConfig, says: str) -> None:
    with world() as w:
        response = w.client.call(header)
        assert response.code == ResponseCode.SYSTEM_ERROR
        assert says in response.remark
        assert w.server.kv.size_bytes == 0


def test_all_values_together_have_a_limit() -> None:
    with world() as w:
        put = [PutKvConfig(namespace="n", key=str(i), value="x" * 65_536) for i in range(64)]
        codes = [w.client.call(header).code for header in put]
        assert codes == [ResponseCode.SUCCESS] * 63 + [ResponseCode.SYSTEM_ERROR]


def test_a_configured_path_is_made_with_its_directory(tmp_path: Path) -> None:
    path = tmp_path / "made" / "kvConfig.json"
    kv = NameServer(NameServerConfig(listen_port=0, kv_config_path=path)).kv
    kv.put("rooms", "a", "1")
    assert json.loads(path.read_bytes()) == {"configTable": {"rooms": {"a": "1"}}}


@pytest.mark.parametrize("content", [b"", b"  \n"])
def test_an_empty_file_is_an_empty_configuration(content: bytes) -> None:
    disk = RecordingDisk()
    disk.poke(PATH, content)
    with world(file=AtomicFile(disk, PATH)) as w:
        assert w.server.kv.size_bytes == 0


def test_a_broken_file_stops_the_start_and_is_named(tmp_path: Path) -> None:
    path = tmp_path / "kvConfig.json"
    path.write_bytes(b'{"configTable":')
    config = NameServerConfig(listen_port=0, kv_config_path=path)

    async def start() -> None:
        async with NameServer(config, clock=system_clock).running():
            pass

    with pytest.raises(ConfigError, match=r"kvConfig\.json', must be a key-value configuration"):
        asyncio.run(start())
    assert path.read_bytes() == b'{"configTable":'
