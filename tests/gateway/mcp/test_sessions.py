"""When a session of the handshake era is over, and whose it is."""

from dataclasses import dataclass

from gateway.main.session_kind import SessionLimits
from gateway.mcp.sessions import Sessions
from gateway.mcp.settings import McpSettings
from tests.gateway.mcp.test_methods import principal

SETTINGS = McpSettings(sessions_max=3, sessions_per_agent_max=2, session_idle_s_max=100)


def test_session_is_found_with_the_credential_that_opened_it_only() -> None:
    sessions, owner = Sessions(SETTINGS.session_limits), principal()
    assert sessions.admit(owner)
    session = sessions.begin("s", owner, 1000, 0)
    assert sessions.find("s", owner) is session
    assert sessions.find("s", principal()) is None
    assert sessions.find(None, owner) is None
    assert sessions.find("s", owner, "/mcp/flat") is None  # on another view its id is unknown


def test_idle_session_is_due_after_its_last_request_has_ended() -> None:
    sessions = Sessions(SETTINGS.session_limits)
    session = sessions.begin("s", principal(), 10_000, 0)
    assert sessions.due(99.9) == []
    assert sessions.due(100) == [session]
    session.requests = 1
    assert sessions.due(5000) == []
    session.requests, session.idle_since_s = 0, 5000
    assert sessions.due(5099) == []
    assert sessions.due(5100) == [session]


def test_session_is_due_with_the_end_of_its_token_whatever_is_under_way() -> None:
    sessions, owner = Sessions(SETTINGS.session_limits), principal()
    session = sessions.begin("s", owner, 50, 0)
    session.requests = 1
    assert sessions.due(49) == []
    assert sessions.due(50) == [session]
    other = sessions.begin("t", principal(), 1000, 0)
    sessions.revoke(other.owner.credential_id)
    assert sessions.due(0) == [other]


def test_sessions_are_bounded_for_one_agent_those_that_are_opening_too() -> None:
    sessions, agent = Sessions(SETTINGS.session_limits), principal()
    assert sessions.admit(agent)
    session = sessions.begin("a", agent, 1000, 0)
    assert sessions.admit(agent)
    assert not sessions.admit(agent)
    sessions.give_up(agent)
    assert sessions.admit(agent)
    sessions.end(session)
    sessions.end(session)
    assert sessions.admit(agent)
    assert not sessions.admit(agent)
    assert len(sessions) == 0


def test_same_sub_of_another_tenant_is_another_agent_and_all_are_bounded_together() -> None:
    sessions = Sessions(SETTINGS.session_limits)
    assert [sessions.admit(principal()) for _ in range(3)] == [True, True, False]
    assert [sessions.admit(principal("other")) for _ in range(2)] == [True, False]
    sessions.give_up(principal())
    assert sessions.admit(principal("other"))


@dataclass(frozen=True)
class Guest:
    space: str
    address: str
    expires_at_ms: int = 0

    @property
    def credential_id(self) -> str:
        return f"space:{self.space}"

    @property
    def accounts(self) -> tuple[str, str]:
        return self.space, self.address


def test_each_account_of_a_caller_has_its_own_limit() -> None:
    sessions = Sessions(SessionLimits(10, (2, 3), 100))
    assert [sessions.admit(Guest("a", "1")) for _ in range(3)] == [True, True, False]
    assert [sessions.admit(Guest("b", "1")) for _ in range(2)] == [True, False]  # of the address
    assert sessions.admit(Guest("1", "a"))  # a space is no address
    sessions.give_up(Guest("a", "1"))
    assert [sessions.admit(Guest("b", "1")) for _ in range(2)] == [True, False]
    assert sessions.admit(Guest("a", "2"))


def test_session_of_one_space_is_not_found_with_the_token_of_another() -> None:
    sessions = Sessions(SessionLimits(10, (2, 3), 100))
    session = sessions.begin("s", Guest("a", "1"), 1000, 0)
    assert sessions.find("s", Guest("a", "2")) is session  # the same token, from another address
    assert sessions.find("s", Guest("b", "1")) is None
    sessions.revoke("space:a")
    assert sessions.due(0) == [session]


def test_end_that_has_come_is_asked_for_once_more_and_no_other() -> None:
    sessions, owner, other = Sessions(SETTINGS.session_limits), principal(), principal()
    session, later = sessions.begin("s", owner, 50, 0), sessions.begin("t", other, 60, 0)
    asked: list[object] = []

    def until_s(caller: object) -> float:
        asked.append(caller)
        return 80

    sessions.prolong(49, until_s)
    assert asked == []
    sessions.prolong(50, until_s)
    assert asked == [owner]
    assert sessions.due(59) == []
    assert (session.expires_s, later.expires_s) == (80, 60)
    sessions.prolong(80, lambda _: 0.0)
    assert sessions.due(80) == [session, later]


class Asked:
    """A caller that counts how often it is asked who it is."""

    accounts = ("agent",)
    expires_at_ms = 0

    def __init__(self) -> None:
        self.times = 0

    @property
    def credential_id(self) -> str:
        self.times += 1
        return "somebody"


def test_end_of_a_credential_looks_at_no_session_of_another() -> None:
    """A space may end with 1,600 grants, while 10,000 sessions of others are open."""
    sessions, caller = Sessions(SETTINGS.session_limits), Asked()
    first, second = (sessions.begin(name, caller, 1000, 0) for name in "ab")
    asked = caller.times
    sessions.revoke("somebody else")
    assert caller.times == asked
    sessions.end(first)
    sessions.end(first)
    sessions.revoke("somebody")
    assert (first.revoked, second.revoked) == (False, True)
    sessions.end(second)
    sessions.revoke("somebody")
