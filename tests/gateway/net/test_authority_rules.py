"""What is a host in a request, and what a target that has one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.net.authority_rules import is_authority, of_absolute_form


@pytest.mark.parametrize(
    "host",
    [
        b"h", b"H:1", b"a.b.", b"a.b.:", b"127.0.0.1:8420", b"[::1]", b"[::1]:80", b"[::ffff:1.2.3.4]", b"a%41b",
        b"a_b", b"a,b",
    ],
)  # fmt: skip
def test_name_or_address_with_or_without_a_port_is_a_host(host: bytes) -> None:
    assert is_authority(host)


@pytest.mark.parametrize(
    "host",
    [
        b"", b":80", b"u@h", b"u:p@h", b"h:x", b"h:1:2", b"h:123456", b"h/a", b"h?a", b"h#a", b"a b", b" h", b"h\t",
        b"::1", b"[::1", b"::1]", b"[::1]x", b"[g::1]", b"[::1%25eth0]", b"\xc3\xa9.h", b"h\\a", b"h\x00", b"h\n",
        b"[]",
    ],
)  # fmt: skip
def test_what_is_more_or_less_than_a_host_is_none(host: bytes) -> None:
    assert not is_authority(host)


@pytest.mark.parametrize(
    ("target", "found"),
    [
        (b"http://h/a?b", (b"h", b"/a?b")),
        (b"HTTPS://h:1", (b"h:1", b"/")),
        (b"http://h?q", (b"h", b"/?q")),
        (b"http://h//evil", (b"h", b"//evil")),
        (b"http://[::1]/", (b"[::1]", b"/")),
        (b"http:///a", None),
        (b"http://u@h/a", None),
        (b"http:/h/a", None),
        (b"ftp://h/a", None),
        (b"/http://h/a", None),
        (b"//h/a", None),
        (b"h:443", None),
        (b"*", None),
        (b"", None),
    ],
)
def test_absolute_target_has_a_host_and_the_rest(target: bytes, found: object) -> None:
    assert of_absolute_form(target) == found


@given(st.binary(max_size=40))
def test_whatever_follows_the_host_begins_with_a_slash(noise: bytes) -> None:
    found = of_absolute_form(b"http://" + noise)
    assert found is None or (is_authority(found[0]) and found[1].startswith(b"/"))
