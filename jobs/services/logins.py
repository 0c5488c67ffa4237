"""A name and a password for a token: tries are counted before a password is looked at, and refusals tell nothing.

Who cannot be counted cannot log in: without Redis a password could be guessed as fast as it can be hashed.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache

import redis
from django.conf import settings
from django.contrib.auth import authenticate
from django.contrib.auth.models import User

from jobs import conf
from jobs.errors import LoginRefused, LoginsUncounted, TooManyLogins
from jobs.services.addresses import network_of
from jobs.wakeups import HurriedRedis

COUNT_TIMEOUT_SECONDS = 1.0


def log_in(*, username: str, password: str, address: str) -> User:
    """The user, if the password is right and the account active. Django spends as long on a name that nobody has."""
    limits = {
        _key("user", username): conf.LOGIN_TRIES_A_USER,
        _key("address", network_of(address)): conf.LOGIN_TRIES_AN_ADDRESS,
    }
    _count(limits)
    user = authenticate(username=username, password=password)
    if not isinstance(user, User):
        raise LoginRefused
    _redis().attempt(lambda client: _forgive(client, limits))
    return user


def _count(limits: dict[str, int]) -> None:
    def count(client: redis.Redis) -> list[object]:
        with client.pipeline(transaction=True) as pipeline:
            for key in limits:
                pipeline.set(key, 0, ex=conf.LOGIN_WINDOW_SECONDS, nx=True)
                pipeline.incr(key)
                pipeline.ttl(key)
            return pipeline.execute()

    answers = _redis().attempt(count)
    if answers is None:
        raise LoginsUncounted
    for (_, tries, seconds), limit in zip(zip(*[iter(answers)] * 3, strict=True), limits.values(), strict=True):
        if int(str(tries)) > limit:
            raise TooManyLogins(max(1, int(str(seconds))))


def _forgive(client: redis.Redis, keys: dict[str, int]) -> None:
    """Only what failed counts: programs that log in often are no guessers."""
    with client.pipeline(transaction=True) as pipeline:
        for key in keys:
            pipeline.decr(key)
            # If it had expired meanwhile, it is new, and would stay for ever.
            pipeline.expire(key, conf.LOGIN_WINDOW_SECONDS, nx=True)
        pipeline.execute()


def _key(kind: str, word: str) -> str:
    return f"punctual:login:{kind}:{hashlib.sha256(word.encode('utf-8', 'surrogatepass')).hexdigest()}"


@lru_cache(maxsize=1)
def _redis() -> HurriedRedis:
    return HurriedRedis(settings.PUNCTUAL_REDIS_URL, timeout_seconds=COUNT_TIMEOUT_SECONDS)
