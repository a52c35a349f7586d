"""The console in pictures: a real gateway with the demo's nodes, as after some hours of use. `screenshots.py` runs it.

The nodes are named and tagged by an operator, agents call and listen, some calls are refused, one node never came.
"""

import http.client
import json
import random
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tests.browser.chromium import PHONE, Browser
from tests.processes.test_demo import Demo

NODES = 18
KINDS = ("pump", "valve", "boiler", "gate", "meter", "fan")
SITES = ("lab", "roof", "yard", "hall-2")
FLEET, NODE, AGENTS = (1280, 720), (1280, 900), (1280, 760)
LISTEN_S = 40  # until the charts of a node have something to show
WAVES, WAVE_S = (
    14,
    5,
)  # of the small lines of the fleet: half of the nodes are listened to for about so long, then others
FOLLOWED_S_MAX = 20  # until a changed policy is in force
TENANT = "demo"
POLICY = """
[[agents]]
agent = "{narrow}"
tools = ["*.*.*.snapshot"]
budget = 0.3

"""


class Fleet:
    """Operators and agents of a demo, over HTTP."""

    def __init__(self, demo: Demo) -> None:
        self.demo = demo
        self.random = random.Random(19)
        self.agents = [self._token(f"agent_{number:08x}-8d0b-4c57-9a55-0d6c1f4b7a10") for number in self._numbers()]

    def _numbers(self) -> list[int]:
        return [self.random.getrandbits(32) for _ in range(4)]

    def admin(self, path: str, **body: Any) -> Any:
        status, answer = self.demo.http(path, body, self.demo.ready["operator_token"])
        assert status == 200, answer
        return answer

    def _token(self, sub: str) -> tuple[str, str]:
        scopes = ["tools:call:read_only"]
        claims = {"token_class": "agent_runtime", "sub": sub, "tenant": TENANT, "scopes": scopes, "life_s": 3600}
        return sub, self.admin("/admin/mint", **claims)["token"]

    def furnish(self) -> None:
        for node_id in self.demo.ready["nodes"]:
            self.admin("/admin/node/rename", node=node_id, name=None)  # the demo has names of its own
        for number, node_id in enumerate(self.demo.ready["nodes"]):
            kind = KINDS[number % len(KINDS)]
            self.admin("/admin/node/rename", node=node_id, name=f"{kind}-{number // len(KINDS) + 1}")
            tags = {"site": SITES[number % len(SITES)], "row": str(number % 5 + 1)}
            self.admin("/admin/node/tag", node=node_id, set=tags)
        self.admin("/admin/enroll", tenant=TENANT, name="spare-1", tags={"site": "lab"})
        gone = self.admin("/admin/enroll", tenant=TENANT, name="old-pump", tags={"site": "yard"})
        self.admin("/admin/node/revoke", node=gone["node_id"])

    def call(self, rounds: int) -> None:
        """Everybody something, one of them more than it may."""
        for _ in range(rounds):
            for at, (_sub, token) in enumerate(self.agents):
                node_id = self.random.choice(self.demo.ready["nodes"])
                is_echo = self.random.random() < 0.5
                tool = f"sysecho.{node_id}.echo.invoke" if is_echo else f"sys.{node_id}.metrics.snapshot"
                arguments = {"message": "hello"} if is_echo else {}
                if self.random.random() < 0.2 + 0.25 * at:
                    self.demo.http("/mcp/tools/call", {"tool": tool, "arguments": arguments}, token)

    @contextmanager
    def listening(self, streams: Sequence[int]) -> Iterator[None]:
        """Telemetry streams on some of the nodes, by their numbers; of agents that may, which the last one may not."""
        address = urlsplit(self.demo.ready["http"])
        opened = []
        for at in streams:
            node_id, (_sub, token) = self.demo.ready["nodes"][at % NODES], self.agents[at % (len(self.agents) - 1)]
            connection = http.client.HTTPConnection(address.hostname or "", address.port, timeout=60)
            body = {
                "tool": f"sys.{node_id}.metrics.subscribe",
                "arguments": {"interval_ms": 1000},
            }
            headers = {"authorization": f"Bearer {token}", "accept": "text/event-stream"}
            connection.request("POST", "/mcp/tools/call", json.dumps(body), headers)
            opened.append(connection.sock)
            threading.Thread(target=_drain, args=(connection.getresponse(),), daemon=True).start()
        try:
            yield
        finally:
            for one in opened:
                one.shutdown(
                    socket.SHUT_RDWR
                )  # closing the connection leaves the answer open, which has the socket too


def _drain(answer: http.client.HTTPResponse) -> None:
    try:
        while answer.read1(65536):
            pass
    except (OSError, ValueError, AttributeError):
        return  # closed meanwhile


def narrow_policy(demo: Demo, agent: tuple[str, str]) -> None:
    """The first entry that matches an agent is its own; the gateway follows the file a moment later."""
    sub, token = agent
    file = demo.data / "demo-policy.toml"
    file.write_text(POLICY.format(narrow=sub).lstrip() + file.read_text())
    deadline = time.monotonic() + FOLLOWED_S_MAX
    while demo.http("/mcp/tools/call", {"tool": demo.echo, "arguments": {"message": "hello"}}, token)[0] == 200:
        assert time.monotonic() < deadline, "the gateway does not follow its policy"


def show_console(folder: Path, browser: Browser, take: Any) -> None:
    """`take(browser, name, size)` writes a picture."""
    folder.mkdir()
    demo = Demo(folder, nodes=NODES)
    try:
        fleet = Fleet(demo)
        fleet.furnish()
        narrow_policy(demo, fleet.agents[-1])
        with fleet.listening(range(0, 22, 2)):
            browser.open(demo.ready["console"])
            browser.one("#link[data-state=live]")
            browser.click(".offer button:last-child")
            fleet.call(60)
            begun = time.monotonic()
            browser.click(".nodes tbody tr:nth-child(9) a")
            browser.one(".charts canvas")
            browser.click("[data-tool*=echo] button")
            browser.fill(".try textarea", "Is anybody there?")
            browser.click(".try [type=submit]")
            browser.one(".outcome")
            time.sleep(max(0.0, LISTEN_S - (time.monotonic() - begun)))
            shoot_both(browser, "console-node", NODE, take)
            browser.click("#pages [data-page=agents]")
            browser.one("tbody tr")
            shoot_both(browser, "console-agents", AGENTS, take)
        browser.click("#pages [data-page=fleet]")
        browser.one(".nodes tbody tr")
        for _ in range(WAVES):
            with fleet.listening(fleet.random.sample(range(NODES), k=NODES // 2)):
                time.sleep(fleet.random.uniform(1, 2 * WAVE_S))
        shoot_both(browser, "console-fleet", FLEET, take)
        take(browser, "console-phone", PHONE)
    finally:
        demo.stop()


def shoot_both(browser: Browser, name: str, size: tuple[int, int], take: Any) -> None:
    browser.size(*size)
    for scheme in ("dark", "light"):
        browser.scheme(scheme)
        time.sleep(0.5)  # until its canvases are drawn
        take(browser, f"{name}-{scheme}", size)
