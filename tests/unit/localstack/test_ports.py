from __future__ import annotations

import itertools
import socket

from scheduler_project.localstack.ports import FIRST_PORT, GRPC_PORT_OFFSET, LAST_PORT, is_free, iter_free_ports


def test_port_is_taken_while_a_socket_listens() -> None:
    port = next(iter_free_ports())

    assert is_free(port)
    with socket.create_server(("127.0.0.1", port)):
        assert not is_free(port)
    assert is_free(port)


def test_wildcard_listener_takes_the_port() -> None:
    port = next(iter_free_ports())

    with socket.create_server(("0.0.0.0", port)):  # noqa: S104 - the case under test
        assert not is_free(port)


def test_ports_are_distinct_and_below_the_ephemeral_range() -> None:
    ports = list(itertools.islice(iter_free_ports(), 50))

    assert len(set(ports)) == 50
    assert all(FIRST_PORT <= port <= LAST_PORT and port + GRPC_PORT_OFFSET < 32768 for port in ports)
