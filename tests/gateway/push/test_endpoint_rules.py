"""Which endpoints are taken: one spelling, and hosts of the list on a border of a dot."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.push.endpoint_rules import (
    ENDPOINT_CHARS_MAX,
    VENDORS,
    Endpoint,
    PushHosts,
    Trust,
    is_entry,
    read_endpoint,
)

REAL = [
    ("https://fcm.googleapis.com/fcm/send/fv3jabydF5c:APA92bEc8gXeukGXEvq_-", "fcm.googleapis.com"),
    ("https://updates.push.services.mozilla.com/wpush/v2/gAAAAABb%3D", "updates.push.services.mozilla.com"),
    ("https://web.push.apple.com/QGuQyavXutnMH...", "web.push.apple.com"),
    ("https://wns2-by3p.notify.windows.com/w/?token=BQYAAAC%3d%3d", "wns2-by3p.notify.windows.com"),
]


@pytest.mark.parametrize(("text", "host"), REAL)
def test_endpoints_of_browsers_are_taken_by_default(text: str, host: str) -> None:
    endpoint = read_endpoint(text)
    assert endpoint == Endpoint(host, text.removeprefix(f"https://{host}"))
    assert endpoint.origin == f"https://{host}"
    assert PushHosts(VENDORS).trust_in(host) is Trust.VENDOR


def test_port_443_and_case_of_the_host_make_no_difference() -> None:
    assert read_endpoint("https://FCM.googleapis.com:443/x") == Endpoint("fcm.googleapis.com", "/x")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "http://fcm.googleapis.com/x",
        "HTTPS://fcm.googleapis.com/x",
        "wss://fcm.googleapis.com/x",
        "//fcm.googleapis.com/x",
        "https:/fcm.googleapis.com/x",
        "https://fcm.googleapis.com",  # a browser writes the slash
        "https://fcm.googleapis.com?x",
        "https://fcm.googleapis.com:80/x",
        "https://fcm.googleapis.com:0443/x",
        "https://fcm.googleapis.com:/x",
        "https://fcm.googleapis.com:443:443/x",
        "https://user@fcm.googleapis.com/x",
        "https://user:secret@fcm.googleapis.com/x",
        "https://127.0.0.1\\@fcm.googleapis.com/x",
        "https://127.0.0.1#@fcm.googleapis.com/x",
        "https://127.0.0.1%2f@fcm.googleapis.com/x",
        "https://fcm.googleapis.com\\@127.0.0.1/x",
        "https://fcm.googleapis.com/x#fragment",
        "https://fcm.googleapis.com/x y",
        "https://fcm.googleapis.com/x\r\nHost: a",
        "https://fcm.googleapis.com/x\n",
        " https://fcm.googleapis.com/x",
        "https://fcm.googleapis.com/ä",
        "https://fcm.googleapis.com\u3002/x",
        "https://fcm\u2024googleapis.com/x",
        "https://fcm..googleapis.com/x",
        "https://.fcm.googleapis.com/x",
        "https://fcm.googleapis.com./x",
        "https://-fcm.googleapis.com/x",
        "https://fcm_.googleapis.com/x",
        "https://[fcm.googleapis.com]/x",
        "https://[::1%25lo]/x",
        "https://::1/x",
        f"https://{'a' * 64}.com/x",
        f"https://{'a.' * 127}com/x",
        "https://fcm.googleapis.com/" + "x" * ENDPOINT_CHARS_MAX,
    ],
)
def test_any_other_spelling_is_refused(text: str) -> None:
    assert read_endpoint(text) is None


def test_longest_endpoint_is_taken() -> None:
    start = "https://fcm.googleapis.com/"
    assert read_endpoint(start + "x" * (ENDPOINT_CHARS_MAX - len(start))) is not None


@pytest.mark.parametrize(
    ("host", "trust"),
    [
        ("evilfcm.googleapis.com", Trust.NONE),
        ("fcm.googleapis.com.evil.example", Trust.NONE),
        ("x.fcm.googleapis.com", Trust.NONE),
        ("googleapis.com", Trust.NONE),
        ("notify.windows.com", Trust.NONE),
        ("evilnotify.windows.com", Trust.NONE),
        (".notify.windows.com", Trust.NONE),
        ("a.notify.windows.com", Trust.VENDOR),
        ("a.b.notify.windows.com", Trust.VENDOR),
        ("127.0.0.1", Trust.NONE),
        ("[::1]", Trust.NONE),
        ("2130706433", Trust.NONE),
        ("0x7f000001", Trust.NONE),
        ("127.1", Trust.NONE),
        ("localhost", Trust.NONE),
    ],
)
def test_hosts_of_vendors_fit_exactly_or_on_a_border_of_a_dot(host: str, trust: Trust) -> None:
    assert PushHosts(VENDORS).trust_in(host) is trust


def test_what_the_operator_lists_is_trusted_wherever_it_is_and_what_is_left_out_is_not() -> None:
    hosts = PushHosts(["push.lan", "*.push.apple.com", "*.apple.com", "127.0.0.1", "[::1]"])
    assert [hosts.trust_in(host) for host in ("push.lan", "127.0.0.1", "[::1]")] == [Trust.OPERATOR] * 3
    assert hosts.trust_in("web.push.apple.com") is Trust.OPERATOR  # by the second entry that fits it
    assert PushHosts(["*.push.apple.com"]).trust_in("web.push.apple.com") is Trust.VENDOR
    assert hosts.trust_in("fcm.googleapis.com") is Trust.NONE


def test_address_that_the_operator_lists_is_read_in_its_one_spelling() -> None:
    assert read_endpoint("https://127.0.0.1/x") == Endpoint("127.0.0.1", "/x")
    local = read_endpoint("https://[::1]/x")
    assert local is not None
    assert (local.host, local.server_name, local.origin) == ("[::1]", "::1", "https://[::1]")


def test_entry_is_a_name_a_domain_with_a_star_or_an_address() -> None:
    good = ["a", "a.b", "*.a", "*.a-b.c", "10.0.0.1", "[fd00::1]"]
    wrong = [
        "*",
        "*.",
        "**.a",
        "a.*",
        "A.b",
        "a:443",
        "a/b",
        "*.10.0.0.1",
        "1.2.3",
        "fd00::1",
        "[10.0.0.1]",
        "a..b",
        "-a",
    ]
    assert [entry for entry in good if not is_entry(entry)] == []
    assert [entry for entry in wrong if is_entry(entry)] == []
    with pytest.raises(ValueError, match="entry"):
        PushHosts(["*"])


@given(st.text(max_size=80) | st.from_regex(r"https://[ -~]{0,30}/[ -~]{0,30}"))
def test_whatever_is_read_is_one_line_for_a_request(text: str) -> None:
    endpoint = read_endpoint(text)
    if endpoint is not None:
        assert text.lower().startswith(endpoint.origin)
        assert endpoint.target.startswith("/")
        assert not set(endpoint.host + endpoint.target) & set(" \r\n\t\\#@") - {"@"}
        assert "@" not in endpoint.host
