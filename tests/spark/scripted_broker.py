"""A server of one address that is name server and broker at once and answers what tests tell it."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Self

from sparrowmq.protocol.codes import RequestCode, ResponseCode
from sparrowmq.protocol.frame import FrameDecoder, encode_frame

HANG_UP = object()
"""Returned by a script: close the connection instead of answering."""
SILENCE = object()
"""Returned by a script: do not answer at all."""


@dataclass(frozen=True)
class Said:
    """An answer."""

    code: int = ResponseCode.SUCCESS
    fields: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    remark: str = ""
    before: bytes = b""
    """Sent in front of the answer."""


Script = Callable[[dict[str, str]], object]


class ScriptedBroker:
    """Serves in threads until the `with` block ends. `asked` lists the codes of all requests."""

    def __init__(self, topic: str = "orders", queues: int = 1) -> None:
        self.asked: list[int] = []
        self.scripts: dict[int, Script] = {
            RequestCode.GET_ROUTEINFO_BY_TOPIC: lambda _: Said(body=self._route(topic, queues))
        }
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._connections: list[socket.socket] = []
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"

    def on(self, code: RequestCode, script: Script) -> None:
        """What to answer to a request; the script gets its fields."""
        self.scripts[code] = script

    def count(self, code: RequestCode) -> int:
        """How often this was asked for."""
        return self.asked.count(code)

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        # shutdown wakes the accepting thread up; close alone does not
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for connection in self._connections:
            connection.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self._connections.append(connection)
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        decoder = FrameDecoder()
        try:
            while data := connection.recv(65_536):
                for _, header, _ in decoder.feed(data):
                    if not self._answer(connection, json.loads(header)):
                        connection.shutdown(socket.SHUT_RDWR)
                        connection.close()
                        return
        except OSError:
            return

    def _answer(self, connection: socket.socket, header: dict[str, Any]) -> bool:
        self.asked.append(header["code"])
        said = self.scripts[header["code"]](header["extFields"])
        if said is HANG_UP:
            return False
        if isinstance(said, bytes):
            connection.sendall(said)
        if isinstance(said, Said):
            answer = {
                "code": said.code,
                "extFields": said.fields,
                "flag": 1,
                "opaque": header["opaque"],
                "remark": said.remark,
            }
            connection.sendall(said.before + encode_frame(json.dumps(answer).encode(), said.body))
        return True

    def _route(self, topic: str, queues: int) -> bytes:
        # As Java's fastjson writes it: bare numbers as keys are not JSON.
        return (
            f'{{"brokerDatas":[{{"brokerAddrs":{{1:"10.0.0.9:1",0:"{self.address}"}},'
            f'"brokerName":"broker-a","cluster":"c"}}],"filterServerTable":{{}},'
            f'"queueDatas":[{{"brokerName":"broker-a","perm":6,"readQueueNums":{queues},'
            f'"writeQueueNums":{queues},"topicSysFlag":0}}]}}'
        ).encode()
