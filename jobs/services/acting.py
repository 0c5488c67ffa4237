"""Who is acting: known to the services without being handed through every one of them.

Whoever takes a request says so for as long as it lasts; a command on the server, which nobody announces, is the
system's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from uuid import UUID

from django.contrib.auth.models import User

from jobs.models import Via


@dataclass(frozen=True, slots=True)
class Actor:
    user_id: int | None
    name: str
    via: Via
    address: str | None = None
    token_id: UUID | None = None
    token_name: str = ""


SYSTEM = Actor(None, "system", Via.SYSTEM)

_acting: ContextVar[Callable[[], Actor]] = ContextVar("acting", default=lambda: SYSTEM)


@contextmanager
def acting(find_actor: Callable[[], Actor]) -> Iterator[None]:
    """Asked only when something is changed: a request is not authenticated yet when it begins."""
    before = _acting.set(find_actor)
    try:
        yield
    finally:
        _acting.reset(before)


def present_actor(*, user: User | None = None) -> Actor:
    """`user`: who it turned out to be, in a request that does not say it by itself, such as a login."""
    actor = _acting.get()()
    if user is None or actor.user_id is not None:
        return actor
    return Actor(user.pk, user.get_username(), actor.via, actor.address)
