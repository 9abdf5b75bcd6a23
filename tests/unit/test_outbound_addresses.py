"""Which addresses may be connected to when somebody else has named the target."""

from __future__ import annotations

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.runtime.addresses import AllowList, TargetRefused, is_public
from services.runtime.outbound import check_url

pytestmark = pytest.mark.req("R19")

NOT_PUBLIC = [
    "0.0.0.0", "10.1.2.3", "100.64.0.1", "100.100.100.200", "127.0.0.1", "127.255.255.254",
    "168.63.129.16", "169.254.169.254", "172.16.0.1", "172.31.255.255", "192.0.0.192",
    "192.0.2.1", "192.88.99.1", "192.168.0.1", "198.18.0.1", "198.51.100.1", "203.0.113.1",
    "224.0.0.1", "239.255.255.250", "240.0.0.1", "255.255.255.255",
    "::", "::1", "::127.0.0.1", "fe80::1", "fe80::1%1", "fec0::1", "fc00::1", "fd00:ec2::254",
    "fd20:ce::254", "ff02::1", "ff0e::1", "100::1", "2001:db8::1", "2001::1", "2001:10::1",
    "2002:7f00:1::", "2002:808:808::1", "3fff::1", "5f00::1", "64:ff9b:1::1", "4000::1",
    "::ffff:10.0.0.1", "::ffff:127.0.0.1", "::ffff:169.254.169.254", "64:ff9b::127.0.0.1",
    "64:ff9b::a9fe:a9fe", "64:ff9b::10.0.0.1",
]  # fmt: skip
PUBLIC = [
    "1.1.1.1", "8.8.8.8", "100.63.255.255", "100.128.0.1", "172.15.0.1", "172.32.0.1",
    "192.0.1.1", "198.17.0.1", "198.20.0.1", "223.255.255.255", "2606:4700::1111",
    "2a00:1450::1", "2001:4860:4860::8888", "::ffff:8.8.8.8", "64:ff9b::8.8.8.8",
]  # fmt: skip


@pytest.mark.parametrize("address", NOT_PUBLIC)
def test_addresses_that_are_not_public_are_refused(address: str) -> None:
    with pytest.raises(TargetRefused):
        AllowList().check("tools.example", 443, address)


@pytest.mark.parametrize("address", PUBLIC)
def test_public_addresses_need_no_permission(address: str) -> None:
    AllowList().check("tools.example", 443, address)


@given(st.ip_addresses())
def test_nothing_is_public_that_python_knows_not_to_be_global(address: object) -> None:
    assert isinstance(address, ipaddress.IPv4Address | ipaddress.IPv6Address)
    if is_public(address) and address not in ipaddress.ip_network("64:ff9b::/96"):
        assert address.is_global
        assert not address.is_multicast
        assert not address.is_reserved


@pytest.mark.parametrize(
    "host",
    [
        "2130706433", "0x7f000001", "0x7f.1", "0177.0.0.1", "127.1", "127.0.1", "017700000001",
        "0", "00.0.0.0", "127.0.0.01", "0x7f.0.0.0x1", "[::1]", "[::ffff:127.0.0.1]", "[0:0::1]",
        "[fe80::1%251]", "127.0.0.1", "１２７.0.0.1", "①②⑦.0.0.1", "127。0。0。1",
        "169.254.169.254", "[64:ff9b::7f00:1]",
    ],
)  # fmt: skip
def test_addresses_are_recognised_in_every_spelling(host: str) -> None:
    with pytest.raises(TargetRefused):
        check_url(AllowList(), f"http://{host}/")
    with pytest.raises(TargetRefused):
        check_url(AllowList(), f"http://{host}:8080/")


@pytest.mark.parametrize(
    "url",
    [
        "ftp://tools.example/", "file:///etc/passwd", "gopher://tools.example/", "//tools.example",
        "tools.example", "http://", "http:///path", "http://user:pw@tools.example/",
        "http://user@tools.example/", "http://tools.example:99999/", "http://[::1/", "",
        "http://tools.example@127.0.0.1/", "http://127.0.0.1#@tools.example/",
        "http://127.0.0.1?@tools.example/", "javascript:alert(1)",
    ],
)  # fmt: skip
def test_other_urls_are_refused(url: str) -> None:
    with pytest.raises(TargetRefused):
        check_url(AllowList(), url)


