"""What a real Chromium makes of our options is what our verification takes; what it makes elsewhere is not."""

import base64
import hashlib
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from gateway.identity.passkeys.faults import PasskeyFault
from gateway.identity.passkeys.options import creation_options
from gateway.identity.passkeys.relying_party import RelyingParty
from gateway.identity.passkeys.verification import Assertion, register
from tests.browser.chromium import Browser, chromium, installed
from tests.browser.passkey_page import VirtualAuthenticator, served
from tests.certificates import write_certificate
from tests.gateway.identity.passkeys.ceremonies import (
    ROOM,
    USER,
    begin_login,
    begin_registration,
    logged_in,
    registered,
)


@pytest.fixture(scope="module")
def party() -> Iterator[RelyingParty]:
    with served() as port:
        yield RelyingParty.of(f"http://localhost:{port}")


@pytest.fixture
def authenticator(anna: Browser, party: RelyingParty) -> Iterator[VirtualAuthenticator]:
    anna.open(party.origin)
    one = VirtualAuthenticator(anna)
    yield one
    one.remove()


def test_passkey_of_chromium_registers_and_logs_in(party: RelyingParty, authenticator: VirtualAuthenticator) -> None:
    ceremony, options = begin_registration(party)
    known = registered(ceremony, authenticator.register(options), party)
    (kept,) = authenticator.credentials()
    assert kept["isResidentCredential"]
    assert base64.b64decode(kept["userHandle"]) == USER.handle
    assert kept["rpId"] == "localhost"

    ceremony, options = begin_login(party)
    assertion = logged_in(ceremony, authenticator.sign_in(options), known, party)
    assert isinstance(assertion, Assertion)
    assert (assertion.credential_id, assertion.realm) == (known.credential_id, ROOM)
    assert assertion.sign_count > known.sign_count


def test_what_chromium_itself_writes_as_json_is_taken_too(
    party: RelyingParty, authenticator: VirtualAuthenticator
) -> None:
    by_itself = """
        const [options, how, parse] = args;
        return (await navigator.credentials[how]({ publicKey: PublicKeyCredential[parse](options) })).toJSON();
    """
    ceremony, options = begin_registration(party)
    credential = authenticator.browser.js_async(by_itself, options, "create", "parseCreationOptionsFromJSON")
    known = registered(ceremony, credential, party)
    ceremony, options = begin_login(party)
    credential = authenticator.browser.js_async(by_itself, options, "get", "parseRequestOptionsFromJSON")
    assert isinstance(logged_in(ceremony, credential, known, party), Assertion)


def test_device_that_has_a_passkey_makes_no_second(party: RelyingParty, authenticator: VirtualAuthenticator) -> None:
    ceremony, options = begin_registration(party)
    known = registered(ceremony, authenticator.register(options), party)
    again = creation_options(party, begin_registration(party)[0], USER, [known.credential_id])
    with pytest.raises(AssertionError, match="This device has a passkey for this already"):
        authenticator.register(again)


def test_unverified_user_gets_words_and_no_passkey(party: RelyingParty, authenticator: VirtualAuthenticator) -> None:
    authenticator.verify(False)
    with pytest.raises(AssertionError, match="No passkey was used: it was cancelled, or took too long"):
        authenticator.register(begin_registration(party)[1])
    assert authenticator.credentials() == []


def test_passkey_that_the_gateway_does_not_know_is_forgotten(
    party: RelyingParty, authenticator: VirtualAuthenticator
) -> None:
    authenticator.register(begin_registration(party)[1])
    ceremony, options = begin_login(party)
    credential = authenticator.sign_in(options)
    assert logged_in(ceremony, credential, None, party) is PasskeyFault.CREDENTIAL_UNKNOWN
    authenticator.call("forgetUnknown", options, credential)
    authenticator.browser.until(lambda: authenticator.credentials() == [], "the passkey is still there")


def test_browser_without_passkeys_is_told_what_it_needs(party: RelyingParty, anna: Browser) -> None:
    anna.open(party.origin.replace("localhost", "127.0.0.1"))
    anna.js("delete globalThis.PublicKeyCredential")
    body = "const {signIn} = await import('/passkey.js'); return signIn(args[0])"
    with pytest.raises(AssertionError, match="open the page over HTTPS"):
        anna.js_async(body, begin_login(party)[1])


# ---- a site on a subdomain of ours, which may name our relying party -------------------------------------------------


@pytest.fixture
def siblings(tmp_path: Path) -> Iterator[tuple[Browser, int]]:
    """A Chromium that finds `gw.test` and what is below it here, over TLS; and the port of both."""
    found = installed()
    assert found is not None
    pem = write_certificate(tmp_path)
    spki = x509.load_pem_x509_certificate(pem.read_bytes()).public_key()
    digest = hashlib.sha256(spki.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)).digest()
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(pem)
    flags = (
        "--host-resolver-rules=MAP gw.test 127.0.0.1, MAP *.gw.test 127.0.0.1",
        f"--ignore-certificate-errors-spki-list={base64.b64encode(digest).decode()}",
    )
    profile, downloads = tmp_path / "profile", tmp_path / "downloads"
    downloads.mkdir()
    with served(tls) as port, chromium(found, profile, downloads, *flags) as browser:
        yield browser, port


def test_site_on_a_subdomain_can_use_our_relying_party_and_is_refused(siblings: tuple[Browser, int]) -> None:
    browser, port = siblings
    party = RelyingParty.of(f"https://gw.test:{port}")
    browser.open(party.origin)
    authenticator = VirtualAuthenticator(browser)
    ceremony, options = begin_registration(party)
    known = registered(ceremony, authenticator.register(options), party)

    browser.open(f"https://x.gw.test:{port}")
    ceremony, options = begin_login(party)
    stolen = authenticator.sign_in(options)  # the browser lets it
    assert logged_in(ceremony, stolen, known, party) is PasskeyFault.WRONG_ORIGIN
    subdomain = RelyingParty(party.id, f"https://x.gw.test:{port}")
    assert isinstance(logged_in(ceremony, stolen, known, subdomain), Assertion), "all else about it was right"
    ceremony, options = begin_registration(party)
    assert register(party, ceremony, authenticator.register(options)) is PasskeyFault.WRONG_ORIGIN
