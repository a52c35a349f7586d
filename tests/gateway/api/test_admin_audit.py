"""`GET /admin/audit` and `heliograph audit` of a whole gateway: who did what last week, and why it was allowed."""

import json
import threading
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio

from gateway.commands.audit_pages import Followed
from gateway.commands.cli import main
from gateway.identity.tokens import OperatorScope
from gateway.main.data_folder import DataFolder
from gateway.main.server import Running, running
from gateway.main.settings import load
from tests.gateway.api.test_admin_spaces import asked
from tests.gateway.spaces.test_live import ON

QUICK = {"audit.write_s": 0.0}


async def act(gateway: Running) -> None:
    """Three actions of an operator, and one that is refused."""
    for scopes in ((OperatorScope.FLEET_READ,), tuple(OperatorScope)):
        assert (await asked(gateway, "DELETE", "/admin/spaces/01jv0000000000000000000000", *scopes)).status in (
            403,
            404,
        )


async def lines(gateway: Running, query: str = "") -> list[dict[str, Any]]:
    answer = await asked(gateway, "GET", f"/admin/audit{query}", OperatorScope.FLEET_READ)
    assert answer.status == 200
    found: list[dict[str, Any]] = json.loads(answer.body)["lines"]
    return found


async def written(gateway: Running, count: int) -> list[dict[str, Any]]:
    """Once so many lines of operators are there."""
    with trio.fail_after(10):
        while len(found := await lines(gateway, "?event=operator_action")) < count:
            await trio.lowlevel.checkpoint()
    return found


async def test_actions_are_found_by_filter_newest_first(tmp_path: Path) -> None:
    async with running(load(None, {}, {"data": str(tmp_path), **ON, **QUICK})) as gateway:
        await act(gateway)
        newest, oldest = await written(gateway, 2)
        assert (newest["reason"], oldest["reason"]) == ("unknown_space", "scope")
        assert newest["id"] > oldest["id"]
        assert newest["at"].endswith("Z")
        assert await lines(gateway, "?reason=scope&agent=ada&since=1h") == [oldest]
        assert await lines(gateway, f"?after={oldest['id']}&event=operator_action") == [newest]
        assert await lines(gateway, "?until=1h") == []
        assert await lines(gateway, "?limit=1") == [newest]


@pytest.mark.parametrize(
    "query", ["?since=never", "?since=1h&since=2h", "?limit=x", "?colour=red", "?before=1&after=1"]
)
async def test_malformed_query_is_refused(tmp_path: Path, query: str) -> None:
    async with running(load(None, {}, {"data": str(tmp_path), **ON})) as gateway:
        answer = await asked(gateway, "GET", f"/admin/audit{query}")
    assert (answer.status, json.loads(answer.body)["code"]) == (400, "E_MANIFEST_INVALID")


async def test_audit_is_for_operators_who_may_read_the_fleet(tmp_path: Path) -> None:
    async with running(load(None, {}, {"data": str(tmp_path), **ON})) as gateway:
        assert (await asked(gateway, "GET", "/admin/audit", OperatorScope.SPEND_READ)).status == 403


async def test_commands_print_it_for_people_and_scripts_while_a_gateway_runs_and_after(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HELIOGRAPH_OPERATOR_TOKEN", raising=False)

    async def run(*more: str) -> tuple[int, str]:
        capsys.readouterr()
        code = await trio.to_thread.run_sync(main, ["audit", "--data", str(tmp_path), *more])
        return code, capsys.readouterr().out

    async with running(load(None, {}, {"data": str(tmp_path), **ON, **QUICK})) as gateway:
        await act(gateway)
        await written(gateway, 2)
        live = await run("--json", "--event", "operator_action")
        assert live[0] == 0
        assert [json.loads(line)["reason"] for line in live[1].splitlines()] == ["scope", "unknown_space"]
        assert await run("--json", "--lines", "1") == (0, live[1].splitlines()[1] + "\n")
        assert await run("--reason", "budget") == (1, "none\n")
    stopped = await run("--json", "--event", "operator_action", "--lines", "0")
    assert stopped == live
    code, told = await run()
    assert code == 0
    head, *rows = told.splitlines()
    assert head.split() == ["at", "event", "who", "what", "where", "decision", "reason", "price", "ms"]
    assert rows[0].split()[1:] == [
        "operator_action",
        "ada",
        "space_close",
        "-",
        "refused",
        "scope",
        "-",
        rows[0].split()[-1],
    ]
    assert (await run("--since", "never"))[0] == 2


async def test_following_looks_at_each_line_once_and_tells_those_that_match(tmp_path: Path) -> None:
    async with running(load(None, {}, {"data": str(tmp_path), **ON, **QUICK})) as gateway:
        await act(gateway)
        newest, _ = await written(gateway, 2)

        def made(reason: str) -> Followed:
            return Followed(tmp_path, {"reason": reason})

        scope, nothing = [await trio.to_thread.run_sync(made, reason) for reason in ("scope", "no_such_reason")]
        assert scope.through == nothing.through == newest["id"]
        assert await trio.to_thread.run_sync(scope.more) == []
        await act(gateway)
        last, refused, *_ = await written(gateway, 4)
        assert await trio.to_thread.run_sync(scope.more) == [refused]
        assert await trio.to_thread.run_sync(scope.more) == []
        assert await trio.to_thread.run_sync(nothing.more) == []
        assert scope.through == nothing.through == last["id"], "and not from the last match on"


async def test_following_a_stopped_gateway_does_not_keep_it_from_starting_and_goes_on_with_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HELIOGRAPH_OPERATOR_TOKEN", raising=False)
    async with running(load(None, {}, {"data": str(tmp_path), **ON, **QUICK})) as gateway:
        await act(gateway)
    held: list[Path] = []
    plain = DataFolder.hold.__func__  # type: ignore[attr-defined]

    def counted(cls: type[DataFolder], path: Path, *more: Any, **made: Any) -> Any:
        held.append(path)
        return plain(cls, path, *more, **made)

    looks = threading.Semaphore(0)
    go_on = threading.Semaphore(0)

    def pause(_: float) -> None:
        looks.release()
        assert go_on.acquire(timeout=10)
        if is_over:
            raise KeyboardInterrupt

    is_over = False
    monkeypatch.setattr("gateway.commands.audit.time.sleep", pause)
    async with trio.open_nursery() as nursery:
        run = partial(main, ["audit", "--data", str(tmp_path), "--follow", "--json", "--event", "operator_action"])

        async def follow() -> None:
            with suppress(KeyboardInterrupt):
                await trio.to_thread.run_sync(run)

        nursery.start_soon(follow)
        await trio.to_thread.run_sync(looks.acquire)
        monkeypatch.setattr(DataFolder, "hold", classmethod(counted))
        go_on.release()
        await trio.to_thread.run_sync(looks.acquire)
        assert held == []
        async with running(load(None, {}, {"data": str(tmp_path), **ON, **QUICK})) as gateway:
            await act(gateway)
            await written(gateway, 4)
            capsys.readouterr()
            go_on.release()
            await trio.to_thread.run_sync(looks.acquire)
            assert len(capsys.readouterr().out.splitlines()) == 2
        is_over = True
        go_on.release()


async def test_gateway_that_keeps_none_says_how_to_have_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async with running(load(None, {}, {"data": str(tmp_path), **ON, "audit.enabled": False})) as gateway:
        assert (await asked(gateway, "GET", "/admin/audit")).status == 404
        assert await trio.to_thread.run_sync(main, ["audit", "--data", str(tmp_path)]) == 2
    assert "[audit]" in capsys.readouterr().err
