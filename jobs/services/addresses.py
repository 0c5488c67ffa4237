"""By what somebody unknown is counted: the address, or the network that one machine has to itself."""

from __future__ import annotations

import ipaddress


def network_of(address: str) -> str:
    """One household or machine has 2**64 addresses of the longer kind."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return address
    return str(ipaddress.ip_network((parsed, 64), strict=False)) if parsed.version == 6 else address
