"""Whose request it is, and how many each may have."""

import ipaddress

import pytest

from gateway.net.addresses import Addresses, network_of

PROXIES = (ipaddress.ip_network("10.0.0.0/8"), ipaddress.ip_network("fd00::/8"))


@pytest.mark.parametrize(
    ("forwarded", "client"),
    [
        ([], "10.0.0.1"),
        ([b"192.0.2.1"], "192.0.2.1"),
        ([b"6.6.6.6, 192.0.2.1"], "192.0.2.1"),
        ([b"6.6.6.6, 192.0.2.1 , 10.2.3.4,fd00::1"], "192.0.2.1"),
        ([b"6.6.6.6", b"192.0.2.1", b"10.9.9.9"], "192.0.2.1"),
        ([b"10.2.3.4"], "10.2.3.4"),
        ([b"192.0.2.1, unknown"], "10.0.0.1"),
        ([b"192.0.2.1, nonsense, 10.2.3.4"], "10.2.3.4"),
        ([b"\xff"], "10.0.0.1"),
        ([b"2001:DB8:0::1"], "2001:db8::1"),
    ],
)
def test_the_last_address_that_is_no_proxy_of_ours_counts(forwarded: list[bytes], client: str) -> None:
    addresses = Addresses(PROXIES, 1)
    headers = [(b"host", b"h"), *((b"x-forwarded-for", value) for value in forwarded)]
    assert addresses.vouched_for("10.0.0.1", headers) == client


def test_only_listed_networks_are_proxies() -> None:
    addresses = Addresses(PROXIES, 1)
    assert addresses.is_proxy("10.1.1.1")
    assert addresses.is_proxy("::ffff:10.1.1.1")
    assert not addresses.is_proxy("11.1.1.1")
    assert not addresses.is_proxy("")
    assert not Addresses((), 1).is_proxy("10.1.1.1")


def test_each_address_has_its_share() -> None:
    addresses = Addresses((), 2)
    assert [addresses.enter("a"), addresses.enter("a"), addresses.enter("a"), addresses.enter("b")] == [
        True,
        True,
        False,
        True,
    ]
    addresses.leave("a")
    assert addresses.enter("a")
    for address in ("a", "a", "b"):
        addresses.leave(address)
    assert addresses.count == 0


@pytest.mark.parametrize(
    ("address", "same", "other"),
    [
        ("192.0.2.1", "::ffff:192.0.2.1", "192.0.2.2"),
        ("::ffff:192.0.2.1", "::FFFF:C000:0201", "::ffff:192.0.2.2"),
        ("2001:db8:0:1::1", "2001:DB8:0:1:ffff:ffff:ffff:ffff", "2001:db8:0:2::1"),
        ("fe80::1%eth0", "fe80::2%eth0", "fe80:0:0:1::1"),
        ("", "", "unknown"),
    ],
)
def test_networks_are_counted_whole_64_bits_of_ipv6_and_all_of_ipv4(address: str, same: str, other: str) -> None:
    addresses = Addresses((), 1)
    assert addresses.enter(address)
    assert not addresses.enter(same)
    assert (addresses.open_of(same), addresses.open_of(other)) == (1, 0)
    assert addresses.enter(other)
    addresses.leave(same)
    addresses.leave(other)
    assert addresses.count == 0


def test_network_of_a_network_is_itself() -> None:
    """Who has it already may ask again: turns are kept by it."""
    assert network_of("2001:db8:0:1::7") == network_of(network_of("2001:db8:0:1::7")) == "2001:db8:0:1::/64"
