"""What the operator gives in rooms of projects, driven: invites and tokens, recorded as everything of IAM is.

Each is told once, in the clear, and kept as a hash. What may be given is `operator_iam_rules.py`'s.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from actors.grants.grant_events import GrantIssued
from actors.grants.grants import Grant
from actors.space import operator_iam_rules
from actors.space.events import Space
from actors.space.iam import SpaceIam
from actors.space.iam_events import InviteIssued
from actors.space.iam_rules import Iam, IamDecision
from actors.space.iam_tokens import Invited
from actors.space.settings import SpaceSettings
from schemas.echo.errors import EchoError
from schemas.echo.names import CLAIM, IAM_ACCESS, SECRET_BYTES, credential, credential_hash


@dataclass(frozen=True, slots=True)
class GivenToken:
    """A new one, which nobody can be told again."""

    token_id: str
    access_token: str = field(repr=False)
    given_at_ms: int
    ends_ms: int


class OperatorIam:
    def __init__(
        self, iam: SpaceIam, settings: SpaceSettings, random: Callable[[int], bytes], new_id: Callable[[], str]
    ) -> None:
        self._iam = iam
        self._settings = settings
        self._random = random
        self._new_id = new_id

    async def invite(self, space_id: str, scopes: frozenset[str], ttl_s: int | None) -> Invited | EchoError:
        """For one new member."""
        text = credential(CLAIM, self._random(SECRET_BYTES))

        def decide(iam: Iam, space: Space, now_ms: int) -> IamDecision:
            return operator_iam_rules.invite(iam, space, credential_hash(text), scopes, ttl_s, self._settings, now_ms)

        decided = await self._iam.record(space_id, decide)
        if isinstance(decided, EchoError):
            return decided
        return Invited(text, next(event.ends_ms for event in decided if isinstance(event, InviteIssued)))

    async def give_token(
        self, space_id: str, scopes: frozenset[str], ttl_s: int | None, label: str
    ) -> GivenToken | EchoError:
        """An access token of nobody but itself, without a refresh token."""
        token_id, text = self._new_id().lower(), credential(IAM_ACCESS, self._random(SECRET_BYTES))

        def decide(iam: Iam, space: Space, now_ms: int) -> IamDecision:
            return operator_iam_rules.issue_token(
                iam, space, token_id, credential_hash(text), scopes, ttl_s, label, self._settings, now_ms
            )

        decided = await self._iam.record(space_id, decide)
        if isinstance(decided, EchoError):
            return decided
        issued = next(event for event in decided if isinstance(event, GrantIssued))
        return GivenToken(token_id, text, issued.at_ms, issued.access_ends_ms)

    def tokens(self, space_id: str) -> Sequence[Grant]:
        """Those that stand."""
        return self._iam.tokens(space_id)

    async def end_token(self, space_id: str, token_id: str) -> EchoError | None:
        """What it opened is closed at once."""

        def decide(iam: Iam, _space: Space, now_ms: int) -> IamDecision:
            return operator_iam_rules.end_token(iam, token_id, now_ms)

        decided = await self._iam.record(space_id, decide)
        return decided if isinstance(decided, EchoError) else None
