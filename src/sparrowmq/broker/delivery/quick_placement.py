r"""Placement of what nearly all special messages ask for, by a look at their raw properties.

```
place_quickly ─┬ one delivery time    \x02 TIMER_DELIVER_MS \x01 1794741940696 \x02
               ├ one delay level      \x02 DELAY \x01 3 \x02
               ├ a half message       \x02 TRAN_MSG \x01 true \x02, and PGROUP
               └ None: anything else  two of these, one that lay aside before, no number, over
```

`place` takes all properties apart, which is half of what a special send costs. Both do the same to
a message; what is unusual is left to `place`.
"""

import re

from sparrowmq.broker.broker import Broker
from sparrowmq.broker.delivery.placement import Placement
from sparrowmq.broker.delivery.timer_times import slot_ms
from sparrowmq.protocol.names import SCHEDULE_TOPIC, TIMER_TOPIC, TRANS_HALF_TOPIC
from sparrowmq.protocol.sys_flag import TRANSACTION_NONE, with_transaction_type
from sparrowmq.store.messages import PutMessage

_TIME = re.compile("\x02TIMER_(DELIVER_MS|DELAY_MS|DELAY_SEC)\x01([0-9]{1,15})\x02")
_LEVEL = re.compile("\x02DELAY\x01([1-9][0-9]?)\x02")


def place_quickly(broker: Broker, put: PutMessage, text: str, now_ms: int) -> Placement | None:
    """`place` of a message that is no retry; None, and nothing done, where that has to decide.

    `text` are its properties, ended by their separator.
    """
    if "REAL_" in text:  # it has lain aside before
        return None
    text = f"\x02{text}"
    if "TIMER_" in text:
        return _timed(broker, put, text, now_ms)
    if "TRAN_MSG" in text:
        return _half(broker, put, text, now_ms)
    return _delayed(broker, put, text, now_ms)


def _timed(broker: Broker, put: PutMessage, text: str, now_ms: int) -> Placement | None:
    found = _TIME.search(text)
    # A second one may be another time, a recall, or left from an earlier timer.
    if found is None or text.count("TIMER_") != 1 or "\x02DELAY\x01" in text or "TRAN_MSG" in text:
        return None
    wish, value = found.groups()
    due_ms = int(value)
    if wish != "DELIVER_MS":
        due_ms = now_ms + due_ms * (1000 if wish == "DELAY_SEC" else 1)
    if not now_ms < due_ms <= now_ms + broker.config.max_timer_delay_s * 1000:
        return None
    out_ms = slot_ms(due_ms)
    _put_aside(put, TIMER_TOPIC, 0, f"TIMER_OUT_MS\x01{out_ms}\x02")
    return Placement(put, due_ms, False, out_ms + 1)


def _delayed(broker: Broker, put: PutMessage, text: str, now_ms: int) -> Placement | None:
    found = _LEVEL.search(text)
    if found is None or text.count("DELAY") != 1:
        return None
    level, levels_ms = int(found[1]), broker.config.store.delay_levels_ms
    if level > len(levels_ms):
        return None
    put.tags_code = due_ms = now_ms + levels_ms[level - 1]
    _put_aside(put, SCHEDULE_TOPIC, level - 1, "")
    return Placement(put, due_ms)


def _half(broker: Broker, put: PutMessage, text: str, now_ms: int) -> Placement | None:
    if (
        "\x02TRAN_MSG\x01true\x02" not in text
        or text.count("TRAN") != 1
        or "__transactionId__" in text
        or "CHECK_IMMUNITY" in text
        or "DELAY" in text
        or "\x02PGROUP\x01" not in text
        or "\x02PGROUP\x01\x02" in text
    ):
        return None
    put.sys_flag = with_transaction_type(put.sys_flag, TRANSACTION_NONE)
    _put_aside(put, TRANS_HALF_TOPIC, 0, f"__transactionId__\x01{put.uniq_key}\x02")
    return Placement(put, now_ms + int(broker.config.transaction_timeout_s * 1000))


def _put_aside(put: PutMessage, topic: str, queue_id: int, values: str) -> None:
    text = f"{values}REAL_TOPIC\x01{put.topic}\x02REAL_QID\x01{put.queue_id}\x02"
    put.properties += text.encode()
    put.topic, put.queue_id = topic, queue_id
