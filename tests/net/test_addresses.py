"""Addresses as host:port, and invalid ones."""

import pytest

from sparrowmq.net.errors import ConnectionLost
from sparrowmq.net.peers import Peers, split_address
from tests.net.calling import SERVER, calling, failure
from tests.net.world import Echo, world


@pytest.mark.parametrize(
    ("address", "parts"),
    [
        ("127.0.0.1:9876", ("127.0.0.1", 9876)),
        ("broker.example:10911", ("broker.example", 10911)),
        ("[::1]:9876", ("::1", 9876)),
        ("host:65535", ("host", 65535)),
    ],
)
def test_addresses_are_split(address: str, parts: tuple[str, int]) -> None:
    assert split_address(address) == parts


@pytest.mark.parametrize("address", ["", "host", ":1", "host:", "host:x", "host:-1"])
def test_an_invalid_address_is_refused(address: str) -> None:
    with pytest.raises(ValueError, match="not host:port"):
        split_address(address)


def test_a_port_that_is_too_large_is_refused_with_what_is_allowed() -> None:
    with pytest.raises(ValueError, match="has port 65536, must be 1 to 65535"):
        split_address("host:65536")


def test_an_invalid_address_fails_only_its_own_call() -> None:
    async def work(peers: Peers) -> None:
        error = await failure(peers.call("nowhere", Echo(text="x"), timeout_s=1))
        assert isinstance(error, ConnectionLost)
        assert "'nowhere' is not host:port" in str(error)
        assert (await peers.call(SERVER, Echo(text="x"), timeout_s=1)).code == 0

    with world() as w:
        calling(w, work)
