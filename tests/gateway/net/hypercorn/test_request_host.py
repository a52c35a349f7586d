"""Whom a request is for that hypercorn has read: one host, and that of a target that has one of its own."""

from typing import Any

import pytest

from gateway.net.applications import Application, Applications, NoSite
from gateway.net.asgi import AsgiScope, Receive, Send
from gateway.net.hypercorn.request_host import application_of


async def nothing(_scope: AsgiScope, _receive: Receive, _send: Send) -> None:
    raise AssertionError("nobody calls it here")


MAIN, SITE = Application(nothing, lambda _: 0), Application(nothing, lambda _: 0)
BOTH = Applications(MAIN, lambda host: SITE if host == b"a.localhost" else NoSite.MAIN)


def scope_of(*hosts: bytes, raw_path: bytes = b"/", version: str = "1.1") -> dict[str, Any]:
    headers = [(b"host", host) for host in hosts]
    return {
        "type": "http",
        "method": "GET",
        "http_version": version,
        "headers": [(b"accept", b"*/*"), *headers],
        "raw_path": raw_path,
        "path": raw_path.decode(),
        "query_string": b"",
    }


@pytest.mark.parametrize("hosts", [(b"localhost", b"a.localhost"), (b"a.localhost", b"a.localhost"), (b"u@localhost",)])
def test_two_hosts_or_none_that_is_one_are_nobodys(hosts: tuple[bytes, ...]) -> None:
    assert application_of(scope_of(*hosts), BOTH) is None


@pytest.mark.parametrize(
    ("host", "raw_path", "application", "named"),
    [
        (b"localhost", b"http://a.localhost/x%20y", SITE, b"a.localhost"),
        (b"a.localhost", b"http://localhost/x%20y", MAIN, b"localhost"),
    ],
)
def test_host_of_a_whole_url_counts_and_is_all_that_an_application_sees(
    host: bytes, raw_path: bytes, application: Application, named: bytes
) -> None:
    scope = scope_of(host, raw_path=raw_path)
    assert application_of(scope, BOTH) is application
    assert scope["headers"] == [(b"accept", b"*/*"), (b"host", named)]
    assert (scope["raw_path"], scope["path"]) == (b"/x%20y", "/x y")


@pytest.mark.parametrize(("raw_path", "version"), [(b"http://a.localhost/", "2"), (b"x", "1.1"), (b"/#x", "1.1")])
def test_what_is_no_target_is_nobodys(raw_path: bytes, version: str) -> None:
    assert application_of(scope_of(b"localhost", raw_path=raw_path, version=version), BOTH) is None
