"""What many ask about one execution, read from Postgres once a second for all of them; kept in Redis meanwhile.

Invariant: nothing served is older than a second, by Redis's clock and by ours. The second begins before Postgres is
asked, and an answer that comes when the second is over, or was ended early by `tell_change`, is not kept at all. What
Redis holds is signed: nobody who can write there can say anything in our name. Without Redis, each process asks for
itself, and whoever changes something sees it at once only where it was changed.
"""

from __future__ import annotations

import hmac
import struct
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from uuid import UUID, uuid4

import redis
from django.conf import settings
from django.db import connection, transaction
from django.utils.crypto import salted_hmac

from jobs.services.database import give_back
from jobs.services.recent import Recent
from jobs.wakeups import WORK, HurriedRedis, hurried_redis, log_channel

# Who asks while another one reads looks again after these pauses, the last of them over and over.
PAUSES_SECONDS = (0.005, 0.01, 0.02, 0.05)
LONGEST_WAIT_SECONDS = 1.0
# One who reads and does not come back is waited for so long; then another one reads.
READING_SECONDS = 0.25
TOLD_TOGETHER = 200
SALT = "punctual.status_cache"
SEAL_BYTES = 32
READ_AT = struct.Struct(">d")

# A hash for each execution: when its second began (`epoch`), and what each viewpoint is shown (`v:`) or who reads it
# for that (`c:`). It answers [what is shown], or [nothing, the epoch to keep it in] to the one who is to read it, or []
# while another one does.
LOOK = """
local known = redis.call('HMGET', KEYS[1], 'v:' .. ARGV[1], 'c:' .. ARGV[1], 'epoch')
if known[1] then return {known[1]} end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
if known[2] and now - known[2] < tonumber(ARGV[4]) then return {} end
redis.call('HSET', KEYS[1], 'c:' .. ARGV[1], now)
if known[3] then return {false, known[3]} end
redis.call('HSET', KEYS[1], 'epoch', ARGV[2])
redis.call('PEXPIRE', KEYS[1], ARGV[3])
return {false, ARGV[2]}
"""
# Of another epoch: it was read too long ago, or before something was changed.
KEEP = """
if redis.call('HGET', KEYS[1], 'epoch') ~= ARGV[1] then return 0 end
redis.call('HDEL', KEYS[1], 'c:' .. ARGV[2])
if ARGV[3] ~= '' then redis.call('HSET', KEYS[1], 'v:' .. ARGV[2], ARGV[3]) end
return 1
"""
# Only what was looked at: it may have been replaced meanwhile.
DROP = """
if redis.call('HGET', KEYS[1], 'v:' .. ARGV[1]) == ARGV[2] then redis.call('UNLINK', KEYS[1]) end
return 1
"""


@dataclass(frozen=True, slots=True)
class Place:
    """Where something is kept: what is sealed for one place is good for no other."""

    execution_id: UUID
    viewpoint: str

    @property
    def key(self) -> str:
        return key_of(self.execution_id)


def read_through(place: Place, read: Callable[[], bytes]) -> bytes:
    """What `read` gives, or gave somebody of the same viewpoint less than a second ago."""
    milliseconds = int(settings.PUNCTUAL_STATUS_CACHE_SECONDS * 1000)
    # What is not committed is nobody else's, and whoever changes something is to see it.
    if not milliseconds or connection.in_atomic_block:
        return read()
    store = hurried_redis()
    deadline, pauses = time.monotonic() + LONGEST_WAIT_SECONDS, iter(PAUSES_SECONDS)
    pause = 0.0
    while True:
        match _look(store, place, milliseconds):
            case [bytes(kept)] if time.monotonic() < deadline:
                if (body := _opened(store, place, kept)) is not None:
                    return body
                # Its second ended on the way here, as for all who came with it: one of them is to read it.
            case [None, bytes(epoch)]:
                return _read_and_keep(store, place, epoch, read)
            case [] if time.monotonic() < deadline:
                # The one who reads needs a connection, and there are fewer of them than of us.
                give_back()
                pause = next(pauses, pause)
                time.sleep(pause)
            case None:
                return _without_redis.get(place, read, seconds=settings.PUNCTUAL_STATUS_CACHE_SECONDS)
            case _:
                return read()


def tell_change(*execution_ids: UUID) -> None:
    """Once this is committed, nothing older is shown of them, and who follows them is woken."""
    for start in range(0, len(execution_ids), TOLD_TOGETHER):
        transaction.on_commit(partial(_tell, execution_ids[start : start + TOLD_TOGETHER]))


def _tell(execution_ids: Sequence[UUID]) -> None:
    def tell(client: redis.Redis) -> object:
        with client.pipeline(transaction=False) as together:
            # In this order: who is woken is to see it.
            together.unlink(*map(key_of, execution_ids))
            for execution_id in execution_ids:
                together.publish(log_channel(execution_id), WORK)
            return together.execute()

    _without_redis.forget()
    hurried_redis().attempt(tell)


def key_of(execution_id: UUID) -> str:
    return f"punctual:status:{execution_id}"


def _look(store: HurriedRedis, place: Place, milliseconds: int) -> object:
    return store.run(LOOK, place.key, place.viewpoint, uuid4().hex, milliseconds, int(READING_SECONDS * 1000))


def _read_and_keep(store: HurriedRedis, place: Place, epoch: bytes, read: Callable[[], bytes]) -> bytes:
    began, sealed = time.time(), b""
    try:
        body = read()
        sealed = _sealed(place, body, began)
    finally:
        # Also when there is nothing to keep: the others need not wait for it.
        store.run(KEEP, place.key, epoch, place.viewpoint, sealed)
    return body


def _sealed(place: Place, body: bytes, read_at: float) -> bytes:
    content = READ_AT.pack(read_at) + body
    return _seal(place, content) + content


def _opened(store: HurriedRedis, place: Place, kept: bytes) -> bytes | None:
    """None: it is not ours, or too old by our clock, and is in the way of what is right."""
    seal, content = kept[:SEAL_BYTES], kept[SEAL_BYTES:]
    if hmac.compare_digest(seal, _seal(place, content)):
        (read_at,) = READ_AT.unpack_from(content)
        if abs(time.time() - read_at) <= settings.PUNCTUAL_STATUS_CACHE_SECONDS:
            return content[READ_AT.size :]
    store.run(DROP, place.key, place.viewpoint, kept)
    return None


def _seal(place: Place, content: bytes) -> bytes:
    message = f"{place.execution_id} {place.viewpoint} ".encode() + content
    return salted_hmac(SALT, message, algorithm="sha256").digest()


_without_redis: Recent[Place, bytes] = Recent()
