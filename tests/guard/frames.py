"""Requests as the Java client 5.5 writes them, byte for byte except for variable fields."""

from sparrowmq.protocol.batch import encode_batch
from sparrowmq.protocol.frame import encode_frame

TOPIC = "BenchSend"
PRODUCER_GROUP = "GP_1uhoeaj0x"
BATCHED = 32
_TAIL = b'},"flag":0,"language":"JAVA","opaque":%d,"serializeTypeCurrentRPC":"JSON","version":513}'
UNIQUE_ID = b"FD00000000000000000000000000000252DB5FFD2B274A8C%08X"
_PROPERTIES = b"UNIQ_KEY\x01" + UNIQUE_ID + b"\x02WAIT\x01true\x02"
_BODY = b"x" * 128


def send(number: int, queue_id: int = 0) -> bytes:
    """A plain message (310)."""
    return encode_frame(_send_header(310, number, queue_id, b"false"), _BODY)


def tagged_send(number: int, queue_id: int = 0) -> bytes:
    """A message with a tag and a key, as most programs send them."""
    more = b"KEYS\x01o-%d\x02TAGS\x01created\x02" % number
    return encode_frame(_send_header(310, number, queue_id, b"false", more), _BODY)


def batch(number: int, queue_id: int = 0) -> bytes:
    """32 messages in one request (320)."""
    messages = [(0, _BODY, _PROPERTIES % (number * BATCHED + one)) for one in range(BATCHED)]
    return encode_frame(_send_header(320, number, queue_id, b"true"), encode_batch(messages))


def pull(number: int, offset: int, queue_id: int = 0) -> bytes:
    """What a push consumer asks (11): 32 messages, or a wait of 15 s."""
    head = (
        b'{"code":11,"extFields":{"queueId":"%d","maxMsgBytes":"262144","maxMsgNums":"32",'
        b'"sysFlag":"3","suspendTimeoutMillis":"15000","commitOffset":"%d","bname":"broker-a",'
        b'"topic":"%b","queueOffset":"%d","expressionType":"TAG","subVersion":"1",'
        b'"consumerGroup":"billing"'
    )
    return encode_frame(head % (queue_id, offset, TOPIC.encode(), offset) + _TAIL % number)


def heartbeat(number: int) -> bytes:
    """Makes the connection a member of the group that pulls (34)."""
    body = (
        b'{"clientID":"127.0.0.1@1#1","consumerDataSet":[{"consumeFromWhere":'
        b'"CONSUME_FROM_FIRST_OFFSET","consumeType":"CONSUME_PASSIVELY","groupName":"billing",'
        b'"messageModel":"CLUSTERING","subscriptionDataSet":[{"classFilterMode":false,'
        b'"codeSet":[],"expressionType":"TAG","subString":"*","subVersion":1,"tagsSet":[],'
        b'"topic":"%b"}],"unitMode":false}],"heartbeatFingerprint":0,"producerDataSet":[],'
        b'"withoutSub":false}'
    )
    return encode_frame(b'{"code":34,"extFields":{' + _TAIL % number, body % TOPIC.encode())


def producer_heartbeat(number: int) -> bytes:
    """Names the client of the connection, a producer (34)."""
    body = (
        b'{"clientID":"127.0.0.1@1#1","consumerDataSet":[],"heartbeatFingerprint":0,'
        b'"producerDataSet":[{"groupName":"%b"}],"withoutSub":false}'
    )
    head = b'{"code":34,"extFields":{' + _TAIL % number
    return encode_frame(head, body % PRODUCER_GROUP.encode())


def _send_header(
    code: int, number: int, queue_id: int, is_batch: bytes, more: bytes = b""
) -> bytes:
    # In JSON the separators of properties are escaped.
    properties = more + _PROPERTIES % number
    properties = properties.replace(b"\x01", b"\\u0001").replace(b"\x02", b"\\u0002")
    head = (
        b'{"code":%d,"extFields":{"a":"%b","b":"%b","c":"TBW102","d":"8","e":"%d",'
        b'"f":"0","g":"1794741940696","h":"0","i":"%b","j":"0","k":"false","m":"%b","n":"broker-a"'
    )
    group, topic = PRODUCER_GROUP.encode(), TOPIC.encode()
    return head % (code, group, topic, queue_id, properties, is_batch) + _TAIL % number
