"""The pages of MCP clients: what they say to paste is well-formed, names what the gateway serves, and can sign in."""

import json
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from gateway.identity.oauth.authorize_rules import AuthorizeRequest, Granted, judge
from gateway.identity.oauth.oauth_errors import OAuthError
from gateway.identity.oauth.redirect_rules import RedirectUri, read_redirect_uri
from gateway.identity.oauth.registration import Client, read_registration
from gateway.identity.oauth.worlds import SignedInMember
from gateway.main.settings import load
from gateway.mcp.views import FLEET, NAMED, VIEWS

HOW_TO = Path(__file__).parent.parent / "docs" / "how-to"
ENTRY = (HOW_TO / "connect-an-mcp-client.md").read_text()
PAGES = sorted((HOW_TO / "mcp-clients").glob("*.md"))
BASES = ("http://localhost:8420", "https://gw.example")
JOIN = "/join"  # the page of an invite
READ_ONLY = "tools:call:read_only"


def blocks(page: Path, *kinds: str) -> list[str]:
    return re.findall(rf"```(?:{'|'.join(kinds)})\n(.*?)```", page.read_text(), re.DOTALL)


def configurations(page: Path) -> list[dict[str, Any]]:
    return [json.loads(text) for text in blocks(page, "json")] + [tomllib.loads(text) for text in blocks(page, "toml")]


def servers(configuration: Mapping[str, Any]) -> dict[str, str]:
    """The URLs by name that a client's configuration has; of the gateway's own settings, none."""
    entries: dict[str, Any] = next(
        (configuration[key] for key in ("mcpServers", "servers", "mcp_servers") if key in configuration), {}
    )
    return {name: entry.get("url") or entry["args"][1] for name, entry in entries.items()}


def test_every_client_of_the_entry_page_has_a_page_and_every_page_a_client() -> None:
    linked = re.findall(r"\(mcp-clients/([\w-]+\.md)\)", ENTRY)
    assert set(linked) == {page.name for page in PAGES}
    assert len(PAGES) == 6


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_page_of_a_client_says_how_to_sign_in_how_to_use_a_token_and_what_does_not_work(page: Path) -> None:
    headings = re.findall(r"^## (.*)$", page.read_text(), re.MULTILINE)
    assert headings[0].startswith("Sign in")
    assert headings[-3:] == ["With a token", "Which view", "Limits"]
    for told in ("Access is given to", "with my passkey", "member of an echo space", "es_…", *BASES):
        assert told in page.read_text(), told


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_configurations_of_a_client_are_well_formed_and_name_a_path_that_is_served(page: Path) -> None:
    found = [(name, url) for one in configurations(page) for name, url in servers(one).items()]
    assert found or page.stem == "mcp-inspector"  # that has commands only
    for name, url in found:
        base, path = next(base for base in BASES if url.startswith(f"{base}/")), urlsplit(url).path
        assert url == base + path
        # Every client can take the names of this view, with this server's name in front; spaces are on `/mcp` only.
        assert path == {"heliograph": FLEET.path, "room": NAMED.path}[name]


@pytest.mark.parametrize("page", [HOW_TO / "connect-an-mcp-client.md", *PAGES], ids=lambda page: page.stem)
def test_every_url_of_the_demo_and_the_example_is_one_that_is_served(page: Path) -> None:
    served = {view.path for view in VIEWS} | {JOIN, ""}
    urls = re.findall(rf"(?:{'|'.join(map(re.escape, BASES))})[^\s`\"',;)]*", page.read_text())
    assert urls
    assert {urlsplit(url).path for url in urls} - served == set()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_settings_of_the_gateway_on_a_page_can_be_loaded(page: Path, tmp_path: Path) -> None:
    for text in blocks(page, "toml"):
        settings = tomllib.loads(text)
        if servers(settings):
            continue
        assert set(settings) <= {"http", "oauth"}
        (tmp_path / "heliograph.toml").write_text(text)
        loaded = load(tmp_path / "heliograph.toml", {}, {"data": str(tmp_path)})
        for name, value in settings["oauth"].items():
            assert list(getattr(loaded.oauth, name)) == value


# ---- redirects -------------------------------------------------------------------------------------------------------

REDIRECTS = [
    (client, uri, re.findall(r"`([^`]+)`", schemes), re.findall(r"`([^`]+)`", hosts))
    for client, uri, schemes, hosts in re.findall(
        r"^\| ([^|]+) \| `(\w+://[^`]+)` \|([^|]*)\|([^|]*)\|$", ENTRY, re.MULTILINE
    )
]
CURSOR = [uri for client, uri, *_ in REDIRECTS if client.startswith("Cursor")]  # registered together


def given(redirect: RedirectUri, hosts: list[str]) -> bool:
    """Whether a member of a fleet can sign in to a client with this redirect."""
    asked = AuthorizeRequest(redirect, None, "", None, frozenset({READ_ONLY}), FLEET.path, "c" * 43)
    member = SignedInMember("fleet:acme", "m", "", b"", b"", b"", 0, frozenset({READ_ONLY}))
    judged = judge(asked, member, hosts)
    assert isinstance(judged, Granted) or judged is OAuthError.ACCESS_DENIED
    return isinstance(judged, Granted)


@pytest.mark.parametrize(("client", "uri", "schemes", "hosts"), REDIRECTS, ids=[uri for _, uri, *_ in REDIRECTS])
def test_redirect_of_a_client_needs_the_settings_that_the_table_names_and_no_others(
    client: str, uri: str, schemes: list[str], hosts: list[str]
) -> None:
    registered = CURSOR if client.startswith("Cursor") else [uri]
    body = json.dumps({"redirect_uris": registered, "client_name": client}).encode()
    assert isinstance(read_registration(body, schemes), Client)
    if schemes:
        assert read_registration(body, []) is OAuthError.INVALID_REDIRECT_URI
    redirect = read_redirect_uri(uri, schemes)
    assert redirect is not None
    assert given(redirect, hosts)
    if hosts:
        assert not given(redirect, [])


def test_addresses_that_vs_code_registers_together_are_accepted_and_any_port_fits() -> None:
    uris = [
        "https://insiders.vscode.dev/redirect",
        "https://vscode.dev/redirect",
        "http://127.0.0.1/",
        "http://127.0.0.1:33418/",
    ]
    body = json.dumps({"redirect_uris": uris, "client_name": "Visual Studio Code"}).encode()
    assert isinstance(read_registration(body, []), Client)
    used, registered = read_redirect_uri("http://127.0.0.1:59656/"), read_redirect_uri(uris[2])
    assert used is not None
    assert registered is not None
    assert used.fits(registered)


def test_table_of_redirects_is_there() -> None:
    assert len(REDIRECTS) == 12
    assert len(CURSOR) == 3
