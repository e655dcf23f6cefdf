"""The client id: who a process is for brokers and for the other members of its groups."""

import itertools
import random

from sparrowmq.client.config import ClientConfig

_numbers = itertools.count()


def make_client_id(
    config: ClientConfig, *, ip: str, pid: int, now_ms: int, rng: random.Random
) -> str:
    """`ip@instance`, with `@unit` where there is one; each is another unless the instance is named.

    `pid#number` is what Java's changeInstanceNameToPID makes. The random part tells containers
    apart that share an address, a pid and a start time.
    """
    own = f"{now_ms}{next(_numbers)}{rng.getrandbits(32)}"
    name = config.instance_name or f"{pid}#{own}"
    unit = f"@{config.unit_name}" if config.unit_name else ""
    return f"{ip}@{name}{unit}"
