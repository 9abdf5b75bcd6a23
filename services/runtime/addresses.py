"""Which IP addresses may be connected to when somebody else has named the target. Pure."""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Iterable
from dataclasses import dataclass

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

_NAME = re.compile(r"(\*\.)?[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*")
# From IANA's registries of special-purpose addresses; a list of our own, because what Python calls
# private or global has changed between its releases.
_V4_NOT_PUBLIC = tuple(
    map(
        ipaddress.IPv4Network,
        ("0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16",
         "172.16.0.0/12", "192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24", "192.168.0.0/16",
         "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/4", "240.0.0.0/4"),
    )
)  # fmt: skip
_V6_PUBLIC = ipaddress.IPv6Network("2000::/3")
_V6_NOT_PUBLIC = tuple(
    # The first and the third contain Teredo and 6to4, which lead to any IPv4 address.
    map(ipaddress.IPv6Network, ("2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20"))
)
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
_INTERNAL: tuple[Network, ...] = tuple(
    map(
        ipaddress.ip_network,
        ("10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16",
         "::1/128", "fc00::/7"),
    )
)  # fmt: skip
"""What an allowed name may lead to. Anything else that is not public must be allowed by number."""
_METADATA = frozenset(
    map(
        ipaddress.ip_address,
        ("169.254.169.254", "100.100.100.200", "168.63.129.16", "fd00:ec2::254", "fd20:ce::254"),
    )
)
"""Where clouds hand out credentials. Not all of them are in a range that says so."""


class TargetRefused(Exception):
    """The target is not one that may be connected to. The message is for the operator."""


@dataclass(frozen=True, slots=True)
class _Entry:
    name: str
    network: Network | None
    port: int | None

    def names(self, host: str) -> bool:
        if self.name.startswith("*."):
            return host.endswith(self.name[1:])
        return bool(self.name) and host == self.name


class AllowList:
    """What may be reached besides the public internet, as an operator writes it."""

    def __init__(self, entries: Iterable[str] = ()) -> None:
        """Each entry is a host name, `*.suffix`, an address or a network (CIDR), each with
        `:port` or without; IPv6 takes brackets where a port follows.

        Raises:
            ValueError: an entry is none of these.
        """
        self._entries = tuple(_entry(text) for text in entries)

    def check(self, host: str, port: int, address: str) -> None:
        """Check one address that a host has, or the host itself where it is an address.

        Raises:
            TargetRefused
        """
        try:
            ip = _plain(ipaddress.ip_address(address))
        except ValueError:
            raise TargetRefused(f"{host}: {address!r} is no address") from None
        entries = [entry for entry in self._entries if entry.port in (None, port)]
        if any(entry.network is not None and ip in entry.network for entry in entries):
            return
        if ip not in _METADATA:
            if is_public(ip):
                return
            internal = any(ip in network for network in _INTERNAL)
            if internal and any(entry.names(host.lower().rstrip(".")) for entry in entries):
                return
        where = f"{ip}:{port}" if literal_text(host) else f"{host}:{port} is at {ip}, which"
        raise TargetRefused(f"{where} is not public, and not on the allow-list")


def is_public(ip: Address) -> bool:
    """Whether an address is one of a host on the public internet."""
    if isinstance(ip, ipaddress.IPv4Address):
        return not any(ip in network for network in _V4_NOT_PUBLIC)
    if ip.scope_id is not None:
        return False
    if ip in _NAT64:
        return is_public(ipaddress.IPv4Address(int(ip) & 0xFFFFFFFF))
    return ip in _V6_PUBLIC and not any(ip in network for network in _V6_NOT_PUBLIC)


def literal(host: str) -> str | None:
    """The address that a URL's host is, None where it is a name.

    Raises:
        TargetRefused: it is an address in a spelling that only some readers take for one, such as
            decimal, octal, hexadecimal or shortened IPv4.
    """
    try:
        return str(ipaddress.ip_address(host))
    except ValueError:
        pass
    if ":" in host or host.replace(".", "").isdigit():
        raise TargetRefused(f"{host!r} is not a plainly written address")
    try:
        socket.inet_aton(host)
    except (OSError, UnicodeEncodeError):
        return None
    raise TargetRefused(f"{host!r} is not a plainly written address")


def literal_text(host: str) -> bool:
    """Whether a host is written as an address, of whatever spelling."""
    try:
        return literal(host) is not None
    except TargetRefused:
        return True


def _plain(ip: Address) -> Address:
    """IPv4 where it is carried in IPv6 notation: it is IPv4 that is connected to."""
    if isinstance(ip, ipaddress.IPv6Address) and ip.ipv4_mapped is not None:
        return ip.ipv4_mapped
    return ip


def _entry(text: str) -> _Entry:
    expected = f"{text!r}: expected HOST, *.SUFFIX or a network like 10.0.0.0/8, and :PORT or not"
    network = _network(text)
    if network is not None:
        return _Entry("", network, None)
    place, colon, digits = text.rpartition(":")
    port = None
    if colon:
        if not (digits.isascii() and digits.isdigit() and 0 < int(digits) < 65536):
            raise ValueError(expected)
        port = int(digits)
    else:
        place = text
    if place.startswith("[") and place.endswith("]"):
        place = place[1:-1]
    network = _network(place)
    if network is not None:
        return _Entry("", network, port)
    if not _NAME.fullmatch(place) or literal_text(place):
        raise ValueError(expected)
    return _Entry(place.lower(), None, port)


def _network(text: str) -> Network | None:
    try:
        return ipaddress.ip_network(text)
    except ValueError:
        return None
