"""`python -m tests.faults.send_from HOST PORT PRODUCER COUNT`: send messages from the host it runs
on, which the test itself may not reach, and print the code of each answer."""

import sys

from tests.faults.checker import MessageId, body_of, properties_of
from tests.faults.kills import TOPIC
from tests.faults.raw_wire import SEND_MESSAGE_V2, RawClient, send_fields


def main(host: str, port: int, producer: str, count: int) -> None:
    """One message after the other."""
    with RawClient(port, host=host) as client:
        for number in range(count):
            message = MessageId(producer, number)
            fields = send_fields(TOPIC, 0, properties_of(message))
            head, _ = client.call(SEND_MESSAGE_V2, fields, body_of(message))
            print(head.code, flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3], int(sys.argv[4]))
