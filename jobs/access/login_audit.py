"""Audit entries of logins. Redis counts failures, so that guessing passwords writes few entries.

An entry of a failure has the number of failures from that address in the last hour, and the number of entries left out
because too many logins failed in one minute. When an attempt is refused before the password is checked, only the
address is counted, unless the name has failed from there before: otherwise made-up names would fill Redis.
"""

from __future__ import annotations

import logging

from django.contrib.auth.models import User
from django.db import DatabaseError, transaction

from jobs.audit.log import Change, record_change, record_changes
from jobs.db.transactions import with_timeouts
from jobs.db.wakeups import BestEffortRedis
from jobs.domain import limits

logger = logging.getLogger(__name__)

ENTRIES_KEY = "punctual:login:entries"
UNLISTED_KEY = "punctual:login:unlisted"
# Returns the number of failures if it is 1, 10, 100, …, and the number of entries left out since the last one; zeros if
# there is nothing to write. A fourth key is counted instead of the first if the first does not exist.
COUNT_FAILURE_SCRIPT = """
local counted = KEYS[1]
if KEYS[4] and redis.call('EXISTS', counted) == 0 then counted = KEYS[4] end
local failures = redis.call('INCR', counted)
if failures == 1 then redis.call('EXPIRE', counted, ARGV[1]) end
local rest = failures
while rest % 10 == 0 do rest = rest / 10 end
if rest ~= 1 then return {0, 0} end
local entries = redis.call('INCR', KEYS[2])
if entries == 1 then redis.call('EXPIRE', KEYS[2], 60) end
if entries > tonumber(ARGV[2]) then
    redis.call('INCR', KEYS[3])
    return {0, 0}
end
local unlisted = tonumber(redis.call('GET', KEYS[3]) or 0)
redis.call('DEL', KEYS[3])
return {failures, unlisted}
"""


def record_login(user: User) -> None:
    with transaction.atomic(), with_timeouts(statement_seconds=5):
        record_change("user.logged_in", user, owner_id=user.pk, by=user)


def record_refusal(user: User, *, because: str) -> None:
    """Record that a user gave the right password but may not log in here. The login limits bound the entries."""
    try:
        with transaction.atomic(), with_timeouts(statement_seconds=5):
            record_change("user.login_failed", user, owner_id=user.pk, after={"because": because})
    except DatabaseError as error:
        logger.warning("Refused login not written to the audit: %s", error)


def record_failure(counters: BestEffortRedis, *, username: str, key: str, fallback_key: str | None = None) -> None:
    """Count a failed login and write an audit entry if one is due. Never raises: the login is refused either way.

    `key` counts this user from this address; `fallback_key` this address, for attempts refused unchecked.
    """
    keys = (key, ENTRIES_KEY, UNLISTED_KEY, *([] if fallback_key is None else [fallback_key]))
    numbers = (limits.LOGIN_FAILURE_WINDOW_SECONDS, limits.MAX_LOGIN_FAILURE_ENTRIES_PER_MINUTE)
    match counters.try_call(lambda client: client.eval(COUNT_FAILURE_SCRIPT, len(keys), *keys, *map(str, numbers))):
        case [int(failures), int(unlisted)] if failures:
            try:
                _write_entry(username, {"failures": failures} | ({"unlisted": unlisted} if unlisted else {}))
            except DatabaseError as error:
                logger.warning("Failed login not written to the audit: %s", error)


def _write_entry(username: str, counts: dict[str, int]) -> None:
    with transaction.atomic(), with_timeouts(statement_seconds=5):
        user = User.objects.filter(username=username).first()
        # People type passwords into the name field: never store an unknown name.
        key, name, owner_id = ("", "(no such user)", None) if user is None else (user.pk, str(user), user.pk)
        record_changes([Change("user.login_failed", key, name, owner_id, after=counts)])
