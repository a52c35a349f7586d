"""Push messages for a browser that no push service reaches: the test answers `subscribe`, and DevTools deliver."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from typing import Any

from websockets.sync.client import connect

from tests.browser.chromium import PATIENCE_S, Browser
from tests.gateway.push import vendor

# In place of what asks the vendor's service. What it gives is a real subscription, of a browser that the test plays.
_STUB = """
    const made = %s;
    const unsubscribe = async () => (sessionStorage.removeItem("held"), true);
    window.asked = [];
    PushManager.prototype.getSubscription = async () =>
      sessionStorage.getItem("held") === null ? null : { ...made, toJSON: () => made, unsubscribe };
    PushManager.prototype.subscribe = async function (options) {
      window.asked.push(options);
      sessionStorage.setItem("held", "");
      return this.getSubscription();
    };
"""


@contextmanager
def subscribing_as(browser: Browser, person: vendor.Browser) -> Iterator[None]:
    """In pages that are opened meanwhile."""
    source = _STUB % json.dumps(person.subscription)
    script = browser.cdp("Page.addScriptToEvaluateOnNewDocument", source=source)["identifier"]
    try:
        yield
    finally:
        browser.cdp("Page.removeScriptToEvaluateOnNewDocument", identifier=script)
        browser.cdp("Browser.resetPermissions")


def allow_notifications(browser: Browser, origin: str) -> None:
    browser.cdp("Browser.grantPermissions", permissions=["notifications"], origin=origin)


def deliver(browser: Browser, scope: str, message: Any) -> None:
    """To the service worker with this scope, as if its push service had brought it, opened."""
    origin = "/".join(scope.split("/")[:3])
    browser.cdp("ServiceWorker.enable")
    browser.cdp(
        "ServiceWorker.deliverPushMessage",
        origin=origin,
        registrationId=_registration(browser, scope),
        data=json.dumps(message),
    )


def _registration(browser: Browser, scope: str) -> str:
    """Its id, which DevTools tell by an event; the driver passes none on, so they are asked directly."""
    address: str = browser.driver.capabilities["goog:chromeOptions"]["debuggerAddress"]
    http = HTTPConnection(address, timeout=PATIENCE_S)
    http.request("GET", "/json/list")
    (page,) = [one for one in json.loads(http.getresponse().read()) if one["type"] == "page"]
    http.close()
    with connect(page["webSocketDebuggerUrl"], open_timeout=PATIENCE_S, max_size=None) as devtools:
        devtools.send(json.dumps({"id": 1, "method": "ServiceWorker.enable"}))
        while True:
            told = json.loads(devtools.recv(timeout=PATIENCE_S))
            for one in told.get("params", {}).get("registrations", ()):
                if one["scopeURL"] == scope and not one["isDeleted"]:
                    found: str = one["registrationId"]
                    return found


def notifications(browser: Browser) -> list[Any]:
    """That the page's service workers show now."""
    shown = browser.js_async(
        """
        const registrations = await navigator.serviceWorker.getRegistrations();
        const lists = await Promise.all(registrations.map((one) => one.getNotifications()));
        return lists.flat().map(({ title, body, data }) => ({ title, body, data }));
        """
    )
    assert isinstance(shown, list)
    return shown


def forget_workers(browser: Browser) -> None:
    browser.js_async(
        """
        const registrations = await navigator.serviceWorker.getRegistrations();
        for (const one of registrations) {
          for (const shown of await one.getNotifications()) shown.close();
          await one.unregister();
        }
        """
    )
