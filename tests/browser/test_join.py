"""Somebody is invited, in a real Chromium: the link, a passkey, then the consent page, for the fleet of a tenant."""

import json
import re
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

import jwt
import pytest

from gateway.commands.cli import main
from tests.browser.chromium import PHONE, Browser
from tests.browser.gateway import Gateway
from tests.browser.passkey_page import VirtualAuthenticator, served
from tests.gateway.identity.oauth.site import CHALLENGE, VERIFIER

READ = "tools:call:read_only"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fleet")


@pytest.fixture(scope="module")
def fleet(folder: Path) -> Iterator[Gateway]:
    """Without spaces."""
    one = Gateway(folder, ECHO_ENABLED="false", OAUTH_CEREMONIES_BURST="1000", OAUTH_REQUESTS_BURST="10000")
    one.start()
    yield one
    one.end()
    said = one.log.read_text()
    assert re.search(r"\be[airc]_[A-Za-z0-9_-]{43}|eyJ", said) is None, "a secret is in the log"


@pytest.fixture
def device(anna: Browser) -> Iterator[VirtualAuthenticator]:
    authenticator = VirtualAuthenticator(anna)
    yield authenticator
    authenticator.remove()


def command(capsys: pytest.CaptureFixture[str], folder: Path, *words: str) -> Any:
    assert main([*words, "--json", "--data", str(folder / "data")]) == 0
    return json.loads(capsys.readouterr().out)


def invited(capsys: pytest.CaptureFixture[str], folder: Path, label: str = "Ada") -> Any:
    return command(capsys, folder, "member", "invite", "--tenant", "acme", "--scope", READ, "--label", label)


@pytest.mark.usefixtures("device")
def test_invited_person_makes_a_passkey_and_signs_a_client_in(
    anna: Browser, fleet: Gateway, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    member = invited(capsys, folder, "Ada <b>&amp;</b>")
    anna.open(member["url"])
    anna.shows("#tenant", "acme")
    assert anna.text("#label") == "Ada <b>&amp;</b>"
    assert anna.text("#scopes") == f"{READ}: read from the devices of your tenant"
    assert anna.driver.current_url == f"{fleet.url}/join", "the secret is not in the address any more"
    anna.click("#register")
    anna.shows("#joined", "Your passkey is registered")
    assert anna.text("#mcp") == f"{fleet.url}/mcp"

    with served() as port:
        client = f"http://127.0.0.1:{port}/callback"
        asked = {
            "response_type": "code", "redirect_uri": client, "code_challenge": CHALLENGE,
            "code_challenge_method": "S256", "scope": f"echo.full {READ}", "resource": f"{fleet.url}/mcp",
        }  # fmt: skip
        anna.open(f"{fleet.url}/oauth/authorize?{urlencode(asked)}")
        anna.click("#allow")
        anna.until(lambda: anna.driver.current_url.startswith(client), "the client was not reached")
        code = dict(parse_qsl(urlsplit(anna.driver.current_url).query))["code"]
    form = {"grant_type": "authorization_code", "code": code, "redirect_uri": client, "code_verifier": VERIFIER}
    request = urllib.request.Request(f"http://127.0.0.1:{fleet.port}/oauth/token", urlencode(form).encode())
    with urllib.request.urlopen(request, timeout=20) as answer:
        tokens = json.load(answer)
    claims = jwt.decode(tokens["access_token"], options={"verify_signature": False})
    assert (claims["sub"], claims["tenant"], claims["scope"]) == (member["sub"], "acme", READ)
    (listed,) = command(capsys, folder, "members")
    assert (listed["member_id"], listed["passkeys"], len(listed["grants"])) == (member["member_id"], 1, 1)


@pytest.mark.usefixtures("device")
def test_link_that_was_used_or_is_cut_says_what_to_do(
    anna: Browser, fleet: Gateway, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    anna.open(f"{fleet.url}/join")
    anna.shows("#said", "needs the whole link")
    url = invited(capsys, folder)["url"]
    anna.open(url)
    anna.shows("#tenant", "acme")
    anna.click("#register")
    anna.shows("#joined", "registered")
    anna.open(url)
    anna.shows("#said", "was used")
    assert not anna.one("#register").is_displayed()
    assert any("401" in line for line in anna.console())


@pytest.mark.usefixtures("device")
def test_page_fits_a_phone_and_the_number_of_this_machine_leads_to_its_name(
    anna: Browser, fleet: Gateway, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    anna.size(*PHONE)
    anna.open(invited(capsys, folder, "x" * 64)["url"].replace("localhost", "127.0.0.1"))
    anna.shows("#tenant", "acme")
    assert anna.driver.current_url == f"{fleet.url}/join"
    assert anna.js("return document.documentElement.scrollWidth <= window.innerWidth")