def test_names_and_public_addresses_pass_the_first_look() -> None:
    for url in ("http://tools.example/a?b=c", "https://8.8.8.8:8443/", "https://[2606:4700::1]/"):
        check_url(AllowList(), url)


@pytest.mark.parametrize(
    ("entry", "host", "port", "address", "allowed"),
    [
        ("127.0.0.1", "127.0.0.1", 80, "127.0.0.1", True),
        ("127.0.0.1", "localhost", 80, "127.0.0.1", True),
        ("127.0.0.1:80", "127.0.0.1", 80, "127.0.0.1", True),
        ("127.0.0.1:80", "127.0.0.1", 81, "127.0.0.1", False),
        ("10.0.0.0/8", "tools.internal", 80, "10.9.9.9", True),
        ("10.0.0.0/8", "tools.internal", 80, "192.168.0.1", False),
        ("10.0.0.0/8:8443", "tools.internal", 8443, "10.9.9.9", True),
        ("10.0.0.0/8:8443", "tools.internal", 443, "10.9.9.9", False),
        ("10.0.0.0/8", "tools.internal", 80, "::ffff:10.9.9.9", True),
        ("10.0.0.0/8", "tools.internal", 80, "64:ff9b::10.9.9.9", False),
        ("fd00::/8", "tools.internal", 80, "fd00::7", True),
        ("[fd00::/8]:80", "tools.internal", 80, "fd00::7", True),
        ("[fd00::/8]:80", "tools.internal", 81, "fd00::7", False),
        ("[::1]:80", "::1", 80, "::1", True),
        ("tools.internal", "tools.internal", 80, "10.9.9.9", True),
        ("Tools.Internal:80", "TOOLS.internal.", 80, "10.9.9.9", True),
        ("tools.internal", "other.tools.internal", 80, "10.9.9.9", False),
        ("tools.internal:80", "tools.internal", 81, "10.9.9.9", False),
        ("*.internal", "tools.internal", 80, "10.9.9.9", True),
        ("*.internal", "a.b.internal", 80, "fc00::1", True),
        ("*.internal", "internal", 80, "10.9.9.9", False),
        ("*.internal", "evilinternal", 80, "10.9.9.9", False),
        # A name may lead inside, but not to what is dangerous wherever it stands.
        ("tools.internal", "tools.internal", 80, "169.254.169.254", False),
        ("tools.internal", "tools.internal", 80, "100.100.100.200", False),
        ("tools.internal", "tools.internal", 80, "fd00:ec2::254", False),
        ("tools.internal", "tools.internal", 80, "168.63.129.16", False),
        ("tools.internal", "tools.internal", 80, "0.0.0.0", False),
        ("tools.internal", "tools.internal", 80, "224.0.0.1", False),
        ("tools.internal", "tools.internal", 80, "fe80::1", False),
        ("169.254.169.254", "169.254.169.254", 80, "169.254.169.254", True),
        ("8.8.8.8", "tools.internal", 80, "10.9.9.9", False),
    ],
)
def test_the_allow_list(entry: str, host: str, port: int, address: str, allowed: bool) -> None:
    if allowed:
        AllowList([entry]).check(host, port, address)
    else:
        with pytest.raises(TargetRefused):
            AllowList([entry]).check(host, port, address)


@pytest.mark.parametrize(
    "entry",
    ["", "*", "*.", "10.0.0.1/8", "10.0.0.0/33", "http://x/", "x:", "x:0", "x:70000", "x:y", "a b",
     "0x7f.1", "127.1", "x/y", "*.*.x", "::1:", "[::1", "x:٣"],
)  # fmt: skip
def test_entries_that_mean_nothing_are_refused(entry: str) -> None:
    with pytest.raises(ValueError, match="expected HOST"):
        AllowList([entry])
