"""Actions that other modules bring: they may wait, they know who asks, and their line tells how they ended."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import msgspec
import pytest
import structlog
import trio
from trio.testing import MockClock

from actors.node.fleet import Fleet
from actors.supervision.supervisor import Supervisor
from gateway.api.about import About
from gateway.api.actions import Actions, Declined, Done, Outcome
from gateway.calls.audit import Audit
from gateway.identity.operators import Operators
from gateway.identity.tokens import OperatorScope, Principal
from gateway.main.data_folder import DataFolder
from gateway.net.exchange import Exchange
from gateway.net.router import Router
from schemas.errors import Code
from tests.actors.node.harness import Gateway, now
from tests.gateway.api.client import new_id
from tests.gateway.api.operators import Operator


class _Wait(msgspec.Struct, frozen=True):
    does: bool


async def waits(request: _Wait, operator: Principal) -> Outcome:
    await trio.sleep(2)
    if request.does:
        return Done({"by": operator.sub}, {"waited_s": 2})
    return Declined("full", "The log takes no more.", "Make room.", Code.INTERNAL)


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[DataFolder]:
    with DataFolder.hold(tmp_path, 1_790_000_000_000) as held:
        yield held


@pytest.fixture
async def operator(folder: DataFolder, nursery: trio.Nursery) -> AsyncIterator[Operator]:
    supervisor = Supervisor()
    await nursery.start(supervisor.run)
    operator = Operator(folder, Fleet(supervisor, Gateway().services), [OperatorScope.FLEET_WRITE])
    operators = Operators(folder.verifier, now, folder.operators_since_ms)
    route = Actions(operators, Audit(now), now).action(
        "wait", OperatorScope.FLEET_WRITE, _Wait, waits, About("Wait.", None)
    )
    operator.client.app = Router(new_id, {"/admin/wait": (route.method, route.handler)})
    yield operator
    supervisor.request_stop()


@pytest.mark.parametrize(("does", "status", "decision"), [(True, 200, "answered"), (False, 500, "refused")])
async def test_action_that_waits_is_answered_and_audited_when_it_is_done(
    autojump_clock: MockClock, operator: Operator, does: bool, status: int, decision: str
) -> None:
    with structlog.testing.capture_logs() as lines:
        response = await operator.ask("POST", "/admin/wait", {"does": does})
    assert response.status == status
    assert not does or response.json == {"by": "ada"}
    (line,) = [line for line in lines if line["event"] == "operator_action"]
    assert (line["action"], line["decision"], line["took_ms"]) == ("wait", decision, 2000.0)
    assert line["target"] == ({"waited_s": 2} if does else None)


async def test_action_that_is_cancelled_while_it_waits_leaves_its_line(
    autojump_clock: MockClock, operator: Operator
) -> None:
    with structlog.testing.capture_logs() as lines, trio.move_on_after(1):
        await operator.ask("POST", "/admin/wait", {"does": True})
    assert [(line["action"], line["decision"]) for line in lines] == [("wait", "abandoned")]


async def test_look_whose_token_ends_while_it_looks_shows_nothing(
    autojump_clock: MockClock, operator: Operator, folder: DataFolder
) -> None:
    operators = Operators(folder.verifier, now, folder.operators_since_ms)

    async def look(_: Exchange) -> dict[str, str]:
        await trio.sleep(2)
        folder.verifier.revoke(operator.jti)
        return {"seen": "it"}

    route = Actions(operators, Audit(now), now).look(OperatorScope.FLEET_WRITE, look, About("Look.", None))
    operator.client.app = Router(new_id, {"/admin/look": (route.method, route.handler)})
    response = await operator.ask("GET", "/admin/look")
    assert (response.status, b"seen" in response.body) == (401, False)
