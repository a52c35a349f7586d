"""The code of `docs/how-to/embed-a-room.md` in a page of another origin than the gateway's."""

import re
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.browser.chromium import Browser
from tests.browser.gateway import Gateway, Space

PAGE = (Path(__file__).parent.parent.parent / "docs" / "how-to" / "embed-a-room.md").read_text()
PLAIN, SEALED, OWN_KEY = re.findall(r"```js\n(.*?)```", PAGE, re.DOTALL)
(HTML,) = re.findall(r"```html\n(.*?)```", PAGE, re.DOTALL)
OWN = "#" + "k" * 43
KEEP_SOCKETS = """
    window.sockets = [];
    window.WebSocket = class extends WebSocket { constructor(...all) { super(...all); sockets.push(this); } };
"""


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


class Site:
    """Pages of somebody else, on an address of its own."""

    def __init__(self, folder: Path, url: str) -> None:
        self._folder = folder
        self.url = url

    def put(self, name: str, text: str) -> None:
        (self._folder / name).write_text(text)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(tmp_path))) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield Site(tmp_path, f"http://127.0.0.1:{server.server_port}")
        server.shutdown()
        thread.join()


def open_plain_page(site: Site, gateway: Gateway, space: Space, browser: Browser) -> None:
    site.put("plain.js", PLAIN.replace("https://echo.example.org", gateway.url).replace("es_…", space.token))
    site.put("index.html", HTML.replace("<title>", '<link rel="icon" href="data:,"><title>'))
    browser.open(f"{site.url}/index.html")


def test_plain_page_of_another_origin_takes_part(site: Site, gateway: Gateway, space: Space, anna: Browser) -> None:
    space.put("topic", '"frost"')
    with space.join("ada") as ada:
        open_plain_page(site, gateway, space, anna)
        assert ada.next("join")["uid"] == "visitor"
        anna.shows("#messages li", "topic: frost")
        anna.fill("input", "hello from elsewhere")
        anna.click("button")
        assert ada.next()["data"] == {"text": "hello from elsewhere"}
        script = 'const { read, write } = await import("/plain.js"); await write("n", [1]); return read("n")'
        assert anna.js_async(script) == [1]
        ada.say({"text": "<b>welcome</b>"})
        anna.shows("#messages li", "ada: <b>welcome</b>")
    space.delete()
    anna.shows("#messages li", "room: has ended (4410)")


def test_plain_page_gets_what_it_missed_once_and_in_order(
    site: Site, gateway: Gateway, space: Space, anna: Browser
) -> None:
    space.put("topic", '"frost"')
    script = anna.cdp("Page.addScriptToEvaluateOnNewDocument", source=KEEP_SOCKETS)["identifier"]
    try:
        with space.join("ada") as ada:
            open_plain_page(site, gateway, space, anna)
            ada.next("join")
            ada.say({"text": "one"})
            anna.shows("#messages li", "ada: one")
            anna.js("sockets.at(-1).close(3000)")
            ada.say({"text": "two"})
            ada.say({"text": "three"})
            anna.shows("#messages li", "ada: three")
            ada.say({"text": "four"})
            anna.shows("#messages li", "ada: four")
            said = [text for text in anna.texts("#messages li") if text.startswith("ada")]
            assert said == ["ada: one", "ada: two", "ada: three", "ada: four"]
            assert "since=1" in anna.js("return sockets.at(-1).url")
    finally:
        anna.cdp("Page.removeScriptToEvaluateOnNewDocument", identifier=script)


def test_plain_page_reads_its_state_from_values_after_a_restart(site: Site, tmp_path: Path, anna: Browser) -> None:
    (folder := tmp_path / "gateway").mkdir()
    gateway = Gateway(folder)
    gateway.start()
    try:
        space = gateway.make()
        open_plain_page(site, gateway, space, anna)
        anna.shows("#messages li", "topic: none yet")
        space.put("topic", '"after the crash"')
        gateway.end()
        gateway.start()
        anna.shows("#messages li", "topic: after the crash")
    finally:
        anna.open("about:blank")
        gateway.end()
    anna.expect_in_console("404", "ERR_CONNECTION_REFUSED")


def test_modules_seal_and_open_in_a_page_of_another_origin(site: Site, gateway: Gateway, anna: Browser) -> None:
    space = gateway.make(encryption="on")
    for name in ("room.js", "seal.js"):
        status, module = gateway.ask("GET", f"/assets/{name}")
        assert status == 200
        site.put(name, module.decode())
    site.put("sealed.js", SEALED)
    site.put("own.js", OWN_KEY)
    site.put("index.html", '<!doctype html><link rel="icon" href="data:,"><title>x</title>')
    anna.open(f"{site.url}/index.html")
    enter = """
        const [base, token, fragment] = args;
        const { enter } = await import("/sealed.js"), { ownKey } = await import("/own.js");
        const heard = [];
        const ada = await enter(base, token, "ada", (uid, text) => heard.push(`${uid}: ${text}`));
        const bob = await enter(base, token, "bob", (uid, text) => heard.push(`${uid}: ${text}`));
        const until = async (condition) => {
          while (!condition()) await new Promise((done) => setTimeout(done, 20));
        };
        await until(() => ada.room.state === "open" && bob.room.state === "open");
        const ack = await ada.say("sealed hello");
        const written = await ada.write("plan", "meet at nine");
        const ours = await ownKey(fragment);
        const envelope = await ours.seal("between us");
        await bob.room.send(envelope);
        const read = [await bob.read("plan"), await ours.unseal(envelope)];
        await until(() => heard.length > 0);
        ada.room.close();
        bob.room.close();
        return { heard, delivered: ack.delivered, status: written.status, read };
    """
    assert anna.js_async(enter, gateway.url, space.token, OWN) == {
        "heard": ["ada: sealed hello"],
        "delivered": 1,
        "status": 201,
        "read": ["meet at nine", "between us"],
    }
