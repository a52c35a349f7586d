"""The code of `docs/how-to/notify-people.md` in Chromium: a page subscribes, its worker shows what was pushed."""

import json
import re
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tests.browser.chromium import Browser
from tests.browser.gateway import Gateway, Space
from tests.browser.push_events import (
    allow_notifications,
    deliver,
    forget_workers,
    notifications,
    subscribing_as,
)
from tests.browser.push_gateway import HOST, PushGateway, push_gateway
from tests.browser.room import Room
from tests.browser.test_embedding import Site
from tests.browser.test_embedding import site as site
from tests.gateway.push import vendor
from tests.gateway.push.test_vapid import PUBLIC

PAGE = (Path(__file__).parent.parent.parent / "docs" / "how-to" / "notify-people.md").read_text()
WORKER, MODULE = re.findall(r"```js\n(.*?)```", PAGE, re.DOTALL)
(SENT,) = re.findall(r"-d '(\{.*?\})'", PAGE)
FORM = {"Content-Type": "application/x-www-form-urlencoded", "Accept": "application/json"}
(ANSWER,) = re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)


def post(gateway: PushGateway, path: str, body: str = "", **headers: str) -> Any:
    address = urlsplit(gateway.url)
    connection = HTTPConnection("127.0.0.1", address.port or 80, timeout=60)
    connection.request("POST", path, body, {"Content-Type": "application/json", **headers})
    answer = json.loads(connection.getresponse().read())
    connection.close()
    return answer


def test_page_of_another_origin_subscribes_and_its_worker_shows_what_was_pushed(
    site: Site, tmp_path: Path, anna: Browser
) -> None:
    (folder := tmp_path / "gateway").mkdir()
    ada = vendor.Browser("/ada", HOST)
    with push_gateway(folder) as gateway, subscribing_as(anna, ada):
        token = post(gateway, "/spaces", **FORM)["token"]
        site.put("push-worker.js", WORKER)
        site.put("notify-me.js", MODULE.replace("https://echo.example.org", gateway.url).replace("es_…", token))
        site.put("index.html", '<!doctype html><link rel="icon" href="data:,"><title>x</title>')
        allow_notifications(anna, site.url)
        anna.open(f"{site.url}/index.html")
        asked = anna.js_async(
            """
            const { notifyMe } = await import("/notify-me.js");
            await notifyMe("ada", ["lobby"]);
            return window.asked;
            """
        )
        assert asked == [{"userVisibleOnly": True, "applicationServerKey": PUBLIC}]

        notify = f"/api/s/{token}/push/notify"
        assert post(gateway, notify, SENT) == json.loads(ANSWER)
        (pushed,) = ada.got(gateway.vendor)
        deliver(anna, f"{site.url}/", pushed)
        shown = anna.until(lambda: notifications(anna), "no notification is shown")
        assert shown == [{"title": "Frost", "body": "Minus four by the door.", "data": {"path": "/readings"}}]

        anna.js_async('const { notifyMeNoMore } = await import("/notify-me.js"); await notifyMeNoMore();')
        assert anna.js("return sessionStorage.length") == 0
        assert post(gateway, notify, SENT)["attempted"] == 0
        forget_workers(anna)


def test_page_of_a_room_has_a_switch_for_notifications_on_this_device(tmp_path: Path, anna: Browser) -> None:
    ada, frost = vendor.Browser("/ada", HOST), {"title": "Frost", "body": "<b>Minus four</b>"}
    with push_gateway(tmp_path) as gateway, subscribing_as(anna, ada):
        made = post(gateway, "/spaces", **FORM)
        notify = f"/api/s/{made['token']}/push/notify"

        def told(**address: str) -> int:
            attempted: int = post(gateway, notify, json.dumps({**frost, **address}))["attempted"]
            return attempted

        allow_notifications(anna, gateway.url)
        room = Room(anna, f"{gateway.url}/s/{made['token']}")
        anna.shows("#notify-me", "Notify me on this device")
        room.join("lobby")
        anna.click("#notify-me")
        anna.shows("#notify-me", "Stop notifications on this device")
        assert anna.js("return window.asked") == [{"userVisibleOnly": True, "applicationServerKey": PUBLIC}]
        assert [told(), told(tuid=room.uid), told(sub="lobby"), told(tuid="nobody")] == [1, 1, 1, 0]

        pushed = ada.got(gateway.vendor)[0]
        deliver(anna, f"{gateway.url}/assets/push/{made['token']}/", pushed)
        shown = anna.until(lambda: notifications(anna), "no notification is shown")
        assert shown == [{"title": "Frost", "body": "<b>Minus four</b>", "data": None}]

        room.rename("ada")  # the gateway is told
        anna.until(lambda: told(tuid="ada") == 1, "the gateway knows the old name")
        anna.driver.refresh()
        anna.shows("#notify-me", "Stop notifications on this device")
        anna.click("#notify-me")
        anna.shows("#notify-me", "Notify me on this device")
        assert told() == 0
        assert anna.js_async("return (await navigator.serviceWorker.getRegistrations()).length") == 0


def test_page_of_a_room_has_no_switch_where_push_is_not_configured(space: Space, anna: Browser) -> None:
    Room(anna, space.url)
    assert anna.all("#notify-me") == []


def test_page_says_what_the_gateway_says(site: Site, anna: Browser, gateway: Gateway) -> None:
    """The gateway of the other tests has no keys."""
    token = gateway.make().token
    site.put("push-worker.js", WORKER)
    site.put("notify-me.js", MODULE.replace("https://echo.example.org", gateway.url).replace("es_…", token))
    site.put("index.html", '<!doctype html><link rel="icon" href="data:,"><title>x</title>')
    anna.open(f"{site.url}/index.html")
    said = anna.js_async(
        """
        const { notifyMe } = await import("/notify-me.js");
        return notifyMe("ada").then(() => "subscribed", (error) => error.message);
        """
    )
    assert said == "This instance does not offer Web Push."
    forget_workers(anna)
    anna.expect_in_console("503")
