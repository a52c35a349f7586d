"""An empty page with the policy of ours and the module for passkeys, served by the test itself; and an authenticator.

There is no gateway: what Chromium makes of our options comes back to the test, which has the ceremony.
"""

import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from gateway.identity.passkeys.page_script import PASSKEY_SCRIPT
from tests.browser.chromium import Browser

PAGE = b"<!doctype html><html lang=en><title>Passkeys</title><link rel=icon href='data:,'><h1>Passkeys</h1></html>"
POLICY = "default-src 'none'; script-src 'self'; img-src data:; frame-ancestors 'none'"


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        is_script = self.path == "/passkey.js"
        content = PASSKEY_SCRIPT.read_bytes() if is_script else PAGE
        self.send_response(200)
        self.send_header("Content-Type", "text/javascript" if is_script else "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(content)))
        self.send_header("Content-Security-Policy", POLICY)
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Nothing."""


@contextmanager
def served(tls: ssl.SSLContext | None = None) -> Iterator[int]:
    """Its port on 127.0.0.1."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class VirtualAuthenticator:
    """In the device, with the finger of its owner always on it."""

    def __init__(self, browser: Browser) -> None:
        self.browser = browser
        browser.cdp("WebAuthn.enable")
        options = {
            "protocol": "ctap2",
            "transport": "internal",
            "hasResidentKey": True,
            "hasUserVerification": True,
            "isUserVerified": True,
            "automaticPresenceSimulation": True,
        }
        self.id: str = browser.cdp("WebAuthn.addVirtualAuthenticator", options=options)["authenticatorId"]

    def credentials(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.browser.cdp("WebAuthn.getCredentials", authenticatorId=self.id)[
            "credentials"
        ]
        return found

    def verify(self, is_verified: bool) -> None:
        self.browser.cdp("WebAuthn.setUserVerified", authenticatorId=self.id, isUserVerified=is_verified)

    def remove(self) -> None:
        self.browser.cdp("WebAuthn.removeVirtualAuthenticator", authenticatorId=self.id)
        self.browser.cdp("WebAuthn.disable")

    # ---- what pages do ----------------------------------------------------------------------------------------------

    def register(self, options: dict[str, Any]) -> Any:
        return self.call("register", options)

    def sign_in(self, options: dict[str, Any]) -> Any:
        return self.call("signIn", options)

    def call(self, name: str, *arguments: object) -> Any:
        body = "const [name, ...rest] = args; return (await import('/passkey.js'))[name](...rest)"
        return self.browser.js_async(body, name, *arguments)
