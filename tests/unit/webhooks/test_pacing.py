"""Fairness and retries of deliveries, and their signatures."""

from __future__ import annotations

import base64
import hashlib
import hmac
from uuid import uuid4

import pytest

from jobs.webhooks.pacing import (
    MAX_TRIES,
    PLACES,
    PLACES_PER_HOST,
    PLACES_PER_OWNER,
    Busy,
    Due,
    choose,
    retry_seconds,
)
from jobs.webhooks.signing import new_secret, signed_headers


def due(owner: int, host: str) -> Due:
    return Due(uuid4(), owner, host)


def test_neither_a_host_nor_an_owner_takes_all_places() -> None:
    slow = [due(1, "slow") for _ in range(100)]
    greedy = [due(2, f"host-{n}") for n in range(100)]
    other = due(3, "other")
    chosen = choose([*slow, *greedy, other], Busy())
    assert len([each for each in chosen if each.host == "slow"]) == PLACES_PER_HOST
    assert len([each for each in chosen if each.owner_id == 2]) == PLACES_PER_OWNER
    assert other in chosen


def test_a_free_place_goes_to_the_owner_with_the_fewest_on_their_way() -> None:
    busy = Busy()
    slow = [due(owner, f"slow-{owner}-{n % 4}") for n in range(100) for owner in (1, 2)]
    first = choose(slow, busy)
    assert len(first) == PLACES, "two owners have every place"
    for each in first:
        busy.take(each)
    waiting = [each for each in slow if each not in first]
    third = [due(3, "third") for _ in range(3)]
    busy.free(first[0])
    assert choose([*waiting, *third], busy) == third[:1]
    for each in first[1:4]:
        busy.free(each)
    assert [each.owner_id for each in choose([*waiting, *third], busy)] == [3, 3, 3, 1]


def test_what_is_on_its_way_counts_until_it_is_over() -> None:
    busy = Busy()
    first = choose([due(1, "a") for _ in range(100)], busy)
    assert busy.total == 0, "choosing takes nothing"
    for each in first:
        busy.take(each)
    assert choose([due(2, "a")], busy) == []
    busy.free(first[0])
    assert len(choose([due(2, "a"), due(2, "a")], busy)) == 1
    for each in first[1:]:
        busy.free(each)
    assert (busy.total, busy.hosts, busy.owners) == (0, {}, {}), "nothing is remembered of those who are gone"


def test_all_places_together_are_bounded() -> None:
    assert len(choose([due(n, f"host-{n}") for n in range(1000)], Busy())) == PLACES


def test_retries_take_about_a_day_and_are_spread() -> None:
    middle = [retry_seconds(tries, 0.5) for tries in range(1, MAX_TRIES)]
    assert middle[0] == 10
    assert middle == sorted(middle)
    assert 20 * 3600 < sum(middle) < 30 * 3600
    assert retry_seconds(1, 0) == 8
    assert retry_seconds(1, 1) == pytest.approx(12)


def test_a_signature_is_the_one_of_the_standard() -> None:
    """The example of the specification's own libraries."""
    headers = signed_headers(
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
    keys = [new_secret(), new_secret()]
    assert keys[0] != keys[1]
    signed = signed_headers(delivery_id="a", timestamp=1, body=b"\xff", keys=keys)["webhook-signature"].split(" ")
    for key, signature in zip(keys, signed, strict=True):
        raw = base64.b64decode(key.removeprefix("whsec_"))
        assert len(raw) == 32
        wanted = hmac.new(raw, b"a.1.\xff", hashlib.sha256).digest()
        assert base64.b64decode(signature.removeprefix("v1,")) == wanted
