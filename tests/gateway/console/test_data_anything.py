"""Whatever a page asks the console's data for: an answer, or a refusal in fixed words; never a fault of ours."""

import json
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
import structlog
import trio
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.gateway.api.client import AGENT
from tests.gateway.api.live import Answer, live_gateway
from tests.gateway.console.visitor import Visitor

PATIENCE_S = 20.0
NODE = "NODE"  # stands for the id of the node, which is not known until the gateway runs
NAMES = (
    "fleet", "node", "history", "streams", "agents", "agent", "policy", "policy/explain", "spaces", "upstreams",
    "engine", "audit",
)  # fmt: skip
FIELDS = (
    "text", "tags", "state", "tenant", "sort", "descending", "offset", "limit", "node_id", "after", "since", "sub",
    "agent", "tool", "cursor", "until", "before", "event", "node", "decision", "reason",
)  # fmt: skip
VALUES = (
    st.sampled_from((NODE, AGENT, "live", "name", "k=v", "24h", "2026-01-01", f"sysecho.{NODE}.echo.invoke", "01jv"))
    | st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=40)
    | st.lists(st.sampled_from(("site=lab", "", "k=v", "x")) | st.text(max_size=5), max_size=4)
    | st.dictionaries(st.text(max_size=5), st.integers(), max_size=2)
)
BODIES = st.dictionaries(st.sampled_from(FIELDS), VALUES, max_size=4)


class Here:
    """A gateway in a thread of its own, and somebody signed in to its console."""

    def __init__(self) -> None:
        self.began, self.stop = threading.Event(), trio.Event()
        self.token: trio.lowlevel.TrioToken | None = None
        self.visitor: Visitor | None = None
        self.node_id = ""
        self.logged: list[Any] = []

    async def live(self, folder: Any) -> None:
        self.stop = trio.Event()
        async with live_gateway(folder) as gateway:
            self.visitor, self.node_id = await Visitor.come(gateway), gateway.node_id
            self.token = trio.lowlevel.current_trio_token()
            self.began.set()
            await self.stop.wait()

    def ask(self, name: str, body: bytes) -> Answer:
        assert self.visitor is not None
        answer: Answer = self._do(partial(self.visitor.post, name, body))
        return answer

    def read_some(self, name: str, body: bytes) -> str:
        """The head of an answer that may have no end."""
        assert self.visitor is not None

        async def read() -> str:
            assert self.visitor is not None
            async with self.visitor.feed(name, body) as (head, _):
                return head

        head: str = self._do(read)
        return head

    def _do(self, work: Callable[[], Any]) -> Any:
        async def bounded() -> Any:
            with trio.fail_after(PATIENCE_S):
                return await work()

        return trio.from_thread.run(bounded, trio_token=self.token)


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Here]:
    one = Here()
    with structlog.testing.capture_logs() as logged:
        one.logged = logged
        thread = threading.Thread(target=trio.run, args=(one.live, tmp_path_factory.mktemp("gateway")))
        thread.start()
        assert one.began.wait(PATIENCE_S)
        assert one.token is not None
        yield one
        one.token.run_sync_soon(one.stop.set)
        thread.join(PATIENCE_S)
        assert not thread.is_alive()


MANY = settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def encoded(here: Here, body: Any) -> bytes:
    return json.dumps(body).replace(NODE, here.node_id).encode("utf-8", "surrogatepass")


@MANY
@given(name=st.sampled_from(NAMES), body=BODIES)
@example(name="policy/explain", body={"agent": AGENT, "tool": f"sysecho.{NODE}.echo.invoke"})
@example(name="history", body={"node_id": NODE, "after": 10**14})
@example(name="node", body={"node_id": "\ud800"})
def test_an_answer_or_a_refusal(here: Here, name: str, body: dict[str, Any]) -> None:
    answer = here.ask(name, encoded(here, body))
    assert answer.status in (200, 400, 404), answer
    assert not [line for line in here.logged if line["log_level"] == "error"]
    if answer.status != 200:
        texts = [text for text in body.values() if isinstance(text, str) and len(text) > 8 and text != AGENT]
        assert not any(text in answer.body.decode() for text in texts)


@settings(MANY, max_examples=100)
@given(
    name=st.sampled_from(("live", "audit/export")),
    body=BODIES | st.dictionaries(st.sampled_from(("fleet", "node", "audit")), BODIES | VALUES, max_size=3),
)
@example(name="live", body={"fleet": {"tags": ["x"]}})
@example(name="live", body={"node": NODE, "audit": {"agent": AGENT}, "fleet": {"limit": 500}})
def test_a_feed_or_a_refusal(here: Here, name: str, body: dict[str, Any]) -> None:
    head = here.read_some(name, encoded(here, body))
    assert head.split()[1] in ("200", "400", "404"), head
    assert not [line for line in here.logged if line["log_level"] == "error"]
