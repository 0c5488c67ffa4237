"""Resolves who sends a request: user, token, client program and address, for the API and the admin.

`X-Forwarded-For` counts only as far as trusted proxies wrote it.
"""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Callable
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network

from django.conf import settings
from django.contrib.auth.models import User
from django.http import HttpRequest
from django.http.response import HttpResponseBase

from jobs.audit.actor import Actor, acting_as
from jobs.domain import limits
from jobs.models import ApiToken, Via

logger = logging.getLogger(__name__)

Network = IPv4Network | IPv6Network

CLI_USER_AGENT = "punctual"
FORWARDED_FOR = "HTTP_X_FORWARDED_FOR"
WARN_INTERVAL_SECONDS = 60.0
MAX_WARNED_PROXIES = 100
# Fits brackets, zone and port. Bounded because matching takes time quadratic in the length.
MAX_ADDRESS_LENGTH = 100
# Some proxies append the client's port; IPv6 addresses are then in brackets.
ADDRESS_WITH_PORT = re.compile(r"(?P<v4>[0-9.]+):[0-9]{1,5}|\[(?P<v6>[^\[\]]*:[^\[\]]*)\](?::[0-9]{1,5})?")


class ActorMiddleware:
    """Attributes everything a request changes to its user, for the audit log."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        if FORWARDED_FOR in request.META:
            _untrusted_proxy_warnings.note(request)
        with acting_as(lambda: resolve_actor(request)):
            return self._get_response(request)


class UntrustedProxyWarnings:
    """Logs a warning about each proxy missing in PUNCTUAL_TRUSTED_PROXIES, at most once a minute.

    All clients of such a proxy share one address and its rate limits. Any client can send the header, so the number of
    peers warned about per minute is bounded, too.
    """

    def __init__(self) -> None:
        self._warned_at: dict[str, float] = {}
        self._lock = threading.Lock()

    def note(self, request: HttpRequest) -> None:
        peer = _parse_address(request.META.get("REMOTE_ADDR", ""))
        if peer is not None and not _is_trusted(peer, _parse_trusted_proxies()) and self._should_warn(peer):
            logger.warning(
                "Ignored X-Forwarded-For from %s, which PUNCTUAL_TRUSTED_PROXIES does not list. If it is your proxy,"
                " list it: until then all its clients count as one address, and %d failed logins a minute of any of"
                " them lock out all of them.",
                peer,
                limits.MAX_LOGIN_TRIES_PER_ADDRESS,
            )

    def _should_warn(self, peer: str) -> bool:
        now = time.monotonic()
        with self._lock:
            recent = {each: at for each, at in self._warned_at.items() if now - at < WARN_INTERVAL_SECONDS}
            if peer in recent or len(recent) >= MAX_WARNED_PROXIES:
                return False
            self._warned_at = recent | {peer: now}
            return True


_untrusted_proxy_warnings = UntrustedProxyWarnings()


def resolve_actor(request: HttpRequest) -> Actor:
    """Return the actor of a request; DRF stores the authenticated user and token on it."""
    user: object = getattr(request, "user", None)
    token: object = getattr(request, "auth", None)
    return Actor(
        user_id=user.pk if isinstance(user, User) else None,
        name=user.get_username() if isinstance(user, User) else "",
        via=_detect_via(request),
        address=resolve_client_address(request),
        token_id=token.id if isinstance(token, ApiToken) else None,
        token_name=token.name if isinstance(token, ApiToken) else "",
    )


def resolve_client_address(request: HttpRequest) -> str | None:
    """Return the nearest address that is not a trusted proxy; None for a connection without one, as over a socket."""
    nearest = _parse_address(request.META.get("REMOTE_ADDR", ""))
    trusted = _parse_trusted_proxies()
    if nearest is None or not trusted:
        return nearest
    for text in reversed(request.headers.get("X-Forwarded-For", "").split(",")):
        if not _is_trusted(nearest, trusted):
            break
        forwarded = _parse_address(text)
        if forwarded is None:
            break
        nearest = forwarded
    return nearest


def _parse_trusted_proxies() -> list[Network]:
    return [ip_network(text) for text in settings.PUNCTUAL_TRUSTED_PROXIES]


def _is_trusted(address: str, trusted: list[Network]) -> bool:
    return any(ip_address(address) in network for network in trusted)


def _detect_via(request: HttpRequest) -> Via:
    match = request.resolver_match
    if match is not None and match.app_name == "admin":
        return Via.ADMIN
    product = request.headers.get("User-Agent", "").partition("/")[0].strip()
    return Via.CLI if product == CLI_USER_AGENT else Via.API


def _parse_address(text: str) -> str | None:
    text = text.strip()
    if len(text) > MAX_ADDRESS_LENGTH:
        return None
    if match := ADDRESS_WITH_PORT.fullmatch(text):
        text = match["v4"] or match["v6"]
    try:
        address = ip_address(text)
    except ValueError:
        return None
    mapped = getattr(address, "ipv4_mapped", None)
    # Drop the zone: it names an interface of the proxy, and Postgres' inet type has none.
    return str(mapped or address).partition("%")[0]
