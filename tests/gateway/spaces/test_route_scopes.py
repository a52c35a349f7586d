"""What each route of a space with IAM needs: nothing less, nothing of another space, and all where nobody has said."""

import pytest

from actors.grants.grants import Access
from gateway.spaces.route_scopes import Need, Needed, access_fault, needed
from schemas.echo.errors import EchoError
from schemas.echo.scopes import FULL, SCOPES


def access(*scopes: str) -> Access:
    return Access("g", "m", frozenset(scopes), 1, "here")


@pytest.mark.parametrize(
    ("what", "method", "need"),
    [
        ("", "GET", Need.ANY_GRANT),
        ("", "HEAD", Need.ANY_GRANT),
        ("", "PATCH", Need.NOTHING),
        ("", "DELETE", Need.NOTHING),
        ("iam", "GET", Need.NOTHING),
        ("iam", "DELETE", FULL),
        ("iam/invites", "POST", FULL),
        ("iam/members", "DELETE", FULL),
        ("kv", "GET", "kv_read"),
        ("kv", "HEAD", "kv_read"),
        ("kv", "POST", "kv_write"),
        ("kv", "DELETE", "kv_write"),
        ("files", "GET", "file_read"),
        ("files", "POST", "file_write"),
        ("files", "DELETE", "file_write"),
        ("push/vapid-public", "GET", Need.NOTHING),
        ("push/subscribe", "POST", "kv_write"),
        ("push/unsubscribe", "POST", "kv_write"),
        ("push/notify", "POST", "ws_write"),
        ("push", "POST", FULL),
        ("kv", "PUT", FULL),
    ],
)
def test_route_needs_its_scope(what: str, method: str, need: Needed) -> None:
    assert needed(what, method) == need


@pytest.mark.parametrize("need", sorted(SCOPES))
def test_only_the_scope_itself_or_full_will_do(need: str) -> None:
    for scope in SCOPES:
        fault = access_fault(access(scope), need)
        assert fault is (None if scope in (need, FULL) else EchoError.INSUFFICIENT_SCOPE)


def test_without_a_token_only_what_needs_nothing_is_open() -> None:
    for need in (FULL, "kv_read", Need.ANY_GRANT):
        assert access_fault(None, need) is EchoError.UNAUTHORIZED
    assert access_fault(access("ws_read"), Need.ANY_GRANT) is None
    assert access_fault(None, Need.NOTHING) is None
