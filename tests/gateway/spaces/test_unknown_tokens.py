"""Unknown and ended tokens take the same way through the code, step by step, so that time tells nothing of them."""

import sys
from types import FrameType
from typing import Any

import pytest

from actors.space import space_rules
from actors.space.space_rules import Spaces
from schemas.echo.names import ROOM_TOKEN, credential
from tests.gateway.spaces.site import Site, site

OURS = ("gateway", "actors", "schemas")
UNKNOWN = credential(ROOM_TOKEN, bytes(32))


async def steps(here: Site, method: str, target: str) -> list[str]:
    """Every function of ours that is called on the way to the answer."""
    called: list[str] = []

    def note(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and frame.f_globals.get("__name__", "").partition(".")[0] in OURS:
            called.append(f"{frame.f_globals['__name__']}.{frame.f_code.co_qualname}")

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        answer = await here.ask(method, target)
    finally:
        sys.setprofile(before)
    assert answer.error == (404, "space_not_found")
    return called


@pytest.mark.parametrize("path", ["/api/s/{}/kv/k", "/api/s/{}/files", "/s/{}/prompt"])
async def test_unknown_ended_and_erased_tokens_take_the_same_steps(path: str) -> None:
    async with site() as here:
        erased = await here.make()
        answer = await here.ask("DELETE", f"/api/s/{erased['token']}", authorization=f"Bearer {erased['claim']}")
        assert answer.status == 204
        ended = await here.make(ttl_seconds="60")
        here.world.now_ms += 60_000  # over by the clock; nobody has swept it out
        await here.ask("GET", path.format("warm"))
        ways = [
            await steps(here, "GET", path.format(token)) for token in (UNKNOWN, ended["token"], erased["token"], "x")
        ]
        assert ways[0] == ways[1] == ways[2] == ways[3]
        assert "schemas.echo.names.credential_hash" in ways[0]


def test_a_token_is_hashed_before_anything_is_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    hashed: list[str] = []

    def note(token: str) -> bytes:
        hashed.append(token)
        return b"no hash of a space"

    monkeypatch.setattr(space_rules, "credential_hash", note)
    assert Spaces().find("es_guess", 0) is None
    assert hashed == ["es_guess"]
