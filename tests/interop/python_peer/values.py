"""Between the driver's JSON and the client's values."""

import hashlib
import random
from typing import Any

from sparrowmq.client.client import Client
from sparrowmq.client.config import ClientConfig
from sparrowmq.client.send_result import SendResult
from sparrowmq.clock import system_clock
from sparrowmq.protocol.message import Message, MessageQueue
from sparrowmq.protocol.message_ext import MessageExt

Command = dict[str, Any]
Plain = dict[str, Any]
_LONGEST_SHOWN_BODY = 256

_PATIENCE_S = 15.0
"""As the other drivers have it: the machine is shared by many."""


def client_of(command: Command) -> Client:
    """A client with the name that the scenario gave."""
    servers = (str(command["name_server"]),)
    return Client(
        ClientConfig(
            name_servers=servers,
            instance_name=str(command["name"]),
            name_server_timeout_s=_PATIENCE_S,
            call_timeout_s=_PATIENCE_S,
            connect_timeout_s=_PATIENCE_S,
        )
    )


def queue_of(command: Command) -> MessageQueue:
    """The queue a command is about."""
    broker = str(command.get("broker", "broker-a"))
    return MessageQueue(str(command["topic"]), broker, int(command.get("queue_id", 0)))


def messages_of(command: Command) -> list[Message]:
    """What a command asks to send."""
    return [message_of(str(command["topic"]), one) for one in command["messages"]]


def message_of(topic: str, given: Plain) -> Message:
    """`fill` makes a body that many bytes long, `noise` makes one that cannot be compressed."""
    body = str(given.get("body", "")).encode()
    if size := int(given.get("fill", 0)):
        body = (body * (size // len(body) + 1))[:size]
    if size := int(given.get("noise", 0)):
        body = random.Random(7).randbytes(size)
    system = {name: int(value) for name, value in given.get("system_properties", {}).items()}
    delay_ms = system.get("TIMER_DELAY_MS")
    if "TIMER_DELAY_SEC" in system:
        delay_ms = system["TIMER_DELAY_SEC"] * 1000
    return Message(
        topic,
        body,
        tags=given.get("tags"),
        keys=given.get("keys") or (),
        flag=int(given.get("flag", 0)),
        properties=given.get("properties", {}),
        delay_level=int(given.get("delay_level", 0)),
        delay_ms=delay_ms,
        deliver_time_ms=system.get("TIMER_DELIVER_MS"),
        sharding_key=given.get("sharding_key"),
    )


def sent(result: SendResult) -> Plain:
    """What a send came to."""
    return {
        "status": str(result.status),
        "queue_id": result.queue.queue_id,
        "broker": result.queue.broker_name,
        "queue_offset": result.queue_offset,
        "unique_id": result.msg_id,
        "offset_id": result.offset_msg_id,
        "transaction_id": result.transaction_id,
    }


def received(message: MessageExt) -> Plain:
    """What a consumer got."""
    return {
        "topic": message.topic,
        "body": shown(message.body),
        "queue_id": message.queue_id,
        "queue_offset": message.queue_offset,
        "flag": message.record.flag,
        "sys_flag": message.record.sys_flag,
        "reconsume_times": message.reconsume_times,
        "unique_id": message.msg_id,
        "born_at": message.record.born_timestamp,
        "stored_at": message.record.store_timestamp,
        "at": system_clock(),
        "properties": dict(message.properties),
    }


def shown(body: bytes) -> str:
    """Long bodies travel as their length and digest."""
    if len(body) <= _LONGEST_SHOWN_BODY:
        return body.decode()
    return f"{len(body)} bytes {hashlib.sha256(body).digest()[:8].hex()}"


def described(error: BaseException) -> Plain:
    """An exception as the other drivers tell theirs."""
    told: Plain = {"class": type(error).__name__, "text": str(error)}
    code = getattr(error, "code", None)
    if isinstance(code, int):
        told["code"] = code
    if error.__cause__ is not None:
        told["cause"] = described(error.__cause__)
    return told
