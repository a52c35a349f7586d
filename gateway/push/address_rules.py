"""Which addresses are on the public internet. Pure.

A push service is named by whoever subscribes, so a request to one must never end on this machine, in its network or at
a metadata service. What is not known to be public is not. Addresses that carry another one (IPv4 as IPv6, NAT64) are
judged by that one.
"""

import ipaddress

_NOT_PUBLIC_4 = [
    ipaddress.IPv4Network(text)
    for text in (
        "0.0.0.0/8",  # this network; 0.0.0.0 is this machine
        "10.0.0.0/8",
        "100.64.0.0/10",  # shared between a provider and its customers
        "127.0.0.0/8",
        "169.254.0.0/16",  # link-local, with the metadata services of clouds
        "172.16.0.0/12",
        "192.0.0.0/24",
        "192.0.2.0/24",  # this and the two below: for documentation
        "198.51.100.0/24",
        "203.0.113.0/24",
        "192.88.99.0/24",  # relays of 6to4
        "192.168.0.0/16",
        "198.18.0.0/15",  # for benchmarks
        "224.0.0.0/4",  # multicast
        "240.0.0.0/4",  # reserved, and broadcast
    )
]
_GLOBAL_6 = ipaddress.IPv6Network("2000::/3")  # all that has been given out; link-local, ULA and multicast are outside
_NOT_PUBLIC_6 = [
    ipaddress.IPv6Network(text)
    for text in (
        "2001::/23",  # of protocols, Teredo among them
        "2001:db8::/32",  # this and the last one: for documentation
        "2002::/16",  # 6to4, which leads to an IPv4 address of the sender's choice
        "3fff::/20",
    )
]
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")  # how a network without IPv4 reaches the one with


def is_public(address: str) -> bool:
    """Also False for what is no address, or has a zone."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return False
    if isinstance(parsed, ipaddress.IPv6Address):
        if parsed.scope_id is not None:
            return False
        carried = parsed.ipv4_mapped
        if parsed in _NAT64:
            carried = ipaddress.IPv4Address(int(parsed) & 0xFFFF_FFFF)
        if carried is None:
            return parsed in _GLOBAL_6 and not any(parsed in network for network in _NOT_PUBLIC_6)
        parsed = carried
    return not any(parsed in network for network in _NOT_PUBLIC_4)
