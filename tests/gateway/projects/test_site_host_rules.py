"""Which hosts are sites: every trick with a name, a port, a dot or an escape."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.net.applications import NoSite
from gateway.projects.site_host_rules import SiteHosts

LOCAL = SiteHosts("localhost", "localhost")
PUBLIC = SiteHosts("sites.example", "gw.example")
UNDER = SiteHosts("example", "gw.example")  # BASE lies under the suffix itself


@pytest.mark.parametrize(
    ("host", "label"),
    [
        (b"a.localhost", "a"), (b"a.localhost:8420", "a"), (b"a.localhost:", "a"), (b"A.LocalHost", "a"),
        (b"a.localhost.", "a"), (b"a.localhost.:80", "a"), (b"my-app-1.localhost", "my-app-1"),
        # No project can have these, and still they are nobody else's.
        (b"a.b.localhost", "a.b"), (b"xn--p1ai.localhost", "xn--p1ai"), (b"_x.localhost", "_x"), (b"*.localhost", "*"),
        (b"127.0.0.1.localhost", "127.0.0.1"), (b"a,b.localhost", "a,b"), (b"localhost.localhost", "localhost"),
        (b"www.localhost", "www"),
    ],
)  # fmt: skip
def test_host_under_the_suffix_is_a_site_s(host: bytes, label: str) -> None:
    assert LOCAL.label(host) == label


@pytest.mark.parametrize(
    "host",
    [
        b"localhost", b"localhost:8420", b"LOCALHOST.", b"127.0.0.1", b"127.0.0.1:8420", b"[::1]:8420", b"[::1]",
        b"gw.example", b"alocalhost", b"a.localhost.example", b"localhost.a", b"a-localhost", b"a", b"0x7f.1",
        b"[::ffff:127.0.0.1]",
    ],
)  # fmt: skip
def test_every_other_host_is_the_main_application_s(host: bytes) -> None:
    assert LOCAL.label(host) is NoSite.MAIN


@pytest.mark.parametrize(
    "host",
    [
        b"%61.localhost", b"a%2elocalhost", b"a.%6cocalhost", b"a.localhost%2e", b"%00.localhost", b"a%",
        b"a.localhost..", b"..localhost", b".localhost", b"a..localhost", b".", b"..", b"a..", b".:80",
        # What the server refuses before, and a head that is not good may still claim.
        b"", b":80", b"u@a.localhost", b"a.localhost/b", b"a.localhost:80:80", b"\xc3\xa9.localhost", b"a.localhost ",
        b"a.localhost\x00", b"[::1].localhost", b"[a.localhost]", b"a.localhost, b.localhost",
    ],
)  # fmt: skip
def test_host_that_readers_could_differ_on_is_unclear(host: bytes) -> None:
    assert LOCAL.label(host) is NoSite.UNCLEAR


def test_suffix_of_its_own_has_nothing_of_base_s_domain() -> None:
    assert PUBLIC.label(b"a.sites.example") == "a"
    for host in (b"sites.example", b"gw.example", b"a.gw.example", b"a.example", b"a.sites.example.evil.example"):
        assert PUBLIC.label(host) is NoSite.MAIN


def test_base_s_own_host_is_no_site_though_it_lies_under_the_suffix() -> None:
    for host in (b"gw.example", b"GW.Example.:443"):
        assert UNDER.label(host) is NoSite.MAIN
    assert UNDER.label(b"a.example") == "a"
    assert UNDER.label(b"x.gw.example") == "x.gw"
    assert SiteHosts("example", "GW.Example.").label(b"gw.example") is NoSite.MAIN


LABELS = st.from_regex(r"\A[a-z0-9]([a-z0-9-]{0,20}[a-z0-9])?\Z")


@given(LABELS, st.sampled_from(["", ".", ":1", ":65535", ".:8420"]), st.randoms(use_true_random=False))
def test_label_is_found_whatever_its_case_port_and_final_dot(label: str, end: str, random: Random) -> None:
    host = "".join(char.upper() if random.random() < 0.5 else char for char in f"{label}.sites.example") + end
    assert PUBLIC.label(host.encode()) == label


@given(st.binary(max_size=60), st.sampled_from([b"", b".localhost", b".localhost.", b".LOCALHOST:1"]))
def test_any_bytes_are_a_site_another_host_or_unclear_and_never_the_wrong_one(begin: bytes, end: bytes) -> None:
    label = LOCAL.label(begin + end)
    if isinstance(label, str):
        assert label == label.lower()
        assert not set(label) & set("%:/@\\ \x00#?[]")
        assert LOCAL.label(f"{label}.localhost".encode()) == label
    elif label is NoSite.MAIN:
        name = (begin + end).partition(b":")[0].lower().removesuffix(b".")
        assert not name.endswith(b".localhost") or name.startswith(b"[")
