"""The actor of the current request, for audit entries.

The API and the admin set the actor for the duration of a request. Elsewhere, as in a command on the server, the actor
is the system.
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


SYSTEM_ACTOR = Actor(None, "system", Via.SYSTEM)

_find_actor: ContextVar[Callable[[], Actor]] = ContextVar("find_actor", default=lambda: SYSTEM_ACTOR)


@contextmanager
def acting_as(find_actor: Callable[[], Actor]) -> Iterator[None]:
    """Set the actor; `find_actor` is called only at a change, since a request is not authenticated when it begins."""
    before = _find_actor.set(find_actor)
    try:
        yield
    finally:
        _find_actor.reset(before)


def current_actor(*, user: User | None = None) -> Actor:
    """Return the current actor; `user` is the actor of an anonymous request, such as a login."""
    actor = _find_actor.get()()
    if user is None or actor.user_id is not None:
        return actor
    return Actor(user.pk, user.get_username(), actor.via, actor.address)
