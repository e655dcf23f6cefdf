"""A port that stays ours between two servers."""

import socket

import pytest

from sparrowmq.testing import cluster
from sparrowmq.testing.held_port import LOOPBACK, HeldPort


def listen_at(port: int) -> socket.socket:
    """As servers do: they allow the address to be bound again."""
    server = socket.socket()
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    server.bind((LOOPBACK, port))
    server.listen()
    return server


def test_servers_come_and_go_on_a_held_port() -> None:
    with HeldPort() as held:
        for _ in range(2):
            with listen_at(held.port), socket.create_connection((LOOPBACK, held.port)):
                pass
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((LOOPBACK, held.port))


def test_a_held_port_and_its_neighbours_are_given_to_no_other_process() -> None:
    with HeldPort(beside=(-2, 1)) as held:
        for port in (held.port - 2, held.port, held.port + 1):
            with socket.socket() as other, pytest.raises(OSError, match="in use"):
                other.bind((LOOPBACK, port))
    with socket.socket() as other:
        other.bind((LOOPBACK, held.port))


def test_a_stopped_broker_of_a_cluster_keeps_its_port() -> None:
    with cluster() as running:
        address = running.broker_addresses["broker-a"]
        running.stop_broker("broker-a")
        with socket.socket() as other, pytest.raises(OSError, match="in use"):
            other.bind((LOOPBACK, int(address.rpartition(":")[2])))
        running.start_broker("broker-a")
        assert running.broker_addresses["broker-a"] == address
