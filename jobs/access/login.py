"""Logins by username and password, limited against guessing.

Attempts are counted before the password is checked, and refusals do not reveal whether the user exists. Without Redis
logins are refused: passwords could be guessed as fast as they can be hashed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import lru_cache

import redis
from django.conf import settings
from django.contrib.auth import authenticate
from django.contrib.auth.hashers import check_password, get_hasher, identify_hasher
from django.contrib.auth.models import User
from django.db import transaction

from jobs.access.login_audit import record_failure
from jobs.access.password_marks import carry_marks
from jobs.access.rate_limit import client_network
from jobs.db.wakeups import BestEffortRedis
from jobs.domain import limits
from jobs.domain.errors import LoginCounterUnavailable, LoginRefused, TooManyLoginAttempts

COUNT_TIMEOUT_SECONDS = 1.0

# Counts an attempt on each key but the last, or refuses it and counts nothing, so that refused attempts delay no other
# user. If the last key exists, the one before it is not counted. Returns the number of keys counted and the seconds
# until the next attempt is allowed.
COUNT_SCRIPT = """
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
# Skips counters that have expired meanwhile.
FORGIVE_SCRIPT = """
for place = 1, #KEYS - 1 do
    if tonumber(redis.call('GET', KEYS[place]) or 0) > 0 then redis.call('DECR', KEYS[place]) end
end
redis.call('SET', KEYS[#KEYS], 1, 'EX', ARGV[1])
"""


def log_in(*, username: str, password: str, address: str, confirm: Callable[[User], None] = lambda user: None) -> User:
    """Return the user if the password is right and the account is active.

    An unknown name takes as long as a known one. `confirm` may raise to refuse the user; that counts as a failure.
    """
    network = client_network(address)
    # The limit per user and network keeps a guesser from locking the user out elsewhere. The limit per user stops
    # distributed guessing; it does not apply to networks the user has logged in from, or it would lock the user out.
    attempt_limits = {
        _key("pair", username, network): limits.MAX_LOGIN_TRIES_PER_USER_AND_ADDRESS,
        _key("address", network): limits.MAX_LOGIN_TRIES_PER_ADDRESS,
        _key("user", username): limits.MAX_LOGIN_TRIES_PER_USER,
    }
    known_key = _key("known", username, network)
    try:
        counted = [*attempt_limits][: _count_attempt(attempt_limits, known_key)]
        user = _authenticate(username, password)
    except (LoginRefused, TooManyLoginAttempts) as error:
        fallback = _key("failures", network) if isinstance(error, TooManyLoginAttempts) else None
        record_failure(_redis(), username=username, key=_key("failures", username, network), fallback_key=fallback)
        raise
    confirm(user)
    _redis().try_call(lambda client: _forgive_attempt(client, counted, known_key))
    return user


def _authenticate(username: str, password: str) -> User:
    """Check the password. If Django rehashes it, commit the new hash together with the tokens' new marks."""
    with transaction.atomic():
        hashes = User.objects.filter(username=username).values_list("password", flat=True)
        former = hashes.first()
        if former is not None and _is_outdated(former):
            # Lock: a concurrent login would carry the marks from a hash that this one has replaced.
            former = hashes.select_for_update(no_key=True).first()
        user = authenticate(username=username, password=password)
        if not isinstance(user, User):
            raise LoginRefused
        if former is not None and former != user.password and check_password(password, former):
            carry_marks(user, former=former)
    return user


def _is_outdated(encoded: str) -> bool:
    """Whether Django will rehash the password when it is right."""
    try:
        algorithm = identify_hasher(encoded).algorithm
    except ValueError:
        return False
    preferred = get_hasher()
    return bool(algorithm != preferred.algorithm or preferred.must_update(encoded))


def _count_attempt(attempt_limits: dict[str, int], known_key: str) -> int:
    keys, numbers = [*attempt_limits, known_key], [limits.LOGIN_WINDOW_SECONDS, *attempt_limits.values()]
    match _redis().try_call(lambda client: client.eval(COUNT_SCRIPT, len(keys), *keys, *map(str, numbers))):
        case [int(counted), 0]:
            return counted
        case [int(), int(seconds)]:
            raise TooManyLoginAttempts(seconds)
        case _:
            raise LoginCounterUnavailable


def _forgive_attempt(client: redis.Redis, counted: list[str], known_key: str) -> None:
    """Undo the count of a successful login: programs may log in often."""
    client.eval(FORGIVE_SCRIPT, len(counted) + 1, *counted, known_key, str(limits.LOGIN_KNOWN_ADDRESS_SECONDS))


def _key(kind: str, *words: str) -> str:
    """Return the Redis key of hashed words; NUL separates them, as names contain none."""
    return f"punctual:login:{kind}:{hashlib.sha256(chr(0).join(words).encode('utf-8', 'surrogatepass')).hexdigest()}"


@lru_cache(maxsize=1)
def _redis() -> BestEffortRedis:
    return BestEffortRedis(settings.PUNCTUAL_REDIS_URL, timeout_seconds=COUNT_TIMEOUT_SECONDS)
