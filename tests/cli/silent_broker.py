"""Servers that do not answer: an absent one, a broker that hangs, one that refuses, and one
that answers all but some requests."""

import asyncio
import json
import socket
import socketserver
import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress

from sparrowmq.client.client import Client, core_of
from sparrowmq.client.config import ClientConfig
from sparrowmq.protocol.frame import FrameDecoder, encode_frame
from sparrowmq.protocol.headers.nameserver import RegisterBroker
from sparrowmq.protocol.registration import RegisterBrokerBody
from sparrowmq.protocol.topic_config import RegisteredTopics, TopicConfig
from tests.patience import PATIENCE_S


@contextmanager
def closed_port() -> Iterator[str]:
    """An address without a server; no other process can take it meanwhile."""
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{closed.getsockname()[1]}"


@contextmanager
def dead_broker(name_server: str, name: str, *topics: str) -> Iterator[str]:
    """The address of a broker that is registered and takes no connections."""
    with closed_port() as address, _registered(name_server, name, address, topics):
        yield address


@contextmanager
def silent_broker(name_server: str, name: str, *topics: str) -> Iterator[str]:
    """The address of a broker that takes connections and never answers. The registration lives as
    long as the connection that it came over."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        with _registered(name_server, name, address, topics):
            yield address


@contextmanager
def refusing_broker(name_server: str, name: str, remark: str, *topics: str) -> Iterator[str]:
    """The address of a broker that refuses every request, with this remark."""

    class Refusal(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            decoder = FrameDecoder()
            while data := self.request.recv(65536):
                for _, header, _ in decoder.feed(data):
                    opaque = json.loads(header)["opaque"]
                    answer = {"code": 1, "flag": 1, "opaque": opaque, "remark": remark}
                    self.request.sendall(encode_frame(json.dumps(answer).encode()))

    with _serving(Refusal) as address, _registered(name_server, name, address, topics):
        yield address


@contextmanager
def withholding_broker(
    name_server: str,
    name: str,
    *topics: str,
    behind: str,
    withheld: Collection[int],
    came: Callable[[], None],
) -> Iterator[str]:
    """The address of a broker that answers as the one behind it does, but keeps requests with these
    codes: `came` is called for them, and they are never answered."""
    host, _, port = behind.rpartition(":")

    class Between(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            decoder = FrameDecoder()
            with socket.create_connection((host, int(port))) as upstream:
                back = threading.Thread(target=self._give_back, args=(upstream,))
                back.start()
                while data := self.request.recv(65536):
                    codes = [json.loads(header)["code"] for _, header, _ in decoder.feed(data)]
                    if any(code in withheld for code in codes):
                        came()
                    else:
                        upstream.sendall(data)
                upstream.shutdown(socket.SHUT_RDWR)
                back.join(PATIENCE_S)

        def _give_back(self, upstream: socket.socket) -> None:
            with suppress(OSError):  # the command has ended
                while data := upstream.recv(65536):
                    self.request.sendall(data)

    with _serving(Between) as address, _registered(name_server, name, address, topics):
        yield address


@contextmanager
def _serving(handler: type[socketserver.BaseRequestHandler]) -> Iterator[str]:
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join(PATIENCE_S)


@contextmanager
def _registered(
    name_server: str, name: str, address: str, topics: tuple[str, ...]
) -> Iterator[None]:
    held = _Held(name_server, name, address, topics)
    thread = threading.Thread(target=held.run)
    thread.start()
    try:
        assert held.is_registered.wait(PATIENCE_S)
        yield
    finally:
        held.end()
        thread.join(PATIENCE_S)


class _Held:
    """A registration, in its own event loop."""

    def __init__(self, name_server: str, name: str, address: str, topics: tuple[str, ...]) -> None:
        self.is_registered = threading.Event()
        self._name_server = name_server
        self._header = RegisterBroker(
            cluster_name="DefaultCluster",
            broker_name=name,
            broker_id=0,
            broker_addr=address,
            ha_server_addr="",
        )
        # A single topic would count as news of a broker that is known already
        table = {topic: TopicConfig(topic_name=topic) for topic in (name, "TBW102", *topics)}
        body = RegisterBrokerBody(topics=RegisteredTopics(topic_config_table=table))
        self._body = body.encode(compressed=False)
        self._loop = asyncio.new_event_loop()
        self._ended = asyncio.Event()

    def run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._hold())

    async def _hold(self) -> None:
        config = ClientConfig(name_servers=(self._name_server,))
        async with Client(config) as client:
            peers = core_of(client).peers
            answer = await peers.call(
                self._name_server, self._header, self._body, timeout_s=PATIENCE_S
            )
            assert answer.code == 0, answer.remark
            self.is_registered.set()
            await self._ended.wait()

    def end(self) -> None:
        self._loop.call_soon_threadsafe(self._ended.set)
