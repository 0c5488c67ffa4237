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

# Counts a try for each key but the last, or refuses it and counts nothing: who goes on when refused makes nobody else
# wait. If the last key is there, the one before it does not count. It answers for how many keys it counted, and in how
# many seconds to try again.
COUNT = """
local counted = #KEYS - 1 - redis.call('EXISTS', KEYS[#KEYS])
for place = 1, counted do
    if tonumber(redis.call('GET', KEYS[place]) or 0) >= tonumber(ARGV[place + 1]) then
        return {0, math.max(1, redis.call('TTL', KEYS[place]))}
    end
end
for place = 1, counted do
    redis.call('SET', KEYS[place], 0, 'EX', ARGV[1], 'NX')
    redis.call('INCR', KEYS[place])
end
return {counted, 0}
"""
# Of what has expired meanwhile there is nothing to take back.
FORGIVE = """
for place = 1, #KEYS - 1 do
    if tonumber(redis.call('GET', KEYS[place]) or 0) > 0 then redis.call('DECR', KEYS[place]) end
end
redis.call('SET', KEYS[#KEYS], 1, 'EX', ARGV[1])
"""


def log_in(*, username: str, password: str, address: str) -> User:
    """The user, if the password is right and the account active. Django spends as long on a name that nobody has."""
    network = network_of(address)
    # The first keeps one who guesses from holding up anybody elsewhere. The last is for many who guess together, and
    # not for where the user has logged in before: else it would be the means to lock that user out.
    limits = {
        _key("pair", username, network): conf.LOGIN_TRIES_A_USER_AND_ADDRESS,
        _key("address", network): conf.LOGIN_TRIES_AN_ADDRESS,
        _key("user", username): conf.LOGIN_TRIES_A_USER,
    }
    known = _key("known", username, network)
    counted = [*limits][: _count(limits, known)]
    user = authenticate(username=username, password=password)
    if not isinstance(user, User):
        raise LoginRefused
    _redis().attempt(lambda client: _forgive(client, counted, known))
    return user


def _count(limits: dict[str, int], known: str) -> int:
    keys, numbers = [*limits, known], [conf.LOGIN_WINDOW_SECONDS, *limits.values()]
    match _redis().attempt(lambda client: client.eval(COUNT, len(keys), *keys, *map(str, numbers))):
        case [int(counted), 0]:
            return counted
        case [int(), int(seconds)]:
            raise TooManyLogins(seconds)
        case _:
            raise LoginsUncounted


def _forgive(client: redis.Redis, counted: list[str], known: str) -> None:
    """Only what failed counts: programs that log in often are no guessers."""
    client.eval(FORGIVE, len(counted) + 1, *counted, known, str(conf.LOGIN_KNOWN_SECONDS))


def _key(kind: str, *words: str) -> str:
    """A name has no NUL in it."""
    return f"punctual:login:{kind}:{hashlib.sha256(chr(0).join(words).encode('utf-8', 'surrogatepass')).hexdigest()}"


@lru_cache(maxsize=1)
def _redis() -> HurriedRedis:
    return HurriedRedis(settings.PUNCTUAL_REDIS_URL, timeout_seconds=COUNT_TIMEOUT_SECONDS)
