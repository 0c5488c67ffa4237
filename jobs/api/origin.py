"""Where a request comes from: who asks, by what, from which address. For every page, also the admin's.

What a client writes about its own address counts only as far as a proxy that is trusted has written it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from ipaddress import ip_address, ip_network

from django.conf import settings
from django.contrib.auth.models import User
from django.http import HttpRequest
from django.http.response import HttpResponseBase

from jobs.models import ApiToken, Via
from jobs.services.acting import Actor, acting

COMMAND_LINE = "punctual"
# Some proxies write the port that a client came from as well; of the newer kind of address then in brackets.
WITH_PORT = re.compile(r"(?P<v4>[0-9.]+):[0-9]{1,5}|\[(?P<v6>[^\[\]]*:[^\[\]]*)\](?::[0-9]{1,5})?")


class ActingMiddleware:
    """What a request changes is written down as its user's."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        with acting(lambda: actor_of(request)):
            return self._get_response(request)


def actor_of(request: HttpRequest) -> Actor:
    """REST framework leaves on the request whom it authenticated, and by which token."""
    user: object = getattr(request, "user", None)
    token: object = getattr(request, "auth", None)
    return Actor(
        user_id=user.pk if isinstance(user, User) else None,
        name=user.get_username() if isinstance(user, User) else "",
        via=_via(request),
        address=address_of(request),
        token_id=token.id if isinstance(token, ApiToken) else None,
        token_name=token.name if isinstance(token, ApiToken) else "",
    )


def address_of(request: HttpRequest) -> str | None:
    """The nearest address that no trusted proxy vouches to be its own; None if there is none, as over a socket file."""
    nearest = _address(request.META.get("REMOTE_ADDR", ""))
    trusted = [ip_network(text) for text in settings.PUNCTUAL_TRUSTED_PROXIES]
    if nearest is None or not trusted:
        return nearest
    for text in reversed(request.headers.get("X-Forwarded-For", "").split(",")):
        if not any(ip_address(nearest) in network for network in trusted):
            break
        forwarded = _address(text)
        if forwarded is None:
            break
        nearest = forwarded
    return nearest


def _via(request: HttpRequest) -> Via:
    match = request.resolver_match
    if match is not None and match.app_name == "admin":
        return Via.ADMIN
    product = request.headers.get("User-Agent", "").partition("/")[0].strip()
    return Via.CLI if product == COMMAND_LINE else Via.API


def _address(text: str) -> str | None:
    written = text.strip()
    if found := WITH_PORT.fullmatch(written):
        written = found["v4"] or found["v6"]
    try:
        address = ip_address(written)
    except ValueError:
        return None
    mapped = getattr(address, "ipv4_mapped", None)
    # A zone says which card of a proxy it came by, and Postgres knows none.
    return str(mapped or address).partition("%")[0]
