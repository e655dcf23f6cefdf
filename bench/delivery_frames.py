"""Requests of delayed messages and of transactions, as the Java client 5.5 writes them."""

from sparrowmq.protocol.frame import encode_frame
from tests.guard import frames

_GROUP = b"GP_1uhoeaj0x"
_TAIL = b'},"flag":0,"language":"JAVA","opaque":%d,"serializeTypeCurrentRPC":"JSON","version":513}'
_BODY = b"x" * 128


def timed_send(number: int, deliver_ms: int, queue_id: int = 0) -> bytes:
    """A message that asks for a delivery time."""
    return _send(number, queue_id, b"TIMER_DELIVER_MS\x01%d\x02" % deliver_ms)


def delayed_send(number: int, level: int, queue_id: int = 0) -> bytes:
    """A message of a delay level."""
    return _send(number, queue_id, b"DELAY\x01%d\x02" % level)


def half_send(number: int, queue_id: int = 0) -> bytes:
    """A half message (sysFlag 4: prepared)."""
    return _send(number, queue_id, b"TRAN_MSG\x01true\x02PGROUP\x01%b\x02" % _GROUP, sys_flag=4)


def commit(number: int, queue_offset: int, log_offset: int) -> bytes:
    """The end of a transaction (37)."""
    unique_id = frames.UNIQUE_ID % number
    head = (
        b'{"code":37,"extFields":{"bname":"broker-a","commitLogOffset":"%d",'
        b'"commitOrRollback":"8","fromTransactionCheck":"false","msgId":"%b",'
        b'"producerGroup":"%b","topic":"%b","tranStateTableOffset":"%d","transactionId":"%b"'
    )
    topic = frames.TOPIC.encode()
    named = head % (log_offset, unique_id, _GROUP, topic, queue_offset, unique_id)
    return encode_frame(named + _TAIL % number)


def _send(number: int, queue_id: int, more: bytes, sys_flag: int = 0) -> bytes:
    properties = more + b"UNIQ_KEY\x01" + frames.UNIQUE_ID % number + b"\x02WAIT\x01true\x02"
    # In JSON the separators of properties are escaped.
    properties = properties.replace(b"\x01", b"\\u0001").replace(b"\x02", b"\\u0002")
    head = (
        b'{"code":310,"extFields":{"a":"%b","b":"%b","c":"TBW102","d":"8","e":"%d","f":"%d",'
        b'"g":"1794741940696","h":"0","i":"%b","j":"0","k":"false","m":"false","n":"broker-a"'
    )
    named = head % (_GROUP, frames.TOPIC.encode(), queue_id, sys_flag, properties)
    return encode_frame(named + _TAIL % number, _BODY)
