"""A member of a group in a process of its own, whose handler does not return."""

import sys
import threading
from collections.abc import Sequence

from sparrowmq import MessageExt
from sparrowmq.blocking import PushConsumer


def charge_the_card(messages: Sequence[MessageExt]) -> None:
    """Waits for a bank that does not answer."""
    print("came", flush=True)
    threading.Event().wait()


def main(name_server: str, group: str, topic: str) -> None:
    """Runs until it is killed."""
    consumer = PushConsumer(
        group, {topic: "*"}, name_servers=name_server, from_where="FIRST_OFFSET"
    )
    with consumer:
        consumer.start(charge_the_card)
        threading.Event().wait()


if __name__ == "__main__":
    main(*sys.argv[1:])
