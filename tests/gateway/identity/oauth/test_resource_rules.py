"""Resources: ours, by our names."""

import pytest

from gateway.identity.oauth.resource_rules import Resources, is_loopback_host
from tests.gateway.identity.oauth.site import BASE, LOCAL

RESOURCES = Resources(BASE, LOCAL)


@pytest.mark.parametrize(
    ("resource", "path"),
    [
        (None, "/mcp"),
        (f"{BASE}/mcp", "/mcp"),
        (f"{BASE}/mcp/flat", "/mcp/flat"),
        (f"{BASE}/mcp/fleet", "/mcp/fleet"),
        ("http://localhost:8420/mcp", "/mcp"),
        ("http://127.0.0.1:8420/mcp/fleet", "/mcp/fleet"),
        ("http://[::1]:8420/mcp", "/mcp"),
        ("http://127.0.0.1:9999/mcp", None),
        ("http://127.0.0.1/mcp", None),
        ("https://127.0.0.1:8420/mcp", None),
        (f"{BASE}/mcp/", None),
        (f"{BASE}/MCP", None),
        (f"{BASE}/mcp#x", None),
        (f"{BASE}/mcp?x", None),
        (f"{BASE}/mcp/other", None),
        (BASE, None),
        (f"{BASE}.evil.example/mcp", None),
        ("https://evil.example/mcp", None),
        ("", None),
    ],
)
def test_only_our_endpoints_under_our_addresses_are_resources(resource: str | None, path: str | None) -> None:
    assert RESOURCES.path_of(resource) == path


def test_a_default_port_is_left_out() -> None:
    assert Resources(BASE, "https://localhost").path_of("https://127.0.0.1/mcp") == "/mcp"


@pytest.mark.parametrize(
    ("host", "is_loopback"),
    [
        ("localhost", True), ("localhost:8420", True), ("127.0.0.1:1", True), ("[::1]", True), ("[::1]:8420", True),
        (None, False), ("", False), ("localhost.evil", False), ("evil:80", False), ("localhost:x", False),
        (":80", False), ("localhost:", False), ("127.0.0.2", False), ("localhost:80:80", False), ("[::1]x", False),
        ("localhost:80, evil", False),
    ],
)  # fmt: skip
def test_loopback_hosts_are_known_by_name(host: str | None, is_loopback: bool) -> None:
    assert is_loopback_host(host) is is_loopback
