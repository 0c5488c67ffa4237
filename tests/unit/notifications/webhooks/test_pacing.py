"""Fairness and retries of deliveries, and their signatures."""

from __future__ import annotations

import base64
import hashlib
import hmac
from uuid import uuid4

import pytest

from jobs.notifications.webhooks.pacing import (
    MAX_IN_FLIGHT,
    MAX_IN_FLIGHT_PER_HOST,
    MAX_IN_FLIGHT_PER_OWNER,
    MAX_TRIES,
    DueDelivery,
    InFlight,
    choose_deliveries,
    compute_retry_seconds,
)
from jobs.notifications.webhooks.signing import generate_secret, sign_headers


def due(owner: int, host: str) -> DueDelivery:
    return DueDelivery(uuid4(), owner, host)


def test_neither_a_host_nor_an_owner_takes_all_capacity() -> None:
    slow = [due(1, "slow") for _ in range(100)]
    greedy = [due(2, f"host-{n}") for n in range(100)]
    other = due(3, "other")
    chosen = choose_deliveries([*slow, *greedy, other], InFlight())
    assert len([each for each in chosen if each.host == "slow"]) == MAX_IN_FLIGHT_PER_HOST
    assert len([each for each in chosen if each.owner_id == 2]) == MAX_IN_FLIGHT_PER_OWNER
    assert other in chosen


def test_free_place_goes_to_the_owner_with_the_fewest_in_flight() -> None:
    busy = InFlight()
    slow = [due(owner, f"slow-{owner}-{n % 4}") for n in range(100) for owner in (1, 2)]
    first = choose_deliveries(slow, busy)
    assert len(first) == MAX_IN_FLIGHT, "two owners use all capacity"
    for each in first:
        busy.add(each)
    waiting = [each for each in slow if each not in first]
    third = [due(3, "third") for _ in range(3)]
    busy.remove(first[0])
    assert choose_deliveries([*waiting, *third], busy) == third[:1]
    for each in first[1:4]:
        busy.remove(each)
    assert [each.owner_id for each in choose_deliveries([*waiting, *third], busy)] == [3, 3, 3, 1]


def test_delivery_counts_until_it_is_removed() -> None:
    busy = InFlight()
    first = choose_deliveries([due(1, "a") for _ in range(100)], busy)
    assert busy.total == 0, "choosing adds nothing"
    for each in first:
        busy.add(each)
    assert choose_deliveries([due(2, "a")], busy) == []
    busy.remove(first[0])
    assert len(choose_deliveries([due(2, "a"), due(2, "a")], busy)) == 1
    for each in first[1:]:
        busy.remove(each)
    assert (busy.total, busy.hosts, busy.owners) == (0, {}, {}), "removed deliveries leave no counters"


def test_total_in_flight_is_bounded() -> None:
    assert len(choose_deliveries([due(n, f"host-{n}") for n in range(1000)], InFlight())) == MAX_IN_FLIGHT


def test_retries_take_about_a_day_and_are_spread() -> None:
    middle = [compute_retry_seconds(tries, 0.5) for tries in range(1, MAX_TRIES)]
    assert middle[0] == 10
    assert middle == sorted(middle)
    assert 20 * 3600 < sum(middle) < 30 * 3600
    assert compute_retry_seconds(1, 0) == 8
    assert compute_retry_seconds(1, 1) == pytest.approx(12)


def test_signature_matches_the_specification() -> None:
    """The example of the specification's libraries."""
    headers = sign_headers(
        delivery_id="msg_p5jXN8AQM9LWM0D4loKWxJek",
        timestamp=1614265330,
        body=b'{"test": 2432232314}',
        keys=["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"],
    )
    assert headers == {
        "webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
        "webhook-timestamp": "1614265330",
        "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
    }


def test_every_secret_signs() -> None:
    keys = [generate_secret(), generate_secret()]
    assert keys[0] != keys[1]
    signed = sign_headers(delivery_id="a", timestamp=1, body=b"\xff", keys=keys)["webhook-signature"].split(" ")
    for key, signature in zip(keys, signed, strict=True):
        raw = base64.b64decode(key.removeprefix("whsec_"))
        assert len(raw) == 32
        expected = hmac.new(raw, b"a.1.\xff", hashlib.sha256).digest()
        assert base64.b64decode(signature.removeprefix("v1,")) == expected
