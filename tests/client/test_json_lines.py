"""What a program's clients log, one JSON object per line."""

import io
import json
import logging
from collections.abc import Iterator

import pytest

from sparrowmq import Client, JsonLines
from sparrowmq.testing.sim_cluster import SimCluster
from tests.admin.operator import as_client
from tests.admin.test_dead_letters import died, order


@pytest.fixture
def logged() -> Iterator[io.StringIO]:
    """What clients log while the test runs."""
    written = io.StringIO()
    handler = logging.StreamHandler(written)
    handler.setFormatter(JsonLines())
    logger = logging.getLogger("sparrowmq.client")
    logger.addHandler(handler)
    yield written
    logger.removeHandler(handler)


def test_a_handler_that_fails_is_a_line_with_the_error(logged: io.StringIO) -> None:
    async def work(client: Client) -> None:
        await died(client, order(1))

    with SimCluster(seed=1).run() as sim:
        as_client(sim, work)
    lines = [json.loads(line) for line in logged.getvalue().splitlines()]
    (failed,) = [each for each in lines if "error" in each]
    assert (failed["level"], failed["logger"]) == ("error", "sparrowmq.client")
    assert failed["message"].startswith("handler of group billing failed for 1 message")
    assert failed["error"].endswith("ValueError: this order cannot be billed")
    assert all(each.keys() - {"error"} == {"time", "level", "logger", "message"} for each in lines)
