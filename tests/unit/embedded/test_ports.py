from __future__ import annotations

import itertools
import socket

from scheduler_project.embedded.ports import FIRST_PORT, LAST_PORT, PAIR_OFFSET, free_ports, is_free


def test_a_port_is_taken_while_somebody_listens() -> None:
    port = next(free_ports())

    assert is_free(port)
    with socket.create_server(("127.0.0.1", port)):
        assert not is_free(port)
    assert is_free(port)


def test_a_listener_on_every_address_takes_it_too() -> None:
    port = next(free_ports())

    with socket.create_server(("0.0.0.0", port)):  # noqa: S104 - the case under test
        assert not is_free(port)


def test_ports_differ_and_stay_below_those_of_outgoing_connections() -> None:
    ports = list(itertools.islice(free_ports(), 50))

    assert len(set(ports)) == 50
    assert all(FIRST_PORT <= port <= LAST_PORT and port + PAIR_OFFSET < 32768 for port in ports)
