"""Whose request it is: the peer's address, or the one that the operator's own proxies report."""

from __future__ import annotations

from collections.abc import MutableMapping
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Any

UNKNOWN = "?"  # a Unix socket has no address
IPV6_PREFIX = 64  # bits; a client usually has all addresses of such a network
FORWARDED = (b"x-forwarded-for", b"forwarded", b"x-real-ip")


def is_this_machine(scope: MutableMapping[str, Any]) -> bool:
    """Whether the peer is on this machine, and no proxy says that it asks for someone else.

    A Unix socket has no address, but only this machine can connect to it.
    """
    if any(name in FORWARDED for name, _ in scope["headers"]):
        return False
    peer = scope.get("client")
    return peer is None or is_loopback(peer[0])


def is_loopback(text: str) -> bool:
    address = _parse(text)
    return address is not None and address.is_loopback


def client_address(scope: MutableMapping[str, Any], trusted_proxies: int = 0) -> str:
    """The address that limits count, as `limit_key`.

    Each of our proxies appends the address it was called from to X-Forwarded-For. So the client is the entry at
    `trusted_proxies` from the right; the client itself may have written what stands further left.
    """
    peer = scope.get("client")
    if trusted_proxies:
        lines = [value for name, value in scope["headers"] if name == b"x-forwarded-for"]
        entries = b",".join(lines).decode("latin-1").split(",")
        if len(entries) >= trusted_proxies and _parse(entries[-trusted_proxies]) is not None:
            return limit_key(entries[-trusted_proxies])
    return UNKNOWN if peer is None else limit_key(peer[0])


@lru_cache(4096)
def limit_key(text: str) -> str:
    """What counts as one client: an IPv4 address, or an IPv6 network."""
    address = _parse(text)
    if isinstance(address, IPv6Address):
        return str(ip_network((address.packed, IPV6_PREFIX), strict=False))
    return UNKNOWN if address is None else str(address)


def _parse(text: str) -> IPv4Address | IPv6Address | None:
    """Also with a port, as some proxies write it, with a zone, or as IPv4 mapped into IPv6."""
    name = text.strip().partition("%")[0]
    if name.startswith("["):
        name = name[1:].partition("]")[0]
    elif name.count(":") == 1:
        name = name.partition(":")[0]
    try:
        address = ip_address(name)
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address
