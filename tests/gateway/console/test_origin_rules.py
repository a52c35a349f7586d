"""Where the console is: one origin, spelled as browsers spell it, or a reason why there is none."""

from typing import Any

import pytest

from gateway.console.agent_rules import agent_of
from gateway.console.origin_rules import ConsoleOff, browser_origin, is_secure
from gateway.identity.tokens import AGENT_ID
from gateway.main.console_side import ConsoleOrigin, console_origin
from gateway.main.settings import Address, UnixAddress, load


@pytest.mark.parametrize(
    ("url", "origin"),
    [
        ("https://ops.example", "https://ops.example"),
        ("https://OPS.example:443", "https://ops.example"),
        ("http://localhost:80", "http://localhost"),
        ("http://localhost:8422", "http://localhost:8422"),
        ("https://[::1]:8422", "https://[::1]:8422"),
        ("https://ops.example:99999", None),
        ("https://ada@ops.example", None),
        ("https://öps.example", None),
        ("ftp://ops.example", None),
        ("https://", None),
        ("https://[::1", None),
    ],
)
def test_origin_is_what_a_browser_sends(url: str, origin: str | None) -> None:
    assert browser_origin(url) == origin


@pytest.mark.parametrize(
    ("origin", "secure"),
    [
        ("https://ops.example", True),
        ("http://localhost:1", True),
        ("http://ops.localhost", True),
        ("http://ops.example", False),
        ("http://127.0.0.1:1", False),
        ("http://notlocalhost", False),
    ],
)
def test_cookies_need_https_or_localhost(origin: str, secure: bool) -> None:
    assert is_secure(origin) is secure


LOOPBACK, OPEN = "127.0.0.1:8420", "0.0.0.0:8420"


@pytest.mark.parametrize(
    ("http", "admin", "settings", "expected"),
    [
        (LOOPBACK, None, {}, "http://localhost:8420"),
        (LOOPBACK, None, {"http.public_url": "https://gw.example"}, "https://gw.example"),
        (OPEN, None, {"admin.public_url": "https://ops.example"}, "https://ops.example"),
        (OPEN, None, {}, ConsoleOff.NO_ORIGIN),
        (OPEN, None, {"http.public_url": "http://gw.example"}, ConsoleOff.NOT_SECURE),
        (OPEN, "127.0.0.1:8422", {"http.public_url": "https://gw.example"}, "http://localhost:8422"),
        (OPEN, "10.0.0.5:8422", {"http.public_url": "https://gw.example"}, ConsoleOff.NO_ORIGIN),
        (OPEN, "10.0.0.5:8422", {"admin.public_url": "https://ops.example"}, "https://ops.example"),
        (OPEN, "10.0.0.5:8422", {"admin.public_url": "https://a:b:c"}, ConsoleOff.NO_ORIGIN),
        (LOOPBACK, "unix:/run/admin.sock", {"admin.public_url": "https://ops.example"}, ConsoleOff.UNIX_SOCKET),
    ],
)
def test_console_is_where_admin_is(
    http: str, admin: str | None, settings: dict[str, Any], expected: str | ConsoleOff
) -> None:
    at = console_origin(
        load(None, {}, settings), Address.parse(http), None if admin is None else UnixAddress.parse(admin), "http"
    )
    assert (at() if isinstance(at, ConsoleOrigin) else at) == expected


def test_operator_is_always_the_same_agent() -> None:
    assert agent_of("ada") == "agent_5ae11f80-0032-5173-a525-364e41f2a7d7", "policies name it: never to change"
    assert AGENT_ID.match(agent_of("any name at all"))
    assert agent_of("ada") != agent_of("Ada")
