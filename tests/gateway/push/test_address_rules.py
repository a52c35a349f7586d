"""Which addresses are public: none of this machine, its networks, and what leads back to them."""

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.push.address_rules import is_public


@pytest.mark.parametrize(
    "address",
    [
        "142.250.185.74",
        "1.1.1.1",
        "223.255.255.255",
        "2a00:1450:4001:82b::200a",
        "2620:149:149:1004::a",
        "2001:4860::1",
        "::ffff:142.250.185.74",
        "64:ff9b::8efa:b94a",
    ],
)
def test_addresses_of_push_services_are_public(address: str) -> None:
    assert is_public(address)


@pytest.mark.parametrize(
    "address",
    [
        "0.0.0.0",
        "0.1.2.3",
        "10.0.0.1",
        "100.64.0.1",
        "100.127.255.254",
        "127.0.0.1",
        "127.255.255.254",
        "169.254.169.254",
        "172.16.0.1",
        "172.31.255.255",
        "192.0.0.8",
        "192.0.2.1",
        "192.88.99.1",
        "192.168.1.1",
        "198.18.0.1",
        "198.19.255.255",
        "198.51.100.7",
        "203.0.113.9",
        "224.0.0.1",
        "239.255.255.250",
        "240.0.0.1",
        "255.255.255.255",
        "::",
        "::1",
        "::127.0.0.1",
        "::ffff:127.0.0.1",
        "::ffff:10.0.0.1",
        "::ffff:169.254.169.254",
        "::ffff:0:127.0.0.1",
        "64:ff9b::7f00:1",
        "64:ff9b::a9fe:a9fe",
        "64:ff9b:1::8efa:b94a",
        "100::1",
        "2001::1",
        "2001:db8::1",
        "2002:7f00:1::",
        "2002:a00:1::1",
        "2001:0:4136:e378:8000:63bf:3fff:fdd2",
        "3fff::1",
        "5f00::1",
        "fc00::1",
        "fd12:3456::1",
        "fe80::1",
        "fe80::1%eth0",
        "2a00:1450::1%eth0",
        "fec0::1",
        "ff02::1",
        "",
        "localhost",
        "127.1",
        "2130706433",
        "0x7f.0.0.1",
        "010.0.0.1",
        "1.1.1.1 ",
        "[::1]",
    ],
)
def test_all_else_is_not(address: str) -> None:
    assert not is_public(address)


@given(st.ip_addresses())
def test_what_is_public_here_is_global_to_the_registries_too(address: ipaddress.IPv4Address) -> None:
    if is_public(str(address)):
        mapped = getattr(address, "ipv4_mapped", None)
        assert (mapped or address).is_global
