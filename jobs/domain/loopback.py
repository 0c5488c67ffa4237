"""Recognises hosts that are this machine: traffic to them crosses no network."""

from __future__ import annotations

from ipaddress import ip_address


def is_loopback(host: str) -> bool:
    """Decide by spelling alone: a name may resolve to this machine today and to another one tomorrow."""
    host = host.strip("[]").rstrip(".").lower()
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
