"""A node that has gone live, and callers under way in tasks of their own."""

from typing import Any

import trio

from actors.bus.bus import Outcome
from tests.actors.node.harness import Gateway, ScriptedNode, now, until
from tests.schemas.examples import NODE_ID

ECHO = f"sysecho.{NODE_ID}.echo.invoke"
SUBSCRIBE = f"sys.{NODE_ID}.metrics.subscribe"


async def live(gateway: Gateway, nursery: trio.Nursery, **resume: Any) -> ScriptedNode:
    node = ScriptedNode.alone(gateway)
    nursery.start_soon(node.actor.run)
    await node.go_live(**resume)
    return node


class Caller:
    """A call under way in a task of its own."""

    def __init__(self, node: ScriptedNode, nursery: trio.Nursery, message: str = "ping", tool: str = ECHO) -> None:
        self.outcome: Outcome | None = None
        self.scope = trio.CancelScope()
        self._node, self._message, self._tool = node, message, tool
        nursery.start_soon(self._run)

    async def _run(self) -> None:
        with self.scope:
            self.outcome = await self._node.actor.call(
                self._tool,
                {"message": self._message},
                sub="agent_x",
                tenant="acme",
                deadline_at_ms=now().wall_ms + 5000,
            )

    async def answer(self) -> Outcome:
        await until(lambda: self.outcome is not None)
        assert self.outcome is not None
        return self.outcome
