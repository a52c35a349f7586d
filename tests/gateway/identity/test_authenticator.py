"""One check for all routes: who gets in, what the others are told, and what the log learns of it."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import structlog
import trio

from gateway.identity.authenticator import FOR_AGENTS, FOR_OPERATORS, SPEAKER, Authenticator, NotAdmitted, RouteKind
from gateway.identity.tokens import OperatorScope, Principal, Scope, TokenClass, TokenFault, Verifier, key_id
from gateway.net.exchange import BODY_NOW, Exchange
from tests.actors.node.harness import now
from tests.gateway.api.client import AGENT, KEY, new_id, token

JTI = "01HZXC0000000000000000J007"
FOR_WRITERS = RouteKind(TokenClass.AGENT_RUNTIME, (Scope.REVERSIBLE, Scope.PHYSICAL_ACTUATION))


class Asking:
    """One request, and what it was answered."""

    def __init__(self, bearer: str | None, body_now: bytes | None = None) -> None:
        headers = [] if bearer is None else [(b"authorization", f"Bearer {bearer}".encode())]
        scope = {
            "type": "http", "method": "POST", "path": "/", "query_string": b"", "headers": headers,
            "extensions": {BODY_NOW: lambda: body_now},
        }  # fmt: skip
        self.sent: list[Any] = []
        self.before_body: Callable[[], None] = lambda: None
        self.exchange = Exchange(scope, self._receive, self._send, new_id)

    async def _receive(self) -> Any:
        await trio.lowlevel.checkpoint()
        self.before_body()
        return {"type": "http.request", "body": b"late", "more_body": False}

    async def _send(self, message: Any) -> None:
        await trio.lowlevel.checkpoint()
        self.sent.append(message)

    @property
    def challenge(self) -> tuple[int, bytes]:
        return self.sent[0]["status"], dict(self.sent[0]["headers"])[b"www-authenticate"]


@pytest.fixture
def verifier() -> Verifier:
    return Verifier({key_id(KEY.public_key()): KEY.public_key()}, issuer="test", audience="test")


def made(what: str) -> str | None:
    match what:
        case "missing":
            return None
        case "malformed":
            return "MARK"
        case "wrong_class":
            return token(token_class=TokenClass.OPERATOR, sub="MARK", scopes=list(OperatorScope))
        case "expired":
            return token(now_ms=now().wall_ms - 7_200_000)
        case _:
            return token(jti=JTI)


@pytest.mark.parametrize("fault", ["missing", "malformed", "wrong_class", "expired", "revoked"])
async def test_bad_token_is_401_and_its_line_says_why_without_its_text(verifier: Verifier, fault: str) -> None:
    verifier.revoke(JTI)
    bearer = made(fault)
    asking = Asking(bearer)
    with structlog.testing.capture_logs() as lines:
        assert await Authenticator(verifier, now, FOR_AGENTS).admit(asking.exchange) is None
    assert asking.challenge == (401, b'Bearer realm="heliograph"')
    (line,) = lines
    assert (line["event"], line["status"], line["reason"]) == ("request_refused", 401, fault)
    assert line["correlation_id"].encode() in asking.sent[1]["body"]
    assert b"A valid agent token is needed." in asking.sent[1]["body"]  # which check failed, only a guesser asks
    assert "MARK" not in str(lines)
    assert bearer is None or bearer not in str(lines)


async def test_operators_are_told_that_it_takes_an_operators_token(verifier: Verifier) -> None:
    asking = Asking(token())
    assert await Authenticator(verifier, now, FOR_OPERATORS).admit(asking.exchange) is None
    assert b"operator token" in asking.sent[1]["body"]


async def test_missing_scope_is_403_that_names_it_to_the_caller_and_to_the_log(verifier: Verifier) -> None:
    asking = Asking(token())
    with structlog.testing.capture_logs() as lines:
        assert await Authenticator(verifier, now, FOR_WRITERS).admit(asking.exchange) is None
    expected = b'Bearer realm="heliograph", error="insufficient_scope", scope="tools:call:reversible"'
    assert asking.challenge == (403, expected)
    assert [(line["status"], line["reason"], line["scope"]) for line in lines] == [(403, "scope", Scope.REVERSIBLE)]


async def test_one_of_the_scopes_is_enough(verifier: Verifier) -> None:
    asking = Asking(token(scopes=[Scope.PHYSICAL_ACTUATION]))
    principal = await Authenticator(verifier, now, FOR_WRITERS).admit(asking.exchange)
    assert isinstance(principal, Principal)
    assert (principal.sub, asking.sent) == (AGENT, [])


async def test_body_that_is_here_already_is_taken_at_once(verifier: Verifier) -> None:
    asking = Asking(token(), b"here")
    admitted = await Authenticator(verifier, now, FOR_AGENTS).admit_with_body(asking.exchange)
    assert admitted is not None
    assert admitted[1] == b"here"


async def test_token_that_ends_while_its_body_comes_is_not_admitted(verifier: Verifier) -> None:
    agents = Authenticator(verifier, now, FOR_AGENTS)
    asking = Asking(token(jti=JTI))
    assert await agents.admit_with_body(asking.exchange) is not None
    asking.before_body = lambda: verifier.revoke(JTI)
    assert await agents.admit_with_body(asking.exchange) is None
    assert asking.challenge[0] == 401
    assert agents.check(asking.exchange) == NotAdmitted(TokenFault.REVOKED)


# ---- sessions that speak for an operator -----------------------------------------------------------------------------

ADA = Principal("ada", "operators", TokenClass.OPERATOR, frozenset({OperatorScope.FLEET_READ}), JTI, 0, 2**50)


@pytest.mark.parametrize("spoken", [ADA, TokenFault.REVOKED])
async def test_session_speaks_for_an_operator_whatever_bearer_is_there(
    verifier: Verifier, spoken: Principal | TokenFault
) -> None:
    asking = Asking(token(token_class=TokenClass.OPERATOR, sub="bob", scopes=list(OperatorScope)))
    asking.exchange.scope["extensions"][SPEAKER] = lambda: spoken
    checked = Authenticator(verifier, now, FOR_OPERATORS).check(asking.exchange)
    assert checked == (spoken if isinstance(spoken, Principal) else NotAdmitted(TokenFault.REVOKED))


async def test_session_opens_nothing_of_another_class_or_scope(verifier: Verifier) -> None:
    asking = Asking(None)
    asking.exchange.scope["extensions"][SPEAKER] = lambda: replace(ADA, token_class=TokenClass.AGENT_RUNTIME)
    assert Authenticator(verifier, now, FOR_OPERATORS).check(asking.exchange) == NotAdmitted(TokenFault.WRONG_CLASS)
    asking.exchange.scope["extensions"][SPEAKER] = lambda: ADA
    writers = replace(FOR_OPERATORS, scopes=(OperatorScope.FLEET_WRITE,))
    assert Authenticator(verifier, now, writers).check(asking.exchange) == NotAdmitted(None, OperatorScope.FLEET_WRITE)


async def test_routes_of_agents_know_no_sessions(verifier: Verifier) -> None:
    asking = Asking(None)
    asking.exchange.scope["extensions"][SPEAKER] = lambda: replace(ADA, token_class=TokenClass.AGENT_RUNTIME)
    assert Authenticator(verifier, now, FOR_AGENTS).check(asking.exchange) == NotAdmitted(TokenFault.MISSING)
