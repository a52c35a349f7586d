"""The suite's `authorization` command: it is a client, a Chromium is the browser, the owner of a room has the passkey.

The suite prints the address of a page and waits at its own; whoever drives the browser is started when it has. Without
`--client-id` the suite would leave the sign-in out, and what was left out counts as failed here.
"""

import re
import socket
from dataclasses import replace
from functools import partial
from pathlib import Path

import trio
from selenium.common.exceptions import WebDriverException

from actors.space.spaces import Opened
from gateway.main.server import Running
from tests.browser.chromium import Browser, chromium, installed
from tests.browser.passkey_page import VirtualAuthenticator
from tests.conformance.suite import Outcome, Suite

CLIENT_ID = "conformance"
CLICKS_MAX = 2  # one agrees; another where the page has to name what is granted instead
_PAGE = re.compile(rb"^(http\S+/oauth/authorize\?\S+)\s", re.MULTILINE)
_REGISTER = """
const [room, invite] = args;
const post = async (path, body) => {
  const headers = { "content-type": "application/json" };
  const answer = await fetch(`/api/s/${room}/iam/${path}`, { method: "POST", headers, body: JSON.stringify(body) });
  if (!answer.ok) throw new Error(`${path}: ${answer.status}`);
  return await answer.json();
};
const { ceremony, publicKey } = await post("options", { invite });
const credential = await (await import("/oauth/assets/passkey.js")).register(publicKey);
return (await post("members", { ceremony, credential, label: "Conformance" })).scope;
"""


async def check_sign_in(gateway: Running, room: Opened, suite: Suite, folder: Path) -> dict[str, Outcome]:
    """What became of its scenarios; those that it left out are not among them."""
    found = installed()
    if found is None:
        return {"authorization": Outcome(0, ("Chromium and chromedriver are needed",))}
    assert gateway.base is not None
    base, port = gateway.base(), _free_port()
    callback = f"http://127.0.0.1:{port}/callback"
    (folder / "downloads").mkdir(parents=True)
    with chromium(found, folder / "profile", folder / "downloads") as browser:
        await trio.to_thread.run_sync(_become_owner, browser, base, room)
        async with trio.open_nursery() as nursery:

            def saw(said: bytes) -> None:
                if nursery.child_tasks or (page := _PAGE.search(said)) is None:
                    return
                nursery.start_soon(trio.to_thread.run_sync, _agree, browser, page[1].decode(), callback)

            outcomes = await suite.check_authorization(
                f"{base}/oauth", CLIENT_ID, f"{base}/mcp", port, folder / "results", saw
            )
    return {name: _without_documents_of_clients(outcome) for name, outcome in outcomes.items()}


def _become_owner(browser: Browser, base: str, room: Opened) -> None:
    """Of a room that has no members yet: with its claim, and a passkey of this very browser."""
    VirtualAuthenticator(browser)
    browser.open(f"{base}/")
    assert browser.js_async(_REGISTER, room.token, room.claim) == "echo.full"


def _agree(browser: Browser, page: str, callback: str) -> None:
    browser.open(page)
    for _ in range(CLICKS_MAX):
        browser.click("#allow")
        browser.until(partial(_is_done, browser, callback), "the page waits for something")
        if browser.driver.current_url.startswith(callback):
            return


def _is_done(browser: Browser, callback: str) -> bool:
    """The client was reached, or the page offers something else than what was asked for."""
    try:
        return browser.driver.current_url.startswith(callback) or bool(browser.text("#offered").strip())
    except WebDriverException:  # on its way from one to the other
        return False


def _without_documents_of_clients(outcome: Outcome) -> Outcome:
    """A `client_id` that is a URL is never fetched (`docs/reference/oauth.md`), so none of their documents is read."""
    return replace(outcome, complaints=tuple(one for one in outcome.complaints if "metadata-cimd" not in one))


def _free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port
